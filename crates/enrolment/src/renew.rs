//! `cordon pki renew`: the client side of EST (RFC 7030, section 4.2.2) for gateways of tunnels and for OpenVPN's servers
//! and clients. Cameras renew their certificates themselves.
//!
//! The key is made here. Key and certificates are in one file, so that a crash leaves the former or the new
//! pair, and a reader of the file sees one of them whole.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use commandline::{Failure, OrHint as _, Outcome, print, read_text};
use der::pem::LineEnding;
use durable::FileLock;
use error_report::Report;
use http::StatusCode;
use pki::cert::{self, CertificateChain};
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use pki::name::Subject;
use pki::path::{Purpose, TrustStore};
use pki::{csr, file};
use serde_json::json;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::est_client::EstClient;

/// Interval between looks at the clock.
const TICK: Duration = Duration::from_secs(5);
/// Pauses after a renewal that failed.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Longest run of the deploy hook.
const HOOK: Duration = Duration::from_secs(120);
const HOOK_LOOK: Duration = Duration::from_millis(100);
/// Ends of the names of files beside the renewed one: the key of the next certificate, a renewal whose hook has not
/// succeeded, and the lock of renewals.
const NEXT: &str = ".next";
const DEPLOY: &str = ".deploy";
const LOCK: &str = ".lock";
const DISK: &str = "check the room on the disk and the folder's rights";

/// `cordon pki renew`.
#[derive(Debug, Args)]
pub struct Renew {
    /// File with key and certificates (PEM), or an OpenVPN configuration that has them inside.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// The site's enrolment listener.
    #[arg(long, value_name = "HOST:PORT")]
    server: String,
    /// Name in its certificate, where that is not the host.
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// The site's root certificate.
    #[arg(long, value_name = "FILE")]
    root: PathBuf,
    /// File with the passphrase of an encrypted key.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Algorithm of the new key.
    #[arg(long, value_name = "NAME", default_value = "ecdsa-p256")]
    key_algorithm: KeyAlgorithm,
    /// A program to run after a renewal; the file is in its environment as RENEWED_FILE.
    #[arg(long, value_name = "PROGRAM")]
    deploy_hook: Option<PathBuf>,
    /// Renew now, even if it is not due.
    #[arg(long, conflicts_with = "watch")]
    force: bool,
    /// Stay, and renew whenever it is due.
    #[arg(long)]
    watch: bool,
}

pub async fn run(args: &Renew, json: bool) -> Outcome {
    if args.watch {
        return watch(args).await;
    }
    let (held, renewed) = renew_if_due(args).await?;
    let end = held.validity().1;
    let value = json!({ "file": args.file, "renewed": renewed, "not_after": end.unix_timestamp() });
    let said = match renewed {
        true => "renewed",
        false => "not due",
    };
    let summary = format!("{said}: {} until {}", args.file.display(), end.date());
    print(json, &value, &summary)
}

async fn watch(args: &Renew) -> Outcome {
    let mut terminate = signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut interrupt = signal(tokio::signal::unix::SignalKind::interrupt())?;
    let mut held = Held::read(args)?;
    tracing::info!(file = %args.file.display(), until = %held.validity().1, "watching");
    let (mut pause, mut wait) = (FIRST_PAUSE, Duration::ZERO);
    loop {
        let work = async {
            tokio::time::sleep(wait).await;
            match held.is_due() || is_to_deploy(args)? {
                true => renew_if_due(args).await.map(Some),
                false => Ok(None),
            }
        };
        // A renewal that hangs must not hold up the end; what it has got so far is found again.
        let outcome = tokio::select! {
            outcome = work => outcome,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        match outcome {
            Ok(new) => {
                held = new.map_or(held, |(new, _)| new);
                (pause, wait) = (FIRST_PAUSE, TICK);
            }
            Err(failure) => {
                tracing::error!(
                    "the renewal is not complete, trying again: {}",
                    failure.message()
                );
                wait = pause;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn signal(kind: tokio::signal::unix::SignalKind) -> Outcome<tokio::signal::unix::Signal> {
    tokio::signal::unix::signal(kind).or_hint("cannot wait for signals", "check the kernel")
}

/// Renews what is due, and runs the deploy hook, also for an earlier renewal whose hook failed.
///
/// One at a time for a file: the first use of one renewal ends the others, and the one that is written last would be
/// one that ended.
async fn renew_if_due(args: &Renew) -> Outcome<(Held, bool)> {
    let _lock = lock(&args.file)?;
    let mut held = Held::read(args)?;
    let due = args.force || held.is_due();
    if due {
        held = renew(args, &held).await?;
    }
    if let Some(hook) = &args.deploy_hook
        && is_to_deploy(args)?
    {
        run_hook(hook, &args.file).await?;
        remove(&beside(&args.file, DEPLOY))?;
    }
    Ok((held, due))
}

/// Gets a new certificate for a new key, and stores both.
async fn renew(args: &Renew, held: &Held) -> Outcome<Held> {
    const HINT: &str = "see the log of the site";
    let roots = file::load_chain(&args.root).or_hint("the site's root", "name it with --root")?;
    let trust = TrustStore::new(roots.certificates(), &[])
        .or_hint("the site's root", "name it with --root")?;
    let client = EstClient::new(&args.server, args.server_name.as_deref())?;
    let key = next_key(args).await?;
    let leaf = held.chain.leaf();
    let subject = Subject::from_name(&leaf.tbs_certificate.subject).or_hint("the subject", HINT)?;
    let names = cert::alt_names(leaf).or_hint("the names in the certificate", HINT)?;
    let request = csr::build(&key, &Subject::new(&subject.common_name), &names)
        .or_hint("cannot make the request", "report this")?;
    let shown = Some((&held.chain, &held.key));
    let mut connection = client.connect(&trust, shown).await?;
    let authorities = connection.authorities().await;
    let authorities = authorities.map_err(|error| error.into_failure(refused))?;
    let issued = connection.reenrol(&request).await;
    let issued = issued.map_err(|error| error.into_failure(refused))?;
    let chain = CertificateChain::of_issued(&key.spki(), issued, &authorities)
        .or_hint("the site's answer", HINT)?
        .ok_or_else(|| Failure::new(anyhow::anyhow!("no certificate for our key"), HINT))?;
    let now = OffsetDateTime::now_utc();
    let identity = trust.validate(chain.ders(), Purpose::ClientEnrolment, now);
    let identity = identity.or_hint("the new certificate is not acceptable", HINT)?;
    let same_names = cert::alt_names(chain.leaf()).is_ok_and(|new| new == names);
    if identity.common_name != subject.common_name || !same_names {
        let error = anyhow::anyhow!("the new certificate names {:?}", identity.common_name);
        return Err(Failure::new(error, HINT));
    }
    let new = Held {
        layout: held.layout,
        text: held.text.clone(),
        key,
        chain,
    };
    if args.deploy_hook.is_some() {
        write(&beside(&args.file, DEPLOY), b"")?;
    }
    new.write(args)?;
    remove(&beside(&args.file, NEXT))?;
    tracing::info!(file = %args.file.display(), until = %identity.not_after, "certificate renewed");
    // From its first use on the former one is refused, and listed a week later.
    let confirmed = match client.connect(&trust, Some((&new.chain, &new.key))).await {
        Ok(mut connection) => {
            let answer = connection.authorities().await;
            answer
                .map(drop)
                .map_err(|error| error.into_failure(refused))
        }
        Err(failure) => Err(failure),
    };
    if let Err(failure) = confirmed {
        tracing::warn!("the former certificate stays valid: {}", failure.message());
    }
    // As it is on disk.
    Held::read(args)
}

/// What to do when the site refuses a renewal.
fn refused(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
            "see `cordon registry list` and `cordon pki list` at the site: a holder that was enrolled again or revoked needs \
             a new certificate (`cordon vpn gateway-certificate`, a new profile)"
        }
        _ => {
            "see the site's log; a certificate that ended too long ago is refused, and takes a new one \
             (`cordon vpn gateway-certificate`, a new profile)"
        }
    }
}

/// The key of the next certificate. It is on disk before the request: after an interruption the next attempt requests
/// the same key, and gets the same certificate instead of another of the few of a day.
async fn next_key(args: &Renew) -> Outcome<PrivateKey> {
    let path = beside(&args.file, NEXT);
    match std::fs::read_to_string(&path).map(Zeroizing::new) {
        Ok(text) => match read_key(args, &text) {
            Ok(key) => return Ok(key),
            Err(error) => tracing::warn!("another key is made: {}", Report(&*error)),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(Failure::new(
                error,
                "check the folder's rights and its disk",
            ));
        }
    }
    let algorithm = args.key_algorithm;
    let key = tokio::task::spawn_blocking(move || PrivateKey::generate(algorithm)).await;
    let key = key.or_hint("cannot make a key", "try again")?;
    let key = key.or_hint("cannot make a key", "try again")?;
    write(&path, key_text(args, &key)?.as_bytes())?;
    Ok(key)
}

/// The name of a file beside `file` while a step of its renewal is not complete.
fn beside(file: &Path, what: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(what);
    file.with_file_name(name)
}

/// Whether the deploy hook has still to run for a renewal.
fn is_to_deploy(args: &Renew) -> Outcome<bool> {
    match args.deploy_hook {
        Some(_) => commandline::is_there(&beside(&args.file, DEPLOY)),
        None => Ok(false),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    durable::write_atomic(path, bytes, 0o600)
        .or_hint(format!("cannot write {}", path.display()), DISK)
}

fn remove(path: &Path) -> Outcome {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).or_hint(format!("cannot remove {}", path.display()), DISK)
        }
        _ => Ok(()),
    }
}

/// Takes the lock of a file's renewals, which ends with what is returned.
fn lock(file: &Path) -> Outcome<FileLock> {
    let path = beside(file, LOCK);
    let lock =
        FileLock::take(&path, 0o644).or_hint(format!("cannot make {}", path.display()), DISK)?;
    lock.ok_or_else(|| {
        let error = anyhow::anyhow!("{} is being renewed", file.display());
        Failure::new(error, "wait for the other renewal, or end it")
    })
}

async fn run_hook(hook: &Path, file: &Path) -> Outcome {
    let what = || format!("the program {}", hook.display());
    let hint = "the certificate is renewed; have what uses it read it again";
    let mut command = std::process::Command::new(hook);
    let child = command.env("RENEWED_FILE", file).spawn();
    let mut child = child.or_hint(what(), hint)?;
    let end = tokio::time::Instant::now() + HOOK;
    loop {
        match child.try_wait().or_hint(what(), hint)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                return Err(Failure::new(anyhow::anyhow!("{}: {status}", what()), hint));
            }
            None if tokio::time::Instant::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                let error = anyhow::anyhow!("{}: it takes longer than {HOOK:?}", what());
                return Err(Failure::new(error, hint));
            }
            None => tokio::time::sleep(HOOK_LOOK).await,
        }
    }
}

/// Form in which a file has key and certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// One after the other, the key first.
    Pem,
    /// Between `<key>` and `</key>`, `<cert>` and `</cert>`.
    OpenVpn,
}

/// A key with its certificates, and the file that they are in.
struct Held {
    layout: Layout,
    text: Zeroizing<String>,
    key: PrivateKey,
    chain: CertificateChain,
}

impl Held {
    fn read(args: &Renew) -> Outcome<Self> {
        let path = &args.file;
        let hint = "a file has a private key and its certificates in PEM, or is an OpenVPN configuration \
                    with <cert> and <key>";
        let what = || format!("the certificate in {}", path.display());
        let text = read_text(path)?;
        let layout = match (block(&text, "cert"), block(&text, "key")) {
            (Some(_), Some(_)) => Layout::OpenVpn,
            _ => Layout::Pem,
        };
        let (certificates, key) = match layout {
            Layout::Pem => (text.as_str(), text.as_str()),
            Layout::OpenVpn => (
                block(&text, "cert")
                    .map(|(_, part)| part)
                    .unwrap_or_default(),
                block(&text, "key")
                    .map(|(_, part)| part)
                    .unwrap_or_default(),
            ),
        };
        let chain = CertificateChain::from_pem(certificates).or_hint(what(), hint)?;
        let key = read_key(args, key).or_hint(what(), hint)?;
        if chain.leaf().tbs_certificate.subject_public_key_info != key.spki() {
            let error = anyhow::anyhow!("{}: the key is another certificate's", what());
            return Err(Failure::new(error, hint));
        }
        Ok(Self {
            layout,
            text,
            key,
            chain,
        })
    }

    /// First and last instant of the certificate's validity.
    fn validity(&self) -> (OffsetDateTime, OffsetDateTime) {
        let validity = &self.chain.leaf().tbs_certificate.validity;
        (
            validity.not_before.to_system_time().into(),
            validity.not_after.to_system_time().into(),
        )
    }

    /// Whether two thirds of the life are over.
    fn is_due(&self) -> bool {
        let (start, end) = self.validity();
        OffsetDateTime::now_utc() >= end - (end - start) / 3
    }

    fn write(&self, args: &Renew) -> Outcome {
        let key = key_text(args, &self.key)?;
        let chain = self.chain.to_pem().or_hint("certificates", "report this")?;
        let text = match self.layout {
            Layout::Pem => Zeroizing::new(format!("{}\n{chain}", key.trim_end())),
            Layout::OpenVpn => {
                let text = replaced(&self.text, "cert", &chain);
                let text = text.and_then(|text| replaced(&text, "key", &key));
                text.ok_or_else(|| {
                    Failure::new(
                        anyhow::anyhow!("<cert> or <key> is not closed"),
                        "correct it",
                    )
                })?
            }
        };
        durable::replace(&args.file, text.as_bytes())
            .or_hint(format!("cannot write {}", args.file.display()), DISK)
    }
}

/// Reads the one private key of a PEM text.
fn read_key(args: &Renew, text: &str) -> Result<PrivateKey, anyhow::Error> {
    anyhow::ensure!(
        text.matches("PRIVATE KEY-----").count() <= 2,
        "there is more than one private key"
    );
    let part = |label| {
        pki::key::pem_part(text, label).ok_or_else(|| anyhow::anyhow!("there is no {label}"))
    };
    match &args.passphrase_file {
        Some(file) => {
            let passphrase = commandline::passphrase(Path::new(""), Some(file));
            let passphrase = passphrase.map_err(|failure| anyhow::anyhow!(failure.message()))?;
            let passphrase = Passphrase::new(passphrase);
            let key = PrivateKey::from_encrypted_pem(part("ENCRYPTED PRIVATE KEY")?, &passphrase);
            Ok(key?)
        }
        None => {
            let decoded = der::pem::decode_vec(part("PRIVATE KEY")?.as_bytes());
            let (_, der) = decoded.map_err(|error| anyhow::anyhow!("{error}"))?;
            Ok(PrivateKey::from_pkcs8_der(&Zeroizing::new(der))?)
        }
    }
}

/// Writes a private key as PEM, encrypted where there is a passphrase.
fn key_text(args: &Renew, key: &PrivateKey) -> Outcome<Zeroizing<String>> {
    let hint = "report this";
    match &args.passphrase_file {
        Some(file) => {
            let passphrase = commandline::passphrase(Path::new(""), Some(file))?;
            let pem = key.to_encrypted_pem(&Passphrase::new(passphrase));
            pem.map(Zeroizing::new).or_hint("the key", hint)
        }
        None => {
            let pem = der::pem::encode_string("PRIVATE KEY", LineEnding::LF, &key.to_pkcs8_der());
            let pem = pem.map_err(|error| anyhow::anyhow!("{error}"));
            pem.map(Zeroizing::new).or_hint("the key", hint)
        }
    }
}

/// Place and content of `<name>` … `</name>` in an OpenVPN configuration; each on a line of its own.
fn block<'a>(text: &'a str, name: &str) -> Option<(usize, &'a str)> {
    let (open, close) = (format!("<{name}>\n"), format!("</{name}>"));
    let start = match text.starts_with(&open) {
        true => 0,
        // A comment may speak of it.
        false => text.find(&format!("\n{open}"))?.checked_add(1)?,
    };
    let start = start.checked_add(open.len())?;
    let rest = text.get(start..)?;
    Some((start, rest.get(..rest.find(&close)?)?))
}

fn replaced(text: &str, name: &str, content: &str) -> Option<Zeroizing<String>> {
    let (start, old) = block(text, name)?;
    let (before, after) = (
        text.get(..start)?,
        text.get(start.checked_add(old.len())?..)?,
    );
    Some(Zeroizing::new(format!(
        "{before}{}\n{after}",
        content.trim_end()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_an_openvpn_configuration_are_replaced_and_the_rest_is_kept() {
        let text = "# see <cert>\nclient\n<ca>\nROOT\n</ca>\n\n<cert>\nOLD\nLINES\n</cert>\n<key>\nK\n</key>\nend\n";
        assert_eq!(block(text, "cert").unwrap().1, "OLD\nLINES\n");
        let new = replaced(text, "cert", "NEW\n\n").unwrap();
        assert_eq!(*new, text.replace("OLD\nLINES", "NEW"));
        assert_eq!(*replaced(&new, "key", "K").unwrap(), *new);
        for bad in ["<cert>\nOLD\n", "client\n", "x <cert>\nOLD\n</cert>\n"] {
            assert!(block(bad, "cert").is_none(), "{bad}");
        }
        assert!(block("<key>\nK\n</key>", "key").is_some());
    }
}
