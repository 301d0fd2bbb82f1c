//! The part of a camera's chain that a block can contradict, by the log and signed manifests; `around` reads it.
//!
//! The index says only where to look: an attacker who writes to it could have a genuine block refused as a fork, or hide one.
//! A number counts if the log has an accepted block with it. Blocks that this process wrote down and that are not in the log yet
//! count by [`Unlogged`]; a number that a notice declared lost counts if that notice, in the archive, says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evidence::chain::{ChainState, Link, Position, chain_name};
use evidence::digest::Sha256Digest;
use evidence::manifest::Manifest;

/// Place of a block in a chain of its camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Name of the chain.
    pub(super) chain: String,
    pub(super) sequence: u64,
    pub(super) link: Link,
}

impl Place {
    pub(super) fn of(manifest: &Manifest, manifest_sha256: Sha256Digest, epoch: u64) -> Self {
        Self {
            chain: chain_name(&manifest.device, epoch),
            sequence: manifest.sequence,
            link: Link {
                manifest_sha256,
                previous: manifest.previous,
            },
        }
    }
}

/// Accepted blocks that were written down and whose event is not in the log yet, as many as are being settled. A place counts
/// only together with its row, which a transaction that fails takes back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unlogged(Arc<Mutex<BTreeMap<Sha256Digest, Place>>>);

impl Unlogged {
    fn places(&self) -> MutexGuard<'_, BTreeMap<Sha256Digest, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, block: Sha256Digest, place: Place) {
        self.places().insert(block, place);
    }

    pub(super) fn remove(&self, block: &Sha256Digest) {
        self.places().remove(block);
    }

    pub(super) fn get(&self, block: &Sha256Digest) -> Option<Place> {
        self.places().get(block).cloned()
    }
}

/// Numbers around a block's.
#[derive(Default)]
pub(super) struct Neighbourhood {
    pub(super) state: ChainState,
    blocks: BTreeMap<u64, Sha256Digest>,
}

impl Neighbourhood {
    pub(super) fn add(&mut self, sequence: u64, block: Sha256Digest, link: Link) {
        self.state = std::mem::take(&mut self.state).with_link(sequence, link);
        self.blocks.insert(sequence, block);
    }

    pub(super) fn has(&self, sequence: u64) -> bool {
        self.blocks.contains_key(&sequence)
    }

    pub(super) fn is_at(&self, sequence: u64, block: &Sha256Digest) -> bool {
        self.blocks.get(&sequence) == Some(block)
    }

    /// The block of this number, or else the neighbour that does not fit; none for a number that was declared lost.
    pub(super) fn first(&self, sequence: u64) -> Option<Sha256Digest> {
        let near = sequence.saturating_sub(1)..=sequence.saturating_add(1);
        let near = self.blocks.range(near);
        near.min_by_key(|(number, _)| number.abs_diff(sequence))
            .map(|(_, block)| *block)
    }
}

/// A block's epoch, its position in that chain, and what is around it there.
pub(super) struct Placement {
    pub(super) epoch: u64,
    pub(super) position: Position,
    pub(super) around: Neighbourhood,
}

/// A notice of the archive, with the name of its chain.
pub(crate) struct DeclaredBy {
    pub(crate) chain: String,
    pub(crate) manifest: Manifest,
}

/// Tells if a notice declares this number of a chain lost, with this manifest.
pub(crate) fn declares(
    notice: &DeclaredBy,
    chain: &str,
    sequence: u64,
    manifest_sha256: &Sha256Digest,
) -> bool {
    let mut dropped = notice.manifest.notice.iter().flat_map(|one| &one.dropped);
    notice.chain == chain
        && dropped.any(|one| one.sequence == sequence && one.manifest_sha256 == *manifest_sha256)
}
