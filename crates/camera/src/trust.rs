//! Whom the camera trusts and seals to: its configuration, and the site's trust bundle on top of it.
//!
//! The roots are the configuration's for ever. Authorities and recipients come from the newest bundle
//! that the camera has accepted (`evidence::bundle`), or from the configuration's files while there is
//! none. A bundle is fetched on contact, and an older one than the camera has accepted is refused, also
//! after a restart.
//!
//! Sealing does not stop because a certificate expired while the camera was out of contact: an expiry
//! says that nobody vouches for the key any more, not that somebody else has it, and the centre
//! keeps former keys as long as it exists. A picture that is not sealed lies in the clear in the watched
//! folder, which is worse. A *revoked* recipient is not sealed to: pictures wait for another one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use error_report::Report;
use evidence::bundle::{self, BundleError, TrustBundle, VerifiedBundle};
use evidence::digest::Sha256Digest;
use http::header::IF_NONE_MATCH;
use http::{Method, Request, StatusCode};
use pki::cert::{self, Certificate};
use pki::crl::CrlError;
use pki::file;
use pki::path::{PathError, Purpose, RevocationPolicy, TrustError, TrustStore, ValidatedIdentity};
use pki::status::StatusCache;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use x509_cert::ext::pkix::BasicConstraints;

use crate::agent::error::AgentError;
use crate::config::Config;
use crate::transport::{Connection, TransportError, body};

/// Path of the site's bundle.
const PATH: &str = "/intake/v1/trust";
/// Distance by which the site's clock may be ahead of ours.
const CLOCK_SKEW: Duration = Duration::minutes(5);
/// A site's numbers are not ahead of its clock's seconds by more: whoever signs with a stolen key
/// cannot use up all numbers and keep every later bundle out for ever.
const MAX_AHEAD: Duration = Duration::days(400);
const BUNDLE: &str = "bundle.p7m";
const FLOOR: &str = "version.json";

/// Why a bundle was not taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleRefused {
    #[error("cannot fetch the trust bundle")]
    Transport(#[from] TransportError),
    #[error("centre gives no trust bundle: {0}")]
    Answer(StatusCode),
    #[error("trust bundle is unusable")]
    Bundle(#[from] BundleError),
    #[error("trust bundle {offered} is older than {known}, which this camera has")]
    Older { offered: u64, known: u64 },
    #[error("trust bundle has the number {0}, which is beyond any clock")]
    Implausible(u64),
    #[error("two trust bundles have the number {0}")]
    Ambiguous(u64),
    #[error("trust bundle has an unusable authority")]
    Authority(#[source] TrustError),
    #[error("trust bundle has an unusable revocation list")]
    List(#[source] CrlError),
    #[error("trust bundle has no usable recipient")]
    Recipient(#[source] Option<PathError>),
    #[error("trust bundle cannot be stored")]
    Store(#[source] io::Error),
}

/// No recipient may be sealed to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoRecipient {
    #[error("every certificate to seal to is revoked")]
    Revoked(#[source] PathError),
    #[error("there is no certificate to seal to")]
    None,
}

/// Trust in force; replaced as a whole.
#[derive(Clone)]
pub(crate) struct State {
    /// Refuses what is known to be revoked.
    pub(crate) store: TrustStore,
    /// Refuses where a list is missing or stale as well.
    pub(crate) strict: TrustStore,
    recipients: Arc<[Recipient]>,
    floor: Floor,
    /// Key of the centre's audit log, as the bundle has it.
    pub(crate) log_key: Option<String>,
}

struct Recipient {
    certificate: Certificate,
    validated: Arc<ValidatedIdentity>,
}

impl Recipient {
    fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        let identity = &self.validated.identity;
        identity.not_before <= now && now <= identity.not_after
    }
}

/// The newest version that this camera has accepted. It stands beside the bundle: one that got lost
/// must not let an older one in.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Floor {
    /// 0 while there is none.
    version: u64,
    content_sha256: Option<Sha256Digest>,
}

/// The certificate that the next block is encrypted to.
pub(crate) struct Chosen {
    pub(crate) certificate: Certificate,
    /// Its last instant of validity, when that has passed.
    pub(crate) expired: Option<OffsetDateTime>,
}

impl State {
    /// The newest recipient that is valid at `now`, else the one that was valid last; none that is
    /// revoked.
    pub(crate) fn recipient(&self, now: OffsetDateTime) -> Result<Chosen, NoRecipient> {
        let mut refused = NoRecipient::None;
        let mut usable = Vec::new();
        for recipient in self.recipients.iter() {
            match self.store.check_revoked(&recipient.validated, now) {
                Ok(()) => usable.push(recipient),
                Err(error) => refused = NoRecipient::Revoked(error),
            }
        }
        let valid = usable.iter().filter(|r| r.is_valid_at(now));
        let newest = valid.max_by_key(|r| r.validated.identity.not_before);
        let latest = usable.iter().max_by_key(|r| r.validated.identity.not_after);
        let chosen = newest.or(latest).ok_or(refused)?;
        let end = chosen.validated.identity.not_after;
        Ok(Chosen {
            certificate: chosen.certificate.clone(),
            expired: (end < now).then_some(end),
        })
    }
}

/// The trust of one camera.
pub(crate) struct Trust {
    roots: Vec<Certificate>,
    /// Of the configuration, beside those of the bundle.
    authorities: Vec<Certificate>,
    status: StatusCache,
    folder: PathBuf,
    state: RwLock<Arc<State>>,
    /// One bundle at a time is compared, stored and put in force.
    turn: Mutex<()>,
    /// State that was last reported, so that each is reported once.
    reported: Mutex<Option<String>>,
}

impl Trust {
    /// Reads the configuration's files and the bundle that an earlier run kept in `folder`.
    pub(crate) fn open(
        config: &Config,
        folder: &Path,
        now: OffsetDateTime,
    ) -> Result<Self, AgentError> {
        std::fs::create_dir_all(folder).map_err(AgentError::TrustBundle)?;
        let roots = file::load_chain(&config.trust.roots)?
            .certificates()
            .to_vec();
        let mut authorities = match &config.trust.authorities {
            Some(path) => file::load_chain(path)?.certificates().to_vec(),
            None => Vec::new(),
        };
        // Revocation lists are verified against known authorities, and the issuers of the recipients
        // issued the centre's other certificates too.
        let all = file::load_chain(&config.trust.recipients)?;
        let (issuers, recipients): (Vec<_>, Vec<_>) =
            all.certificates().iter().cloned().partition(is_authority);
        authorities.extend(issuers);
        let status = StatusCache::new();
        let (store, strict) = stores(&roots, &authorities, &status)?;
        let (recipients, refused) = usable(&store, recipients, now);
        let configured = State {
            recipients,
            store,
            strict,
            floor: read_floor(folder).map_err(AgentError::TrustBundle)?,
            log_key: None,
        };
        let trust = Self {
            roots,
            authorities,
            status,
            folder: folder.to_owned(),
            state: RwLock::new(Arc::new(configured)),
            turn: Mutex::default(),
            reported: Mutex::default(),
        };
        let stored = read(&folder.join(BUNDLE)).map_err(AgentError::TrustBundle)?;
        if let Some(der) = stored {
            match trust.stored(&der, now) {
                Ok(state) => trust.put_in_force(state),
                // The configuration's recipients serve until the next contact; nothing older than
                // what was accepted comes in.
                Err(error) => tracing::error!(
                    error = %Report(&error),
                    "stored trust bundle not used"
                ),
            }
        }
        match (trust.state().recipients.is_empty(), refused) {
            (false, _) => Ok(trust),
            (true, Some(error)) => Err(AgentError::Recipient(error)),
            (true, None) => Err(AgentError::NoRecipient),
        }
    }

    /// Returns the trust in force.
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_in_force(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    /// The state by the bundle of an earlier run, as old as it may be: its signer was accepted when the
    /// bundle came, and may have expired by now.
    fn stored(&self, der: &[u8], now: OffsetDateTime) -> Result<State, BundleRefused> {
        let known = self.state();
        let verified = bundle::verify(der, |chain, signed_at| {
            let purpose = Purpose::ServiceSigner;
            let path = known
                .store
                .validate_ignoring_revocation(chain.ders(), purpose, signed_at);
            path.map(drop)
        })?;
        let state = self.build(&verified, now)?;
        let (offered, accepted) = (state.floor.version, known.floor.version);
        if offered < accepted {
            return Err(BundleRefused::Older {
                offered,
                known: accepted,
            });
        }
        Ok(state)
    }

    /// Fetches the site's bundle over `connection`; `None` if it is the one that is in force.
    pub(crate) async fn fetch(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<Bytes>, BundleRefused> {
        let known = self.state().floor.version;
        let request = Request::builder()
            .method(Method::GET)
            .uri(PATH)
            .header(IF_NONE_MATCH, format!("\"{known}\""))
            .body(body::empty())
            .map_err(|_| BundleRefused::Answer(StatusCode::BAD_REQUEST))?;
        let answer = connection.request(request, 0).await?;
        match answer.status() {
            StatusCode::OK => Ok(Some(answer.into_body())),
            // A site of an earlier version has none: the configuration's files stay in force.
            StatusCode::NOT_MODIFIED | StatusCode::NOT_FOUND => Ok(None),
            status => Err(BundleRefused::Answer(status)),
        }
    }

    /// Takes a bundle over, if it is acceptable and new; durable when it is in force.
    pub(crate) fn offer(
        &self,
        der: &[u8],
        now: OffsetDateTime,
    ) -> Result<Option<u64>, BundleRefused> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.state();
        let verified = bundle::verify(der, |chain, signed_at| {
            if signed_at > now + CLOCK_SKEW {
                return Err(Box::<dyn std::error::Error + Send + Sync>::from(
                    "trust bundle is from the future",
                ));
            }
            // Valid now, not at the time that the signer writes: who found an old key has no new
            // bundle to offer.
            let purpose = Purpose::ServiceSigner;
            let signer = known.strict.validate(chain.ders(), purpose, now);
            signer.map(drop).map_err(Into::into)
        })?;
        let state = self.build(&verified, now)?;
        let (offered, accepted) = (state.floor, known.floor);
        if offered.version < accepted.version {
            return Err(BundleRefused::Older {
                offered: offered.version,
                known: accepted.version,
            });
        }
        let latest = (now + MAX_AHEAD).unix_timestamp();
        if i64::try_from(offered.version).is_ok_and(|version| version > latest) {
            return Err(BundleRefused::Implausible(offered.version));
        }
        if offered.version == accepted.version {
            return if offered.content_sha256 == accepted.content_sha256 {
                Ok(None)
            } else {
                Err(BundleRefused::Ambiguous(offered.version))
            };
        }
        let store = |name: &str, bytes: &[u8]| {
            file::write_atomic(&self.folder.join(name), bytes, 0o600)
                .map_err(|e| BundleRefused::Store(io::Error::other(e)))
        };
        let floor =
            serde_json::to_vec(&offered).map_err(|e| BundleRefused::Store(io::Error::other(e)))?;
        // The bundle first: the number alone would keep it out until the next one.
        store(BUNDLE, der)?;
        store(FLOOR, &floor)?;
        self.put_in_force(state);
        Ok(Some(offered.version))
    }

    /// Builds the trust of this bundle.
    fn build(
        &self,
        verified: &VerifiedBundle,
        now: OffsetDateTime,
    ) -> Result<State, BundleRefused> {
        let bundle: &TrustBundle = verified.bundle();
        let mut authorities = bundle.authorities()?;
        authorities.extend(self.authorities.iter().cloned());
        let (store, strict) =
            stores(&self.roots, &authorities, &self.status).map_err(BundleRefused::Authority)?;
        for list in bundle.lists()? {
            match store.accept_crl(&list, now) {
                // Newer ones came before, or its issuer has nothing to do with this camera.
                Ok(_)
                | Err(
                    CrlError::Rollback
                    | CrlError::Stale { .. }
                    | CrlError::FromTheFuture { .. }
                    | CrlError::UnknownIssuer { .. },
                ) => {}
                Err(error) => return Err(BundleRefused::List(error)),
            }
        }
        let (recipients, refused) = usable(&store, bundle.recipients()?, now);
        if recipients.is_empty() {
            return Err(BundleRefused::Recipient(refused));
        }
        Ok(State {
            store,
            strict,
            recipients,
            floor: Floor {
                version: bundle.version,
                content_sha256: Some(bundle.content_sha256()?),
            },
            log_key: Some(bundle.log_key.clone()),
        })
    }

    /// Whether this state is news.
    pub(crate) fn is_news(&self, state: Option<&str>) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.as_deref() == state {
            return false;
        }
        *reported = state.map(str::to_owned);
        true
    }
}

/// Folder of what a camera remembers of its site's bundles.
pub(crate) fn folder(spool: &Path) -> PathBuf {
    spool.join("trust")
}

/// Number of the newest accepted bundle; 0 while there is none.
pub(crate) fn known_version(folder: &Path) -> io::Result<u64> {
    Ok(read_floor(folder)?.version)
}

fn read_floor(folder: &Path) -> io::Result<Floor> {
    match read(&folder.join(FLOOR))? {
        None => Ok(Floor::default()),
        // Without the number an older bundle could come in: a person looks at the disk first.
        Some(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
    }
}

/// The file's bytes, or `None` if there is none.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn stores(
    roots: &[Certificate],
    authorities: &[Certificate],
    status: &StatusCache,
) -> Result<(TrustStore, TrustStore), TrustError> {
    let store = TrustStore::new(roots, authorities)?.with_status(status.clone());
    let strict = store.clone().with_policy(RevocationPolicy::RequireCrl);
    Ok((store, strict))
}

/// The certificates that are recipients of this site by their path, expired or not, and why others
/// are not.
fn usable(
    store: &TrustStore,
    certificates: Vec<Certificate>,
    now: OffsetDateTime,
) -> (Arc<[Recipient]>, Option<PathError>) {
    let mut refused = None;
    let mut recipients = Vec::new();
    for certificate in certificates {
        match validated(store, &certificate, now) {
            Ok(validated) => recipients.push(Recipient {
                certificate,
                validated,
            }),
            Err(error) => {
                tracing::warn!(%error, "certificate of a recipient not used");
                refused = Some(error);
            }
        }
    }
    (recipients.into(), refused)
}

/// Validates a recipient at `now`, or at the end or start of its validity that is nearest.
fn validated(
    store: &TrustStore,
    certificate: &Certificate,
    now: OffsetDateTime,
) -> Result<Arc<ValidatedIdentity>, PathError> {
    let der = cert::to_der(certificate).map_err(PathError::Certificate)?;
    let chain = [CertificateDer::from(der)];
    let validate = |at| store.validate_ignoring_revocation(&chain, Purpose::Recipient, at);
    match validate(now) {
        Err(PathError::Expired { not_after, .. }) => validate(not_after),
        Err(PathError::NotYetValid { not_before, .. }) => validate(not_before),
        outcome => outcome,
    }
}

fn is_authority(certificate: &Certificate) -> bool {
    let constraints = certificate.tbs_certificate.get::<BasicConstraints>();
    matches!(
        constraints,
        Ok(Some((_, BasicConstraints { ca: true, .. })))
    )
}
