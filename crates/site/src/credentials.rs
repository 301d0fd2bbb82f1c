//! The certificates that a site shows and signs with, renewed while it runs.
//!
//! Listeners, intake and review hold handles whose content is replaced here, so that nothing restarts.
//! A certificate that was revoked is replaced like one that has reached two thirds of its life: a stolen
//! key is useless then, and the site works with another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use centre::{Keys, Signer};
use evidence::cms::RecipientKey;
use offload_policy::Policy;
use pki::cert::{Certificate, CertificateChain};
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use pki::tls::ServerIdentity;
use registry::{AuthorityId, AuthorityRecord, Registry};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::failure::{OrHint as _, Outcome};
use crate::issuing::Issuing;
use crate::keys::{KeyFolder, KeyPair, is_due, ocsp_name, validity};

const HINT: &str = "check the folder keys";

struct Held {
    server: CertificateChain,
    receipts: CertificateChain,
    bundle: KeyPair,
    /// Certificates of those who sign OCSP responses.
    ocsp: BTreeMap<AuthorityId, Certificate>,
    /// Certificate of the signer of CMP answers, where CMP is on.
    cmp: Option<Certificate>,
    /// Certificate of the registration authority of SCEP, where that is on.
    scep: Option<Certificate>,
    /// What the server hands out about its certificate.
    staple: Option<Arc<[u8]>>,
    /// Newest first.
    sealing: Vec<Certificate>,
}

/// Certificates of those who sign for the registry.
#[derive(Default)]
struct Signing {
    ocsp: BTreeMap<AuthorityId, Certificate>,
    cmp: Option<Certificate>,
    scep: Option<Certificate>,
}

impl Signing {
    /// Reads or makes their keys, and hands them to the registry.
    async fn open(registry: &Registry, keys: &KeyFolder<'_>) -> Outcome<Self> {
        let mut ocsp = BTreeMap::new();
        for id in signing(registry, keys.now) {
            let pair = keys.ocsp(registry, id).await?;
            ocsp.insert(id, sign_ocsp(registry, id, pair)?);
        }
        let cmp = match registry.speaks_cmp() {
            true => Some(sign_cmp(registry, keys.cmp().await?)),
            false => None,
        };
        let scep = match registry.speaks_scep() {
            true => Some(serve_scep(registry, keys.scep().await?)),
            false => None,
        };
        Ok(Self { ocsp, cmp, scep })
    }
}

/// The site's own keys and certificates.
pub struct Credentials {
    folder: PathBuf,
    /// Stays in memory, as the authorities' keys do: a new key is encrypted before it is on the disk.
    secret: Passphrase,
    algorithm: KeyAlgorithm,
    names: Vec<String>,
    /// Engines for signatures of the server and under receipts.
    engines: Arc<Policy>,
    issuing: Arc<dyn Issuing>,
    server: Arc<ServerIdentity>,
    centre: Keys,
    held: RwLock<Held>,
    renewals: watch::Sender<()>,
}

/// Where the keys are, and of which kind new ones are.
pub(crate) struct Settings {
    pub(crate) folder: PathBuf,
    pub(crate) secret: Passphrase,
    pub(crate) algorithm: KeyAlgorithm,
    /// Names and addresses of the servers.
    pub(crate) names: Vec<String>,
    /// Engines for signatures of the server and under receipts.
    pub(crate) engines: Arc<Policy>,
}

impl Credentials {
    /// Reads or makes them. For `registry`, if this host has it, there are signers of OCSP, CMP and SCEP as well.
    pub(crate) async fn open(
        settings: Settings,
        issuing: Arc<dyn Issuing>,
        registry: Option<&Registry>,
        now: OffsetDateTime,
    ) -> Outcome<Self> {
        let Settings {
            folder,
            secret,
            algorithm,
            names,
            engines,
        } = settings;
        let keys = KeyFolder {
            folder: folder.clone(),
            passphrase: &secret,
            issuing: &*issuing,
            algorithm,
            now,
        };
        let server = keys.server(&names).await?;
        let receipts = keys.receipts().await?;
        let bundle = keys.trust_bundle().await?;
        let sealing = keys.sealing().await?;
        let Signing { ocsp, cmp, scep } = match registry {
            Some(registry) => Signing::open(registry, &keys).await?,
            None => Signing::default(),
        };
        let server_key = with_engines(&server.key, &engines)?;
        let identity = ServerIdentity::new(&server.chain, &server_key).or_hint(
            "cannot use the server's certificate",
            "remove keys/server.* and restart",
        )?;
        let held = Held {
            server: server.chain,
            receipts: receipts.chain.clone(),
            bundle,
            ocsp,
            cmp,
            scep,
            staple: None,
            sealing: certificates(&sealing),
        };
        let credentials = Self {
            folder,
            secret,
            algorithm,
            names,
            server: identity,
            centre: Keys::with_engines(sealing, signer(receipts, &engines)?, Arc::clone(&engines)),
            engines,
            issuing,
            held: RwLock::new(held),
            renewals: watch::Sender::new(()),
        };
        credentials.staple(now).await;
        Ok(credentials)
    }

    /// Has the listeners hand out the OCSP response about their certificate that is good now.
    pub async fn staple(&self, now: OffsetDateTime) {
        let server = self.read(|held| held.server.leaf().clone());
        if validity(&server).1 < now {
            return;
        }
        let response = self.issuing.ocsp_response(&server, now).await;
        let Some(response) = response else {
            tracing::error!("there is no OCSP response about the server's certificate");
            return;
        };
        let known = self.read(|held| held.staple.clone());
        if known.is_none_or(|known| known != response) {
            self.server.staple(response.to_vec());
            self.write(|held| held.staple = Some(response));
        }
    }

    /// What is to be known of the certificates that cameras see: the server's, and that of receipts.
    pub async fn ocsp_responses(&self, now: OffsetDateTime) -> Vec<Arc<[u8]>> {
        let (server, receipts) =
            self.read(|held| (held.server.leaf().clone(), held.receipts.leaf().clone()));
        let mut responses = Vec::new();
        for certificate in [server, receipts] {
            responses.extend(self.issuing.ocsp_response(&certificate, now).await);
        }
        responses
    }

    /// Changes when cameras must connect again.
    pub fn renewals(&self) -> watch::Receiver<()> {
        self.renewals.subscribe()
    }

    /// Has cameras connect again: with each connection they learn of revocations, and what is replaced may have been
    /// revoked.
    pub fn announce_renewal(&self) {
        self.renewals.send_replace(());
    }

    /// Returns the passphrase of the key files.
    pub const fn passphrase(&self) -> &Passphrase {
        &self.secret
    }

    /// Returns the identity of the listeners.
    pub fn server(&self) -> Arc<ServerIdentity> {
        Arc::clone(&self.server)
    }

    /// Returns the keys with which the centre opens and signs.
    pub fn centre_keys(&self) -> Keys {
        self.centre.clone()
    }

    /// Returns the signer of trust bundles.
    pub fn bundle_signer(&self) -> KeyPair {
        self.read(|held| held.bundle.clone())
    }

    /// The certificates to seal to: the newest, and the one before while that is valid, for cameras
    /// whose clocks are behind.
    pub fn recipients(&self, now: OffsetDateTime) -> Vec<Certificate> {
        let usable = |certificate: &&Certificate| {
            validity(certificate).1 > now && !self.issuing.is_revoked(certificate, now)
        };
        self.read(|held| {
            let (newest, former) = match held.sealing.split_first() {
                Some((newest, former)) => (Some(newest), former),
                None => (None, held.sealing.as_slice()),
            };
            let former = former.iter().take(1).filter(usable);
            newest.into_iter().chain(former).cloned().collect()
        })
    }

    /// The same in PEM, newest first.
    pub fn recipients_pem(&self, now: OffsetDateTime) -> Outcome<String> {
        self.recipients(now)
            .iter()
            .map(pki::cert::to_pem)
            .collect::<Result<String, _>>()
            .or_hint("cannot write the sealing certificates", HINT)
    }

    /// Name and certificate of everything that must not expire unnoticed.
    pub fn certificates(&self) -> Vec<(String, Certificate)> {
        self.read(|held| {
            let own = [
                ("server", held.server.leaf().clone()),
                ("receipts", held.receipts.leaf().clone()),
                ("trust-bundle", held.bundle.chain.leaf().clone()),
            ];
            let sealing = held.sealing.first().map(|c| ("sealing", c.clone()));
            let cmp = held.cmp.iter().map(|c| ("cmp", c.clone()));
            let scep = held.scep.iter().map(|c| ("scep", c.clone()));
            let own = own.into_iter().chain(sealing).chain(cmp).chain(scep);
            let ocsp = held.ocsp.iter();
            let ocsp = ocsp.map(|(id, c)| (ocsp_name(*id), c.clone()));
            let own = own.map(|(name, c)| (name.to_owned(), c));
            own.chain(ocsp).collect()
        })
    }

    /// Replaces what is due; gives the names of what was replaced. What was replaced before a failure
    /// is in use. Of `registry`, if this host has it, the signers are renewed as well.
    pub async fn renew(
        &self,
        registry: Option<&Registry>,
        now: OffsetDateTime,
    ) -> Outcome<Vec<String>> {
        let keys = KeyFolder {
            folder: self.folder.clone(),
            passphrase: &self.secret,
            issuing: &*self.issuing,
            algorithm: self.algorithm,
            now,
        };
        let due = self.certificates().into_iter();
        let due = due.filter(|(_, certificate)| {
            CertificateChain::new(vec![certificate.clone()])
                .is_ok_and(|chain| is_due(&*self.issuing, &chain, now))
        });
        let due: Vec<String> = due.map(|(name, _)| name).collect();
        let mut renewed = match registry {
            Some(registry) => self.renew_ocsp(registry, &keys, &due, now).await?,
            None => Vec::new(),
        };
        // Nothing of the site's own can be replaced while its authority is over; each OCSP signer is another authority's.
        let own = due.into_iter().filter(|name| !name.starts_with("ocsp-"));
        for name in own.filter(|_| self.issuing.issues(now)) {
            self.renew_own(&name, registry, &keys).await?;
            renewed.push(name);
        }
        Ok(renewed)
    }

    /// Follows the authorities: a generation that came since has no signer of OCSP responses yet, and one that is over needs none.
    async fn renew_ocsp(
        &self,
        registry: &Registry,
        keys: &KeyFolder<'_>,
        due: &[String],
        now: OffsetDateTime,
    ) -> Outcome<Vec<String>> {
        let signing = signing(registry, now);
        let present = self.read(|held| held.ocsp.clone());
        if present.keys().any(|id| !signing.contains(id)) {
            self.write(|held| held.ocsp.retain(|id, _| signing.contains(id)));
        }
        let mut renewed = Vec::new();
        for id in signing {
            let name = ocsp_name(id);
            if due.contains(&name) || !present.contains_key(&id) {
                let signer = sign_ocsp(registry, id, keys.ocsp(registry, id).await?)?;
                self.write(|held| held.ocsp.insert(id, signer));
                renewed.push(name);
            }
        }
        Ok(renewed)
    }

    async fn renew_own(
        &self,
        name: &str,
        registry: Option<&Registry>,
        keys: &KeyFolder<'_>,
    ) -> Outcome {
        match (name, registry) {
            ("server", _) => {
                let pair = keys.server(&self.names).await?;
                let key = with_engines(&pair.key, &self.engines)?;
                self.server
                    .replace(&pair.chain, &key)
                    .or_hint("cannot use the server's new certificate", HINT)?;
                self.write(|held| (held.server, held.staple) = (pair.chain, None));
            }
            ("receipts", _) => {
                let pair = keys.receipts().await?;
                let signer = signer(pair, &self.engines)?;
                self.write(|held| held.receipts = signer.chain.clone());
                self.centre.replace_signer(signer);
            }
            ("trust-bundle", _) => {
                let pair = keys.trust_bundle().await?;
                self.write(|held| held.bundle = pair);
            }
            ("cmp", Some(registry)) => {
                let signer = sign_cmp(registry, keys.cmp().await?);
                self.write(|held| held.cmp = Some(signer));
            }
            ("scep", Some(registry)) => {
                let authority = serve_scep(registry, keys.scep().await?);
                self.write(|held| held.scep = Some(authority));
            }
            _ => {
                let sealing = keys.sealing().await?;
                let certificates = certificates(&sealing);
                // The key opens blocks before the trust bundle names its certificate.
                self.centre.replace_recipients(sealing);
                self.write(|held| held.sealing = certificates);
            }
        }
        Ok(())
    }

    fn read<T>(&self, look: impl FnOnce(&Held) -> T) -> T {
        look(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        change(&mut self.held.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The authorities for which OCSP responses are signed.
fn signing(registry: &Registry, now: OffsetDateTime) -> BTreeSet<AuthorityId> {
    let records = registry.authority_records(now).into_iter();
    let signs =
        |record: &AuthorityRecord| record.is_needed && record.has_key && record.is_valid(now);
    let signing = records.filter(signs);
    signing.map(|record| record.id).collect()
}

/// Has the registry sign with this pair; gives its certificate.
fn sign_ocsp(registry: &Registry, id: AuthorityId, pair: KeyPair) -> Outcome<Certificate> {
    let certificate = pair.chain.leaf().clone();
    registry
        .set_ocsp_signer(id, pair.key, &pair.chain)
        .or_hint("cannot use the key for OCSP responses", HINT)?;
    Ok(certificate)
}

/// Has the registry sign CMP answers with this pair; gives its certificate.
fn sign_cmp(registry: &Registry, pair: KeyPair) -> Certificate {
    let certificate = pair.chain.leaf().clone();
    registry.set_cmp_signer(pair.key, pair.chain);
    certificate
}

/// Has the registry answer SCEP with this pair; gives its certificate.
fn serve_scep(registry: &Registry, pair: KeyPair) -> Certificate {
    let certificate = pair.chain.leaf().clone();
    registry.set_scep_authority(pair.key, pair.chain);
    certificate
}

fn signer(pair: KeyPair, engines: &Arc<Policy>) -> Outcome<Signer> {
    Ok(Signer {
        key: with_engines(&pair.key, engines)?,
        chain: pair.chain,
    })
}

/// The key, which signs with the engine that the policy chooses.
fn with_engines(key: &PrivateKey, engines: &Arc<Policy>) -> Outcome<PrivateKey> {
    key.with_engines(engines)
        .or_hint("cannot use a key with the accelerator", HINT)
}

fn certificates(keys: &[RecipientKey]) -> Vec<Certificate> {
    keys.iter().map(|key| key.certificate().clone()).collect()
}
