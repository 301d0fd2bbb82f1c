//! What an experiment is.

use crate::LabError;
use crate::network::IP;
use crate::program::Program;
use crate::record::{Outcome, State};
use crate::session::{Session, empty};

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
