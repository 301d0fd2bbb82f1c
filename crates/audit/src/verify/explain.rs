//! Which of two contradicting files is wrong, and what that says about events.

use std::path::{Path, PathBuf};

use super::chain::{Break, Chains, Leaf, names};
use super::files::{self, Bundle, Kind};
use super::finding::{Finding, FindingKind, Readable};
use super::note::Checkpoint;
use super::tree::{self, Hash, WIDTH};

/// Certain facts: the signed checkpoint.
#[derive(Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) dir: &'a Path,
    pub(super) checkpoint: &'a Checkpoint,
}

impl Evidence<'_> {
    /// Whether `hashes` as tile `index` of row `level` leads to the signed root through the
    /// stored tiles. If so, it is what was signed; nobody can find another with that property.
    fn is_signed(&self, level: u32, index: u64, hashes: &[Hash]) -> Result<bool, Finding> {
        let size = self.checkpoint.size;
        let (mut level, mut index, mut hashes) = (level, index, hashes.to_vec());
        while hashes.len() as u64 == WIDTH {
            let above = self.stored(level + 1, index / WIDTH)?;
            let position = usize::try_from(index % WIDTH).unwrap_or(0);
            let Some(above) = above.filter(|a| a.get(position) == Some(&tree::subtree(&hashes)))
            else {
                return Ok(false);
            };
            (level, index, hashes) = (level + 1, index / WIDTH, above);
        }
        let mut rows = Vec::new();
        for row in 0..tree::LEVELS {
            let tile = tree::row_len(size, row) / WIDTH;
            rows.push(if (row, tile) == (level, index) {
                hashes.clone()
            } else if tree::tile_len(size, row, tile) == 0 {
                Vec::new()
            } else {
                let Some(stored) = self.stored(row, tile)? else {
                    return Ok(false);
                };
                stored
            });
        }
        Ok(tree::root(&rows) == self.checkpoint.root)
    }

    fn stored(&self, level: u32, index: u64) -> Result<Option<Vec<Hash>>, Finding> {
        let width = tree::tile_len(self.checkpoint.size, level, index);
        files::read_hashes(self.dir, level, index, width)
    }

    /// Whether the stored hash tile over event `index` is what was signed.
    fn tile_is_signed(&self, index: u64) -> Result<bool, Finding> {
        match self.stored(0, index / WIDTH)? {
            Some(hashes) => self.is_signed(0, index / WIDTH, &hashes),
            None => Ok(false),
        }
    }

    /// Whether the entries alone, without any hash tile, give the signed root. Reads all of them.
    fn entries_are_signed(&self) -> Result<bool, Finding> {
        let size = self.checkpoint.size;
        let mut rows = vec![Vec::new(); tree::LEVELS as usize];
        for number in 0..size.div_ceil(WIDTH) {
            let width = tree::tile_len(size, 0, number);
            let Some(bundle) = files::read_bundle(self.dir, number, width)? else {
                return Ok(false);
            };
            let mut carry: Vec<Hash> = bundle.entries().map(tree::hash_leaf).collect();
            if carry.len() as u64 != width {
                return Ok(false);
            }
            for row in &mut rows {
                row.append(&mut carry);
                if row.len() as u64 == WIDTH {
                    carry.push(tree::subtree(row));
                    row.clear();
                } else {
                    break;
                }
            }
        }
        Ok(tree::root(&rows) == self.checkpoint.root)
    }

    /// Entry `i` of bundle `number` does not fit the hash tile over it.
    pub(super) fn leaf(
        &self,
        number: u64,
        i: usize,
        bundle: &Bundle,
        stored: &[Hash],
        chains: &Chains,
    ) -> Result<Finding, Finding> {
        let index = number * WIDTH + i as u64;
        let computed: Vec<Hash> = bundle.entries().map(tree::hash_leaf).collect();
        let said = Readable::of(bundle.entry(i).unwrap_or_default());
        if self.is_signed(0, number, stored)? {
            return Ok(against_signed(
                index, i, bundle, &computed, stored, chains, said,
            ));
        }
        let complete = computed.len() == stored.len();
        if (complete && self.is_signed(0, number, &computed)?) || self.entries_are_signed()? {
            let detail = "its hash in the lowest tile is not the signed one";
            return Ok(Finding::new(FindingKind::Tile, detail)
                .at(index, said)
                .in_file(files::path_of(Kind::Hashes(0), number, stored.len() as u64)));
        }
        let detail = "it does not fit its hash, and the hashes over it were changed as well";
        Ok(Finding::new(FindingKind::Changed, detail)
            .at(index, said)
            .in_file(&bundle.path))
    }

    /// The lowest hash tile over a bundle is missing or has another length.
    pub(super) fn lowest_tile(&self, number: u64, bundle: &Bundle) -> Result<Finding, Finding> {
        let path = files::path_of(
            Kind::Hashes(0),
            number,
            tree::tile_len(self.checkpoint.size, 0, number),
        );
        let (first, last) = tree::leaves_below(self.checkpoint.size, 1, number);
        let computed: Vec<Hash> = bundle.entries().map(tree::hash_leaf).collect();
        let intact = self.is_signed(0, number, &computed)? || self.entries_are_signed()?;
        let said = Readable::of(bundle.entry(0).unwrap_or_default());
        let detail = "the hash tile over them is missing or has another length";
        Ok(if intact {
            Finding::new(FindingKind::Tile, detail)
        } else {
            Finding::new(
                FindingKind::Changed,
                format!("they do not lead to the root; {detail}"),
            )
        }
        .between(first, last, said)
        .in_file(path))
    }

    /// Hash `index` of row `level` is not what the rows below give; `None` if the tile is missing.
    pub(super) fn node(
        &self,
        level: u32,
        index: u64,
        stored: Option<&[Hash]>,
    ) -> Result<Finding, Finding> {
        let size = self.checkpoint.size;
        let tile = index / WIDTH;
        let (first, last) = tree::leaves_below(size, level, index);
        let said = self.readable(first);
        let path = files::path_of(Kind::Hashes(level), tile, tree::tile_len(size, level, tile));
        let signed = match stored {
            Some(stored) => self.is_signed(level, tile, stored)?,
            None => false,
        };
        if !signed && self.entries_are_signed()? {
            let detail = "a hash tile is missing or was changed";
            return Ok(Finding::new(FindingKind::Tile, detail)
                .between(first, last, said)
                .in_file(path));
        }
        let detail = "one or more of them and the hash tiles below this one were changed together";
        Ok(Finding::new(FindingKind::Changed, detail)
            .between(first, last, said)
            .in_file(path))
    }

    /// Leaf `index` does not continue its role's chain, though its lowest tile has its hash.
    pub(super) fn chain(
        &self,
        broken: Break,
        index: u64,
        bytes: &[u8],
    ) -> Result<Finding, Finding> {
        let Break {
            role,
            before,
            seq,
            detail,
        } = broken;
        let before_is_signed = match before {
            Some(before) => self.tile_is_signed(before.index)?,
            None => true,
        };
        let this_is_signed = self.tile_is_signed(index)?;
        let said = Readable::of(bytes);
        if before_is_signed && this_is_signed {
            return Ok(Finding::new(FindingKind::Chain, detail).at(index, said));
        }
        let detail = format!("{detail}; the hash tiles were changed as well");
        let expected = before.map_or(1, |before| before.seq + 1);
        if seq > expected {
            let lost = Readable {
                role: Some(role),
                seq: Some(expected),
                ..Readable::default()
            };
            return Ok(Finding::new(FindingKind::Removed, detail).at(index, lost));
        }
        let before = before.map_or(index, |before| before.index);
        let (first, last) = match self.successor_fits(&role, index, bytes)? {
            Some(true) => (before, before),
            Some(false) => (index, index),
            None if before_is_signed => (index, index),
            None if this_is_signed => (before, before),
            None => (before, index),
        };
        Ok(Finding::new(FindingKind::Changed, detail).between(first, last, self.readable(first)))
    }

    /// Whether the next leaf of `role` in the same bundle names the leaf `bytes` at `index`.
    fn successor_fits(
        &self,
        role: &str,
        index: u64,
        bytes: &[u8],
    ) -> Result<Option<bool>, Finding> {
        let number = index / WIDTH;
        let width = tree::tile_len(self.checkpoint.size, 0, number);
        let bundle = files::read_bundle(self.dir, number, width)?.unwrap_or_default();
        let after = usize::try_from(index % WIDTH).unwrap_or(0) + 1;
        let next = bundle
            .entries()
            .skip(after)
            .filter_map(|entry| Leaf::parse(entry).ok())
            .find(|leaf| leaf.role == role);
        Ok(next.map(|leaf| names(&leaf.prev, &tree::hash_chain(bytes))))
    }

    /// A journal has `record` where the log has the leaf `index`.
    pub(super) fn journal(
        &self,
        index: u64,
        leaf: &[u8],
        record: &[u8],
        path: PathBuf,
    ) -> Result<Finding, Finding> {
        let finding = if self.tile_is_signed(index)? {
            let detail = "the journal has another record under this number";
            Finding::new(FindingKind::Journal, detail).at(index, Readable::of(leaf))
        } else {
            let detail = "its journal has it as it was; the hash tiles were changed as well";
            Finding::new(FindingKind::Changed, detail).at(index, Readable::of(record))
        };
        Ok(finding.in_file(path))
    }

    /// Reads event `index` as it is now.
    pub(super) fn readable(&self, index: u64) -> Readable {
        let number = index / WIDTH;
        let width = tree::tile_len(self.checkpoint.size, 0, number);
        let at = usize::try_from(index % WIDTH).unwrap_or(0);
        match files::read_bundle(self.dir, number, width) {
            Ok(Some(bundle)) => bundle.entry(at).map(Readable::of).unwrap_or_default(),
            _ => Readable::default(),
        }
    }
}

/// The hash tile is the signed one, so the entries are wrong from `i` on: find out how.
fn against_signed(
    index: u64,
    i: usize,
    bundle: &Bundle,
    computed: &[Hash],
    stored: &[Hash],
    chains: &Chains,
    said: Readable,
) -> Finding {
    let here = computed.get(i);
    let moved_up = stored
        .iter()
        .skip(i + 1)
        .position(|hash| Some(hash) == here);
    let moved_down = computed.get(i + 1) == stored.get(i);
    let finding = if let Some(removed) = moved_up {
        let detail = "the entry that is here now belongs further down";
        let last = index + removed as u64;
        let lost = first_gap(bundle, i, chains);
        Finding::new(FindingKind::Removed, detail).between(index, last, lost)
    } else if moved_down {
        let detail = "it was put in before the event that belongs here";
        Finding::new(FindingKind::Surplus, detail).at(index, said)
    } else {
        let detail = "it does not fit its signed hash";
        Finding::new(FindingKind::Changed, detail).at(index, said)
    };
    finding.in_file(&bundle.path)
}

/// The first role and number that the entries from `i` on leave out.
fn first_gap(bundle: &Bundle, i: usize, chains: &Chains) -> Readable {
    let mut seen = std::collections::BTreeSet::new();
    for leaf in bundle.entries().skip(i).filter_map(|e| Leaf::parse(e).ok()) {
        let expected = chains.next_seq(&leaf.role);
        // Only the first following leaf of each role can show the gap.
        if seen.insert(leaf.role.clone().into_owned()) && leaf.seq > expected {
            return Readable {
                role: Some(leaf.role.into_owned()),
                seq: Some(expected),
                ..Readable::default()
            };
        }
    }
    Readable::default()
}
