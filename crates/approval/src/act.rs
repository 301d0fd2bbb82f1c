//! Acts that need approval.

use access::Role;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::WindowsAccount;
use serde::{Deserialize, Serialize};

use crate::Rights;

/// An act of the registration authority. Whatever changes what somebody may do is one of these, so that
/// no verb goes round the approvals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Act {
    /// Issues a certificate.
    Issue {
        subject: String,
        profile: String,
        clearance: Clearance,
        /// SHA-256 of the public key's `SubjectPublicKeyInfo` in hexadecimal: approvers approve this key.
        spki_sha256: String,
        /// The account in Windows that the certificate logs on to, where its profile names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<WindowsAccount>,
        /// Rights that a person had in the directory when this was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rights: Option<Rights>,
        /// Names of a person's certificate (RFC 4514), as the directory had them when this was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        distinguished_name: Option<String>,
        /// Marks an act that the person asked for with a password and nothing else: whoever set it may be the one who asks.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_password: bool,
    },
    /// Gives a code by which the subject has a key of its own certified (RFC 7030), once.
    Invite {
        subject: String,
        profile: String,
        clearance: Clearance,
        /// Unit in the certificate's name.
        unit: Option<String>,
        /// Time for which the code is good once it is given.
        hours: u32,
        /// Number of times that a person or server renews the certificate with it before somebody has to approve again.
        renewals: u8,
        /// Names by which a server is reached; nobody else has any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        names: Vec<String>,
        /// The account in Windows that the certificate logs on to, where its profile names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<WindowsAccount>,
        /// Rights that a person had in the directory when this was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rights: Option<Rights>,
        /// As of [`Self::Issue`], without the unit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        distinguished_name: Option<String>,
    },
    /// Issues a certificate for the same key anew.
    Renew {
        subject: String,
        serial: String,
        clearance: Clearance,
        /// As of [`Self::Issue`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rights: Option<Rights>,
    },
    /// Issues a certificate for a new key in place of another one.
    Rekey {
        subject: String,
        serial: String,
        clearance: Clearance,
        spki_sha256: String,
        /// As of [`Self::Issue`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rights: Option<Rights>,
    },
    /// Revokes a certificate for good.
    Revoke {
        subject: String,
        serial: String,
        clearance: Clearance,
        #[serde(with = "cause")]
        cause: RevocationReason,
        urgency: Urgency,
    },
    /// Gives an archived encryption key out.
    RecoverKey {
        subject: String,
        serial: String,
        clearance: Clearance,
        /// As of [`Self::Issue`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rights: Option<Rights>,
    },
    /// Puts a certificate profile in force that may grant up to `clearance`.
    ChangeProfile {
        profile: String,
        clearance: Clearance,
        /// The profile's file, whole: approvers read and sign what counts.
        definition: String,
    },
    /// Changes the state of a device, person, gateway or server, with all its certificates.
    ChangeHolder {
        subject: String,
        holder: HolderKind,
        change: HolderStep,
        /// Highest clearance of its certificates.
        clearance: Clearance,
        urgency: Urgency,
        /// As of [`Self::Issue`], where it gives a person something back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rights: Option<Rights>,
    },
    /// Changes a person's clearance, roles or units.
    ChangePerson {
        subject: String,
        old: Rights,
        new: Rights,
    },
    /// Has an authority issue that may grant up to `clearance`, in place of the one before.
    AddAuthority {
        name: String,
        clearance: Clearance,
        /// SHA-256 of its certificate (DER) in hexadecimal: approvers approve this one.
        certificate_sha256: String,
    },
    /// Admits an application that may show what needs up to `clearance`.
    AddApplication { name: String, clearance: Clearance },
}

/// Kind of holder of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderKind {
    Person,
    Device,
    Gateway,
    /// A server of the network that enrols over ACME.
    Server,
}

/// Change of a holder's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderStep {
    /// Puts all certificates on hold (RFC 5280, section 5.3.1: certificateHold).
    Suspend,
    Resume,
    /// Revokes all certificates.
    Revoke(#[serde(with = "cause")] RevocationReason),
    Retire,
    Readmit,
}

impl HolderStep {
    /// Tells whether the holder may do more after it than before.
    #[must_use]
    pub const fn grants(self) -> bool {
        matches!(self, Self::Resume | Self::Readmit)
    }
}

/// A reason of revocation by the name that it has in commands and events.
mod cause {
    use pki::crl::RevocationReason;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(
        cause: &RevocationReason,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(cause.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RevocationReason, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(D::Error::custom)
    }
}

/// Time that an act leaves for approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Urgency {
    /// All approvals come before it.
    Regular,
    /// One approval comes before it, the others within [`crate::Policy::confirm_within`]: a stolen key is not
    /// to be used while people are looked for.
    Emergency,
}

impl Act {
    /// Name in events and statements.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Issue { .. } => "issue",
            Self::Invite { .. } => "invite",
            Self::Renew { .. } => "renew",
            Self::Rekey { .. } => "rekey",
            Self::Revoke { .. } => "revoke",
            Self::RecoverKey { .. } => "recover-key",
            Self::ChangeProfile { .. } => "change-profile",
            Self::ChangeHolder { .. } => "change-holder",
            Self::ChangePerson { .. } => "change-person",
            Self::AddAuthority { .. } => "add-authority",
            Self::AddApplication { .. } => "add-application",
        }
    }

    /// The person, device or service that it concerns, where there is one.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        match self {
            Self::Issue { subject, .. }
            | Self::Invite { subject, .. }
            | Self::Renew { subject, .. }
            | Self::Rekey { subject, .. }
            | Self::Revoke { subject, .. }
            | Self::RecoverKey { subject, .. }
            | Self::ChangeHolder { subject, .. }
            | Self::ChangePerson { subject, .. } => Some(subject),
            Self::ChangeProfile { .. }
            | Self::AddAuthority { .. }
            | Self::AddApplication { .. } => None,
        }
    }

    /// Clearance by which the number of approvals is chosen, and below which nobody may approve: the highest
    /// that it grants, uses or takes away.
    #[must_use]
    pub fn clearance(&self) -> Clearance {
        match self {
            Self::Issue { clearance, .. }
            | Self::Invite { clearance, .. }
            | Self::Renew { clearance, .. }
            | Self::Rekey { clearance, .. }
            | Self::Revoke { clearance, .. }
            | Self::RecoverKey { clearance, .. }
            | Self::ChangeHolder { clearance, .. }
            | Self::ChangeProfile { clearance, .. }
            | Self::AddAuthority { clearance, .. }
            | Self::AddApplication { clearance, .. } => *clearance,
            Self::ChangePerson { old, new, .. } => old.clearance.max(new.clearance),
        }
    }

    /// Rights that the person had for whom it gives a certificate or gives one back, as those who approve it saw them.
    #[must_use]
    pub const fn rights(&self) -> Option<&Rights> {
        match self {
            Self::Issue { rights, .. }
            | Self::Invite { rights, .. }
            | Self::Renew { rights, .. }
            | Self::Rekey { rights, .. }
            | Self::RecoverKey { rights, .. }
            | Self::ChangeHolder { rights, .. } => rights.as_ref(),
            _ => None,
        }
    }

    /// Names that a person's certificate gets, as those who approve it saw them.
    #[must_use]
    pub fn distinguished_name(&self) -> Option<&str> {
        match self {
            Self::Issue {
                distinguished_name, ..
            }
            | Self::Invite {
                distinguished_name, ..
            } => distinguished_name.as_deref(),
            _ => None,
        }
    }

    /// Tells whether it was asked for with a password and nothing else.
    #[must_use]
    pub const fn is_by_password(&self) -> bool {
        matches!(
            self,
            Self::Issue {
                by_password: true,
                ..
            }
        )
    }

    /// Tells whether somebody approves acts by it who could not before, or acts of a higher level: with a certificate of
    /// theirs, or by a role.
    #[must_use]
    pub fn makes_approver(&self) -> bool {
        match self {
            Self::ChangePerson { old, new, .. } => new.approves_more_than(old),
            _ => self.rights().is_some_and(Rights::approves),
        }
    }

    /// Clearance that somebody or something has by it and may not have had before; `None` where it grants none.
    #[must_use]
    pub fn granted(&self) -> Option<Clearance> {
        match self {
            Self::Revoke { .. } => None,
            Self::ChangeHolder { change, .. } if !change.grants() => None,
            Self::ChangePerson { new, .. } => Some(new.clearance),
            _ => Some(self.clearance()),
        }
    }

    /// Role without which nobody approves it.
    #[must_use]
    pub const fn approver_role(&self) -> Role {
        match self {
            Self::Issue { .. }
            | Self::Invite { .. }
            | Self::Renew { .. }
            | Self::Rekey { .. }
            | Self::Revoke { .. }
            | Self::RecoverKey { .. }
            | Self::ChangeHolder { .. } => Role::Registrar,
            Self::ChangeProfile { .. }
            | Self::ChangePerson { .. }
            | Self::AddAuthority { .. }
            | Self::AddApplication { .. } => Role::Administrator,
        }
    }

    /// Whether it takes something away at once and waits for no more than one approval.
    #[must_use]
    pub const fn is_emergency(&self) -> bool {
        match self {
            Self::Revoke { urgency, .. } => matches!(urgency, Urgency::Emergency),
            Self::ChangeHolder {
                urgency, change, ..
            } => matches!(urgency, Urgency::Emergency) && !change.grants(),
            _ => false,
        }
    }
}
