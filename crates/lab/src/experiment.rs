//! What an experiment is.

use std::path::PathBuf;

use crate::LabError;
use crate::network::IP;
use crate::record::{Outcome, State};
use crate::session::{Session, empty};

/// A program of others that takes part.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// Arguments that make it print its version in the first line that has a digit.
    pub(crate) version: &'static [&'static str],
}

impl Program {
    /// Finds the program; those for administrators are not on everybody's path.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let known = ["/usr/sbin", "/sbin", "/usr/lib/ipsec"].map(PathBuf::from);
        std::env::split_paths(&path)
            .chain(known)
            .map(|folder| folder.join(self.name))
            .find(|file| file.is_file())
    }

    /// Whether it is installed.
    pub fn is_installed(&self) -> bool {
        self.path().is_some()
    }
}

#[derive(Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    pub title: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// Whose measurement it repeats, with table or figure.
    pub source: &'static str,
    /// Without these it is not run.
    pub needs: &'static [Program],
    /// Without these some cases are missing.
    pub wants: &'static [Program],
    /// About how long it takes, in seconds: quick and full.
    pub seconds: (u32, u32),
    pub(crate) run: fn(&mut Session<'_>) -> Result<(), LabError>,
}

impl Experiment {
    /// The outcome that is stored when a run is ended before its turn.
    pub fn interrupted(&self) -> Outcome {
        Outcome {
            state: State::Interrupted,
            reason: Some("interrupted before anything of it was measured".to_owned()),
            ..empty(self)
        }
    }

    /// Whether it needs networks of its own, and with them rights or a kernel that gives them.
    pub(crate) fn needs_network(&self) -> bool {
        self.needs.iter().any(|program| program.name == IP.name)
    }
}
