//! A file over SSH, and by FTP through OpenVPN and IPsec, by cipher, with what it costs the processor:
//! the published figures 5.5 to 5.8.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::suites::{AES_128_CBC, AES_256_CBC, AES_256_GCM, CHACHA20, SHA1, SHA2_256};
use crate::LabError;
use crate::experiment::Experiment;
use crate::experiments::OPENSSL;
use crate::files::{Files, Sent};
use crate::network::{IP, Network, Side};
use crate::process::{Call, Daemon};
use crate::program::Program;
use crate::record::Better;
use crate::session::{Plan, Round, Rounds, Session};
use crate::tunnels::{
    CHARON, Cordon, Identity, Kind, OPENVPN, OpenVpn, PING, Provider, SWANCTL, StrongSwan,
    write_private,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "transfer",
    title: "A file over SSH, OpenVPN and IPsec",
    question: "How fast does a large file travel, by protocol, cipher and integrity algorithm, and how busy \
               does that keep the processor?",
    source: "High-level cryptographic protocols on a system on chip (thesis), Fig. 5.5 to 5.8; the bars' \
             values are not in the text",
    needs: &[IP, PING],
    wants: &[SSH, SSHD, OPENVPN, OPENSSL, CHARON, SWANCTL],
    seconds: (55, 150),
    run,
};

const SSH: Program = Program {
    name: "ssh",
    package: "openssh-client",
    version: &["-V"],
};
const SSHD: Program = Program {
    name: "sshd",
    package: "openssh-server",
    // It has no option for its version and tells it beside the complaint.
    version: &["-V"],
};
const RATE: &str = "rate";
const CPU: &str = "cpu";
const BASE: &str = "FTP without protection";
/// Ciphers and integrity algorithms by OpenSSH's names; without the latter, the cipher authenticates.
const SSH_SUITES: [(&str, &str); 7] = [
    ("aes128-ctr", "hmac-sha2-256"),
    ("aes256-ctr", "hmac-sha2-256"),
    ("aes256-ctr", "hmac-sha2-512"),
    ("aes256-cbc", "hmac-sha1"),
    ("aes128-gcm@openssh.com", ""),
    ("aes256-gcm@openssh.com", ""),
    ("chacha20-poly1305@openssh.com", ""),
];
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of a file that goes before the one that counts.
const WARM: usize = 2 * 1024 * 1024;

enum Work {
    Ftp(Kind),
    Ssh(&'static str, &'static str),
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let mebibytes = session.pick(16, 128);
    session.parameter("MiB of random data", mebibytes);
    let title = "One file from client to server (published form: Fig. 5.8)";
    session.plan(Plan::bars(RATE, title, "Mbit/s", Better::More).base(BASE));
    let title = "Processor time while it travels: both ends of tunnel and transfer";
    session.plan(Plan::bars(CPU, title, "% of one processor", Better::Less).base(BASE));
    let cases = cases(session)?;
    let folder = session.folder.clone();
    let files = Files::make(&folder.join("file"), 1, mebibytes * 1024 * 1024)?;
    let warm = Files::make(&folder.join("warm"), 1, WARM)?;
    let keys = folder.join("ssh");
    if cases.iter().any(|(_, work)| matches!(work, Work::Ssh(..))) {
        make_keys(&keys)?;
    }
    let network = Network::new()?;
    let rounds = Rounds {
        count: session.pick(2, 3),
        warm_up: false,
    };
    session.rounds(rounds, &cases, |work, round| match work {
        Work::Ftp(kind) => {
            let tunnel = kind.start(&network, &folder)?;
            warm.send(&tunnel, &mut Round::default())?;
            let before = tunnel.cpu();
            let sent = files.send(&tunnel, round)?;
            put(round, &sent, tunnel.cpu() - before);
            tunnel.account(round);
            Ok(())
        }
        Work::Ssh(cipher, mac) => {
            let server = sshd(&network, &keys)?;
            ssh(&network, &keys, &warm, (cipher, mac), &mut Round::default())?;
            let before = server.usage().cpu;
            let sent = ssh(&network, &keys, &files, (cipher, mac), round)?;
            put(round, &sent, server.usage().cpu - before);
            round.used("sshd", server.usage());
            Ok(())
        }
    });
    session.caveat(
        "OpenSSH does not offer a transfer without encryption; OpenVPN does, and Cordon's tunnel in \
         laboratory builds only. SSH pays for its handshake within the time of the file.",
    );
    Ok(())
}

fn put(round: &mut Round, sent: &Sent, tunnel_cpu: f64) {
    round.put(RATE, sent.rate);
    round.put(CPU, (sent.cpu + tunnel_cpu) * 100.0 / sent.seconds);
}

fn cases(session: &mut Session<'_>) -> Result<Vec<(String, Work)>, LabError> {
    let mut cases = vec![(BASE.to_owned(), Work::Ftp(Kind::Plain))];
    if session.has("SSH", &[SSH, SSHD]) {
        for (cipher, mac) in SSH_SUITES {
            let short = cipher.trim_end_matches("@openssh.com");
            let name = if mac.is_empty() {
                short.to_owned()
            } else {
                format!("{short}, {mac}")
            };
            cases.push((format!("SSH, {name}"), Work::Ssh(cipher, mac)));
        }
    }
    if session.has("OpenVPN", &[OPENVPN, OPENSSL]) {
        let identity = Identity::make(&session.folder.join("openvpn"), &Identity::P256)?;
        for (name, cipher, integrity) in [
            ("none", "none", "none"),
            ("AES-128-CBC, SHA-1", "AES-128-CBC", "SHA1"),
            ("AES-256-CBC, SHA-1", "AES-256-CBC", "SHA1"),
            ("AES-256-CBC, SHA-256", "AES-256-CBC", "SHA256"),
            ("AES-256-GCM", "AES-256-GCM", "SHA256"),
            ("ChaCha20-Poly1305", "CHACHA20-POLY1305", "SHA256"),
        ] {
            let kind = OpenVpn {
                cipher: cipher.to_owned(),
                integrity,
                provider: Provider::Default,
                identity: identity.clone(),
            };
            cases.push((format!("OpenVPN, {name}"), Work::Ftp(Kind::OpenVpn(kind))));
        }
    }
    let unprotected = "Cordon (IPsec), unprotected";
    if cfg!(feature = "legacy") {
        let kind = Cordon::new(("null", 0), None);
        cases.push((unprotected.to_owned(), Work::Ftp(Kind::Cordon(kind))));
    } else {
        session.lacks_legacy(unprotected);
    }
    for (name, kind) in [
        ("AES-128-CBC, SHA-1", Cordon::new(AES_128_CBC, Some(SHA1))),
        (
            "AES-256-CBC, SHA-256",
            Cordon::new(AES_256_CBC, Some(SHA2_256)),
        ),
        ("AES-256-GCM", Cordon::new(AES_256_GCM, None)),
        ("ChaCha20-Poly1305", Cordon::new(CHACHA20, None)),
    ] {
        cases.push((
            format!("Cordon (IPsec), {name}"),
            Work::Ftp(Kind::Cordon(kind)),
        ));
    }
    if session.has("strongSwan", &[CHARON, SWANCTL]) {
        for (name, proposal) in [
            ("AES-256-CBC, SHA-256", "aes256-sha256"),
            ("AES-256-GCM", "aes256gcm16"),
        ] {
            let kind = Kind::StrongSwan(StrongSwan { proposal });
            cases.push((format!("strongSwan (IPsec), {name}"), Work::Ftp(kind)));
        }
    }
    Ok(cases)
}

/// A host's key and a user's key.
fn make_keys(folder: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(folder).map_err(LabError::io("a folder in memory"))?;
    for name in ["host", "user"] {
        Call::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", name])
            .folder(folder)
            .run()?;
    }
    // Where sshd locks its unprivileged part in; the host's own is out of sight here.
    std::fs::create_dir_all("/run/sshd").map_err(LabError::io("/run/sshd"))?;
    let at = folder.display();
    write_private(
        &folder.join("sshd_config"),
        &format!(
            "ListenAddress {}\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nStrictModes no\nUsePAM no\n\
             PidFile none\nPermitRootLogin prohibit-password\nCiphers +aes256-cbc\nMACs +hmac-sha1\n",
            Side::Server.outside()
        ),
    )
}

fn sshd(network: &Network, keys: &Path) -> Result<Daemon, LabError> {
    // It starts itself again for each connection and insists on its full path.
    let program = SSHD
        .path()
        .unwrap_or_else(|| PathBuf::from("/usr/sbin/sshd"));
    let call = network.call(Side::Server, program).args(["-D", "-e", "-f"]);
    let mut server = call
        .arg(keys.join("sshd_config"))
        .start(&keys.join("log"))?;
    server.wait_for(LIMIT, |server| server.said().contains("Server listening"))?;
    Ok(server)
}

fn ssh(
    network: &Network,
    keys: &Path,
    files: &Files,
    (cipher, mac): (&str, &str),
    round: &mut Round,
) -> Result<Sent, LabError> {
    let began = Instant::now();
    let mut call = network
        .call(Side::Client, "sh")
        .args(["-c", "file=$1; shift; exec \"$@\" < \"$file\"", "sh"])
        .arg(files.path())
        .args([SSH.name, "-F", "none", "-o", "StrictHostKeyChecking=no"])
        .args([
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "BatchMode=yes",
            "-c",
            cipher,
            "-i",
        ])
        .arg(keys.join("user"));
    if !mac.is_empty() {
        call = call.args(["-m", mac]);
    }
    let target = format!("root@{}", Side::Server.outside());
    let done = call
        .arg(target)
        .arg("wc -c")
        .limit(Duration::from_secs(300))
        .run()?;
    let seconds = began.elapsed().as_secs_f64();
    if done.stdout.trim() != files.bytes().to_string() {
        let text = format!("{} of {} bytes arrived", done.stdout.trim(), files.bytes());
        return Err(LabError::Unexpected(text));
    }
    round.used("ssh", done.usage);
    Ok(Sent {
        rate: files.bytes() as f64 * 8.0 / seconds / 1e6,
        seconds,
        cpu: done.usage.cpu,
    })
}
