//! Blocks on their way into the archive, quarantine, reviews, and checks of the archive.

use crate::macros::{events, family};
use crate::{Recorded as _, Subject};

pub(crate) const SUBJECT: Subject = Subject {
    name: "Evidence",
    about: "The centre records these about blocks, violations, quarantine, the archive and its index.",
    events: &[
        Received::ENTRIES,
        Quarantined::ENTRIES,
        Reviewed::ENTRIES,
        ViewsRefused::ENTRIES,
        Examined::ENTRIES,
        Proposed::ENTRIES,
        Confirmed::ENTRIES,
        Withdrawn::ENTRIES,
        Released::ENTRIES,
        Kept::ENTRIES,
        Rejected::ENTRIES,
        ReplacementProposed::ENTRIES,
        ReplacementWithdrawn::ENTRIES,
        EpochBegun::ENTRIES,
        Discarded::ENTRIES,
        ReceiptReissued::ENTRIES,
        ReceiptCompromised::ENTRIES,
        UploadRefused::ENTRIES,
        Damage::ENTRIES,
        IndexRebuilt::ENTRIES,
        Loss::ENTRIES,
        IndexChanged::ENTRIES,
        JournalSilent::ENTRIES,
    ],
};

events! {
    /// The centre accepted a block. It is the first event of the violation's custody record.
    Received = "evidence.receive" on ["block/"] ends [Ok] Routine CREATE with [Block, Origin, Custody]
    {}

    /// A block failed a check and is in quarantine. The reason names the check.
    Quarantined = "evidence.quarantine" on ["block/"] ends [Fail] Alert FINDING with [Block, Origin]
    {
        /// Accepted block that claims the same number.
        disputed_block: Option<String> = "disputed_block",
    }

    /// A person accepted or rejected a violation. The event is the decision.
    Reviewed = "evidence.decide" on ["violation/"] ends [Ok, Deny] Review UPDATE with [Origin, Custody]
    {
        /// `accepted` or `rejected`.
        decision: String = "decision",
    }

    /// More denials of the same cause than are recorded one by one.
    ViewsRefused = "evidence.refuse" on ["violations"] ends [Deny] Review FINDING with [Repeated]
    {}

    /// A person had a block in quarantine verified again.
    Examined = "evidence.examine" on ["block/"] ends [Permit] Review READ with [Permission]
    {}

    /// A person proposed to release, keep or destroy a block in quarantine.
    Proposed = "quarantine.propose" on ["block/"] ends [Permit] Review UPDATE with [Permission, SetApart]
    {
        /// `release`, `keep` or `destroy`.
        act: String = "act",
        /// Checks that a release waives, with commas between.
        exceptions: Option<String> = "exceptions",
    }

    /// A second person confirmed a proposed destruction.
    Confirmed = "quarantine.confirm" on ["block/"] ends [Permit] Review UPDATE with [Permission, SetApart]
    {
        /// User id of the person who proposed it.
        proposed_by: Option<String> = "proposed_by" personal,
    }

    /// A person withdrew a proposal.
    Withdrawn = "quarantine.withdraw" on ["block/"] ends [Permit] Review UPDATE with [Permission, SetApart]
    {
        /// `release`, `keep` or `destroy`.
        act: Option<String> = "act",
        /// User id of the person who proposed it.
        proposed_by: Option<String> = "proposed_by" personal,
    }

    /// Two people released a block from quarantine.
    Released = "evidence.release" on ["block/"] ends [Permit] Review UPDATE with [Permission, SetApart]
    {
        /// User id of the person who proposed it.
        proposed_by: Option<String> = "proposed_by" personal,
        /// Checks that the release waives, with commas between.
        exceptions: Option<String> = "exceptions",
    }

    /// Two people closed the case of a block in quarantine: its bytes stay, and it does not become evidence.
    Kept = "evidence.keep" on ["block/"] ends [Permit] Review UPDATE with [Permission, SetApart]
    {
        /// User id of the person who proposed it.
        proposed_by: Option<String> = "proposed_by" personal,
    }

    /// A block in quarantine was destroyed, after two people agreed and the waiting time was over.
    Rejected = "evidence.reject" on ["block/"] ends [Permit] Review DELETE with [Permission, SetApart]
    {
        /// User id of the person who proposed it.
        proposed_by: Option<String> = "proposed_by" personal,
        /// User id of the person who confirmed it.
        confirmed_by: Option<String> = "confirmed_by" personal,
    }

    /// A person proposed to close the chain of a camera and to begin a new epoch.
    ReplacementProposed = "chain.propose" on ["chain/"] ends [Permit] Review UPDATE with [Permission]
    {}

    /// A person withdrew such a proposal.
    ReplacementWithdrawn = "chain.withdraw" on ["chain/"] ends [Permit] Review UPDATE with [Permission]
    {
        /// User id of the person who proposed it.
        proposed_by: Option<String> = "proposed_by" personal,
    }

    /// Two people closed the chain of a camera, whose memory was replaced. A new epoch begins with number 1.
    EpochBegun = "chain.begin-epoch" on ["chain/"] ends [Permit] Alert CREATE with [Permission]
    {
        /// The new epoch.
        epoch: u64 = "epoch",
        /// Highest number of the closed chain; absent if it has none.
        closed_head: Option<u64> = "closed_head",
        /// SHA-256 of the manifest with that number.
        closed_manifest_sha256: Option<String> = "closed_manifest_sha256",
        /// User id of the person who proposed it.
        proposed_by: Option<String> = "proposed_by" personal,
    }

    /// The centre discarded an upload that cannot be completed.
    Discarded = "intake.discard" on ["upload/"] ends [Fail] Review DELETE with [Origin]
    {}

    /// The centre signed the receipt of a block again. The reason says why cameras refuse the former one.
    ReceiptReissued = "intake.receipt-again" on ["block/"] ends [Ok] Routine CREATE with []
    {}

    /// A stored receipt says what the log says, but the key that signed it is compromised. The centre signs it again.
    ReceiptCompromised = "intake.receipt-compromised" on ["block/"] ends [Fail] Alert FINDING with []
    {}

    /// The centre refused an upload. The reason is the code of the refusal.
    UploadRefused = "intake.refuse" on ["intake"] ends [Deny] Review FINDING with [Repeated]
    {}

    /// The index was built again from the log and the archive.
    IndexRebuilt = "evidence.rebuild-index" on ["index"] ends [Ok] Review UPDATE with []
    {
        /// Accepted blocks in the new index.
        accepted: u64 = "accepted",
        /// Blocks in quarantine in the new index.
        set_apart: u64 = "set_apart",
        /// Blocks that the log names and the archive lacks.
        lost: u64 = "lost",
    }

    /// Something else than this program replaced the index, cut it or changed its schema. The reason says what; the site ends.
    IndexChanged = "evidence.index-changed" on ["index"] ends [Fail] Alert FINDING with []
    {}

    /// A journal sent no record for longer than it may.
    JournalSilent = "journal.silent" on ["camera/", "tunnel/", "gateway/", "gateway"] ends [Fail] Alert FINDING with []
    {
        /// Time of the newest record, in seconds since the Unix epoch.
        since: i64 = "since",
        /// Newest contact of the device, in seconds since the Unix epoch.
        contact: Option<i64> = "contact",
    }
}

family! {
    /// The archive lacks blocks.
    Loss: LossKind {
        /// A person let the site start without these blocks.
        Accepted = "evidence.accept-loss",
        /// The centre named the blocks that an event of an earlier version only counted.
        Named = "evidence.name-loss",
        /// The archive has these blocks again.
        Ended = "evidence.end-loss",
    }
    on ["archive"] ends [Ok] Alert FINDING with []
    {
        /// Number of blocks.
        missing: Option<u64> = "missing",
        /// Their SHA-256 in hexadecimal, with commas between.
        blocks: Option<String> = "blocks",
    }
}

family! {
    /// The centre found damage.
    Damage: DamageKind {
        /// The archived file of a block is damaged or missing.
        Archive = "evidence.archive-damage",
        /// Rows of the index contradicted the log and were repaired.
        IndexRepaired = "evidence.index-repair",
        /// The index has a row that the log does not know.
        IndexUnknown = "evidence.index-unknown",
    }
    on ["index/"] ends [Fail] Alert FINDING with []
    {}
}
