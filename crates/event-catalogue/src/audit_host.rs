//! Events of the audit host about its sources and its alarms.

use crate::macros::events;
use crate::{Recorded as _, Subject};

pub(crate) const SUBJECT: Subject = Subject {
    name: "Audit host",
    about: "The audit host records these in its own log, about the logs that it mirrors and the alarms that it raises.",
    events: &[
        SourceBegun::ENTRIES,
        CheckpointSeen::ENTRIES,
        SourceReturned::ENTRIES,
        AlarmRaised::ENTRIES,
        AlarmRepeated::ENTRIES,
        AlarmClosed::ENTRIES,
    ],
};

events! {
    /// The audit host began a mirror of a source's log.
    SourceBegun = "source.begin" on ["source/"] ends [Ok] Review LIFECYCLE_OTHER with []
    {
        /// Origin of the source's log.
        origin: String = "origin",
    }

    /// The audit host has the source's log up to this checkpoint on its disk.
    CheckpointSeen = "source.checkpoint" on ["source/"] ends [Ok] Routine LIFECYCLE_OTHER with []
    {
        /// Number of entries.
        size: u64 = "size",
        /// Root hash of the tree in hexadecimal.
        root: String = "root",
    }

    /// A silent source is heard again.
    SourceReturned = "source.return" on ["source/"] ends [Ok] Review LIFECYCLE_OTHER with []
    {
        /// Seconds since it was last heard.
        silent_seconds: u64 = "silent_seconds",
    }

    /// An alarm that a person must close.
    AlarmRaised = "alarm.raise" on ["source/"] ends [Ok] Alert FINDING with []
    {
        /// `silent`, `stalled`, `set-back`, `forked`, `foreign-checkpoint`, `mirror`, `unreadable`, `unknown-event`, or the action of
        /// the event that raised it.
        kind: String = "kind",
        /// What happened.
        about: String = "about" personal,
        /// Number of the event in the source's log, if an event raised the alarm.
        entry: Option<u64> = "entry",
    }

    /// What raised an open alarm happened again; recorded once a minute at most.
    AlarmRepeated = "alarm.repeat" on ["alarm/"] ends [Ok] Review FINDING with []
    {
        /// Number of the alarm.
        alarm: u64 = "alarm",
        /// How often it was repeated until now.
        repeated: u64 = "repeated",
        /// What happened the last time.
        about: String = "about" personal,
        /// Number of the event in the source's log, if it was an event.
        entry: Option<u64> = "entry",
    }

    /// A person closed an alarm.
    AlarmClosed = "alarm.close" on ["alarm/"] ends [Ok] Review FINDING with []
    {
        /// Number of the alarm.
        alarm: u64 = "alarm",
        /// How often the same happened while the alarm was open.
        repeated: Option<u64> = "repeated",
    }
}
