//! Following the sequence of a camera's manifests, at the centre.
//!
//! Each manifest carries a number and the hash of its predecessor. From these the centre tells a
//! block that is next from one that came twice, one that fills a hole, and one that proves that
//! two holders of the camera's key (or a camera set back in time) have sealed.
//!
//! ```text
//!            sequence == head + 1, previous matches ──► Next
//!  manifest ─┤ sequence >  head + 1 ────────────────► Gap { from, to }
//!            │ known sequence, same hash ───────────► Duplicate
//!            │ known sequence, other hash ──────────► Fork
//!            │ unknown sequence below head ─────────► Late (or Fork, if a neighbour disagrees)
//! ```
//!
//! A camera whose memory was replaced begins again with number 1. Two people record that: the camera's chain is closed, and a new
//! *epoch* begins. A chain is therefore named by camera and epoch ([`chain_name`]), and [`place`] finds the epoch of a manifest.

use std::collections::BTreeMap;

use crate::digest::Sha256Digest;
use crate::manifest::Manifest;

/// Most epochs of one camera after the first. Each costs a look at every block of the camera. Our choice: a replacement a
/// month for five years.
pub const MAX_EPOCHS: u64 = 60;

/// Names the chain of a camera in one epoch: the camera alone in the first one, epoch 0. Names of devices have no `#`.
#[must_use]
pub fn chain_name(device: &str, epoch: u64) -> String {
    match epoch {
        0 => device.to_owned(),
        later => format!("{device}#{later}"),
    }
}

/// Reads a name back that [`chain_name`] made.
#[must_use]
pub fn split_chain_name(name: &str) -> (&str, u64) {
    match name.rsplit_once('#') {
        Some((device, epoch)) => epoch.parse().map_or((name, 0), |epoch| (device, epoch)),
        None => (name, 0),
    }
}

/// A chain that two people closed.
#[derive(Clone, Debug)]
pub struct ClosedChain {
    /// Highest number that the chain takes: its head when it was closed.
    pub head: u64,
    /// The chain as far as it is known.
    pub state: ChainState,
}

/// Finds the epoch of a manifest and its position there. `closed` has the camera's closed chains, oldest first.
///
/// A closed chain takes a manifest up to its head that one of its links confirms, for instance from the memory that was replaced.
/// A manifest that continues a closed chain beyond its head is a fork. Everything else belongs to the open chain: a hole of a
/// closed chain alone confirms nothing, because a thief with a copied key can number a block as they like.
#[must_use]
pub fn place(
    closed: &[ClosedChain],
    open: &ChainState,
    manifest: &Manifest,
    manifest_sha256: &Sha256Digest,
) -> (usize, Position) {
    let sequence = manifest.sequence;
    let in_open = (closed.len(), open.classify(manifest, manifest_sha256));
    if in_open.1 == Position::Duplicate {
        return in_open;
    }
    let newest_first = || closed.iter().enumerate().rev();
    let position = |chain: &ClosedChain| chain.state.classify(manifest, manifest_sha256);
    for (epoch, chain) in newest_first() {
        if position(chain) == Position::Duplicate {
            return (epoch, Position::Duplicate);
        }
    }
    for (epoch, chain) in newest_first() {
        let position = position(chain);
        let is_fork = matches!(position, Position::Fork { .. });
        if is_fork || !chain.state.confirms(manifest, manifest_sha256) {
            continue;
        }
        return match sequence <= chain.head {
            true => (epoch, position),
            false => (epoch, Position::Fork { sequence }),
        };
    }
    in_open
}

/// The centre's memory of one manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// SHA-256 of the manifest's canonical bytes.
    pub manifest_sha256: Sha256Digest,
    /// SHA-256 of its predecessor, as the manifest says.
    pub previous: Sha256Digest,
}

/// Relation of a manifest to those already known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It continues the chain.
    Next,
    /// It was seen before.
    Duplicate,
    /// It is ahead: the numbers `from..=to` have not arrived.
    Gap { from: u64, to: u64 },
    /// It contradicts a known manifest: same number with other content, or a hash that does not
    /// fit its neighbour.
    Fork {
        /// Number at which the two chains part.
        sequence: u64,
    },
    /// It fills an earlier hole.
    Late,
}

/// The chain of one camera, as far as the centre knows it.
///
/// Holds one small entry per block it is given; a caller with millions of blocks per camera loads
/// the head and the neighbourhood of the number in question with [`ChainState::with_link`].
#[derive(Clone, Debug, Default)]
pub struct ChainState {
    links: BTreeMap<u64, Link>,
    /// Hashes of blocks that were never received but are named by a notice.
    explained: BTreeMap<u64, Sha256Digest>,
}

impl ChainState {
    /// A camera nothing is known about.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a remembered manifest, for instance from a database.
    #[must_use]
    pub fn with_link(mut self, sequence: u64, link: Link) -> Self {
        self.links.insert(sequence, link);
        self
    }

    /// Adds a block that never arrived but that a notice explains, with its manifest's hash.
    #[must_use]
    pub fn with_explained(mut self, sequence: u64, manifest_sha256: Sha256Digest) -> Self {
        self.explained.insert(sequence, manifest_sha256);
        self
    }

    /// Highest number seen; `None` before the first.
    #[must_use]
    pub fn head(&self) -> Option<u64> {
        self.links.keys().next_back().copied()
    }

    /// Finds the position of `manifest`, whose canonical bytes hash to `manifest_sha256`; changes nothing.
    #[must_use]
    pub fn classify(&self, manifest: &Manifest, manifest_sha256: &Sha256Digest) -> Position {
        let sequence = manifest.sequence;
        if let Some(known) = self.links.get(&sequence) {
            return if known.manifest_sha256 == *manifest_sha256 {
                Position::Duplicate
            } else {
                Position::Fork { sequence }
            };
        }
        if let Some(fork) = self.neighbour_conflict(manifest, manifest_sha256) {
            return fork;
        }
        let head = self.head().unwrap_or(0);
        if sequence < head {
            return Position::Late;
        }
        let expected = head.saturating_add(1);
        if sequence == expected {
            Position::Next
        } else {
            Position::Gap {
                from: expected,
                to: sequence.saturating_sub(1),
            }
        }
    }

    /// Tells if a link of this chain names the manifest, or the manifest names one of them.
    fn confirms(&self, manifest: &Manifest, hash: &Sha256Digest) -> bool {
        let sequence = manifest.sequence;
        let before = sequence.saturating_sub(1);
        let is_before = |known: &Sha256Digest| before > 0 && *known == manifest.previous;
        let (link, explained) = (self.links.get(&before), self.explained.get(&before));
        let after = self.links.get(&sequence.saturating_add(1));
        link.is_some_and(|link| is_before(&link.manifest_sha256))
            || explained.is_some_and(is_before)
            || after.is_some_and(|link| link.previous == *hash)
            || self.explained.get(&sequence) == Some(hash)
    }

    fn neighbour_conflict(&self, manifest: &Manifest, hash: &Sha256Digest) -> Option<Position> {
        let sequence = manifest.sequence;
        let before = sequence.checked_sub(1)?;
        let conflict = |sequence| Some(Position::Fork { sequence });
        let known_before = self
            .links
            .get(&before)
            .map(|link| link.manifest_sha256)
            .or_else(|| self.explained.get(&before).copied());
        if known_before.is_some_and(|known| known != manifest.previous) {
            return conflict(sequence);
        }
        let after = self.links.get(&sequence.saturating_add(1));
        if after.is_some_and(|link| link.previous != *hash) {
            return conflict(sequence);
        }
        // A number given up in a notice may still arrive, but only with the content it had.
        if self.explained.get(&sequence).is_some_and(|h| h != hash) {
            return conflict(sequence);
        }
        None
    }

    /// Remembers `manifest`, and what it says about dropped blocks if it is a notice.
    ///
    /// A fork is not remembered: the first to arrive stays. Returns what [`Self::classify`] says.
    pub fn accept(&mut self, manifest: &Manifest, manifest_sha256: &Sha256Digest) -> Position {
        let position = self.classify(manifest, manifest_sha256);
        if matches!(position, Position::Fork { .. } | Position::Duplicate) {
            return position;
        }
        self.links.insert(
            manifest.sequence,
            Link {
                manifest_sha256: *manifest_sha256,
                previous: manifest.previous,
            },
        );
        for dropped in manifest.notice.iter().flat_map(|n| &n.dropped) {
            self.explained
                .insert(dropped.sequence, dropped.manifest_sha256);
        }
        position
    }

    /// Numbers from 1 to the head that neither arrived nor are explained by a notice, as ranges.
    ///
    /// At most `limit` ranges are returned, lowest first.
    #[must_use]
    pub fn unexplained_gaps(&self, limit: usize) -> Vec<(u64, u64)> {
        let mut known: Vec<u64> = self
            .links
            .keys()
            .chain(self.explained.keys())
            .copied()
            .collect();
        known.sort_unstable();
        known.dedup();
        let mut gaps = Vec::new();
        let mut expected: u64 = 1;
        for sequence in known {
            if gaps.len() >= limit {
                break;
            }
            if sequence > expected {
                gaps.push((expected, sequence.saturating_sub(1)));
            }
            expected = sequence.saturating_add(1);
        }
        gaps
    }
}

#[cfg(test)]
mod tests;
