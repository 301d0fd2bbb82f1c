//! What is asked: an action on a resource.

use std::collections::BTreeSet;
use std::fmt;

use event_catalogue::decision::Act;
use pki::clearance::Clearance;

use crate::Role;

/// An act that the access rules decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// See a list of violations (each row is decided as [`Self::EvidenceView`] on top).
    EvidenceList,
    /// See the facts and the small picture of a violation.
    EvidenceView,
    /// Open a picture or film in full.
    EvidenceOpenMedium,
    /// Accept or reject a violation.
    EvidenceReview,
    /// Take a custody package out of the system.
    EvidenceExport,
    /// See which blocks were set apart, and why.
    QuarantineList,
    /// Verify a block in quarantine again, which reads what is inside.
    QuarantineExamine,
    /// Propose, confirm, withdraw or carry out the release or destruction of a block in quarantine.
    QuarantineDecide,
    CameraList,
    /// Read the audit log.
    AuditRead,
    /// See authorities, profiles, revocation lists and the state of the site.
    SiteRead,
    /// See holders, certificates and registration requests by command.
    RegistryRead,
    /// Give codes and certificates to devices, gateways and servers.
    DeviceEnrol,
    /// Revoke, suspend, resume, retire or readmit devices, gateways and servers.
    DeviceChange,
    /// Give codes and certificates to people.
    PersonCertify,
    /// Revoke, suspend, resume, retire or readmit people, or revoke one certificate by its number.
    PersonChange,
    /// Put a certificate profile in force.
    ProfilePut,
    /// Renew, make, activate, drop or install issuing authorities.
    AuthorityChange,
    /// See registration requests with what is known of their subjects, and take steps with them; what becomes of
    /// each is decided by its own rules on top.
    RegistryRequest,
    /// Ask for a certificate of one's own and see what became of it.
    RegistryApply,
    DirectoryRead,
    /// Look colleagues up: contact data, units, certificates.
    DirectoryLookUp,
    DirectoryWrite,
    /// Hand in a tunnel daemon's events, and ask which devices it must refuse.
    GatewayReport,
    /// Open a foreign application, or log in to it.
    ServiceOpen,
    /// Add, change or remove a service.
    ServiceWrite,
}

impl Action {
    pub const ALL: [Self; 26] = [
        Self::EvidenceList,
        Self::EvidenceView,
        Self::EvidenceOpenMedium,
        Self::EvidenceReview,
        Self::EvidenceExport,
        Self::QuarantineList,
        Self::QuarantineExamine,
        Self::QuarantineDecide,
        Self::CameraList,
        Self::AuditRead,
        Self::SiteRead,
        Self::RegistryRead,
        Self::DeviceEnrol,
        Self::DeviceChange,
        Self::PersonCertify,
        Self::PersonChange,
        Self::ProfilePut,
        Self::AuthorityChange,
        Self::RegistryRequest,
        Self::RegistryApply,
        Self::DirectoryRead,
        Self::DirectoryLookUp,
        Self::DirectoryWrite,
        Self::GatewayReport,
        Self::ServiceOpen,
        Self::ServiceWrite,
    ];

    /// The action's name in rules and in the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        let act = match self {
            Self::EvidenceList => Act::EvidenceList,
            Self::EvidenceView => Act::EvidenceView,
            Self::EvidenceOpenMedium => Act::EvidenceOpenMedium,
            Self::EvidenceReview => Act::EvidenceReview,
            Self::EvidenceExport => Act::EvidenceExport,
            Self::QuarantineList => Act::QuarantineList,
            Self::QuarantineExamine => Act::QuarantineExamine,
            Self::QuarantineDecide => Act::QuarantineDecide,
            Self::CameraList => Act::CameraList,
            Self::AuditRead => Act::AuditRead,
            Self::SiteRead => Act::SiteRead,
            Self::RegistryRead => Act::RegistryRead,
            Self::DeviceEnrol => Act::DeviceEnrol,
            Self::DeviceChange => Act::DeviceChange,
            Self::PersonCertify => Act::PersonCertify,
            Self::PersonChange => Act::PersonChange,
            Self::ProfilePut => Act::ProfilePut,
            Self::AuthorityChange => Act::AuthorityChange,
            Self::RegistryRequest => Act::RegistryRequest,
            Self::RegistryApply => Act::RegistryApply,
            Self::DirectoryRead => Act::DirectoryRead,
            Self::DirectoryLookUp => Act::DirectoryLookUp,
            Self::DirectoryWrite => Act::DirectoryWrite,
            Self::GatewayReport => Act::GatewayReport,
            Self::ServiceOpen => Act::ServiceOpen,
            Self::ServiceWrite => Act::ServiceWrite,
        };
        act.action()
    }

    /// Tells whether the action only shows lists and states of the system.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(
            self,
            Self::EvidenceList
                | Self::QuarantineList
                | Self::CameraList
                | Self::AuditRead
                | Self::SiteRead
                | Self::RegistryRead
                | Self::DirectoryRead
                | Self::DirectoryLookUp
        )
    }

    /// The kind of resource that the action is about.
    #[must_use]
    pub const fn target(self) -> Target {
        match self {
            Self::EvidenceView
            | Self::EvidenceOpenMedium
            | Self::EvidenceReview
            | Self::EvidenceExport => Target::Violation,
            Self::QuarantineExamine | Self::QuarantineDecide => Target::Block,
            Self::ServiceOpen | Self::ServiceWrite => Target::Service,
            Self::EvidenceList
            | Self::QuarantineList
            | Self::CameraList
            | Self::AuditRead
            | Self::SiteRead
            | Self::RegistryRead
            | Self::DeviceEnrol
            | Self::DeviceChange
            | Self::PersonCertify
            | Self::PersonChange
            | Self::ProfilePut
            | Self::AuthorityChange
            | Self::RegistryRequest
            | Self::RegistryApply
            | Self::DirectoryRead
            | Self::DirectoryLookUp
            | Self::DirectoryWrite
            | Self::GatewayReport => Target::System,
        }
    }
}

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    System,
    Violation,
    /// A block in quarantine.
    Block,
    /// A foreign application.
    Service,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The object of the act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The system as a whole.
    System,
    /// A piece of evidence.
    Violation {
        id: String,
        /// The unit it belongs to.
        unit: String,
        /// Clearance needed to see it.
        classification: Clearance,
    },
    /// A sealed block in quarantine, which is not evidence yet.
    Block {
        /// SHA-256 of the block, in hexadecimal.
        id: String,
        /// The unit of the camera that brought it.
        unit: String,
        /// Clearance needed to see what is inside.
        classification: Clearance,
    },
    /// A foreign application that people open through the portal.
    Service {
        id: String,
        /// Clearance needed to open it.
        level: Clearance,
        /// A person needs one of these roles.
        roles: BTreeSet<Role>,
        /// A person works for one of these units; empty for people of any unit.
        units: BTreeSet<String>,
    },
}

impl Resource {
    /// The system as a whole.
    #[must_use]
    pub fn system() -> Self {
        Self::System
    }

    /// A piece of evidence.
    #[must_use]
    pub fn violation(id: &str, unit: &str, classification: Clearance) -> Self {
        Self::Violation {
            id: id.to_owned(),
            unit: unit.to_owned(),
            classification,
        }
    }

    /// A block in quarantine.
    #[must_use]
    pub fn block(id: &str, unit: &str, classification: Clearance) -> Self {
        Self::Block {
            id: id.to_owned(),
            unit: unit.to_owned(),
            classification,
        }
    }

    /// A foreign application.
    #[must_use]
    pub fn service(
        id: &str,
        level: Clearance,
        roles: &BTreeSet<Role>,
        units: &BTreeSet<String>,
    ) -> Self {
        Self::Service {
            id: id.to_owned(),
            level,
            roles: roles.clone(),
            units: units.clone(),
        }
    }
}

/// The audit log's name of it.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Violation { id, .. } => write!(f, "violation/{id}"),
            Self::Block { id, .. } => write!(f, "block/{id}"),
            Self::Service { id, .. } => write!(f, "service/{id}"),
        }
    }
}

/// Circumstances of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// The site takes changes by command from people with certificates only
    /// (`administration.require = "certificate"`).
    pub persons_only: bool,
}
