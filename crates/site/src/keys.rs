//! The keys and certificates of this site's own services.
//!
//! Each is in `keys/NAME.key` (encrypted) and `keys/NAME.pem` (certificate and issuer). A
//! certificate that has used up two thirds of its life, or was revoked, is replaced together with its
//! key; former sealing keys stay, because archived blocks are sealed to them.

use std::path::{Path, PathBuf};

use audit::Actor;
use evidence::cms::RecipientKey;
use pki::cert::{Certificate, CertificateChain};
use pki::file;
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use pki::name::Subject;
use registry::{AuthorityId, Registry};
use time::OffsetDateTime;

use crate::failure::{Failure, OrHint as _, Outcome};
use crate::issuing::{Issuing, Own};
use commandline::is_there;

const HINT: &str = "check the data folder and the passphrase";

/// A private key with its certificate.
#[derive(Clone)]
pub struct KeyPair {
    pub key: PrivateKey,
    pub chain: CertificateChain,
}

/// The folder of the service keys.
pub(crate) struct KeyFolder<'a> {
    pub(crate) folder: PathBuf,
    pub(crate) passphrase: &'a Passphrase,
    pub(crate) issuing: &'a dyn Issuing,
    pub(crate) algorithm: KeyAlgorithm,
    pub(crate) now: OffsetDateTime,
}

impl KeyFolder<'_> {
    /// The TLS server's pair for `names`; replaced when the names change.
    pub(crate) async fn server(&self, names: &[String]) -> Outcome<KeyPair> {
        let stamp = self.folder.join("server.names");
        let same_names =
            std::fs::read_to_string(&stamp).is_ok_and(|known| known == names.join("\n"));
        let pair = self.pair("server", Own::Server, names, same_names).await?;
        durable::write_atomic(&stamp, names.join("\n").as_bytes(), 0o644)
            .or_hint(format!("cannot write {}", stamp.display()), HINT)?;
        Ok(pair)
    }

    /// The pair that signs receipts and packages.
    pub(crate) async fn receipts(&self) -> Outcome<KeyPair> {
        self.pair("receipts", Own::Receipts, &[], true).await
    }

    /// The pair that signs trust bundles.
    pub(crate) async fn trust_bundle(&self) -> Outcome<KeyPair> {
        self.pair("trust-bundle", Own::TrustBundle, &[], true).await
    }

    /// The pair that signs OCSP responses about what this authority of `registry` issued.
    pub(crate) async fn ocsp(&self, registry: &Registry, id: AuthorityId) -> Outcome<KeyPair> {
        let subject = Subject::new(format!("OCSP responder of {id}"));
        let name = ocsp_name(id);
        if let Some(pair) = self.usable(&name, true)? {
            return Ok(pair);
        }
        let key = self.new_key()?;
        let (actor, spki) = (Actor::service("cordon"), key.spki());
        let issued = registry
            .issue_ocsp_signer(id, subject, spki, actor, self.now)
            .await;
        let issued = issued.or_hint(format!("cannot issue the certificate of {name}"), HINT)?;
        self.save(&name, key, issued.chain)
    }

    /// The pair that signs CMP answers.
    pub(crate) async fn cmp(&self) -> Outcome<KeyPair> {
        self.pair("cmp", Own::Cmp, &[], true).await
    }

    /// The pair that SCEP messages are encrypted to, and that signs answers: always RSA.
    pub(crate) async fn scep(&self) -> Outcome<KeyPair> {
        let keys = KeyFolder {
            folder: self.folder.clone(),
            algorithm: KeyAlgorithm::Rsa3072,
            ..*self
        };
        keys.pair("scep", Own::Scep, &[], true).await
    }

    /// The pairs that blocks are sealed to, the newest first.
    pub(crate) async fn sealing(&self) -> Outcome<Vec<RecipientKey>> {
        let mut number = 1;
        while is_there(&self.path(&format!("sealing-{}", number + 1), "pem"))? {
            number += 1;
        }
        let newest = self.path(&format!("sealing-{number}"), "pem");
        if is_there(&newest)?
            && self.can_issue()
            && is_due(
                self.issuing,
                &file::load_chain(&newest).or_hint("sealing key", HINT)?,
                self.now,
            )
        {
            number += 1;
        }
        let mut keys = Vec::new();
        for n in (1..=number).rev() {
            let name = format!("sealing-{n}");
            // Only the newest is ever made or replaced; the rest are kept however old.
            let pair = if n == number {
                self.pair(&name, Own::Sealing(n), &[], true).await?
            } else {
                self.load(&name)?
            };
            let key = RecipientKey::new(pair.key, pair.chain.leaf().clone());
            keys.push(key.or_hint(format!("{name} has another key's certificate"), HINT)?);
        }
        Ok(keys)
    }

    async fn pair(&self, name: &str, own: Own, names: &[String], usable: bool) -> Outcome<KeyPair> {
        if let Some(pair) = self.usable(name, usable)? {
            return Ok(pair);
        }
        if !self.can_issue() && is_there(&self.path(name, "pem"))? {
            tracing::error!(
                certificate = name,
                "cannot be replaced, as the services authority is not valid now: \
                 `cordon pki authorities` shows the authorities"
            );
            return self.load(name);
        }
        let key = self.new_key()?;
        let chain = self.issuing.issue(own, key.spki(), names, self.now).await?;
        self.save(name, key, chain)
    }

    /// The pair that is there, if it stays in use.
    fn usable(&self, name: &str, usable: bool) -> Outcome<Option<KeyPair>> {
        if !is_there(&self.path(name, "pem"))? {
            return Ok(None);
        }
        let pair = self.load(name)?;
        // A crash between the two files leaves a new key beside the former certificate.
        let belongs = pair.chain.leaf().tbs_certificate.subject_public_key_info == pair.key.spki();
        let goes_on = usable && belongs && !is_due(self.issuing, &pair.chain, self.now);
        Ok(goes_on.then_some(pair))
    }

    /// Whether anything is issued to the site itself now. An authority that has ended must not keep the site from starting: the
    /// order to have another one issue goes to the site.
    fn can_issue(&self) -> bool {
        self.issuing.issues(self.now)
    }

    fn new_key(&self) -> Outcome<PrivateKey> {
        PrivateKey::generate(self.algorithm).or_hint("cannot make a key", "try again")
    }

    fn save(&self, name: &str, key: PrivateKey, chain: CertificateChain) -> Outcome<KeyPair> {
        // The key first: a certificate without its key would look complete at the next start.
        let saved = file::save_private(&self.path(name, "key"), &key, self.passphrase)
            .and_then(|()| file::save_chain(&self.path(name, "pem"), &chain));
        saved.or_hint(format!("cannot save the key of {name}"), HINT)?;
        Ok(KeyPair { key, chain })
    }

    fn load(&self, name: &str) -> Outcome<KeyPair> {
        let chain = file::load_chain(&self.path(name, "pem"))
            .or_hint(format!("cannot read the certificate of {name}"), HINT)?;
        let key = file::load_private(&self.path(name, "key"), self.passphrase)
            .or_hint(format!("cannot read the key of {name}"), HINT)?;
        Ok(KeyPair { key, chain })
    }

    fn path(&self, name: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{name}.{extension}"))
    }
}

/// How far ahead of the clock a certificate of ours may begin.
const AHEAD: time::Duration = time::Duration::minutes(5);

/// What files and metrics call an authority's signer of OCSP responses.
pub fn ocsp_name(id: AuthorityId) -> String {
    format!("ocsp-{id}")
}

/// Tells whether it is time for another certificate: two thirds of its life are over, it was revoked or its authority was and
/// another one issues or it is not told of any more, or it is from the future.
pub(crate) fn is_due(issuing: &dyn Issuing, chain: &CertificateChain, now: OffsetDateTime) -> bool {
    let (start, end) = validity(chain.leaf());
    let renew_at = end - (end - start) / 3;
    // One of the future was issued by a clock that has been set right and accepted since. While the clock is
    // behind what was known, the certificate is right and the clock is not.
    let of_the_future = start > now + AHEAD && issuing.is_clock_right(OffsetDateTime::now_utc());
    of_the_future
        || now >= renew_at
        || issuing.is_revoked(chain.leaf(), now)
        || issuing.is_replaced(chain.leaf(), now)
}

/// First and last instant of a certificate's validity.
pub fn validity(certificate: &Certificate) -> (OffsetDateTime, OffsetDateTime) {
    let validity = &certificate.tbs_certificate.validity;
    (
        validity.not_before.to_system_time().into(),
        validity.not_after.to_system_time().into(),
    )
}

/// The audit log's signing key: an Ed25519 key file like the others.
pub fn log_key(path: &Path, passphrase: &Passphrase, origin: &str) -> Outcome<audit::LogKey> {
    let key = if is_there(path)? {
        file::load_private(path, passphrase)
            .or_hint(format!("cannot read {}", path.display()), HINT)?
    } else {
        let key = PrivateKey::generate(KeyAlgorithm::Ed25519)
            .or_hint("cannot make the log's key", "try again")?;
        file::save_private(path, &key, passphrase)
            .or_hint(format!("cannot save {}", path.display()), HINT)?;
        key
    };
    if key.algorithm() != KeyAlgorithm::Ed25519 {
        let error = anyhow::anyhow!("{} is no Ed25519 key", path.display());
        return Err(Failure::new(error, "restore the log's key from a backup"));
    }
    let seed = ed25519_seed(&key.to_pkcs8_der())
        .ok_or_else(|| Failure::new(anyhow::anyhow!("{} is damaged", path.display()), HINT))?;
    audit::LogKey::from_seed(origin, &seed).or_hint("cannot use the log's key", HINT)
}

/// The 32-byte seed inside of a PKCS#8 Ed25519 key (RFC 8410 section 7: an OCTET STRING in an
/// OCTET STRING).
fn ed25519_seed(pkcs8: &[u8]) -> Option<zeroize::Zeroizing<[u8; 32]>> {
    let info = pkcs8::PrivateKeyInfo::try_from(pkcs8).ok()?;
    let seed = info.private_key.strip_prefix(&[0x04, 0x20])?;
    Some(zeroize::Zeroizing::new(seed.try_into().ok()?))
}
