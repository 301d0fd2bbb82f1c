//! Audit: what happened, kept so that nobody can change, remove or cut it unnoticed.
//!
//! Each role writes [`Event`]s to its own hash-chained [`journal`]; the journals are shipped to
//! one central [`log`], a Merkle tree with signed checkpoints that any client of C2SP tlog-tiles
//! can read. [`SharedLog`] joins the two: it is the [`AuditSink`] that services write to, and many
//! threads share one sync. [`verify`] proves a log offline, with nothing but its files and its
//! public key, and names the first event that was touched.
//!
//! It is not a search index, reads no clock, and starts no threads. All calls block on the disk.
//!
//! ```
//! use audit::{Actor, AuditSink, Event, LogKey, Outcome, SharedLog};
//! let folder = tempfile::tempdir().unwrap();
//! let key = LogKey::generate("audit.example.org/log").unwrap();
//! let public = key.verifier();
//! let log = SharedLog::open(folder.path(), key).unwrap();
//! let centre = log.role("centre").unwrap();
//! let at = time::OffsetDateTime::from_unix_timestamp(1_795_000_000).unwrap();
//! let event = Event::new(at, Actor::device("camera-17"), "evidence.receive", "evidence/1", Outcome::Ok);
//! let recorded = centre.record(event).unwrap(); // on disk, twice, and in the tree
//! assert_eq!(recorded.leaf_index, 0);
//! let report = audit::verify::verify_dir(&log.log_dir(), &public.to_string(), None).unwrap();
//! assert_eq!(report.size, 1);
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have clocks"))]

mod authenticator;
pub mod event;
mod hash;
pub mod journal;
mod leaf;
pub mod log;
mod mirror;
mod refusal;
mod repeats;
pub mod rollback;
pub mod rows;
pub mod shared;
mod sink;
pub mod verify;

pub use authenticator::Authenticator;
pub use event::{Actor, ActorKind, Event, EventError, MAX_EVENT_BYTES, Outcome};
pub use hash::Hash;
pub use leaf::Leaf;
pub use log::note::{Checkpoint, LogKey, NoteError, VerifierKey};
pub use log::{Log, LogError, View};
pub use mirror::{Batch, MAX_MIRROR_BYTES, Mirror, MirrorError};
pub use refusal::{JOURNAL_REFUSED, MAX_SHIPPED_BYTES, RefusedRecord, unreadable_records};
pub use repeats::{Bounds as RepeatBounds, OTHERS, Repeats, host_of};
pub use shared::{RoleLog, SharedLog};
pub use sink::{AuditError, AuditSink, Logged, MemorySink, Recorded};

/// Audit data are for the service's account only.
const FILE_MODE: u32 = 0o600;
