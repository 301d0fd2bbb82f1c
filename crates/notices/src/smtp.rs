//! Client's side of an SMTP session (RFC 5321) for one mail to one recipient.
//!
//! Before TLS, an attacker on the path can speak for the relay. So every line, every answer and all answers together are
//! bounded before they are read, and each wait has an end.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

/// Bytes of a line of an answer at most; RFC 5321, 4.5.3.1.5, has 512.
const LINE: usize = 2 << 10;
/// Lines of an answer at most.
const LINES: usize = 64;
/// Bytes of all answers of a session at most.
const SESSION: usize = 64 << 10;
/// Characters of an answer that are shown to people.
const SHOWN: usize = 300;

/// Longest waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a connection to one address of the relay.
    pub(crate) connect: Duration,
    /// For the answer to a command, and for a TLS handshake.
    pub(crate) command: Duration,
    /// For the answer to the mail itself, which relays may examine first.
    pub(crate) message: Duration,
    /// For everything until the mail is taken.
    pub(crate) whole: Duration,
    /// For the answer to QUIT, which changes nothing.
    pub(crate) quit: Duration,
}

/// What went wrong: the relay's answer, or something that is none.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Code of the answer.
    pub(crate) code: Option<u16>,
    /// Text for people, in ASCII without control characters.
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code: None, text }
    }
}

/// What a session runs over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An answer of the relay.
struct Answer {
    code: u16,
    lines: Vec<String>,
}

impl Answer {
    /// Extensions that an answer to EHLO offers, as it spells them.
    fn offers(&self, wanted: &str) -> bool {
        self.offer(wanted).is_some()
    }

    /// Parameters of an extension that an answer to EHLO offers.
    fn offer(&self, wanted: &str) -> Option<&str> {
        self.lines.iter().skip(1).find_map(|line| {
            let (name, parameters) = line.split_once(' ').unwrap_or((line, ""));
            name.eq_ignore_ascii_case(wanted).then_some(parameters)
        })
    }
}

/// Name and password for the relay.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Zeroizing<String>,
}

/// A session with the relay.
pub(crate) struct Session {
    stream: Box<dyn Stream>,
    /// What came and was not looked at yet: never more than a line may have.
    ahead: Vec<u8>,
    /// Bytes that the relay may still send.
    left: usize,
    patience: Patience,
    deadline: Instant,
}

impl Session {
    /// A session over a connection that was just made; everything until the mail is taken ends with `deadline`.
    pub(crate) fn over(
        stream: impl Stream + 'static,
        patience: Patience,
        deadline: Instant,
    ) -> Self {
        Self {
            stream: Box::new(stream),
            ahead: Vec::new(),
            left: SESSION,
            patience,
            deadline,
        }
    }

    /// Continues under TLS.
    pub(crate) async fn secure(
        self,
        connector: &TlsConnector,
        name: ServerName<'static>,
    ) -> Result<Self, Fault> {
        // RFC 3207, section 4.2: discard all that came before. Text behind the answer to STARTTLS may be an attacker's on the
        // path, and would be read as if TLS had protected it.
        if !self.ahead.is_empty() {
            return Err(Fault::new(
                "the relay sent text between its answer to STARTTLS and TLS",
            ));
        }
        let handshake = connector.connect(name, self.stream);
        let until = self.deadline.min(Instant::now() + self.patience.command);
        let stream = match timeout_at(until, handshake).await {
            Ok(Ok(stream)) => Box::new(stream),
            Ok(Err(error)) => return Err(Fault::new(format!("TLS with the relay: {error}"))),
            Err(_) => return Err(Fault::new("the relay did not finish the TLS handshake")),
        };
        Ok(Self { stream, ..self })
    }

    /// Reads the greeting.
    pub(crate) async fn greeting(&mut self) -> Result<(), Fault> {
        let until = self.deadline.min(Instant::now() + self.patience.command);
        let greeting = self.answer_until(until, "the greeting").await?;
        expect(greeting, "the greeting", 220).map(drop)
    }

    /// Says EHLO and, if `starttls` demands it, that TLS comes next.
    pub(crate) async fn ask_for_tls(&mut self, hello: &str) -> Result<(), Fault> {
        let offers = self.command(&format!("EHLO {hello}"), "EHLO", 250).await?;
        if !offers.offers("STARTTLS") {
            return Err(Fault::new("the relay does not offer STARTTLS"));
        }
        self.command("STARTTLS", "STARTTLS", 220).await.map(drop)
    }

    /// Says EHLO and logs in.
    pub(crate) async fn begin(&mut self, hello: &str, login: Option<&Login>) -> Result<(), Fault> {
        let offers = self.command(&format!("EHLO {hello}"), "EHLO", 250).await?;
        let Some(login) = login else {
            return Ok(());
        };
        let mechanisms = offers.offer("AUTH").unwrap_or_default().to_owned();
        let has = |wanted: &str| {
            let mut all = mechanisms.split_ascii_whitespace();
            all.any(|one| one.eq_ignore_ascii_case(wanted))
        };
        let encoded = |text: &[u8]| Zeroizing::new(STANDARD.encode(text));
        if has("PLAIN") {
            let plain = Zeroizing::new(format!("\0{}\0{}", login.user, login.password.as_str()));
            let line = Zeroizing::new(format!("AUTH PLAIN {}", *encoded(plain.as_bytes())));
            self.command(&line, "AUTH", 235).await?;
        } else if has("LOGIN") {
            self.command("AUTH LOGIN", "AUTH", 334).await?;
            let user = encoded(login.user.as_bytes());
            self.command(&user, "AUTH", 334).await?;
            let password = encoded(login.password.as_bytes());
            self.command(&password, "AUTH", 235).await?;
        } else {
            return Err(Fault::new("the relay offers neither AUTH PLAIN nor LOGIN"));
        }
        Ok(())
    }

    /// Names the sender.
    pub(crate) async fn sender(&mut self, from: &str) -> Result<(), Fault> {
        let line = format!("MAIL FROM:<{from}>");
        self.command(&line, "MAIL", 250).await.map(drop)
    }

    /// Names the recipient and hands over the mail, whose lines end with CRLF.
    pub(crate) async fn mail(&mut self, to: &str, text: &str) -> Result<(), Fault> {
        let line = format!("RCPT TO:<{to}>");
        self.command(&line, "RCPT", 250).await?;
        self.command("DATA", "DATA", 354).await?;
        let mut stuffed = String::with_capacity(text.len());
        for line in text.split_inclusive("\r\n") {
            // RFC 5321, 4.5.2: a line with a dot alone would end the mail.
            if line.starts_with('.') {
                stuffed.push('.');
            }
            stuffed.push_str(line);
        }
        stuffed.push('.');
        let until = self.deadline.min(Instant::now() + self.patience.message);
        let answer = self.exchange(&stuffed, "the mail", until).await?;
        expect(answer, "the mail", 250).map(drop)
    }

    /// Ends the session. The relay has accepted the mail already, so its answer here changes nothing.
    pub(crate) async fn quit(mut self) {
        let until = Instant::now() + self.patience.quit;
        let _ = self.exchange("QUIT", "QUIT", until).await;
    }

    async fn command(
        &mut self,
        line: &str,
        name: &'static str,
        wanted: u16,
    ) -> Result<Answer, Fault> {
        let until = self.deadline.min(Instant::now() + self.patience.command);
        let answer = self.exchange(line, name, until).await?;
        expect(answer, name, wanted)
    }

    /// Sends `line` with a line's end, and reads the answer.
    async fn exchange(
        &mut self,
        line: &str,
        name: &'static str,
        until: Instant,
    ) -> Result<Answer, Fault> {
        let mut whole = Zeroizing::new(String::with_capacity(line.len().saturating_add(2)));
        whole.push_str(line);
        whole.push_str("\r\n");
        let send = async {
            self.stream.write_all(whole.as_bytes()).await?;
            self.stream.flush().await
        };
        match timeout_at(until, send).await {
            Ok(Ok(())) => self.answer_until(until, name).await,
            Ok(Err(error)) => Err(Fault::new(format!(
                "the connection broke at {name}: {error}"
            ))),
            Err(_) => Err(Fault::new(format!("the relay took no more at {name}"))),
        }
    }

    async fn answer_until(&mut self, until: Instant, name: &'static str) -> Result<Answer, Fault> {
        match timeout_at(until, self.answer()).await {
            Ok(answer) => answer.map_err(|fault| Fault {
                text: format!("{name}: {}", fault.text),
                ..fault
            }),
            Err(_) => Err(Fault::new(format!("the relay did not answer: {name}"))),
        }
    }

    async fn answer(&mut self) -> Result<Answer, Fault> {
        let malformed = || Fault::new("the relay sent an answer that is not SMTP");
        let (mut first, mut lines) = (None, Vec::new());
        while lines.len() < LINES {
            let line = self.line().await?;
            let (code, rest) = line.split_at_checked(3).ok_or_else(malformed)?;
            if !code.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(malformed());
            }
            let code: u16 = code.parse().map_err(|_| malformed())?;
            if !(200..600).contains(&code) || first.is_some_and(|first| first != code) {
                return Err(malformed());
            }
            first = Some(code);
            let more = rest.starts_with('-');
            let text = rest.strip_prefix(['-', ' ']);
            if text.is_none() && !rest.is_empty() {
                return Err(malformed());
            }
            lines.push(text.unwrap_or_default().to_owned());
            if !more {
                return Ok(Answer { code, lines });
            }
        }
        Err(Fault::new(format!(
            "an answer of the relay has more than {LINES} lines"
        )))
    }

    /// The next line without its end, in ASCII: what a terminal or a log would take for more than text is `?`.
    async fn line(&mut self) -> Result<String, Fault> {
        loop {
            if let Some(end) = self.ahead.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.ahead.drain(..=end).collect();
                let line = line.strip_suffix(b"\n").unwrap_or(&line);
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                return Ok(line.iter().map(|byte| printable(*byte)).collect());
            }
            let room = LINE.saturating_sub(self.ahead.len());
            if room == 0 {
                return Err(Fault::new(format!(
                    "a line of the relay has more than {LINE} bytes"
                )));
            }
            if self.left == 0 {
                return Err(Fault::new(format!(
                    "the relay's answers have more than {SESSION} bytes"
                )));
            }
            let most = u64::try_from(room.min(self.left)).unwrap_or(0);
            let mut bounded = (&mut self.stream).take(most);
            let read = bounded.read_buf(&mut self.ahead).await;
            match read {
                Ok(0) => return Err(Fault::new("the relay ended the connection")),
                Ok(read) => self.left = self.left.saturating_sub(read),
                Err(error) => return Err(Fault::new(format!("the connection broke: {error}"))),
            }
        }
    }
}

const fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' {
        byte as char
    } else {
        '?'
    }
}

/// The answer, if it has the code `wanted`, or means the same (RFC 5321, 4.3.2: 251 for 250).
fn expect(answer: Answer, name: &str, wanted: u16) -> Result<Answer, Fault> {
    if answer.code == wanted || (wanted == 250 && (251..300).contains(&answer.code)) {
        return Ok(answer);
    }
    let said: String = answer.lines.join("; ").chars().take(SHOWN).collect();
    let text = format!("the relay answered {name} with {} {said}", answer.code);
    let code = Some(answer.code);
    Err(Fault { code, text })
}
