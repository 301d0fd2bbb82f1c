//! What is asked: an action on a resource.

use std::fmt;

use pki::clearance::Clearance;

/// An act that somebody asks for.
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
    CameraList,
    /// Read the audit log.
    AuditRead,
    RegistryIssue,
    RegistryRevoke,
    /// See registration requests with what is known of their subjects, and take steps with them; what becomes of
    /// each is decided by its own rules on top.
    RegistryRequest,
    /// Ask for a certificate of the own and see what became of it.
    RegistryApply,
    DirectoryRead,
    DirectoryWrite,
}

impl Action {
    pub const ALL: [Self; 13] = [
        Self::EvidenceList,
        Self::EvidenceView,
        Self::EvidenceOpenMedium,
        Self::EvidenceReview,
        Self::EvidenceExport,
        Self::CameraList,
        Self::AuditRead,
        Self::RegistryIssue,
        Self::RegistryRevoke,
        Self::RegistryRequest,
        Self::RegistryApply,
        Self::DirectoryRead,
        Self::DirectoryWrite,
    ];

    /// The action's name in rules and in the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EvidenceList => "evidence.list",
            Self::EvidenceView => "evidence.view",
            Self::EvidenceOpenMedium => "evidence.open-medium",
            Self::EvidenceReview => "evidence.review",
            Self::EvidenceExport => "evidence.export",
            Self::CameraList => "camera.list",
            Self::AuditRead => "audit.read",
            Self::RegistryIssue => "registry.issue",
            Self::RegistryRevoke => "registry.revoke",
            Self::RegistryRequest => "registry.request",
            Self::RegistryApply => "registry.apply",
            Self::DirectoryRead => "directory.read",
            Self::DirectoryWrite => "directory.write",
        }
    }

    /// Whether the action concerns one piece of evidence rather than the system.
    #[must_use]
    pub const fn on_evidence(self) -> bool {
        matches!(
            self,
            Self::EvidenceView
                | Self::EvidenceOpenMedium
                | Self::EvidenceReview
                | Self::EvidenceExport
        )
    }
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
}

/// The audit log's name of it.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Violation { id, .. } => write!(f, "violation/{id}"),
        }
    }
}

/// Circumstances of a request; the rules use none so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {}
