//! The right to have the registry act.

use access::Credential;
use approval::{Act, Authorized, HolderKind, HolderStep, Policy, Refusal, Transition};
use audit::Actor;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use time::OffsetDateTime;

use crate::{Config, HolderChange, Registry, RegistryError};

/// What acts of the registry need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approvals {
    /// The order of whoever the caller lets give it.
    #[default]
    Direct,
    /// A request with enough approvals.
    Required,
}

/// Rules for requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    pub approvals: Approvals,
    /// Numbers of approvals.
    pub policy: Policy,
}

/// The right to have one act carried out: enough approvals, or an order where the configuration says that it
/// is enough. There is no other way to certificates and states of holders, but for those of
/// [`Registry::issue_own`], the enrolment and renewal of devices, which have codes and keys for it, and what an
/// invitation gives, which a warrant made.
#[derive(Debug)]
#[must_use = "nothing is done yet"]
pub struct Warrant {
    pub(crate) by: Actor,
    /// How whoever has an approved act carried out proved who they are.
    pub(crate) credential: Option<Credential>,
    pub(crate) basis: Basis,
}

#[derive(Debug)]
pub(crate) enum Basis {
    Direct,
    Approved(Box<Authorized>),
}

impl Warrant {
    /// Who has it carried out.
    #[must_use]
    pub const fn by(&self) -> &Actor {
        &self.by
    }

    /// The transition that carries the act out; `None` for a direct order.
    pub(crate) fn into_transition(
        self,
        result: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Transition>, Refusal> {
        let Basis::Approved(authorized) = self.basis else {
            return Ok(None);
        };
        let transition = authorized.carry_out(result, self.by, now)?;
        Ok(Some(match &self.credential {
            Some(credential) => transition.proved_by(credential),
            None => transition,
        }))
    }

    /// Leave of the approvers, unless it is a direct order.
    pub(crate) fn approved(&self) -> Option<&Authorized> {
        match &self.basis {
            Basis::Direct => None,
            Basis::Approved(authorized) => Some(authorized),
        }
    }
}

impl Config {
    /// A warrant for an order of `by`, whose right to give it the caller has checked. It is the one place where
    /// direct warrants are made; a registry with another configuration refuses them all the same.
    ///
    /// # Errors
    /// [`RegistryError::ApprovalRequired`] where the configuration asks for approvals.
    pub fn direct(&self, by: Actor) -> Result<Warrant, RegistryError> {
        match self.registration.approvals {
            Approvals::Required => Err(RegistryError::ApprovalRequired),
            Approvals::Direct => Ok(Warrant {
                by,
                credential: None,
                basis: Basis::Direct,
            }),
        }
    }
}

impl Registry {
    /// A warrant for an order of `by`: [`Config::direct`] of this registry's configuration.
    ///
    /// # Errors
    /// [`RegistryError::ApprovalRequired`] where the configuration asks for approvals.
    pub fn direct(&self, by: Actor) -> Result<Warrant, RegistryError> {
        self.inner.config.direct(by)
    }
}

/// Whose certificates such a holder has.
pub(crate) const fn authority_of(holder: HolderKind) -> CaKind {
    match holder {
        HolderKind::Person => CaKind::Users,
        HolderKind::Device => CaKind::Devices,
        HolderKind::Gateway | HolderKind::Server => CaKind::Services,
    }
}

/// Refuses a hold as the reason of a revocation: nothing could release it.
pub(crate) const fn check_final(reason: RevocationReason) -> Result<(), RegistryError> {
    match reason {
        RevocationReason::CertificateHold => Err(RegistryError::HoldIsNoRevocation),
        _ => Ok(()),
    }
}

/// Makes sure that the change of a holder is what was approved.
pub(crate) fn check_change(
    warrant: &Warrant,
    authority: CaKind,
    name: &str,
    change: HolderChange,
) -> Result<(), RegistryError> {
    if let HolderChange::Revoke(reason) = change {
        check_final(reason)?;
    }
    match warrant.approved().map(|approved| approved.act()) {
        None => Ok(()),
        Some(Act::ChangeHolder {
            subject,
            holder,
            change: approved,
            ..
        }) if subject == name
            && authority_of(*holder) == authority
            && HolderChange::from(*approved) == change =>
        {
            Ok(())
        }
        Some(_) => Err(RegistryError::NotCovered("change of the holder")),
    }
}

/// Makes sure that the revocation is what was approved.
pub(crate) fn check_revocation(
    warrant: &Warrant,
    revoked: &str,
    reason: RevocationReason,
) -> Result<(), RegistryError> {
    check_final(reason)?;
    match warrant.approved().map(|approved| approved.act()) {
        None => Ok(()),
        Some(Act::Revoke { serial, cause, .. })
            if serial.eq_ignore_ascii_case(revoked) && *cause == reason =>
        {
            Ok(())
        }
        Some(_) => Err(RegistryError::NotCovered("revocation")),
    }
}

impl From<HolderStep> for HolderChange {
    fn from(step: HolderStep) -> Self {
        match step {
            HolderStep::Suspend => Self::Suspend,
            HolderStep::Resume => Self::Resume,
            HolderStep::Revoke(reason) => Self::Revoke(reason),
            HolderStep::Retire => Self::Retire,
            HolderStep::Readmit => Self::Readmit,
        }
    }
}
