//! The founding of a site: its first administrators and registrars, each with a certification request for a key of their
//! own, in a transcript that is the first event of the log.
//!
//! Before anybody can approve, approvals cannot be required. So the transcript counts as the first quorum: it names at least
//! two administrators and two registrars with different keys, and each of them gets one certificate, as the transcript says.
//! [`issue_founder`] reads it from the log and from nowhere else; `completeness` verifies it again.

use std::collections::BTreeSet;

use audit::{AuditError, Event, Leaf, View};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use event_catalogue::Recorded as _;
use event_catalogue::site::Founded;
use pki::cert;
use pki::clearance::Clearance;
use pki::csr::{self, CsrError};
use pki::name::Subject;
use pki::profile::{CaKind, Profile};
use pki::spki::{SubjectPublicKeyInfoOwned, spki_sha256};
use serde::{Deserialize, Serialize};
use store::sqlx;
use time::OffsetDateTime;

use crate::certificate_order::Order;
use crate::error::RegistryError;
use crate::issue::{self, Issued};
use crate::{Registry, sha256};

/// Version of the transcript.
const VERSION: u32 = 1;
/// People of each role at least: one alone could approve nothing, and one who leaves must not end the registration.
const LEAST_OF_ROLE: usize = 2;
/// People at most. More come later, by requests that these approve.
const MOST_PEOPLE: usize = 12;
/// Bytes of the transcript at most, so that it fits into one event of the log with its escapes.
const MOST_BYTES: usize = 12_000;

/// What the log says of the founding. Serialises to the text of the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transcript {
    version: u32,
    pub organisation: String,
    /// Two capital letters.
    pub country: String,
    /// Names under which the servers are reached.
    pub names: Vec<String>,
    /// SHA-256 of the site's root certificate, hexadecimal.
    pub root_sha256: String,
    pub people: Vec<Founder>,
}

/// A person of the founding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Founder {
    pub uid: String,
    pub name: String,
    pub email: String,
    pub role: FounderRole,
    pub clearance: Clearance,
    pub units: BTreeSet<String>,
    /// Certification request for the person's own key (PKCS#10 in DER), base64.
    csr: String,
}

/// Role of a person of the founding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FounderRole {
    Administrator,
    Registrar,
}

/// Why a founding is not valid.
#[derive(Debug, thiserror::Error)]
pub enum FoundingError {
    #[error("the founding has version {0}")]
    Version(u32),
    #[error("the founding cannot be read")]
    Malformed(#[source] serde_json::Error),
    #[error("the founding names {found} of role {role}, and needs {LEAST_OF_ROLE}")]
    TooFew { role: &'static str, found: usize },
    #[error("the founding names {0} people, more than {MOST_PEOPLE}")]
    TooMany(usize),
    #[error("the founding has {0} bytes, more than {MOST_BYTES}")]
    TooLong(usize),
    #[error("the founding names {0} twice")]
    SamePerson(String),
    #[error("the founding has one key for {0} and {1}")]
    SameKey(String, String),
    #[error("the certification request of {uid} is not base64")]
    NotBase64 { uid: String },
    #[error("the certification request of {uid} is refused")]
    Csr { uid: String, source: CsrError },
    /// The log does not begin with one.
    #[error("the audit log does not begin with a founding")]
    NotFounded,
    #[error("the founding is of another root certificate")]
    OtherRoot,
    #[error("the founding does not name {0}")]
    Stranger(String),
}

impl FounderRole {
    const ALL: [Self; 2] = [Self::Administrator, Self::Registrar];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::Registrar => "registrar",
        }
    }

    /// Profile of the certificate.
    pub(crate) fn profile(self) -> Profile {
        Profile::User {
            administrator: self == Self::Administrator,
        }
    }
}

impl Founder {
    /// A person with the request for their key, in DER.
    pub fn new(
        (uid, name, email): (String, String, String),
        role: FounderRole,
        clearance: Clearance,
        units: BTreeSet<String>,
        csr: &[u8],
    ) -> Self {
        Self {
            uid,
            name,
            email,
            role,
            clearance,
            units,
            csr: STANDARD.encode(csr),
        }
    }

    /// The key, after the proof that its owner signed the request.
    fn key(&self) -> Result<SubjectPublicKeyInfoOwned, FoundingError> {
        let uid = || self.uid.clone();
        let der = STANDARD.decode(&self.csr);
        let der = der.map_err(|_| FoundingError::NotBase64 { uid: uid() })?;
        let refused = |source| FoundingError::Csr { uid: uid(), source };
        Ok(csr::parse_and_verify(&der).map_err(refused)?.spki)
    }

    /// SHA-256 of the key, as events name it.
    pub(crate) fn key_sha256(&self) -> Result<String, FoundingError> {
        let key = spki_sha256(&self.key()?);
        key.map_err(|_| FoundingError::NotBase64 {
            uid: self.uid.clone(),
        })
    }
}

impl Transcript {
    /// Puts a transcript together, and checks it.
    ///
    /// # Errors
    /// [`FoundingError`], one variant per reason.
    pub fn new(
        (organisation, country): (String, String),
        names: Vec<String>,
        root_der: &[u8],
        people: Vec<Founder>,
    ) -> Result<Self, FoundingError> {
        let transcript = Self {
            version: VERSION,
            organisation,
            country,
            names,
            root_sha256: sha256::sha256(root_der),
            people,
        };
        transcript.check()?;
        Ok(transcript)
    }

    /// The event that begins the log.
    ///
    /// # Errors
    /// [`FoundingError::Malformed`].
    pub fn event(&self, now: OffsetDateTime, by: audit::Actor) -> Result<Event, FoundingError> {
        let transcript = serde_json::to_string(self).map_err(FoundingError::Malformed)?;
        let founded = Founded { transcript };
        Ok(founded.into_event(now, by, "site/founding"))
    }

    /// Reads the event of a founding, and checks it.
    ///
    /// # Errors
    /// [`FoundingError`], one variant per reason.
    pub fn of_event(event: &Event) -> Result<Self, FoundingError> {
        let founded = Founded::from_event(event).ok_or(FoundingError::NotFounded)?;
        if founded.transcript.len() > MOST_BYTES {
            return Err(FoundingError::TooLong(founded.transcript.len()));
        }
        let read: Result<Self, _> = serde_json::from_str(&founded.transcript);
        let transcript = read.map_err(FoundingError::Malformed)?;
        transcript.check()?;
        Ok(transcript)
    }

    /// Reads the founding with which a log begins. `None`: it begins with another event, or is empty.
    ///
    /// # Errors
    /// [`FoundingError`] for a founding that is not valid; [`RegistryError`] if the log cannot be read.
    pub fn of_log(log: &View) -> Result<Option<Self>, RegistryError> {
        if log.size() == 0 {
            return Ok(None);
        }
        let bytes = log
            .entry(0)
            .map_err(|error| RegistryError::Log(error.into()))?;
        let leaf = Leaf::decode(&bytes);
        let damaged = |source| RegistryError::Log(AuditError::Leaf { index: 0, source });
        let leaf = leaf.map_err(damaged)?;
        if !is_founding(&leaf.event) {
            return Ok(None);
        }
        Ok(Some(Self::of_event(&leaf.event)?))
    }

    fn check(&self) -> Result<(), FoundingError> {
        if self.version != VERSION {
            return Err(FoundingError::Version(self.version));
        }
        if self.people.len() > MOST_PEOPLE {
            return Err(FoundingError::TooMany(self.people.len()));
        }
        for role in FounderRole::ALL {
            let found = self.people.iter().filter(|one| one.role == role).count();
            if found < LEAST_OF_ROLE {
                let role = role.name();
                return Err(FoundingError::TooFew { role, found });
            }
        }
        let mut keys: Vec<(String, &str)> = Vec::new();
        for person in &self.people {
            let key = person.key_sha256()?;
            for (known, uid) in &keys {
                // The registry takes user ids that differ in case for different ones; people do not.
                if uid.eq_ignore_ascii_case(&person.uid) {
                    return Err(FoundingError::SamePerson(person.uid.clone()));
                }
                if *known == key {
                    let uid = (*uid).to_owned();
                    return Err(FoundingError::SameKey(uid, person.uid.clone()));
                }
            }
            keys.push((key, &person.uid));
        }
        let text = serde_json::to_string(self).map_err(FoundingError::Malformed)?;
        match text.len() {
            length if length > MOST_BYTES => Err(FoundingError::TooLong(length)),
            _ => Ok(()),
        }
    }

    pub(crate) fn founder(&self, uid: &str) -> Option<&Founder> {
        self.people.iter().find(|person| person.uid == uid)
    }
}

/// Whether an event is a founding, valid or not.
pub(crate) fn is_founding(event: &Event) -> bool {
    event.role == "site" && event.action == Founded::ACTION
}

/// Issues the certificate of a person of the founding, as the first event of the log says; once. A later call gives the
/// certificate that was issued.
///
/// `subject` has the person's names for the certificate.
///
/// # Errors
/// [`RegistryError::Founding`] where the log does not begin with a founding of this root that names the person; or as
/// [`Registry::issue`].
pub async fn issue_founder(
    registry: &Registry,
    log: &View,
    subject: Subject,
    by: audit::Actor,
    now: OffsetDateTime,
) -> Result<Issued, RegistryError> {
    let transcript = Transcript::of_log(log)?.ok_or(FoundingError::NotFounded)?;
    if transcript.root_sha256 != sha256::sha256(&cert::to_der(registry.root())?) {
        return Err(FoundingError::OtherRoot.into());
    }
    let uid = subject.uid.clone().unwrap_or_default();
    let founder = transcript.founder(&uid);
    let founder = founder.ok_or_else(|| FoundingError::Stranger(uid.clone()))?;
    let key = founder.key_sha256()?;
    if let Some(issued) = issued_before(registry, &uid, &key).await? {
        return Ok(issued);
    }
    let order = Order::new(founder.role.profile(), subject, founder.key()?);
    let order = order.with_clearance(founder.clearance);
    issue::issue_founded(registry, order, by, now).await
}

/// The certificate of a former call.
async fn issued_before(
    registry: &Registry,
    uid: &str,
    key: &str,
) -> Result<Option<Issued>, RegistryError> {
    let serial: Option<String> = sqlx::query_scalar(
        "SELECT serial FROM issued WHERE authority = ? AND holder_id = ? AND spki_sha256 = ? LIMIT 1",
    )
    .bind(CaKind::Users.name())
    .bind(uid)
    .bind(key)
    .fetch_optional(registry.inner.sql.read())
    .await?;
    match serial {
        Some(serial) => {
            let record = registry.issued(CaKind::Users, &serial).await?;
            Ok(Some(record.into_issued(registry)?))
        }
        None => Ok(None),
    }
}
