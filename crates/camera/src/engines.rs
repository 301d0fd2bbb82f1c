//! The engines that encrypt media, and what is shown of them while the agent runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use accelerator::{Accelerator, State, Status};
use offload_policy::Policy;

use crate::config::Config;

/// Least time between two writes of the state, unless the device was set aside.
const PAUSE: Duration = Duration::from_secs(10);

/// Engines for one agent.
pub(crate) struct Engines {
    accelerator: Accelerator,
    file: PathBuf,
    shown: Mutex<Option<(State, Instant)>>,
}

fn file(spool: &Path) -> PathBuf {
    spool.join("accelerator.json")
}

impl Engines {
    /// Takes the device that the configuration names.
    pub(crate) fn open(config: &Config) -> Self {
        let engines = Self {
            accelerator: Accelerator::open(config.accelerator.as_ref(), |wait| wait()),
            file: file(&config.spool.folder),
            shown: Mutex::default(),
        };
        engines.show();
        engines
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(self.accelerator.policy())
    }

    /// Writes the state for `cordon camera status`, if there is a device.
    pub(crate) fn show(&self) {
        let Some(status) = self.accelerator.status() else {
            return;
        };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |(state, at): (State, Instant)| state == status.state && at.elapsed() < PAUSE;
        if shown.is_some_and(recent) {
            return;
        }
        // Nothing depends on it: a disk that is full keeps no picture from being sealed.
        let written = serde_json::to_vec(&status).map_err(io::Error::other);
        match written.and_then(|text| durable::write_atomic(&self.file, &text, 0o644)) {
            Ok(()) => *shown = Some((status.state, Instant::now())),
            Err(error) => tracing::warn!(%error, "the accelerator's state cannot be written"),
        }
    }
}

/// The state that the agent wrote last; none where the configuration names no device.
pub(crate) fn last_known(config: &Config) -> io::Result<Option<Status>> {
    if config.accelerator.is_none() {
        return Ok(None);
    }
    match std::fs::read(file(&config.spool.folder)) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
