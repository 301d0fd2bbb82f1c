//! The audit host: a machine of its own that keeps a copy of the logs of other hosts, and that these cannot rewrite.
//!
//! Each source sends its log as it grows ([`Shipper`]); the host keeps a mirror of it under the source's own signed checkpoints
//! ([`audit::Mirror`]) and acknowledges what is on its disk. In its own log, under its own key, it records which checkpoints it
//! saw. A source that forks its log, sets it back or falls silent raises an [`Alarm`], and so do the events that the event
//! catalogue marks as alerts. A person closes an alarm with a reason.
//!
//! It does not decide who may do anything at a source, and a source does not wait for it.
#![forbid(unsafe_code)]

mod alarms;
mod door;
mod host;
mod metrics;
mod shipper;
mod source;
#[cfg(test)]
mod tests;

pub use alarms::{Alarm, AlarmError, Closed};
pub use door::router;
pub use host::{AuditHost, HostError, STALLED_AFTER, Settings};
pub use shipper::{Shipper, Standing};
pub use source::{Refused, SourceSettings, SourceState};

/// Name of the role under which the host records its own events.
pub const ROLE: &str = "audit-host";
