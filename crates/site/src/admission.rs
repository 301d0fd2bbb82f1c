//! The answer to intake and portal at every request: who a person or a device is, right now.
//!
//! Registry and directory know. [`Local`] asks those of this host. [`Remote`] asks the host that has them, over a connection
//! between peers; [`door`] answers there. Without an answer all are refused.

mod door;
mod local;
mod remote;
mod seam;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use door::router;
pub(crate) use local::Local;
pub(crate) use remote::Remote;
pub(crate) use seam::{Admission, DISK_FULL};
