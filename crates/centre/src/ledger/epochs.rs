//! The epochs of a camera, by the events about its chain.

use audit::Event;
use event_catalogue::Recorded as _;
use event_catalogue::evidence::{EpochBegun, ReplacementProposed};

/// A person's proposal to begin another epoch of a camera.
#[derive(Clone, Debug)]
pub(crate) struct ReplacementProposal {
    pub(crate) uid: String,
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(super) struct Begun {
    /// Index of the event that began the epoch.
    pub(super) index: u64,
    /// Highest number of the chain that the event closed; 0 without one.
    pub(super) closed_head: u64,
}

#[derive(Debug, Default)]
pub(super) struct Epochs {
    /// Each epoch after the first.
    pub(super) begun: Vec<Begun>,
    pub(super) proposed: Option<ReplacementProposal>,
    /// Index of the newest event.
    newest: Option<u64>,
}

impl Epochs {
    /// The epoch that was open at an index of the log.
    pub(super) fn open_at(&self, index: u64) -> u64 {
        self.begun.partition_point(|begun| begun.index < index) as u64
    }

    /// Adds a permitted event about the chain. The log may be read again: older events change nothing.
    pub(super) fn apply(&mut self, index: u64, event: &Event) {
        if self.newest >= Some(index) {
            return;
        }
        self.newest = Some(index);
        self.proposed = ReplacementProposed::is(event).then(|| ReplacementProposal {
            uid: event.actor.id.clone(),
            reason: event.reason.clone().unwrap_or_default(),
        });
        let Some(event) = EpochBegun::from_event(event) else {
            return;
        };
        // A recording that was reported as failed may have reached the log, and its repetition as well.
        if event.epoch == self.begun.len() as u64 + 1 {
            let closed_head = event.closed_head.unwrap_or_default();
            self.begun.push(Begun { index, closed_head });
        }
    }
}
