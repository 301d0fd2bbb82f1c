//! The proof itself: one pass over the log, bundle by bundle.

use std::path::Path;

use super::chain::{Chains, Leaf};
use super::explain::Evidence;
use super::files::{self, Bundle, Kind};
use super::finding::{Finding, FindingKind, Readable};
use super::journals::{Comparison, Journals};
use super::note::Checkpoint;
use super::tree::{self, Hash, WIDTH};
use super::{MAX_EXTRA_FILES, Report};

/// State of a proof: a tile per level, a place per role.
pub(super) struct Walk<'a> {
    dir: &'a Path,
    checkpoint: Checkpoint,
    previous: Option<Checkpoint>,
    /// The root at the size of the previous checkpoint, once it was reached.
    root_at_previous: Option<Hash>,
    journals: Option<Journals>,
    journal_records: u64,
    rows: Vec<Row>,
    chains: Chains,
}

/// The current tile of one level.
#[derive(Clone, Default)]
struct Row {
    /// Hashes computed from the entries.
    computed: Vec<Hash>,
    /// Hashes read from the file.
    stored: Vec<Hash>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        dir: &'a Path,
        checkpoint: Checkpoint,
        previous: Option<Checkpoint>,
        journals: Option<Journals>,
    ) -> Self {
        Self {
            dir,
            checkpoint,
            previous,
            root_at_previous: None,
            journals,
            journal_records: 0,
            rows: vec![Row::default(); tree::LEVELS as usize],
            chains: Chains::default(),
        }
    }

    pub(super) fn run(mut self) -> Result<Report, Finding> {
        self.note_previous(0);
        for number in 0..self.checkpoint.size.div_ceil(WIDTH) {
            self.bundle(number)?;
        }
        for level in 0..tree::LEVELS {
            self.stale_hashes(level, tree::row_len(self.checkpoint.size, level) / WIDTH)?;
        }
        self.check_root()?;
        self.check_previous()?;
        if let Some(journals) = &mut self.journals {
            journals.finish(self.checkpoint.size)?;
        }
        Ok(Report {
            extra_files: files::extra_files(self.dir, self.checkpoint.size, MAX_EXTRA_FILES),
            origin: self.checkpoint.origin,
            size: self.checkpoint.size,
            root: self.checkpoint.root,
            roles: self.chains.counts(),
            journal_records: self.journal_records,
        })
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            dir: self.dir,
            checkpoint: &self.checkpoint,
        }
    }

    fn bundle(&mut self, number: u64) -> Result<(), Finding> {
        let width = tree::tile_len(self.checkpoint.size, 0, number);
        let (first, last) = tree::leaves_below(self.checkpoint.size, 1, number);
        let Some(bundle) = files::read_bundle(self.dir, number, width)? else {
            let detail = "the entry bundle is gone";
            return Err(Finding::new(FindingKind::Missing, detail)
                .between(first, last, Readable::default())
                .in_file(files::path_of(Kind::Entries, number, width)));
        };
        let Some(stored) = files::read_hashes(self.dir, 0, number, width)? else {
            return Err(self.evidence().lowest_tile(number, &bundle)?);
        };
        for (i, (index, stored_hash)) in (first..).zip(&stored).enumerate() {
            let Some(entry) = bundle.entry(i) else {
                let detail = "the entry bundle ends before it";
                return Err(Finding::new(FindingKind::Missing, detail)
                    .between(index, last, Readable::of(bundle.cut_entry()))
                    .in_file(&bundle.path));
            };
            let hash = tree::hash_leaf(entry);
            if hash != *stored_hash {
                let evidence = self.evidence();
                return Err(evidence.leaf(number, i, &bundle, &stored, &self.chains)?);
            }
            self.leaf(index, entry)?;
            self.push_lowest(hash);
            self.note_previous(index + 1);
        }
        if bundle.rest > 0 || bundle.len() > stored.len() {
            let added = bundle.entry(stored.len()).unwrap_or_default();
            let detail = "the entry bundle goes on after the last event";
            return Err(Finding::new(FindingKind::Surplus, detail)
                .at(last + 1, Readable::of(added))
                .in_file(&bundle.path));
        }
        self.stale_entries(number, &bundle)?;
        if width == WIDTH {
            self.finish_tile(0, number)?;
        }
        Ok(())
    }

    /// Checks a leaf as a member of its role: chain and journal.
    fn leaf(&mut self, index: u64, bytes: &[u8]) -> Result<(), Finding> {
        let leaf = Leaf::parse(bytes).map_err(|detail| {
            Finding::new(FindingKind::Malformed, detail).at(index, Readable::of(bytes))
        })?;
        if let Err(broken) = self.chains.follow(&leaf, bytes, index) {
            return Err(self.evidence().chain(broken, index, bytes)?);
        }
        let Some(journals) = &mut self.journals else {
            return Ok(());
        };
        match journals.compare(&leaf.role, leaf.seq, bytes)? {
            Comparison::Fits { compared } => {
                self.journal_records += u64::from(compared);
                Ok(())
            }
            Comparison::Differs { record, path } => {
                Err(self.evidence().journal(index, bytes, &record, path)?)
            }
            Comparison::Lacks { path } => {
                let detail = "the journal lacks the record of this event";
                Err(Finding::new(FindingKind::Journal, detail)
                    .at(index, Readable::of(bytes))
                    .in_file(path))
            }
        }
    }

    fn push_lowest(&mut self, hash: Hash) {
        if let Some(row) = self.rows.first_mut() {
            row.computed.push(hash);
        }
    }

    /// Tile `index` of row `level` is complete: passes its root to the row above.
    fn finish_tile(&mut self, level: u32, index: u64) -> Result<(), Finding> {
        self.stale_hashes(level, index)?;
        let Some(row) = self.rows.get_mut(level as usize) else {
            return Ok(());
        };
        let hash = tree::subtree(&row.computed);
        row.computed.clear();
        self.push(level + 1, index, hash)
    }

    /// Checks hash `index` of row `level` against the stored tile.
    fn push(&mut self, level: u32, index: u64, hash: Hash) -> Result<(), Finding> {
        let (tile, position) = (index / WIDTH, index % WIDTH);
        let width = tree::tile_len(self.checkpoint.size, level, tile);
        let evidence = Evidence {
            dir: self.dir,
            checkpoint: &self.checkpoint,
        };
        let Some(row) = self.rows.get_mut(level as usize) else {
            return Ok(());
        };
        if position == 0 {
            let Some(stored) = files::read_hashes(self.dir, level, tile, width)? else {
                return Err(evidence.node(level, index, None)?);
            };
            row.stored = stored;
        }
        let at = usize::try_from(position).unwrap_or(0);
        if row.stored.get(at) != Some(&hash) {
            return Err(evidence.node(level, index, Some(&row.stored))?);
        }
        row.computed.push(hash);
        if row.computed.len() as u64 == WIDTH {
            self.finish_tile(level, tile)?;
        }
        Ok(())
    }

    fn root(&self) -> Hash {
        let rows: Vec<_> = self.rows.iter().map(|row| row.computed.clone()).collect();
        tree::root(&rows)
    }

    /// Remembers the root when `count` leaves are the previous checkpoint's.
    fn note_previous(&mut self, count: u64) {
        if self.previous.as_ref().is_some_and(|p| p.size == count) {
            self.root_at_previous = Some(self.root());
        }
    }

    /// All stored hashes agreed with the entries; the signed root has the last word.
    fn check_root(&self) -> Result<(), Finding> {
        let size = self.checkpoint.size;
        if self.root() == self.checkpoint.root {
            return Ok(());
        }
        // Events up to a previous checkpoint whose root came out right are proven.
        let proven = self.previous.as_ref().filter(|p| self.fits(p));
        let first = proven.map_or(0, |p| p.size).min(size.saturating_sub(1));
        let detail = "one or more of them and all hash tiles over them were changed together: \
                      they do not give the signed root";
        Err(Finding::new(FindingKind::Changed, detail)
            .between(
                first,
                size.saturating_sub(1),
                self.evidence().readable(first),
            )
            .in_file("checkpoint"))
    }

    fn fits(&self, previous: &Checkpoint) -> bool {
        self.root_at_previous == Some(previous.root)
    }

    fn check_previous(&self) -> Result<(), Finding> {
        let size = self.checkpoint.size;
        match &self.previous {
            Some(previous) if previous.size > size => {
                let detail = format!("the log had {} events and has {size}", previous.size);
                Err(Finding::new(FindingKind::SetBack, detail)
                    .between(size, previous.size - 1, self.beyond())
                    .in_file("checkpoint"))
            }
            Some(previous) if !self.fits(previous) => {
                let detail = "the earlier checkpoint has another root over them";
                Err(Finding::new(FindingKind::Forked, detail)
                    .between(
                        0,
                        previous.size.saturating_sub(1),
                        self.evidence().readable(0),
                    )
                    .in_file("checkpoint"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the first event after the checkpoint from a file that was left behind.
    fn beyond(&self) -> Readable {
        let size = self.checkpoint.size;
        let at = usize::try_from(size % WIDTH).unwrap_or(0);
        let number = size / WIDTH;
        let partial = files::partials(self.dir, Kind::Entries, number);
        let widths = partial.into_iter().map(|(width, _)| width);
        widths
            .filter(|width| width % WIDTH > size % WIDTH)
            .chain([WIDTH])
            .filter_map(|width| files::read_bundle(self.dir, number, width).ok().flatten())
            .find_map(|bundle| bundle.entry(at).map(Readable::of))
            .unwrap_or_default()
    }

    /// Old partial versions of a bundle must be its beginning.
    fn stale_entries(&self, number: u64, bundle: &Bundle) -> Result<(), Finding> {
        self.stale(Kind::Entries, number, bundle.len() as u64, |width| {
            bundle.prefix(width)
        })
    }

    /// Old partial versions of the current tile of row `level` must be its beginning.
    fn stale_hashes(&self, level: u32, index: u64) -> Result<(), Finding> {
        let Some(row) = self.rows.get(level as usize) else {
            return Ok(());
        };
        if row.computed.is_empty() {
            return Ok(());
        }
        let width = row.computed.len() as u64;
        self.stale(Kind::Hashes(level), index, width, |width| {
            row.computed.get(..width).map(<[Hash]>::as_flattened)
        })
    }

    fn stale<'b>(
        &self,
        kind: Kind,
        index: u64,
        width: u64,
        prefix: impl Fn(usize) -> Option<&'b [u8]>,
    ) -> Result<(), Finding> {
        for (partial, path) in files::partials(self.dir, kind, index) {
            if partial == 0 || partial > width {
                continue;
            }
            let expected = prefix(usize::try_from(partial).unwrap_or(0)).unwrap_or_default();
            // A running writer may just have removed it.
            let Some(found) = files::read(&self.dir.join(&path), expected.len() as u64)? else {
                continue;
            };
            if found != expected {
                let level = match kind {
                    Kind::Entries => 0,
                    Kind::Hashes(level) => level,
                };
                let (first, _) = tree::leaves_below(self.checkpoint.size, level, index * WIDTH);
                let (_, last) =
                    tree::leaves_below(self.checkpoint.size, level, index * WIDTH + partial - 1);
                let detail = "an old partial version of their tile differs from the proven one";
                return Err(Finding::new(FindingKind::Tile, detail)
                    .between(first, last, self.evidence().readable(first))
                    .in_file(path));
            }
        }
        Ok(())
    }
}
