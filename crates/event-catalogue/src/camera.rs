//! Events of cameras, and what the centre finds about their journals.

use serde_json::Value;

use crate::macros::{events, family};
use crate::{Recorded as _, Subject};

/// Beginning of the actions that cameras report. The centre takes events with it that this version does not know.
pub const PREFIX: &str = "camera.";

pub(crate) const SUBJECT: Subject = Subject {
    name: "Cameras",
    about: "Cameras record these in their journals, and the centre takes them over; `camera_at` is a claim of the camera. \
            The centre itself records `camera.journal-gap` and `camera.journal-fork`.",
    events: &[
        Started::ENTRIES,
        SettingsChanged::ENTRIES,
        Lifecycle::ENTRIES,
        Dropped::ENTRIES,
        AboutBlock::ENTRIES,
        Problem::ENTRIES,
        TrustUpdated::ENTRIES,
        RecipientExpired::ENTRIES,
        SourceRejected::ENTRIES,
        SetAside::ENTRIES,
        BudgetExhausted::ENTRIES,
        ClockMoved::ENTRIES,
        JournalDamaged::ENTRIES,
        JournalLost::ENTRIES,
        Commanded::ENTRIES,
        JournalGap::ENTRIES,
        JournalFork::ENTRIES,
        JournalRefused::ENTRIES,
    ],
};

events! {
    /// The agent started.
    Started = "camera.start" on ["camera/"] ends [Ok] Routine START with [Origin, Shipped, Repeated]
    {
        /// Account of the operating system.
        by: String = "by" personal,
        /// Version of the agent.
        version: String = "version",
        /// SHA-256 of the settings and the trusted files that they name.
        settings_sha256: String = "settings_sha256",
    }

    /// The settings differ from those of the start before.
    SettingsChanged = "camera.settings" on ["camera/"] ends [Ok] Review LIFECYCLE_OTHER with [Origin, Shipped, Repeated]
    {
        /// Hash of the settings before.
        old_sha256: String = "old_sha256",
        /// Hash of the settings now.
        new_sha256: String = "new_sha256",
    }

    /// The camera dropped a block for lack of room, or found it damaged.
    Dropped = "camera.drop" on ["camera/"] ends [Fail] Alert FINDING with [Origin, Shipped, Repeated]
    {
        /// Number in the camera's chain.
        sequence: u64 = "sequence",
        /// SHA-256 of the manifest.
        manifest_sha256: String = "manifest_sha256",
        /// Cause.
        cause: String = "cause",
    }

    /// Another trust bundle is in force.
    TrustUpdated = "camera.trust" on ["camera/"] ends [Ok] Review LIFECYCLE_OTHER with [Origin, Shipped, Repeated]
    {
        /// Version of the bundle.
        version: u64 = "version",
    }

    /// The camera still seals to a recipient whose certificate has expired.
    RecipientExpired = "camera.recipient-expired" on ["camera/"] ends [Fail] Alert FINDING with [Origin, Shipped, Repeated]
    {
        /// Expiry of the certificate, in seconds since the Unix epoch.
        since: i64 = "since",
    }

    /// A source could not be sealed and was set aside.
    SourceRejected = "camera.reject" on ["camera/"] ends [Fail] Alert FINDING with [Origin, Shipped, Repeated]
    {
        /// Name of the source.
        name: String = "name",
    }

    /// Number of sources that are set aside.
    SetAside = "camera.set-aside" on ["camera/"] ends [Fail, Ok] Alert FINDING with [Origin, Shipped, Repeated]
    {
        /// Number of sources.
        count: u64 = "count",
        /// Time of the oldest one, in seconds since the Unix epoch.
        since: Option<i64> = "since",
    }

    /// A bearer has used its monthly budget.
    BudgetExhausted = "camera.budget" on ["camera/"] ends [Fail] Review FINDING with [Origin, Shipped, Repeated]
    {
        /// Name of the bearer.
        bearer: String = "bearer",
    }

    /// The wall clock was set, or went back while the agent did not run.
    ClockMoved = "camera.clock" on ["camera/"] ends [Fail] Review FINDING with [Origin, Shipped, Repeated]
    {
        /// Difference in seconds; negative if the clock went back.
        seconds: i64 = "seconds",
    }

    /// Records of the journal are damaged; without numbers, the whole former journal was set aside.
    JournalDamaged = "camera.journal-damaged" on ["camera/"] ends [Fail] Alert FINDING with [Origin, Shipped, Repeated]
    {
        /// First damaged record.
        missing_from: Option<u64> = "missing_from",
        /// Last damaged record.
        missing_to: Option<u64> = "missing_to",
    }

    /// Events that the camera could not write.
    JournalLost = "camera.journal-lost" on ["camera/"] ends [Fail] Alert FINDING with [Origin, Shipped, Repeated]
    {
        /// Number of events.
        count: u64 = "count",
    }

    /// The camera no longer has records that the site never received.
    JournalGap = "camera.journal-gap" on ["camera/"] ends [Fail] Alert FINDING with [Origin]
    {
        /// First missing record.
        missing_from: u64 = "missing_from",
        /// Last missing record.
        missing_to: u64 = "missing_to",
    }

    /// The camera's journal contradicts records that the site has.
    JournalFork = "camera.journal-fork" on ["camera/"] ends [Fail] Alert FINDING with [Origin]
    {
        /// Number of the record.
        sequence: u64 = "journal_seq",
        /// Hash of the record that the site has.
        known_sha256: String = "known_sha256",
        /// Hash of the record that came.
        found_sha256: String = "found_sha256",
    }
}

/// Action of the event in place of a record that the log does not take.
const REFUSED: &str = audit::JOURNAL_REFUSED;

events! {
    /// In place of a record that the log does not take as it is.
    JournalRefused = REFUSED on ["camera/", "tunnel/"] ends [Fail] Alert FINDING with [Origin, Repeated]
    {
        /// Number of the record.
        journal_seq: Option<Value> = "journal_seq",
        /// SHA-256 of the record.
        journal_sha256: Option<String> = "journal_sha256",
        /// Beginning of the record.
        record: Option<String> = "record",
        /// First record that cannot be read.
        missing_from: Option<Value> = "missing_from",
        /// Last record that cannot be read.
        missing_to: Option<Value> = "missing_to",
        /// Name of a file that is not a command.
        file: Option<String> = "file",
        /// SHA-256 of the file.
        file_sha256: Option<String> = "file_sha256",
        /// Beginning of the file.
        content: Option<String> = "content",
        /// Time by the camera's clock (RFC 3339).
        camera_at: Option<String> = "camera_at",
    }
}

family! {
    /// Steps of the agent without details.
    Lifecycle: Step {
        /// The agent stopped.
        Stop = "camera.stop",
        /// The journal continues although nothing happened.
        Alive = "camera.alive",
        /// The camera has its first certificate.
        Enrol = "camera.enrol",
        /// The camera has a new certificate.
        Renew = "camera.renew",
    }
    on ["camera/"] ends [Ok] Routine LIFECYCLE_OTHER with [Origin, Shipped, Repeated]
    {}
}

family! {
    /// Problems with one block.
    AboutBlock: BlockProblem {
        /// A stored block cannot be read.
        Unreadable = "camera.unreadable",
        /// A receipt was not accepted; the camera keeps the block.
        ReceiptRefused = "camera.receipt-refused",
    }
    on ["camera/"] ends [Fail] Alert FINDING with [Origin, Shipped, Repeated]
    {
        /// Number in the camera's chain.
        sequence: u64 = "sequence",
    }
}

family! {
    /// Problems without details.
    Problem: ProblemKind {
        /// Revocation lists are missing or stale.
        RevocationUnknown = "camera.revocation-unknown",
        /// A trust bundle was not accepted.
        TrustRefused = "camera.trust-refused",
        /// The site's log contradicts what the camera has seen of it.
        LogContradiction = "camera.log-contradiction",
        /// The spool has no room.
        SpoolFull = "camera.spool-full",
    }
    on ["camera/"] ends [Fail] Alert FINDING with [Origin, Shipped, Repeated]
    {}
}

family! {
    /// Commands on the camera.
    Commanded: Command {
        /// Accept contradictions of the site's log.
        AcceptLog = "camera.accept-log",
        /// Try a source that was set aside again.
        Retry = "camera.retry",
        /// Restore a damaged block.
        RestoreDamaged = "camera.restore-damaged",
        /// Remove a damaged block.
        RemoveDamaged = "camera.remove-damaged",
    }
    on ["camera/"] ends [Ok] Review UPDATE with [Origin, Shipped, Repeated]
    {
        /// Account of the operating system.
        by: String = "by" personal,
        /// Object of the command.
        subject: String = "subject",
    }
}
