//! Revocation lists of an OpenVPN server: verified before they are in force, here and in the file that OpenVPN reads.

use std::path::PathBuf;
use std::time::Duration;

use commandline::{Failure, OrHint as _, Outcome, read_text};
use error_report::Report;
use pki::cert::CertificateChain;
use pki::crl::{CrlScope, VerifiedCrl};
use pki::path::TrustStore;
use pki::status::IssuerId;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::fetcher::{Fetcher, MAX_BODY};
use crate::openvpn::verify;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Complete lists are fetched again after this time, changed or not: they are good for a day.
const COMPLETE: Duration = Duration::from_secs(600);

/// The lists in force.
pub(super) struct Lists {
    trust: TrustStore,
    /// Authorities of devices.
    authorities: Vec<Authority>,
    root: Vec<IssuerId>,
    file: PathBuf,
    written: String,
}

/// An authority of devices.
struct Authority {
    id: IssuerId,
    /// The name of its issuer, and its own number.
    issuer: IssuerId,
    serial: Vec<u8>,
}

impl Lists {
    /// `authorities` is the file with the devices authority and the root, `file` the one with the lists.
    pub(super) fn new(authorities: &std::path::Path, file: PathBuf) -> Outcome<Self> {
        let hint = "carry it to the server from the folder of `cordon vpn openvpn-profile`";
        let text = read_text(authorities)?;
        let trust = verify::trust_in(&text)?;
        let chain = CertificateChain::from_pem(&text).or_hint("unusable authorities", hint)?;
        let all = chain.certificates().iter().map(|one| &one.tbs_certificate);
        let (root, below): (Vec<_>, Vec<_>) = all.partition(|one| one.subject == one.issuer);
        let authorities = below.iter().map(|one| Authority {
            id: IssuerId::of(&one.subject),
            issuer: IssuerId::of(&one.issuer),
            serial: one.serial_number.as_bytes().to_vec(),
        });
        let mut lists = Self {
            trust,
            authorities: authorities.collect(),
            root: root.iter().map(|one| IssuerId::of(&one.subject)).collect(),
            file,
            written: String::new(),
        };
        // What is there counts until there is something newer.
        if let Ok(known) = read_text(&lists.file) {
            let taken = verify::take_lists(&lists.trust, &known, OffsetDateTime::now_utc());
            if let Err(failure) = taken {
                tracing::warn!("{}: {}", lists.file.display(), failure.message());
            }
            lists.written = known.to_string();
        }
        Ok(lists)
    }

    /// Verifies lists (PEM) and puts them into force; true if they are others than before.
    pub(super) fn take(&mut self, pem: &str) -> Outcome<bool> {
        if pem == self.written {
            return Ok(false);
        }
        let taken = verify::take_lists(&self.trust, pem, OffsetDateTime::now_utc())?;
        self.check_complete(&taken)?;
        durable::write_atomic(&self.file, pem.as_bytes(), 0o644).or_hint(
            format!("cannot write {}", self.file.display()),
            "check the folder's rights",
        )?;
        pem.clone_into(&mut self.written);
        Ok(true)
    }

    /// Checks that the complete list of each authority is there. An attacker on the path of plain HTTP can replace one of our
    /// lists with another of them. The file would then lose revocations that were known before a restart.
    fn check_complete(&self, taken: &[VerifiedCrl]) -> Outcome {
        let whole = |issuer: &IssuerId| {
            let mut of = taken.iter().filter(|list| list.issuer == *issuer);
            of.any(|list| !list.is_delta() && list.scope == CrlScope::complete())
        };
        let authorities = self.authorities.iter().map(|one| &one.id);
        if self.root.iter().chain(authorities).all(whole) {
            return Ok(());
        }
        Err(Failure::new(
            anyhow::anyhow!("the complete list of an authority is not among them"),
            "see what answers at the address of the lists",
        ))
    }

    /// Why a certificate is refused by the lists.
    pub(super) fn refusal(&self, serial: &str) -> Option<String> {
        let bytes = hex::decode(serial).ok()?;
        let is_revoked =
            |issuer, serial: &[u8]| self.trust.status().lookup(issuer, serial).is_some();
        let is_gone = |one: &Authority| is_revoked(one.issuer, &one.serial);
        let code = match () {
            () if self
                .authorities
                .iter()
                .any(|one| is_revoked(one.id, &bytes)) =>
            {
                "certificate-revoked"
            }
            // OpenVPN does not say who issued the certificate. All devices of a server have theirs from one authority, so
            // no device has a session while it is revoked.
            () if self.authorities.iter().any(is_gone) => "authority-revoked",
            () => return None,
        };
        Some(code.to_owned())
    }
}

/// Follows the lists at an address such as `http://pki.example.org/crl`. The root's and the list of changes, which are short, are
/// asked for again and again; the complete one follows when one of them has changed, as every revocation changes both.
pub(super) fn follow(base: &str, every: Duration) -> (mpsc::Receiver<String>, AbortHandle) {
    let (sender, receiver) = mpsc::channel(1);
    let base = base.trim_end_matches('/').to_owned();
    let task = tokio::spawn(async move {
        let fetcher = Fetcher::default();
        let mut known = Known::default();
        let mut silent = false;
        loop {
            match step(&fetcher, &base, &mut known).await {
                Ok(lists) => {
                    if std::mem::take(&mut silent) {
                        tracing::info!(%base, "fetched revocation lists again");
                    }
                    if let Some(lists) = lists
                        && sender.send(lists).await.is_err()
                    {
                        return;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut silent, true) {
                        tracing::warn!(%base, "cannot fetch revocation lists: {}", Report(&*error));
                    }
                }
            }
            tokio::time::sleep(every).await;
        }
    });
    (receiver, task.abort_handle())
}

/// The lists that were fetched last.
#[derive(Default)]
struct Known {
    changes: Vec<u8>,
    root: Vec<u8>,
    complete_at: Option<tokio::time::Instant>,
}

/// Fetches what has changed; the complete lists (PEM) if anything has.
async fn step(fetcher: &Fetcher, base: &str, known: &mut Known) -> anyhow::Result<Option<String>> {
    let get = async |name: &str| {
        let url = format!("{base}/{name}.crl");
        let got = tokio::time::timeout(PATIENCE, fetcher.get(&url, MAX_BODY)).await;
        got.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in time")))
            .map_err(|error| error.context(url))
    };
    let (changes, root) = (get("devices-delta").await?, get("root").await?);
    let due = known.complete_at.is_none_or(|at| at.elapsed() > COMPLETE);
    if changes == known.changes && root == known.root && !due {
        return Ok(None);
    }
    let devices = get("devices").await?;
    let mut lists = String::new();
    for (name, der) in [("root", &root), ("devices", &devices)] {
        let pem = der::pem::encode_string("X509 CRL", der::pem::LineEnding::LF, der);
        lists.push_str(&pem.map_err(|error| anyhow::anyhow!("{name}.crl: {error}"))?);
    }
    *known = Known {
        changes,
        root,
        complete_at: Some(tokio::time::Instant::now()),
    };
    Ok(Some(lists))
}

#[cfg(test)]
mod tests {
    use der::pem::{LineEnding, encode_string};
    use pki::profile::{CaKind, Profile};

    use super::*;
    use crate::openvpn::verify::wrong_chains;

    fn pem(label: &str, der: &[u8]) -> String {
        encode_string(label, LineEnding::LF, der).unwrap()
    }

    #[test]
    fn lists_without_that_of_an_authority_replace_none() {
        let now = OffsetDateTime::now_utc();
        let case = wrong_chains::good(CaKind::Devices, Profile::Device, now);
        let folder = tempfile::tempdir().unwrap();
        let (authorities, file) = (
            folder.path().join("authorities.pem"),
            folder.path().join("crl.pem"),
        );
        let mut text = pki::cert::to_pem(&case.root).unwrap();
        text.extend(case.chain[1..].iter().map(|der| pem("CERTIFICATE", der)));
        std::fs::write(&authorities, text).unwrap();
        let [first, second] = case.lists.as_slice() else {
            panic!("a list of the root, and one of the authority");
        };
        let [first, second] = [first, second].map(|der| pem("X509 CRL", der));
        let mut lists = Lists::new(&authorities, file.clone()).unwrap();
        for less in [
            "\n".to_owned(),
            first.clone(),
            second.clone(),
            // As an attacker on the path would answer: one list replaces the other.
            first.clone() + &first,
            second.clone() + &second,
        ] {
            assert!(lists.take(&less).is_err());
            assert!(!file.exists());
        }
        let both = first.clone() + &second;
        assert!(lists.take(&both).unwrap());
        assert!(lists.take(&(first.clone() + &first)).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), both);
        assert!(!lists.take(&both).unwrap());
    }

    #[test]
    fn revoked_authority_refuses_every_device() {
        let now = OffsetDateTime::now_utc();
        let (kind, profile) = (CaKind::Devices, Profile::Device);
        let refusal = |case: &wrong_chains::Case| {
            let folder = tempfile::tempdir().unwrap();
            let authorities = folder.path().join("authorities.pem");
            let mut text = pki::cert::to_pem(&case.root).unwrap();
            text.extend(case.chain[1..].iter().map(|der| pem("CERTIFICATE", der)));
            std::fs::write(&authorities, text).unwrap();
            let mut lists = Lists::new(&authorities, folder.path().join("crl.pem")).unwrap();
            let all: String = case.lists.iter().map(|der| pem("X509 CRL", der)).collect();
            assert!(lists.take(&all).unwrap(), "in the file for OpenVPN as well");
            lists.refusal("0123456789abcdef")
        };
        assert_eq!(refusal(&wrong_chains::good(kind, profile, now)), None);
        let mut cases = wrong_chains::all(kind, profile, now).into_iter();
        let case = cases.find(|case| case.name == "authority revoked by a list");
        assert_eq!(
            refusal(&case.unwrap()).as_deref(),
            Some("authority-revoked")
        );
    }
}
