//! Reasons for which a step of a request is refused.

use access::Role;
use pki::cert::SignatureError;
use pki::clearance::Clearance;

use crate::State;

/// Why a step of a request is refused; the request stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The step has no place in the state.
    #[error("a request that is {state} cannot be {step}")]
    State {
        /// State of the request.
        state: &'static str,
        /// The step.
        step: &'static str,
    },
    /// Somebody else changed the request meanwhile.
    #[error(
        "the request was changed meanwhile: version {shown} was shown, {current} is current; look at it again"
    )]
    Changed {
        /// Version that the person saw.
        shown: u64,
        /// Version now.
        current: u64,
    },
    /// Only who asks for it may do this.
    #[error("only the requester may do this")]
    NotRequester,
    #[error("{uid} lacks the role {role}")]
    Role {
        /// The person.
        uid: String,
        /// Role that the act needs.
        role: Role,
    },
    /// The approver wrote some of it.
    #[error("{0} wrote part of the request and cannot approve it")]
    OwnRequest(String),
    /// The act is about the approver.
    #[error("the act concerns {0}, who cannot approve it")]
    Concerned(String),
    /// The person has approved this content already.
    #[error("{0} has approved it already")]
    Twice(String),
    /// The act grants more than the approver has.
    #[error("{uid} is cleared for {has}, and the act is about {wanted}")]
    AboveApprover {
        /// The approver.
        uid: String,
        /// The approver's clearance.
        has: Clearance,
        /// Clearance of the act.
        wanted: Clearance,
    },
    /// The act grants more than the authority or the site may give.
    #[error("the authority may grant {bound}, not {wanted}")]
    AboveAuthority {
        /// Highest clearance that it may grant.
        bound: Clearance,
        /// Clearance of the act.
        wanted: Clearance,
    },
    /// An approval is a signature, and a password login has no key for one.
    #[error("{0} has no certificate in this session; approvals are signed")]
    NoCertificate(String),
    /// The certificate shown is not the one of the session.
    #[error("the approval is signed with another certificate than that of the session")]
    OtherCertificate,
    #[error("the approval's signature is not good")]
    Signature(#[source] SignatureError),
    /// Not enough approvals count now.
    #[error("{have} of {need} approvals count{}", because(.lost))]
    Quorum {
        /// Approvals that count.
        have: usize,
        /// Approvals that it needs.
        need: usize,
        /// Approvers who do not count any more, each with the reason.
        lost: Vec<String>,
    },
    /// A reason is text of one to 1000 characters.
    #[error("a reason of 1 to {max} characters is needed", max = crate::request::MAX_REASON)]
    Reason,
    /// The reason has characters that are not seen, or that move others.
    #[error("the reason has control or format characters; write it as plain text")]
    HiddenCharacters,
    /// The act does not fit into an event.
    #[error("the act has {0} bytes, more than {max}", max = crate::request::MAX_ACT)]
    TooLong(usize),
    /// The request cannot be written down.
    #[error("the request cannot be encoded")]
    Encoding(#[from] serde_json::Error),
}

fn because(lost: &[String]) -> String {
    if lost.is_empty() {
        return String::new();
    }
    format!(" ({})", lost.join("; "))
}

impl Refusal {
    pub(crate) const fn state(state: &State, step: &'static str) -> Self {
        let state = state.name();
        Self::State { state, step }
    }

    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::State { .. } => "wrong-state",
            Self::Changed { .. } => "changed-meanwhile",
            Self::NotRequester => "not-requester",
            Self::Role { .. } => "role-missing",
            Self::OwnRequest(_) => "own-request",
            Self::Concerned(_) => "concerns-approver",
            Self::Twice(_) => "approved-twice",
            Self::AboveApprover { .. } => "above-approver",
            Self::AboveAuthority { .. } => "above-authority",
            Self::NoCertificate(_) => "no-certificate",
            Self::OtherCertificate => "other-certificate",
            Self::Signature(_) => "bad-signature",
            Self::Quorum { .. } => "quorum-missing",
            Self::Reason => "reason-missing",
            Self::HiddenCharacters => "reason-hidden-characters",
            Self::TooLong(_) => "act-too-long",
            Self::Encoding(_) => "not-encodable",
        }
    }
}
