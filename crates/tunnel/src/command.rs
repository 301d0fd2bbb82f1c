//! Commands to one worker.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, SyncSender};

use crate::child_sa::ChildCommand;
use crate::children::Install;
use crate::counters::Snapshot;
use crate::rekey::{RekeyError, SaPair};

/// Command to a worker.
pub(crate) enum Command {
    /// Lets a new pair of associations take over; answers once it is installed.
    Rekey(Box<SaPair>, SyncSender<Result<(), RekeyError>>),
    /// Installs a Child SA.
    Install(Box<Install>),
    /// Changes something about Child SAs.
    Child(ChildCommand),
    /// Answers with the state.
    Snapshot(SyncSender<Snapshot>),
    Stop,
}

/// Handle to one worker.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) commands: Sender<Command>,
    pub(crate) wake: UnixStream,
}

impl WorkerHandle {
    /// Sends a command and wakes the worker. False when it has ended.
    pub(crate) fn send(&self, command: Command) -> bool {
        // A full wake-up socket is as good as one more byte in it.
        self.commands.send(command).is_ok() && (&self.wake).write(&[1]).map_or(true, |n| n == 1)
    }

    /// Another handle to the same worker.
    ///
    /// # Errors
    /// Those of copying a descriptor.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            commands: self.commands.clone(),
            wake: self.wake.try_clone()?,
        })
    }
}
