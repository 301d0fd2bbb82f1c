//! Registration requests, from draft to delivery.

use crate::detail::Document;
use crate::macros::{events, family};
use crate::{Recorded as _, Subject};

/// Beginning of the actions of requests.
pub const PREFIX: &str = "request.";

pub(crate) const SUBJECT: Subject = Subject {
    name: "Registration requests",
    about: "The registration authority records each step of a request, with the content that was approved and the signatures.",
    events: &[Stepped::ENTRIES, Overdue::ENTRIES, Interrupted::ENTRIES],
};

family! {
    /// A step of a request.
    Stepped: Step {
        /// A person began a request.
        Draft = "request.draft",
        /// The author changed its content; approvals are void.
        Edit = "request.edit",
        /// The author submitted it for approval.
        Submit = "request.submit",
        /// The author withdrew it.
        Withdraw = "request.withdraw",
        /// An approver approved it.
        Approve = "request.approve",
        /// An approver returned it to its author.
        Return = "request.return",
        /// An approver refused it.
        Refuse = "request.refuse",
        /// The result was delivered.
        Deliver = "request.deliver",
        /// Carried out: a certificate was issued.
        Issue = "request.issue",
        /// Carried out: a person or device was invited.
        Invite = "request.invite",
        /// Carried out: a certificate was renewed.
        Renew = "request.renew",
        /// Carried out: a certificate got a new key.
        Rekey = "request.rekey",
        /// Carried out: a certificate was revoked.
        Revoke = "request.revoke",
        /// Carried out: a certificate was put on hold.
        Hold = "request.hold",
        /// Carried out: a hold was released.
        Release = "request.release",
        /// Carried out: an archived key left the site.
        RecoverKey = "request.recover-key",
        /// Carried out: a profile was put in force.
        ChangeProfile = "request.change-profile",
        /// Carried out: the state of a holder changed.
        ChangeHolder = "request.change-holder",
        /// Carried out: the entry of a person changed.
        ChangePerson = "request.change-person",
        /// Carried out: an authority was activated.
        AddAuthority = "request.add-authority",
        /// Carried out: an application was added.
        AddApplication = "request.add-application",
    }
    on ["request/"] ends [Ok] Review ENTITY_UPDATE with [Registry, Login, Archived]
    {
        /// Act in canonical JSON.
        act: String = "act" personal,
        /// Version of the request that the step makes.
        version: Option<u64> = "version",
        /// State after the step.
        state: Option<String> = "state",
        /// User id of the author.
        requester: Option<String> = "requester" personal,
        /// Reason of the request.
        why: Option<Document> = "why" personal,
        /// SHA-256 of the newest approver's certificate.
        approval_certificate_sha256: Option<String> = "approval_certificate_sha256" personal,
        /// User ids of all authors, with spaces between.
        authors: Option<String> = "authors" personal,
        /// The approver's certificate in Base64.
        approval_certificate: Option<String> = "approval_certificate" personal,
        /// The approver's signature in Base64.
        approval_signature: Option<String> = "approval_signature" personal,
        /// Version before an edit.
        old_version: Option<u64> = "old_version",
        /// Act before an edit.
        old_act: Option<String> = "old_act" personal,
        /// Reason before an edit.
        old_why: Option<String> = "old_why" personal,
        /// Serial number or name that carrying out made.
        result: Option<String> = "result",
        /// User ids of the approvers, with spaces between.
        approvers: Option<String> = "approvers" personal,
    }
}

events! {
    /// An emergency was not approved by a second person in time.
    Overdue = "request.overdue" on ["request/"] ends [Fail] Alert FINDING with [Registry]
    {
        /// Act.
        act: String = "act" personal,
        /// Subject of the act.
        subject: String = "subject" personal,
    }

    /// A step was recorded and has no effect, as the site stopped in between.
    Interrupted = "request.interrupted" on ["request/"] ends [Fail] Review FINDING with []
    {
        /// Name of the step.
        step: Option<String> = "step",
        /// Version that the step would have made.
        version: Option<u64> = "version",
    }
}
