//! What the agent tells the audit trail and the log, declared once.

use evidence::manifest::Dropped;
use evidence::receipt::Verdict;
use time::OffsetDateTime;

use crate::log::Contradiction;
use crate::set_aside::Summary;

/// Something that an operator or auditor cares about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CameraEvent {
    /// A violation or notice was sealed and is durable in the spool.
    Sealed {
        sequence: u64,
        /// SHA-256 of the block, in hexadecimal.
        block_sha256: String,
        /// Size of the block in bytes.
        size: u64,
    },
    /// The centre's receipt was verified and the block removed.
    Receipted {
        sequence: u64,
        /// What the centre did with it.
        verdict: Verdict,
        reason: Option<String>,
    },
    /// A block was given up for lack of room, or found damaged and set aside.
    Dropped(Dropped),
    /// A stored block could not be read; it is kept and tried again.
    Unreadable {
        sequence: u64,
        /// What the system said.
        reason: String,
    },
    /// A receipt was not accepted; its block is kept.
    ReceiptRefused { sequence: u64, reason: String },
    /// Revocation lists are missing or stale: no receipt is accepted until they are there.
    RevocationUnknown { reason: String },
    /// Revocation lists are there again.
    RevocationKnown,
    /// Another trust bundle of the site is in force.
    TrustUpdated { version: u64 },
    /// A trust bundle was not taken over; the one before stays in force.
    TrustRefused { reason: String },
    /// Sealing goes on to a recipient whose certificate has expired, for want of a newer one.
    RecipientExpired {
        /// Its last instant of validity.
        since: OffsetDateTime,
    },
    /// The centre's audit log went back, forked, or has another key; both statements are kept.
    LogContradiction(Contradiction),
    /// A source could not be sealed and was set aside.
    Rejected { name: String, reason: String },
    /// What is set aside is not what the site was last told, or a day has passed.
    SetAside(Summary),
    /// A bearer has used up its monthly budget.
    BudgetExhausted { bearer: String },
    /// A bearer failed; others or a later attempt take over.
    BearerFailed { bearer: String, reason: String },
    /// The spool has no room for what the camera sees.
    SpoolFull,
    /// The wall clock was set while the agent ran, by so many seconds.
    ClockJumped {
        /// Negative if it went back.
        seconds: i64,
    },
    /// The camera has its first or a new certificate.
    Enrolled {
        /// Whether it replaced an earlier one.
        renewed: bool,
    },
}

/// Receives the agent's events; must not block.
pub trait EventSink: Send + Sync {
    fn event(&self, event: CameraEvent);
}

/// Drops all events; the log still has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _: CameraEvent) {}
}

/// Writes the event to the log and passes it on.
pub(crate) fn emit(sink: &dyn EventSink, event: CameraEvent) {
    match &event {
        CameraEvent::Sealed {
            sequence,
            block_sha256,
            size,
        } => tracing::info!(sequence, block_sha256, size, "block sealed"),
        CameraEvent::Receipted {
            sequence,
            verdict: Verdict::Accepted,
            ..
        } => tracing::info!(sequence, "block receipted"),
        CameraEvent::Receipted {
            sequence, reason, ..
        } => tracing::warn!(
            sequence,
            reason = reason.as_deref().unwrap_or(""),
            "block quarantined by the centre"
        ),
        CameraEvent::Dropped(d) => {
            tracing::warn!(sequence = d.sequence, reason = ?d.reason, "block dropped");
        }
        CameraEvent::Unreadable { sequence, reason } => {
            tracing::error!(sequence, reason, "block cannot be read, trying again");
        }
        CameraEvent::ReceiptRefused { sequence, reason } => {
            tracing::error!(sequence, reason, "receipt not accepted, block kept");
        }
        CameraEvent::RevocationUnknown { reason } => {
            tracing::error!(
                reason,
                "revocations are unknown, no receipt is accepted and all blocks are kept"
            );
        }
        CameraEvent::RevocationKnown => tracing::info!("revocations are known"),
        CameraEvent::TrustUpdated { version } => tracing::info!(version, "trust bundle in force"),
        CameraEvent::TrustRefused { reason } => {
            tracing::error!(reason, "trust bundle not taken over, the former one stays");
        }
        CameraEvent::RecipientExpired { since } => tracing::warn!(
            %since,
            "sealing to a certificate that has expired until the site is in contact"
        ),
        CameraEvent::LogContradiction(contradiction) => tracing::error!(
            problem = contradiction.problem,
            "the centre's audit log contradicts itself: see `cordon camera status`"
        ),
        CameraEvent::Rejected { name, reason } => {
            tracing::warn!(name, reason, "source rejected");
        }
        CameraEvent::SetAside(Summary { count: 0, .. }) => {
            tracing::info!("no source is set aside any more");
        }
        CameraEvent::SetAside(summary) => tracing::warn!(
            count = summary.count,
            reason = summary.reason,
            "sources are set aside: see `cordon camera status`"
        ),
        CameraEvent::BudgetExhausted { bearer } => {
            tracing::warn!(bearer, "monthly byte budget used up");
        }
        CameraEvent::BearerFailed { bearer, reason } => {
            tracing::warn!(bearer, reason, "bearer failed");
        }
        CameraEvent::SpoolFull => {
            tracing::error!("spool or disk is full, pictures stay in the folder")
        }
        CameraEvent::ClockJumped { seconds } => {
            tracing::warn!(seconds, "the wall clock was moved");
        }
        CameraEvent::Enrolled { renewed } => tracing::info!(renewed, "certificate obtained"),
    }
    sink.event(event);
}
