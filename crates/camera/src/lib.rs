#![forbid(unsafe_code)]
//! The field agent: seals what a camera saw and brings it to the centre.
//!
//! It watches a folder for pictures and their metadata, seals each into a block
//! (`evidence::seal`), keeps blocks in a crash-safe spool, and uploads them over the best of
//! several bearers, within their monthly byte budgets, until the centre's signed receipt allows
//! to delete them. Keys are made here and certificates come by EST.
//!
//! It is not a driver for cameras: whatever takes the picture writes `NAME.jpg` (or `.png`,
//! `.mp4`, also several) and then `NAME.json`:
//!
//! ```json
//! { "captured_at": "2026-11-21T10:00:00+01:00", "classification": 1,
//!   "violation": { "type": "speeding", "speed_kmh": 91, "limit_kmh": 50, "plate": "KR 1AB23",
//!     "place": { "name": "Example Street 1", "latitude_microdeg": 50064650,
//!                "longitude_microdeg": 19944980 } } }
//! ```
//!
//! Start with [`Agent::prepare`] and [`Agent::run`].

mod agent;
mod bearer;
mod clock;
mod config;
mod engines;
mod enrol;
mod events;
mod identity;
mod ingest;
mod journal;
mod log;
mod maintenance;
mod metrics;
mod register;
mod revocation;
mod set_aside;
mod status;
mod transport;
mod trust;
mod tus;
mod uplink;

pub use agent::{Agent, AgentError, Environment};
pub use bearer::LedgerError;
pub use clock::Clock;
pub use config::{
    Bearer, Centre, Config, ConfigError, Enrolment, IdentitySettings, MAX_CHUNK_LEN, SpoolSettings,
    Trust, Uplink, Watch, WhenFull,
};
pub use enrol::EnrolError;
pub use events::{CameraEvent, EventSink, NoEvents};
pub use identity::{Identity, IdentityError};
pub use journal::{Command, JournalUnusable, Stall, record_command};
pub use log::Contradiction;
pub use metrics::{BearerSnapshot, Metrics, Snapshot};
pub use set_aside::{SetAside, Summary, give_back, list as list_set_aside};
pub use status::Status;
