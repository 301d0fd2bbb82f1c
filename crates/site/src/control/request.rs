//! What can be asked of a site, and who may ask for it.

use std::path::PathBuf;

use access::Action;
use registry::HolderChange;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::administration::QuarantineOrder;
use crate::orders::{Holder, InviteOrder, RequestOrder};
use crate::service_orders::ServiceOrder;

/// Longest request or answer; an import of some thousand people fits.
pub(super) const MAX_MESSAGE: u64 = 16 << 20;

/// A site's answer to a request.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Done(serde_json::Value),
    Failed { message: String, hint: String },
}

/// What can be asked of a site.
#[derive(Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Certificate and key for a person, as PKCS#12.
    IssueUser {
        uid: String,
        /// Name of the profile, if it is not the one for logging in.
        #[serde(default)]
        profile: Option<String>,
        password: Zeroizing<String>,
    },
    /// Profiles of certificates that are issued on request.
    ListProfiles,
    /// Put a profile in force.
    PutProfile {
        definition: String,
    },
    Revoke {
        whose: Whose,
        reason: String,
    },
    /// Suspend, resume, retire or readmit a device or person.
    Change {
        holder: Holder,
        change: Change,
    },
    /// Devices and people with their states.
    ListHolders,
    ListCertificates,
    /// One-time code for a device.
    Code {
        device: String,
        clearance: u8,
        hours: u32,
    },
    /// Code by which a person has a key of their own certified.
    Invite {
        order: InviteOrder,
        /// Also for CMP.
        #[serde(default)]
        cmp: bool,
    },
    /// Add or update people, one JSON object a line.
    Import {
        people: Zeroizing<String>,
        /// Also enables who is disabled.
        enable: bool,
    },
    ListPeople,
    Password {
        uid: String,
        password: Zeroizing<String>,
    },
    Disable {
        uid: String,
    },
    /// Admit a holder again.
    Enable {
        uid: String,
    },
    /// Write a custody package.
    Export {
        id: String,
        out: PathBuf,
    },
    /// What a verifier of custody packages must know.
    Trust,
    Openvpn(tunnel_tools::CertificateRequest),
    /// Problems, warnings, and the accelerator.
    Status,
    /// The current revocation lists.
    Crls,
    /// Names of devices that are not enrolled.
    RefusedDevices,
    /// Which of these certificates of devices, by serial number, are not to be accepted any more.
    Standings {
        serials: Vec<String>,
    },
    /// Blocks that were set apart.
    Quarantine(QuarantineOrder),
    /// Requests for acts that need approval.
    Registration(RequestOrder),
    /// Give the issuing authorities new certificates, with the root's key.
    RenewAuthorities {
        root_passphrase: Zeroizing<String>,
    },
    /// The issuing authorities, with their generations.
    ListAuthorities,
    /// Make another generation of an authority, with the root's key.
    NewAuthority {
        kind: String,
        root_passphrase: Zeroizing<String>,
    },
    /// Have a generation issue, in place of the one before.
    ActivateAuthority {
        name: String,
    },
    /// Give up a generation that waits for activation.
    DropAuthority {
        name: String,
    },
    /// Install what a ceremony made.
    InstallAuthorities {
        ceremony: PathBuf,
        root_sha256: Option<String>,
        /// Of the authorities' keys.
        passphrase: Zeroizing<String>,
    },
    /// Show or change services.
    Service(Box<ServiceOrder>),
    /// Record a tunnel daemon's events in the central log.
    Journal {
        /// Number of the first in the daemon's journal.
        first: u64,
        /// As they came: one that is not an event must not keep the others out.
        events: Vec<serde_json::Value>,
    },
}

/// Whose certificates to revoke.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// All of a person.
    Uid(String),
    /// All of a device.
    Device(String),
    /// All of a gateway.
    Gateway(String),
    /// All of a server of the network.
    Server(String),
    Serial(String),
}

/// What to do with a device or person; revoking has its own request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Refuse for the time being.
    Suspend,
    Resume,
    Retire,
    /// Allow new certificates after a revocation.
    Readmit,
}

impl From<Change> for HolderChange {
    fn from(change: Change) -> Self {
        match change {
            Change::Suspend => Self::Suspend,
            Change::Resume => Self::Resume,
            Change::Retire => Self::Retire,
            Change::Readmit => Self::Readmit,
        }
    }
}

/// The question that the access rules answer before a command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// About the system as a whole: decided before anything else happens.
    OfSystem(Action),
    /// About one piece of evidence, block or service: the code that finds it asks, with its classification and unit. The acts take
    /// a [`access::Principal`] and cannot be called without one.
    OfItem,
}

impl Request {
    /// What the access rules must permit.
    pub fn question(&self) -> Question {
        let action = match self {
            Self::Export { .. } => return Question::OfItem,
            Self::Quarantine(QuarantineOrder::List) => Action::QuarantineList,
            Self::Quarantine(_) => return Question::OfItem,
            Self::Service(order) if order.reads() => Action::DirectoryRead,
            Self::Service(order) if matches!(**order, ServiceOrder::RollKey) => {
                Action::AuthorityChange
            }
            Self::Service(_) => return Question::OfItem,
            Self::ListProfiles
            | Self::ListAuthorities
            | Self::Trust
            | Self::Status
            | Self::Crls => Action::SiteRead,
            Self::ListHolders
            | Self::ListCertificates
            | Self::Registration(RequestOrder::List { .. } | RequestOrder::Show { .. }) => {
                Action::RegistryRead
            }
            Self::ListPeople => Action::DirectoryRead,
            Self::RefusedDevices | Self::Standings { .. } | Self::Journal { .. } => {
                Action::GatewayReport
            }
            // Rights to single acts are looked up when each step is taken (`approval`).
            Self::Registration(_) => Action::RegistryApply,
            Self::Code { .. }
            | Self::Openvpn(_)
            | Self::Invite {
                order:
                    InviteOrder {
                        holder: Holder::Device(_) | Holder::Server(_),
                        ..
                    },
                ..
            } => Action::DeviceEnrol,
            Self::Revoke {
                whose: Whose::Device(_) | Whose::Gateway(_) | Whose::Server(_),
                ..
            }
            | Self::Change {
                holder: Holder::Device(_) | Holder::Gateway(_) | Holder::Server(_),
                ..
            } => Action::DeviceChange,
            Self::IssueUser { .. } | Self::Invite { .. } => Action::PersonCertify,
            Self::Revoke { .. } | Self::Change { .. } => Action::PersonChange,
            Self::PutProfile { .. } => Action::ProfilePut,
            Self::Import { .. }
            | Self::Password { .. }
            | Self::Disable { .. }
            | Self::Enable { .. } => Action::DirectoryWrite,
            Self::RenewAuthorities { .. }
            | Self::NewAuthority { .. }
            | Self::ActivateAuthority { .. }
            | Self::DropAuthority { .. }
            | Self::InstallAuthorities { .. } => Action::AuthorityChange,
        };
        Question::OfSystem(action)
    }

    /// The command's name, for the event of a refusal.
    pub fn name(&self) -> &'static str {
        match self {
            Self::IssueUser { .. } => "issue-user",
            Self::ListProfiles => "list-profiles",
            Self::PutProfile { .. } => "put-profile",
            Self::Revoke { .. } => "revoke",
            Self::Change { .. } => "change",
            Self::ListHolders => "list-holders",
            Self::ListCertificates => "list-certificates",
            Self::Code { .. } => "code",
            Self::Invite { .. } => "invite",
            Self::Import { .. } => "import",
            Self::ListPeople => "list-people",
            Self::Password { .. } => "password",
            Self::Disable { .. } => "disable",
            Self::Enable { .. } => "enable",
            Self::Export { .. } => "export",
            Self::Trust => "trust",
            Self::Openvpn(_) => "openvpn",
            Self::Status => "status",
            Self::Crls => "crls",
            Self::RefusedDevices => "refused-devices",
            Self::Standings { .. } => "standings",
            Self::Quarantine(_) => "quarantine",
            Self::Registration(_) => "request",
            Self::RenewAuthorities { .. } => "renew-authorities",
            Self::ListAuthorities => "list-authorities",
            Self::NewAuthority { .. } => "new-authority",
            Self::ActivateAuthority { .. } => "activate-authority",
            Self::DropAuthority { .. } => "drop-authority",
            Self::InstallAuthorities { .. } => "install-authorities",
            Self::Journal { .. } => "journal",
            Self::Service(_) => "service",
        }
    }
}
