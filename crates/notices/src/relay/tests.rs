//! A relay that does what none should, against the way a mail is handed over.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream as Peer};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// Waits that no test exceeds, however busy the machine is.
const AMPLE: Patience = Patience {
    connect: Duration::from_secs(10),
    command: Duration::from_secs(10),
    message: Duration::from_secs(10),
    whole: Duration::from_secs(15),
    quit: Duration::from_secs(1),
};
/// Waits for relays that never answer.
const SHORT: Patience = Patience {
    command: Duration::from_secs(1),
    message: Duration::from_secs(1),
    ..AMPLE
};
/// More than a test waits for anything.
const LONG: Duration = Duration::from_secs(20);

/// What a relay does at a step.
#[derive(Clone, Copy, Debug)]
enum Does {
    Says(&'static str),
    /// Nothing, with the connection open.
    Waits,
    Leaves,
    /// Sends one line without end.
    Floods,
    /// Sends lines of one answer without end.
    Continues,
    /// Sends an answer byte by byte, each in time.
    Drips,
}

/// A relay that takes every mail, but for the step that begins with `at`; `""` is the greeting and `.` the mail's end. Every line
/// that it reads goes to the receiver.
fn relay(at: &'static str, does: Does) -> (u16, mpsc::Receiver<String>) {
    relay_with(
        "250-relay\r\n250-STARTTLS\r\n250 AUTH LOGIN PLAIN",
        at,
        does,
    )
}

fn relay_with(hello: &'static str, at: &'static str, does: Does) -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (lines, read) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((peer, _)) = listener.accept() {
            let _ = serve(peer, hello, at, does, &lines);
        }
    });
    (port, read)
}

fn serve(
    mut peer: Peer,
    hello: &str,
    at: &str,
    does: Does,
    lines: &mpsc::Sender<String>,
) -> std::io::Result<()> {
    peer.set_nodelay(true)?;
    let mut reader = BufReader::new(peer.try_clone()?);
    let mut say = |step: &str, usual: &str| -> std::io::Result<bool> {
        let ours = if at.is_empty() {
            step.is_empty()
        } else {
            step.starts_with(at)
        };
        if !ours {
            return write!(peer, "{usual}\r\n").map(|()| true);
        }
        match does {
            Does::Says(text) => write!(peer, "{text}\r\n").map(|()| true),
            Does::Waits => {
                std::thread::sleep(LONG);
                Ok(false)
            }
            Does::Leaves => Ok(false),
            Does::Floods => loop {
                peer.write_all(&[b'2'; 4096])?;
            },
            Does::Continues => loop {
                peer.write_all(b"250-more\r\n")?;
            },
            Does::Drips => loop {
                peer.write_all(b"2")?;
                std::thread::sleep(Duration::from_millis(100));
            },
        }
    };
    if !say("", "220 relay")? {
        return Ok(());
    }
    let (mut data, mut asked) = (false, 0);
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // TLS, of which this relay knows nothing.
            Err(_) => std::thread::sleep(LONG),
        }
        let line = line.trim_end_matches("\r\n").to_owned();
        let usual = match line.get(..4) {
            _ if data && line != "." => "",
            _ if data => "250 taken",
            Some("EHLO") => hello,
            Some("STAR") => "220 go",
            Some("DATA") => "354 go",
            _ if line == "AUTH LOGIN" || asked == 1 => {
                asked += 1;
                "334 go"
            }
            Some("AUTH") => "235 in",
            _ if asked == 2 => {
                asked = 0;
                "235 in"
            }
            Some("QUIT") => "221 bye",
            _ => "250 fine",
        };
        let _ = lines.send(line.clone());
        data = line == "DATA" || (data && line != ".");
        if !usual.is_empty() && !say(&line, usual)? {
            return Ok(());
        }
    }
}

fn to(port: u16) -> Relay {
    Relay {
        host: "127.0.0.1".to_owned(),
        port,
        from: "cordon@example.org".to_owned(),
        protection: Protection::None,
        login: None,
        patience: AMPLE,
    }
}

fn nobody_trusted() -> Tls {
    Tls {
        connector: connector(RootCertStore::empty()).unwrap(),
        name: ServerName::try_from("127.0.0.1").unwrap(),
    }
}

async fn send(relay: &Relay) -> Result<Taken, SendError> {
    let text = "Subject: x\r\n\r\n.\r\n..two\r\nlast\r\n";
    relay.send("ana@example.org", text).await
}

fn name(sent: &Result<Taken, SendError>) -> &'static str {
    match sent {
        Ok(_) => "taken",
        Err(SendError::Refused(_)) => "refused",
        Err(SendError::Deferred(_)) => "deferred",
        Err(SendError::Broken(_)) => "broken",
        Err(SendError::Relay(_)) => "relay",
    }
}

#[tokio::test]
async fn relay_that_falls_silent_anywhere_is_left_in_time() {
    let started = Instant::now();
    let mut cases = tokio::task::JoinSet::new();
    let mut case = |relay: Relay, outcome: &'static str, what: String| {
        cases.spawn(async move { assert_eq!(name(&send(&relay).await), outcome, "{what}") });
    };
    for does in [Does::Waits, Does::Drips, Does::Leaves] {
        for (at, outcome) in [
            ("", "relay"),
            ("EHLO", "relay"),
            ("MAIL", "relay"),
            ("RCPT", "broken"),
            ("DATA", "broken"),
            (".", "broken"),
        ] {
            let silent = Relay {
                patience: SHORT,
                ..to(relay(at, does).0)
            };
            case(silent, outcome, format!("{does:?} at {at:?}"));
        }
    }
    // In the TLS handshake, from the first byte and after STARTTLS.
    for protection in [
        Protection::Wrapped(nobody_trusted()),
        Protection::Starttls(nobody_trusted()),
    ] {
        let at = if matches!(protection, Protection::Wrapped(_)) {
            ""
        } else {
            "x"
        };
        let silent = Relay {
            patience: SHORT,
            protection,
            ..to(relay(at, Does::Waits).0)
        };
        case(silent, "relay", "TLS".to_owned());
    }
    // All waits together have an end as well.
    let whole = Duration::from_secs(1);
    let silent = Relay {
        patience: Patience { whole, ..AMPLE },
        ..to(relay("RCPT", Does::Waits).0)
    };
    case(silent, "broken", "whole".to_owned());
    while let Some(done) = cases.join_next().await {
        done.unwrap();
    }
    assert!(started.elapsed() < AMPLE.command);
}

#[tokio::test]
async fn mail_is_taken_before_quit_and_quit_is_not_waited_for() {
    for does in [
        Does::Waits,
        Does::Floods,
        Does::Leaves,
        Does::Says("550 no"),
    ] {
        let (port, _lines) = relay("QUIT", does);
        let taken = send(&to(port)).await.expect("the mail is taken");
        let end = tokio::time::timeout(AMPLE.command, taken.end());
        end.await.expect("an end");
    }
}

#[tokio::test]
async fn answers_without_end_are_cut_off() {
    for does in [Does::Floods, Does::Continues] {
        for at in ["", "EHLO", "RCPT", "."] {
            let (port, _lines) = relay(at, does);
            let Err(error) = send(&to(port)).await else {
                panic!("{does:?} at {at:?} is taken")
            };
            // By its length and not by its time.
            let said = format!("{error:?}");
            assert!(said.contains("has more than"), "{does:?} at {at:?}: {said}");
        }
    }
}

#[tokio::test]
async fn what_comes_behind_the_answer_to_starttls_is_no_answer() {
    let (port, lines) = relay("STARTTLS", Does::Says("220 go\r\n250 fine"));
    let relay = Relay {
        protection: Protection::Starttls(nobody_trusted()),
        ..to(port)
    };
    let Err(SendError::Relay(said)) = send(&relay).await else {
        panic!("the session goes on")
    };
    assert!(said.contains("between its answer to STARTTLS"), "{said}");
    drop(relay);
    let lines: Vec<String> = lines.try_iter().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[tokio::test]
async fn relay_without_starttls_gets_neither_login_nor_mail() {
    let (port, lines) = relay_with("250-relay\r\n250 AUTH PLAIN", "x", Does::Waits);
    let relay = Relay {
        protection: Protection::Starttls(nobody_trusted()),
        login: Some(login()),
        ..to(port)
    };
    assert_eq!(name(&send(&relay).await), "relay");
    assert_eq!(lines.try_iter().count(), 1);
}

#[tokio::test]
async fn answer_concerns_the_recipient_from_rcpt_on_and_the_relay_before() {
    for (at, later, never) in [
        ("", "relay", "relay"),
        ("EHLO", "relay", "relay"),
        ("AUTH", "relay", "relay"),
        ("MAIL", "relay", "relay"),
        ("RCPT", "deferred", "refused"),
        ("DATA", "deferred", "refused"),
        (".", "deferred", "refused"),
    ] {
        for (says, outcome) in [
            ("421 4.3.2 away", later),
            ("450 4.2.1 busy", later),
            ("452 4.3.1 full", later),
            ("535 5.7.8 wrong", never),
            ("550 5.7.1 not you", never),
            ("553 5.1.8 not this", never),
            ("554 5.7.1 Relay access denied", never),
        ] {
            let (port, _lines) = relay(at, Does::Says(says));
            let relay = Relay {
                login: Some(login()),
                ..to(port)
            };
            assert_eq!(name(&send(&relay).await), outcome, "{says} at {at:?}");
        }
    }
}

#[tokio::test]
async fn answer_that_is_none_is_nobodys_refusal() {
    for says in [
        "",
        "5",
        "55",
        "550x",
        "5z0 no",
        "099 no",
        "999 no",
        "250-a\r\n550 b",
        "\u{e4} no",
    ] {
        let (port, _lines) = relay("RCPT", Does::Says(says));
        assert_eq!(name(&send(&to(port)).await), "broken", "{says:?}");
        let (port, _lines) = relay("MAIL", Does::Says(says));
        assert_eq!(name(&send(&to(port)).await), "relay", "{says:?}");
    }
}

#[tokio::test]
async fn answer_reaches_terminal_and_log_as_one_line_of_text() {
    let said = "550-\u{1b}[2J\u{7}\r\n550-\u{202e}RTL\r\n550 last\r";
    let (port, _lines) = relay("RCPT", Does::Says(said));
    let Err(SendError::Refused(said)) = send(&to(port)).await else {
        panic!("no refusal")
    };
    assert!(said.ends_with("with 550 ?[2J?; ???RTL; last?"), "{said}");
}

#[tokio::test]
async fn mail_arrives_as_written_by_both_ways_to_log_in() {
    let plain: &[&str] = &["AUTH PLAIN AHVzZXIAcGFzcw=="];
    let login_lines: &[&str] = &["AUTH LOGIN", "dXNlcg==", "cGFzcw=="];
    for (hello, auth) in [
        ("250-relay\r\n250 AUTH LOGIN PLAIN", plain),
        ("250-relay\r\n250 auth login", login_lines),
    ] {
        let (port, lines) = relay_with(hello, "x", Does::Waits);
        let relay = Relay {
            login: Some(login()),
            ..to(port)
        };
        assert_eq!(name(&send(&relay).await), "taken");
        let lines: Vec<String> = lines.try_iter().collect();
        let mail: &[&str] = &[
            "MAIL FROM:<cordon@example.org>",
            "RCPT TO:<ana@example.org>",
            "DATA",
            "Subject: x",
            "",
            "..",
            "...two",
            "last",
            ".",
        ];
        assert_eq!(lines[0], "EHLO [127.0.0.1]");
        assert_eq!(lines[1..], [auth, mail].concat());
    }
}

#[tokio::test]
async fn recipient_that_is_no_address_is_refused_without_the_relay() {
    let (port, lines) = relay("x", Does::Waits);
    let sent = to(port).send("a@b.org>\r\nRCPT TO:<c@d.org", "x\r\n").await;
    assert_eq!(name(&sent), "refused");
    assert_eq!(lines.try_iter().count(), 0);
}

fn login() -> Login {
    Login {
        user: "user".to_owned(),
        password: Zeroizing::new("pass".to_owned()),
    }
}

#[test]
fn password_is_one_line_that_nobody_else_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    for (text, mode, taken) in [
        ("word", 0o600, true),
        ("two words\r\n", 0o400, true),
        ("", 0o600, false),
        ("\n", 0o600, false),
        ("one\ntwo\n", 0o600, false),
        ("nul\0", 0o600, false),
        ("word", 0o640, false),
        ("word", 0o666, false),
    ] {
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(password(&path).is_ok(), taken, "{text:?} {mode:o}");
    }
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    for other in [&pipe, Path::new("/dev/zero")] {
        assert!(password(other).is_err());
        assert!(tls("localhost", other).is_err());
    }
}
