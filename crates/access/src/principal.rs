//! Principals: people who proved who they are.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use pki::clearance::Clearance;
use pki::path::{Identity, SubjectKind};
use serde::{Deserialize, Serialize};

/// A password proves less than a key on a card, so it opens nothing above this level, whatever
/// the directory says.
pub const PASSWORD_CEILING: Clearance = Clearance::Restricted;

/// A person's duty; a person may have several roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees the evidence of the own units.
    Officer,
    /// Also accepts, rejects and exports it.
    Reviewer,
    /// Reads the audit log, no evidence.
    Auditor,
    /// Issues and revokes certificates.
    Registrar,
    Administrator,
}

impl Role {
    pub const ALL: [Self; 5] = [
        Self::Officer,
        Self::Reviewer,
        Self::Auditor,
        Self::Registrar,
        Self::Administrator,
    ];

    /// The role's name in rules, directory and audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Officer => "officer",
            Self::Reviewer => "reviewer",
            Self::Auditor => "auditor",
            Self::Registrar => "registrar",
            Self::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no role")]
pub struct UnknownRole(pub String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

/// The directory's entry of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonRecord {
    pub uid: String,
    pub name: String,
    pub organisation: String,
    /// Highest clearance the person may use.
    pub clearance: Clearance,
    /// Roles of the person.
    pub roles: BTreeSet<Role>,
    /// Units the person works for.
    pub units: BTreeSet<String>,
    /// Whether the person may log in.
    pub active: bool,
}

/// Proof of a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By the key of a certificate with this SHA-256 fingerprint.
    Certificate { fingerprint: String },
    /// By name and password.
    Password,
    /// By an account on the site's own machine, as the kernel names it: a command without a
    /// person's certificate.
    Console,
}

impl Credential {
    /// The kind of proof, as the rules name it.
    #[must_use]
    pub const fn login(&self) -> Login {
        match self {
            Self::Certificate { .. } => Login::Certificate,
            Self::Password => Login::Password,
            Self::Console => Login::Console,
        }
    }
}

/// Kinds of proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Login {
    Certificate,
    Password,
    Console,
}

impl Login {
    /// The kind's name in the rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Password => "password",
            Self::Console => "console",
        }
    }
}

/// As events have it.
impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate { fingerprint } => write!(f, "certificate {fingerprint}"),
            Self::Password => f.write_str("password"),
            Self::Console => f.write_str("console"),
        }
    }
}

/// A person who proved who they are, with what they may at most see.
///
/// Fields are private: a principal cannot be made or raised by anything but its constructors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    uid: String,
    name: String,
    organisation: String,
    clearance: Clearance,
    roles: BTreeSet<Role>,
    units: BTreeSet<String>,
    credential: Credential,
    address: Option<IpAddr>,
    console: Option<String>,
}

/// Why somebody with valid credentials is no principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// A device or service where a person is expected.
    #[error("the certificate of {0} does not belong to a person")]
    NotAPerson(String),
    /// The certificate names nobody.
    #[error("the certificate of {0} carries no user id")]
    NoUserId(String),
    /// Certificate and directory speak of different people.
    #[error("the certificate is for {certificate}, the directory entry for {directory}")]
    OtherPerson {
        /// User id in the certificate.
        certificate: String,
        /// User id of the entry.
        directory: String,
    },
    /// The directory forbids it.
    #[error("the account of {0} is disabled")]
    Disabled(String),
}

impl PrincipalError {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotAPerson(_) => "not-a-person",
            Self::NoUserId(_) => "no-user-id",
            Self::OtherPerson { .. } => "other-person",
            Self::Disabled(_) => "account-disabled",
        }
    }
}

impl Principal {
    /// The person of `record`, proved by the validated certificate `identity`.
    ///
    /// The clearance is the lower one of both: a certificate is an upper bound, and lowering the
    /// directory's value takes effect without a revocation.
    ///
    /// # Errors
    /// [`PrincipalError`], one variant per reason.
    pub fn by_certificate(
        identity: &Identity,
        record: &PersonRecord,
    ) -> Result<Self, PrincipalError> {
        if identity.kind != SubjectKind::User {
            return Err(PrincipalError::NotAPerson(identity.common_name.clone()));
        }
        let Some(uid) = &identity.uid else {
            return Err(PrincipalError::NoUserId(identity.common_name.clone()));
        };
        if *uid != record.uid {
            return Err(PrincipalError::OtherPerson {
                certificate: uid.clone(),
                directory: record.uid.clone(),
            });
        }
        let credential = Credential::Certificate {
            fingerprint: identity.fingerprint.clone(),
        };
        Self::new(record, identity.clearance, credential)
    }

    /// The person of `record`, whose password was checked.
    ///
    /// A password gives the role of an officer at most: others may have set it, so it must not let them decide, approve,
    /// audit or administer as that person. A reviewer still sees evidence, up to [`PASSWORD_CEILING`].
    ///
    /// # Errors
    /// [`PrincipalError::Disabled`].
    pub fn by_password(record: &PersonRecord) -> Result<Self, PrincipalError> {
        let sees_evidence = [Role::Officer, Role::Reviewer];
        let sees_evidence = sees_evidence.iter().any(|role| record.roles.contains(role));
        let principal = Self::new(record, PASSWORD_CEILING, Credential::Password)?;
        Ok(Self {
            roles: sees_evidence.then_some(Role::Officer).into_iter().collect(),
            ..principal
        })
    }

    fn new(
        record: &PersonRecord,
        ceiling: Clearance,
        credential: Credential,
    ) -> Result<Self, PrincipalError> {
        if !record.active {
            return Err(PrincipalError::Disabled(record.uid.clone()));
        }
        Ok(Self {
            uid: record.uid.clone(),
            name: record.name.clone(),
            organisation: record.organisation.clone(),
            clearance: record.clearance.min(ceiling),
            roles: record.roles.clone(),
            units: record.units.clone(),
            credential,
            address: None,
            console: None,
        })
    }

    /// The account `id` (such as `unix:0`) on the site's own machine, which nobody proved to be a
    /// person: without clearance, roles and units, so that only rules that name the console permit
    /// it anything.
    #[must_use]
    pub fn console(id: &str, name: &str) -> Self {
        Self {
            uid: id.to_owned(),
            name: name.to_owned(),
            organisation: String::new(),
            clearance: Clearance::Unclassified,
            roles: BTreeSet::new(),
            units: BTreeSet::new(),
            credential: Credential::Console,
            address: None,
            console: None,
        }
    }

    /// The same person, giving a command as the Unix user `console`. The name decides nothing and
    /// stands in the events of what the person does.
    #[must_use]
    pub fn at_console(mut self, console: String) -> Self {
        self.console = Some(console);
        self
    }

    /// Returns the Unix user as whom the person gives a command, if it is one.
    #[must_use]
    pub fn unix_user(&self) -> Option<&str> {
        self.console.as_deref()
    }

    /// The same person, asking from `address`. It decides nothing and stands in the events of what
    /// the person does.
    #[must_use]
    pub fn at_address(mut self, address: Option<IpAddr>) -> Self {
        self.address = address;
        self
    }

    /// Returns the address from which the person asks, if that is known.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn organisation(&self) -> &str {
        &self.organisation
    }

    /// Effective clearance: the lowest of certificate, directory and strength of the login.
    #[must_use]
    pub fn clearance(&self) -> Clearance {
        self.clearance
    }

    /// Returns the person's roles.
    #[must_use]
    pub fn roles(&self) -> &BTreeSet<Role> {
        &self.roles
    }

    /// Whether the person has this role.
    #[must_use]
    pub fn has_role(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Units the person works for.
    #[must_use]
    pub fn units(&self) -> &BTreeSet<String> {
        &self.units
    }

    /// Returns the proof of the person.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }
}
