#![forbid(unsafe_code)]
//! The lab: published measurements repeated on this machine, ours beside others' programs.
//!
//! An [`Experiment`] says what it answers, which programs it needs and what was published; it runs in a
//! sandbox of its own (see [`sandbox`]) in rounds in which all cases take turns, and gives one
//! [`record::Outcome`]. [`report`] makes pages of them.
//!
//! What this crate is not: it installs nothing, talks to no other host, and decides nothing about what
//! Cordon uses. It starts other programs, Cordon's own tunnel and page server among them, and never
//! imports a service.

pub mod cameras;
pub mod chart;
pub mod compare;
mod experiment;
mod experiments;
mod files;
mod film;
pub mod ftp;
mod host;
pub mod ike;
pub mod ike_fleet;
mod ike_servers;
mod network;
mod process;
mod program;
pub mod record;
pub mod report;
pub mod sandbox;
mod servers;
mod session;
mod stats;
mod tls;
pub mod tool;
mod tunnels;
mod uploader;

use error_report::Report;

pub use experiment::Experiment;
pub use experiments::all;
pub use process::ProcessError;
pub use program::Program;
pub use servers::{Key, PLAIN_PORT};

/// Why an experiment could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program that was started did not do what it should.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The machine refused a file or a system call.
    #[error("{what}")]
    Environment {
        what: String,
        #[source]
        source: std::io::Error,
    },
    /// A program or library said something that is not understood.
    #[error("{0}")]
    Unexpected(String),
}

impl LabError {
    /// An error of the machine while `what` was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Environment { what, source }
    }

    /// The error and its causes on one line.
    pub(crate) fn line(&self) -> String {
        Report(self).to_string()
    }
}
