#![forbid(unsafe_code)]
//! Registration and certification: who gets which certificate, and the memory of it.
//!
//! Devices and people have a state ([`HolderState`]). [`Registry::admit`] decides at every request
//! whether a certificate was issued here, is the one in use, and its holder enrolled.
//!
//! A [`Registry`] owns the three issuing authorities of the hierarchy (users, devices, services),
//! a database of everything issued and revoked, and the revocation lists. Devices enrol by
//! themselves over EST (RFC 7030, [`est::router`]) with a one-time code and renew with the
//! certificate they have; people do so by invitation.
//!
//! The root key signs the authorities when the registry is [created](Registry::init) and is not
//! needed afterwards: keep `pki/root.key` and its passphrase elsewhere.
//!
//! Acts need a [`Warrant`]: enough approvals of a request, or an order where the configuration says that it is
//! enough ([`Approvals`]).
//!
//! It is *not* a certificate library (that is `pki`) nor a directory of people: it certifies what
//! its caller, who has checked the right to ask, tells it to. Every act is recorded in the audit
//! log before it takes effect; if it cannot be recorded it does not happen. (A crash or full disk
//! between the two leaves an event without its act, never an act without its event.)
//!
//! Files below the data directory:
//!
//! | file | content |
//! |---|---|
//! | `pki/root.pem`, `pki/root.key` | root certificate; its key, encrypted |
//! | `pki/users-ca.pem`, `pki/users-ca.key`, … | issuing authorities; their keys, encrypted |
//! | `pki/cmp.key`, `pki/acme.key` | keys for the codes of invitations for CMP and ACME; encrypted |
//! | `pki/crl/root.crl`, `pki/crl/users.crl`, … | newest revocation lists, DER |
//! | `pki/crl/users-017.crl`, `…-delta.crl`, … | those of shards, and delta lists |
//! | `registry.sqlite` | what was issued and revoked, one-time codes (hashed; those for CMP and ACME encrypted), requests with their approvals |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::sync::{Arc, RwLock};
//! use registry::{Config, Order, Passphrases, Registry};
//! use pki::{KeyAlgorithm, PrivateKey, profile::Profile, name::Subject};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let now = time::macros::datetime!(2026-11-21 12:00 UTC);
//! let config = Config::new("LEA-EU");
//! let secrets = Passphrases { root: "paper in a safe".into(), issuing: "from a credential".into() };
//! Registry::init(folder.path(), &config, &secrets, now).unwrap();
//!
//! let audit = Arc::new(audit::MemorySink::default());
//! let registry = Registry::open(folder.path(), config, &secrets.issuing, audit, now)
//!     .await
//!     .unwrap();
//! let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
//! let order = Order::new(Profile::Device, Subject::new("camera-17"), key.spki());
//! let who = audit::Actor::user("registrar-1", "R. Example");
//! let warrant = registry.direct(who).unwrap();
//! let issued = registry.issue(order, warrant, now).await.unwrap();
//! let trust = registry.trust();
//! trust.validate(issued.chain.ders(), pki::path::Purpose::ClientDevice, now).unwrap();
//! # });
//! ```

pub mod acme;
mod admission;
mod archive;
mod authorities;
mod authority;
mod batch;
mod by_log;
pub mod ceremony;
mod certificate_order;
pub mod cmp;
mod codes;
mod completeness;
mod config;
mod contradiction;
mod enrol;
mod error;
pub mod est;
mod files;
mod founding;
mod generation;
mod hierarchy;
mod holder_profiles;
mod holders;
mod holds;
mod invitations;
mod invited;
mod issue;
mod issuing_log;
mod key_use;
mod lists;
mod names;
mod noun;
mod ocsp;
mod on_hold;
mod orders;
mod origin;
mod profiles;
mod protocol;
mod records;
mod requests;
mod revoke;
mod rollover;
mod rows_log;
pub mod scep;
mod schema;
mod sealing;
mod sha256;
mod signing;
mod warrant;
mod writing;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, RwLock};

use access::PersonRecord;
use audit::{AuditSink, Event};
use event_catalogue::{Details as _, context};
use pki::Certificate;
use pki::key::Passphrase;
use pki::name::Subject;
use pki::path::TrustStore;
use pki::profile::CaKind;
use pki::status::StatusCache;
use pool::{Pool, Share};
use store::Sql;
use time::OffsetDateTime;

use crate::acme::Acme;
use crate::authority::{Authorities, SigningPools};
use crate::batch::Batches;
use crate::cmp::Cmp;
use crate::holds::HoldsCompared;
use crate::lists::Lists;
use crate::ocsp::Ocsp;
use crate::profiles::Profiles;
use crate::protocol::Protocol;
use crate::scep::Scep;
use crate::writing::WriteTurn;

pub use self::acme::{AcmeRefusal, binding_key};
pub use self::admission::Admitted;
pub use self::archive::ArchivedKey;
pub use self::authorities::{Delivery, Installed};
pub use self::authority::{AuthorityRecord, Standings, TOLD_TO_CAMERAS, UnusableAuthority};
pub use self::certificate_order::Order;
pub use self::cmp::CmpRefusal;
pub use self::codes::OneTimeCode;
pub use self::completeness::{Completeness, CompletenessReport, Gap};
pub use self::config::{
    AuthorityKeys, CRL_SHARDS, Config, Lifetimes, MAX_CRL_SHARDS, Passphrases, RENEWAL_GRACE,
};
pub use self::contradiction::Contradiction;
pub use self::enrol::MAX_RENEWALS;
pub use self::error::{AdmissionError, EnrolError, RegistryError};
pub use self::founding::{Founder, FounderRole, FoundingError, Transcript, issue_founder};
pub use self::generation::{AuthorityId, AuthorityState, UnknownAuthority};
pub use self::holders::{HolderChange, HolderChanged, HolderRecord, HolderRefused, HolderState};
pub use self::holds::{DisabledFuture, DisabledLookup, hold_disabled};
pub use self::invitations::{Invitation, Invited};
pub use self::issue::Issued;
pub use self::lists::{CrlName, PublishedList, UnknownCrl};
pub use self::names::MAX_SERVER_NAMES;
pub use self::ocsp::OcspAnswer;
pub use self::profiles::{MAX_PROFILES, ProfileRecord};
pub use self::records::{
    InBook, IssuedRecord, RevokedRecord, for_each_in_book, published_certificates, rows_in_book,
};
pub use self::requests::{
    CarryError, MAX_BEGUN_PER_DAY, MAX_INVITATION_HOURS, MAX_INVITED_RENEWALS, MAX_OPEN,
    MAX_OPEN_OF_ONE, MAX_VERSIONS, NumberedChange, RequestChange, RequestContent, RequestCursor,
    RequestError, RequestFilter, RequestPage, RequestRecord, RequestSummary, Step, Wanted,
};
pub use self::revoke::Revoked;
pub use self::rollover::Activated;
pub use self::scep::ScepRefusal;
pub use self::warrant::{Approvals, Registration, Warrant};

/// Name of the database in a site's folder.
pub(crate) const FILE: &str = "registry.sqlite";

/// The registration and certification authority. Cheap to clone; clones are one registry.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
    /// Where the request comes from that this clone serves.
    address: Option<IpAddr>,
    /// The approved request that this clone carries out.
    request: Option<String>,
    /// The directory, where people enrol.
    people: Option<PersonLookup>,
    /// The protocol of the request that this clone serves; of EST none.
    protocol: Option<Protocol>,
}

/// A person as the directory has her now.
#[derive(Clone, Debug)]
pub struct ListedPerson {
    pub record: PersonRecord,
    /// The names for a certificate, without a unit.
    pub subject: Subject,
}

/// Gives the directory's entry of a user id as it is now.
pub type PersonLookup = Arc<dyn Fn(&str) -> PersonFuture + Send + Sync>;
/// See [`PersonLookup`].
pub type PersonFuture = Pin<
    Box<
        dyn Future<Output = Result<Option<ListedPerson>, Box<dyn std::error::Error + Send + Sync>>>
            + Send,
    >,
>;

struct Inner {
    directory: PathBuf,
    config: Config,
    sql: Sql,
    /// The same with connections of its own: many people must not keep devices waiting.
    people: Sql,
    root: Certificate,
    authorities: RwLock<Arc<Authorities>>,
    /// Held while authorities are taken up or put to use.
    authority_turn: tokio::sync::Mutex<()>,
    trust: TrustStore,
    status: StatusCache,
    ocsp: Ocsp,
    cmp: Cmp,
    scep: Scep,
    acme: Acme,
    profiles: Profiles,
    known_names: std::sync::Mutex<names::KnownNames>,
    lists: Lists,
    holds: HoldsCompared,
    batches: Batches,
    turn: WriteTurn,
    /// Held while a step of a request is made.
    request_turn: tokio::sync::Mutex<()>,
    /// Emergencies without their second approval, as last counted.
    overdue: std::sync::atomic::AtomicI64,
    audit: Arc<dyn AuditSink>,
    pool: Pool,
    /// For signatures of the authorities.
    signers: SigningPools,
    /// Refused enrolments by action and network.
    refusals: std::sync::Mutex<audit::Repeats>,
    /// Wrong codes, by name and host.
    attempts: std::sync::Mutex<audit::Repeats>,
}

/// Wrong codes that one host tries for one name before it is told that it tried too many. Our choice: more than anybody
/// mistypes. It protects no code: each has a hundred random bits, and the right one is always taken.
const ATTEMPTS: audit::RepeatBounds = audit::RepeatBounds {
    recorded: 10,
    interval: std::time::Duration::from_secs(600),
    causes: 10_000,
};

/// Refused enrolments of one network that are events: anybody may ask, and the log is for ever.
const REFUSALS: audit::RepeatBounds = audit::RepeatBounds {
    recorded: 10,
    interval: std::time::Duration::from_secs(600),
    causes: 1000,
};

impl Registry {
    /// Creates keys and certificates of the hierarchy below `directory`.
    ///
    /// All of it appears at once: a crash leaves nothing that a second call would stumble over.
    /// Blocks for the time of key derivation, a few seconds.
    ///
    /// # Errors
    /// [`RegistryError::AlreadyInitialised`] if there is a hierarchy; otherwise the reason.
    pub fn init(
        directory: &Path,
        config: &Config,
        passphrases: &Passphrases,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        files::create(directory, config, passphrases, now)
    }

    /// Whether `directory` holds a hierarchy.
    ///
    /// # Errors
    /// Any error of looking: it does not say that there is none.
    pub fn is_initialised(directory: &Path) -> std::io::Result<bool> {
        files::exists(directory)
    }

    /// Opens the registry, renews the revocation lists and fills the status cache.
    ///
    /// # Errors
    /// [`RegistryError`]: files missing or unreadable, wrong passphrase, database.
    pub async fn open(
        directory: &Path,
        config: Config,
        issuing_passphrase: &Passphrase,
        audit: Arc<dyn AuditSink>,
        now: OffsetDateTime,
    ) -> Result<Self, RegistryError> {
        if !Self::is_initialised(directory).map_err(files::io("look into", directory))? {
            return Err(RegistryError::NotInitialised(directory.to_owned()));
        }
        let root = files::root(directory)?;
        let status = StatusCache::new();
        let trust = TrustStore::new(std::slice::from_ref(&root), &[])?
            .with_status(status.clone())
            .with_arc(config.arc);
        let cmp = match config.cmp {
            true => Cmp::open(directory, &config, issuing_passphrase)?,
            false => Cmp::default(),
        };
        let acme = match config.acme {
            true => Acme::open(directory, &config, issuing_passphrase)?,
            false => Acme::default(),
        };
        let file = directory.join(FILE);
        let sql = Sql::open_watched(&file, schema::MIGRATIONS, rows_log::WATCHED).await?;
        let people = sql.with_own_readers(&file).await?;
        let registry = Self {
            inner: Arc::new(Inner {
                directory: directory.to_owned(),
                config,
                sql,
                people,
                root,
                authorities: RwLock::default(),
                authority_turn: tokio::sync::Mutex::default(),
                trust,
                status,
                ocsp: Ocsp::default(),
                cmp,
                scep: Scep::default(),
                acme,
                profiles: Profiles::default(),
                known_names: std::sync::Mutex::default(),
                lists: Lists::default(),
                holds: HoldsCompared::default(),
                batches: Batches::default(),
                turn: WriteTurn::default(),
                request_turn: tokio::sync::Mutex::default(),
                overdue: std::sync::atomic::AtomicI64::default(),
                audit,
                pool: Pool::new(Share::Registry),
                signers: SigningPools::new(),
                refusals: std::sync::Mutex::new(audit::Repeats::new(REFUSALS)),
                attempts: std::sync::Mutex::new(audit::Repeats::new(ATTEMPTS)),
            }),
            address: None,
            request: None,
            people: None,
            protocol: None,
        };
        registry.load_authorities(issuing_passphrase, now).await?;
        registry.take_root_list(now)?;
        // Steps of requests that the last run began and did not end.
        if let Err(error) = registry.settle_writing(now).await {
            // A profile that was changed is named.
            registry.load_profiles().await?;
            return Err(error);
        }
        registry.note_authorities(now).await?;
        registry.settle_steps(now).await?;
        registry.load_profiles().await?;
        registry.load_revocations().await?;
        registry.load_shards(now).await?;
        // The whole lists always anew: the last run may have ended between a revocation and its list.
        let held = registry.held();
        for (id, authority) in &held.all {
            if !registry.is_needed(&held, *id, now) {
                continue;
            }
            let renewed = registry.renew_crl(*id, now).await;
            if let Err(error) = renewed {
                // A site that cannot issue does not start; without the lists of a generation that issues no more it does.
                if authority.has_key() || held.state(*id) == Some(AuthorityState::Issuing) {
                    return Err(error);
                }
                tracing::error!(authority = %id, "no revocation lists are made: its key is not there");
            }
        }
        Ok(registry)
    }

    /// The same registry for a request from `address`, which stands in the events of what is done
    /// by this clone.
    #[must_use]
    pub fn at_address(&self, address: Option<IpAddr>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            address,
            request: None,
            people: self.people.clone(),
            protocol: self.protocol,
        }
    }

    /// The same registry with a directory, without which no person enrols or renews: it says who may by now.
    #[must_use]
    pub fn with_people(&self, people: PersonLookup) -> Self {
        Self {
            people: Some(people),
            ..self.clone()
        }
    }

    /// The same registry for an act of `warrant`: its events name the request, so that each can be followed to the
    /// approvals, and back from a request that was interrupted.
    fn on_behalf(&self, warrant: &Warrant) -> Self {
        let request = warrant.approved().map(|approved| approved.request());
        Self {
            request: request.map(|request| request.id().0.clone()),
            ..self.clone()
        }
    }

    #[must_use]
    pub fn root(&self) -> &Certificate {
        &self.inner.root
    }

    /// Root and issuing authorities, root first: what EST calls "CA certificates".
    #[must_use]
    pub fn authorities(&self) -> Vec<Certificate> {
        let held = self.held();
        // One that was dropped issued nothing.
        let issued = held
            .all
            .values()
            .filter(|one| !held.standings.never_issued(one.id));
        let issued = issued.map(|one| one.certificate().clone());
        std::iter::once(self.inner.root.clone())
            .chain(issued)
            .collect()
    }

    /// The certificate of the generation that issues.
    #[must_use]
    pub fn authority_certificate(&self, kind: CaKind) -> Option<Certificate> {
        Some(self.issuing(kind).ok()?.certificate().clone())
    }

    /// A trust store for this hierarchy that sees revocations at once.
    #[must_use]
    pub fn trust(&self) -> TrustStore {
        self.inner.trust.clone()
    }

    /// The revocation status that [`Self::trust`] looks into.
    #[must_use]
    pub fn status(&self) -> StatusCache {
        self.inner.status.clone()
    }

    /// Whether the clock is not behind what was known before, so that certificates may be issued by it.
    #[must_use]
    pub fn is_clock_right(&self, now: OffsetDateTime) -> bool {
        self.inner.config.clock.check(now).is_ok()
    }

    /// Ends all use of the database.
    pub async fn close(&self, now: OffsetDateTime) {
        let turn = self.inner.turn.wait().await;
        // Without this note the next run records which transactions took effect, which holds as well.
        if let Err(error) = self.end_writing(turn, now).await {
            tracing::debug!(error = %error_report::Report(&error), "the end is not noted");
        }
        self.inner.people.close_readers().await;
        self.inner.sql.close().await;
    }

    /// Connections to ask about a holder of this authority by.
    fn readers(&self, authority: CaKind) -> &store::sqlx::SqlitePool {
        match authority {
            CaKind::Users => self.inner.people.read(),
            CaKind::Devices | CaKind::Services => self.inner.sql.read(),
        }
    }

    /// Records `event`, on a thread that may block; durable on return.
    async fn record(&self, event: Event) -> Result<(), RegistryError> {
        self.record_all(vec![event]).await
    }

    /// Records `events` in their order; all are durable on return.
    async fn record_all(&self, events: Vec<Event>) -> Result<(), RegistryError> {
        if events.is_empty() {
            return Ok(());
        }
        let (audit, events) = (Arc::clone(&self.inner.audit), self.told(events));
        self.inner
            .pool
            .run(move || audit.record_all(events))
            .await
            .map_err(|_| RegistryError::Interrupted)?
            .map_err(RegistryError::Audit)?;
        Ok(())
    }

    /// Adds to events what this clone knows of the request that it serves.
    fn told(&self, events: Vec<Event>) -> Vec<Event> {
        let context = context::Registry {
            address: self.address.map(|address| address.to_string()),
            protocol: self.protocol.map(|protocol| protocol.name().to_owned()),
            request: self.request.clone(),
            ..context::Registry::default()
        };
        let told = |event: Event| context.clone().add_to(event);
        events.into_iter().map(told).collect()
    }
}
