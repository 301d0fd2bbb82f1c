//! The small file beside the blocks: where the camera's chain stands, and what was dropped.

use std::path::Path;

use durable::Disk;
use serde::{Deserialize, Serialize};

use super::SpoolError;
use crate::digest::Sha256Digest;
use crate::manifest::{Dropped, MAX_INTEGER};

pub(super) const FILE: &str = "state.json";
const SCHEMA: &str = "cordon.spool/1";
/// Largest state file read, in bytes: some 60 000 dropped blocks that no notice has told yet.
const MAX_LEN: usize = 8 * 1024 * 1024;

/// Written before a block that is newer than it, or any record of a dropped block, goes away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    schema: String,
    /// Common name of the camera the spool belongs to.
    pub(super) device: String,
    /// Number of the next manifest.
    pub(super) next_sequence: u64,
    /// SHA-256 of the manifest before it.
    pub(super) previous: Sha256Digest,
    /// Blocks given up that no notice names yet, ascending.
    pub(super) dropped: Vec<Dropped>,
}

impl State {
    pub(super) fn first(device: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            device: device.to_owned(),
            next_sequence: 1,
            previous: Sha256Digest::ZERO,
            dropped: Vec::new(),
        }
    }

    /// Reads the state; `None` if there is none yet.
    pub(super) fn load(
        disk: &dyn Disk,
        folder: &Path,
        device: &str,
    ) -> Result<Option<Self>, SpoolError> {
        let bytes = match disk.load(&folder.join(FILE), MAX_LEN) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::FileTooLarge => {
                return Err(SpoolError::StateInvalid {
                    problem: "larger than 8 MiB",
                });
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(SpoolError::Io(e)),
        };
        let invalid = |problem| SpoolError::StateInvalid { problem };
        let state: Self =
            serde_json::from_slice(&bytes).map_err(|_| invalid("not of its schema"))?;
        if state.schema != SCHEMA {
            return Err(invalid("of another schema"));
        }
        if state.next_sequence == 0 || state.next_sequence > MAX_INTEGER {
            return Err(invalid("sequence out of range"));
        }
        if (state.next_sequence == 1) != state.previous.is_zero() {
            return Err(invalid("previous hash does not fit the sequence"));
        }
        let ascending = |(a, b): (&Dropped, &Dropped)| a.sequence < b.sequence;
        if !state
            .dropped
            .iter()
            .zip(state.dropped.iter().skip(1))
            .all(ascending)
        {
            return Err(invalid("dropped blocks not in order"));
        }
        if state.device != device {
            return Err(SpoolError::OtherDevice {
                found: state.device,
                expected: device.to_owned(),
            });
        }
        Ok(Some(state))
    }

    pub(super) fn store(&self, disk: &dyn Disk, folder: &Path) -> Result<(), SpoolError> {
        let bytes = serde_json::to_vec(self).map_err(|_| SpoolError::StateInvalid {
            problem: "cannot be encoded",
        })?;
        super::replace(disk, &folder.join(FILE), &bytes).map_err(SpoolError::from_io)
    }

    /// Adds dropped blocks, keeping the order; a number is held once.
    pub(super) fn add_dropped(&mut self, dropped: &[Dropped]) {
        for new in dropped {
            match self
                .dropped
                .binary_search_by_key(&new.sequence, |d| d.sequence)
            {
                Ok(_) => {}
                Err(at) => self.dropped.insert(at, new.clone()),
            }
        }
    }
}
