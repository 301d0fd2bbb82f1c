//! Reasons for quarantine that the code names more than once, and how a block leaves it.

/// Another block has its number, or a neighbour that it does not fit.
pub(crate) const SEQUENCE_FORK: &str = "sequence-fork";
/// Its manifest arrived before in another block.
pub(crate) const REPLAYED: &str = "replayed";
/// Another device than its camera brought it.
pub(crate) const OTHER_SENDER: &str = "other-sender";

/// Refusals that two people may pass over when they release a block from quarantine. None of them puts in doubt who sealed the
/// block, or what. A camera that claims more than its clearance raises the demands on readers, and gives no rights.
pub const RELEASABLE: [&str; 8] = [
    "above-clearance",
    "captured-after-sealing",
    "certificate-revoked",
    "from-the-future",
    "not-scanned",
    OTHER_SENDER,
    "signed-outside-validity",
    "too-old",
];

/// How a block leaves the quarantine without being destroyed. With every reason it can be released once it passes every
/// check, for instance after an authority was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Two people release it in spite of the reason.
    Release,
    /// Two people close the chain of its camera, which was replaced, and release it.
    Replacement,
    /// It cannot become evidence. Two people close its case, and its bytes stay.
    Keep,
}

impl End {
    /// The end of blocks with this reason.
    #[must_use]
    pub fn of(reason: &str) -> Self {
        match reason {
            SEQUENCE_FORK => Self::Replacement,
            code if RELEASABLE.contains(&code) => Self::Release,
            _ => Self::Keep,
        }
    }
}
