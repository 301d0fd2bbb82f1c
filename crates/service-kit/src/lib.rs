//! Roles, and the process that runs them.
//!
//! A [`Role`] is one part of the product that can run in a process with others or in a process of its own: it brings
//! listeners, tasks, metrics and health, and is closed at the end. A [`Process`] serves the listeners of its roles and ends
//! all of them when one task ends or a stop is asked for. [`Status`] is the role that answers `/metrics` and `/healthz`
//! for all.
//!
//! [`Failure`] is how a role, a task or a command fails.
#![forbid(unsafe_code)]

mod doors;
mod failure;
mod health;
mod process;
mod role;
mod status;
#[cfg(test)]
mod testing;

pub use doors::Doors;
pub use failure::{Failure, OrHint, Outcome};
pub use health::Health;
pub use process::Process;
pub use role::{Opened, Place, Role, Task, every};
pub use status::Status;
