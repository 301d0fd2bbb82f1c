//! Sources that are sealed but still in the watched folder: never sealed again as they are, and removed only as they were
//! sealed.
//!
//! ```text
//! sealed ──no writer, renamed away──► compared ──all as sealed────► removed, or moved to `keep_sealed`
//!    ▲                                    │──one changed afterwards─► all put back, sealed again, linked by a notice
//!    └───────a writer has one open────────┘──other files by now────► these put back as new sources
//! ```
//!
//! A file is renamed to a hidden name before it is compared. A writer that opens the old name afterwards makes a new file,
//! and one that has the old file open is seen by the kernel's count of writers: between comparison and removal nobody can
//! change what is removed.
//!
//! The file `sealing.json` in the spool's folder names the sources, and what is being sealed with its number, before the
//! block is committed. A read error of that file stops the start: without it a picture would be sealed twice.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::source::{Opened, Source, Writers};
use crate::config::{Config, Watch};
use crate::register::{self, Register};
use crate::set_aside::{exists, free_prefix, move_into, rename};

const JOURNAL: &str = "sealing.json";
/// Begins the names of files that were renamed away; the number of their block and the extension follow.
const HIDDEN: &str = ".cordon-";
/// Most groups and links that are remembered; the oldest go first. So many are left only where nothing can be removed, or
/// where the disk of the folder was exchanged each time.
const MAX_GROUPS: usize = 10_000;

/// The files of one block.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sealed {
    sequence: u64,
    files: Vec<Source>,
    /// Read from the journal, which does not say whether they were removed already: only files that have even the times of
    /// the sealed ones are these.
    #[serde(skip)]
    recovered: bool,
}

/// A group that changed after it was sealed and is to be sealed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    stem: String,
    /// Block with the earlier content.
    first: u64,
    /// Block with the later one, once it has a number.
    second: Option<u64>,
}

/// Content of the file.
#[derive(Default, Serialize, Deserialize)]
struct Journal {
    /// Number of the block that was about to be committed.
    sequence: u64,
    files: Vec<Source>,
    /// Sources of earlier blocks, as versions before 1.1 wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<Source>,
    /// Earlier blocks whose sources are not removed.
    #[serde(default)]
    groups: Vec<Sealed>,
    #[serde(default)]
    changes: Vec<Change>,
}

/// The sources that are sealed and not removed yet.
pub(super) struct Left {
    register: Register,
    groups: Vec<Sealed>,
    changes: Vec<Change>,
    /// Whether a failure was logged since the last success.
    told: bool,
}

impl Left {
    fn empty(path: PathBuf) -> Self {
        Self {
            register: Register::new(path),
            groups: Vec::new(),
            changes: Vec::new(),
            told: false,
        }
    }

    /// Reads what an earlier process left; `next` is the number of the next block.
    pub(super) fn load(config: &Config, next: u64) -> io::Result<Self> {
        let path = config.spool.folder.join(JOURNAL);
        let record = register::read(&path)?;
        let mut left = Self::empty(path);
        let journal = record.map(|bytes| {
            serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::error!(%error, "the note of what was being sealed is damaged");
                Journal::default()
            })
        });
        let journal = journal.unwrap_or_default();
        left.groups = journal.groups;
        let single = |file| Sealed {
            sequence: 0,
            files: vec![file],
            recovered: true,
        };
        left.groups.extend(journal.left.into_iter().map(single));
        if journal.sequence < next {
            left.add(journal.sequence, &journal.files);
        }
        for group in &mut left.groups {
            group.recovered = true;
        }
        left.changes = journal.changes;
        left.forget_numbers(next);
        left.put_back_strays(&config.watch.folder)?;
        Ok(left)
    }

    /// Gives files that a crash left under hidden names, and that no group knows, a name under which they are sealed.
    fn put_back_strays(&self, folder: &Path) -> io::Result<()> {
        for item in fs::read_dir(folder)? {
            let Ok(name) = item?.file_name().into_string() else {
                continue;
            };
            let Some(rest) = name.strip_prefix(HIDDEN) else {
                continue;
            };
            let known = self.groups.iter().any(|group| {
                let mut files = group.files.iter();
                files.any(|file| group.hidden_name(&file.name) == name)
            });
            if !known {
                let to = format!("recovered-{rest}");
                let prefix = free_prefix(folder, [to.as_str()])?;
                tracing::warn!(
                    name,
                    "a file that no block is known to hold is sealed again"
                );
                rename(&folder.join(&name), &folder.join(format!("{prefix}{to}")))?;
            }
        }
        Ok(())
    }

    /// Notes what is about to be sealed; durable on return.
    pub(super) fn note(&mut self, sequence: u64, files: &[Source]) -> io::Result<()> {
        let journal = Journal {
            sequence,
            files: files.to_vec(),
            left: Vec::new(),
            groups: self.groups.clone(),
            changes: self.changes.clone(),
        };
        self.register.write(&serde_json::to_vec(&journal)?)
    }

    pub(super) fn add(&mut self, sequence: u64, files: &[Source]) {
        if files.is_empty() {
            return;
        }
        self.groups.push(Sealed {
            sequence,
            files: files.to_vec(),
            recovered: false,
        });
        let excess = self.groups.len().saturating_sub(MAX_GROUPS);
        self.groups.drain(..excess);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether this very file was sealed, and is to be removed or compared first.
    pub(super) fn holds(&self, source: &Source) -> bool {
        let mut files = self.groups.iter().flat_map(|group| &group.files);
        files.any(|left| {
            left.name == source.name
                && left.is_same_inode(source)
                && (left.sha256.is_some() || left.has_same_times(source))
        })
    }

    /// Notes the number of the block that is about to seal a changed group again.
    pub(super) fn number(&mut self, stem: &str, second: u64) {
        let numberless = |c: &&mut Change| c.stem == stem && c.second.is_none();
        for change in self.changes.iter_mut().filter(numberless) {
            change.second = Some(second);
        }
    }

    /// Takes back the numbers of blocks that were not committed; `next` is the number of the next one.
    pub(super) fn forget_numbers(&mut self, next: u64) {
        for change in &mut self.changes {
            change.second = change.second.filter(|second| *second < next);
        }
    }

    /// A block with changed content and the one before it, if a notice about them is due.
    pub(super) fn link_due(&self) -> Option<(u64, u64)> {
        let mut changes = self.changes.iter();
        changes.find_map(|change| Some((change.first, change.second?)))
    }

    /// Ends the link with this later block; the next note makes it durable.
    pub(super) fn linked(&mut self, second: u64) {
        self.changes.retain(|change| change.second != Some(second));
    }

    /// Forgets that a group changed: it is set aside.
    pub(super) fn forget_change(&mut self, stem: &str) {
        self.changes
            .retain(|change| change.stem != stem || change.second.is_some());
    }

    /// Removes what can be removed, and puts back what is not what was sealed.
    pub(super) fn remove(&mut self, watch: &Watch) {
        let mut failed = None;
        let groups = std::mem::take(&mut self.groups);
        for group in groups {
            match group.resolve(watch) {
                Ok(Resolved::Gone) => {}
                Ok(Resolved::Changed { stem }) => {
                    tracing::warn!(
                        stem,
                        sequence = group.sequence,
                        "a source changed after it was sealed, sealing it again"
                    );
                    self.changes.push(Change {
                        stem,
                        first: group.sequence,
                        second: None,
                    });
                    let excess = self.changes.len().saturating_sub(MAX_GROUPS);
                    self.changes.drain(..excess);
                }
                Ok(Resolved::Busy) => self.groups.push(group),
                Err(error) => {
                    let name = group.files.first().map(|file| file.name.clone());
                    failed = Some((name.unwrap_or_default(), error));
                    self.groups.push(group);
                }
            }
        }
        let told = std::mem::replace(&mut self.told, failed.is_some());
        if let Some((name, error)) = failed.filter(|_| !told) {
            let waiting = self.groups.len();
            tracing::error!(name, waiting, %error, "cannot remove a sealed source, trying again");
        }
    }
}

/// What became of the files of a block.
enum Resolved {
    /// The sealed files are removed; other ones that had their names are put back.
    Gone,
    /// A file has other content than was sealed: all are back in the folder, with this stem.
    Changed { stem: String },
    /// A writer has a file open: all are back in the folder.
    Busy,
}

/// What a file is that has the name of a sealed one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Sealed,
    /// The same file with other content.
    Changed,
    /// Another file.
    Other,
    Busy,
}

impl Sealed {
    fn resolve(&self, watch: &Watch) -> io::Result<Resolved> {
        let folder = &watch.folder;
        if let Some(keep) = &watch.keep_sealed {
            // Before anything is renamed: a folder that is missing for hours costs nothing.
            fs::read_dir(keep)?;
        }
        let present = self.present(folder)?;
        if present.is_empty() {
            return match self.is_of_other_disk(folder)? {
                // The folder is unmounted, or another medium is in: they may come back.
                true => Ok(Resolved::Busy),
                false => Ok(Resolved::Gone),
            };
        }
        for (_, name) in &present {
            if Opened::open(folder, name)?.writers() == Writers::Some {
                return Ok(Resolved::Busy);
            }
        }
        let away = self.rename_away(folder, &present)?;
        let result = self.settle(watch, &away);
        if !matches!(result, Ok(Resolved::Gone)) {
            let stem = put_all_back(folder, &away)?;
            if matches!(result, Ok(Resolved::Changed { .. })) {
                return Ok(Resolved::Changed { stem });
            }
        }
        result
    }

    /// The files that are there, each with its present name: a crash may have left it under the hidden one.
    fn present(&self, folder: &Path) -> io::Result<Vec<(&Source, String)>> {
        let mut present = Vec::new();
        for file in &self.files {
            for name in [self.hidden_name(&file.name), file.name.clone()] {
                if exists(&folder.join(&name))? {
                    present.push((file, name));
                    break;
                }
            }
        }
        Ok(present)
    }

    /// The hidden name of a file: files of one group differ in their extensions. Files without a hash are of an earlier
    /// version, each a group of its own without a number, so they keep their whole names.
    fn hidden_name(&self, name: &str) -> String {
        match (self.sequence, name.rsplit_once('.')) {
            (1.., Some((_, extension))) => format!("{HIDDEN}{}.{extension}", self.sequence),
            _ => format!("{HIDDEN}{name}"),
        }
    }

    fn is_of_other_disk(&self, folder: &Path) -> io::Result<bool> {
        let now = Source::new(String::new(), &fs::metadata(folder)?).device();
        let mut devices = self.files.iter().filter_map(Source::device);
        Ok(devices.any(|device| Some(device) != now))
    }

    /// Renames the files to hidden names in the same folder, which takes no room on a full disk.
    fn rename_away<'a>(
        &self,
        folder: &Path,
        present: &[(&'a Source, String)],
    ) -> io::Result<Vec<(&'a Source, String)>> {
        let mut away = Vec::new();
        for (file, name) in present {
            let hidden = self.hidden_name(&file.name);
            if *name != hidden
                && let Err(error) = rename(&folder.join(name), &folder.join(&hidden))
            {
                put_all_back(folder, &away)?;
                return Err(error);
            }
            away.push((*file, hidden));
        }
        Ok(away)
    }

    /// Compares the files that were renamed away, and removes them if they are what was sealed.
    fn settle(&self, watch: &Watch, away: &[(&Source, String)]) -> io::Result<Resolved> {
        let mut found = Vec::new();
        for (file, name) in away {
            found.push(find(&watch.folder, name, file, self.recovered)?);
        }
        if found.contains(&Found::Busy) {
            return Ok(Resolved::Busy);
        }
        if found.contains(&Found::Changed) {
            let stem = String::new();
            return Ok(Resolved::Changed { stem });
        }
        let mut others = Vec::new();
        for ((file, name), found) in away.iter().zip(found) {
            if found == Found::Other {
                others.push((*file, name.clone()));
                continue;
            }
            let path = watch.folder.join(name);
            match &watch.keep_sealed {
                None => fs::remove_file(&path)?,
                Some(keep) => drop(move_into(&path, keep, &file.name)?),
            }
        }
        put_all_back(&watch.folder, &others)?;
        Ok(Resolved::Gone)
    }
}

/// Compares the file `name` with what was sealed.
fn find(folder: &Path, name: &str, sealed: &Source, recovered: bool) -> io::Result<Found> {
    let opened = Opened::open(folder, name)?;
    if opened.writers() == Writers::Some {
        return Ok(Found::Busy);
    }
    let same_file = opened.source.is_same_inode(sealed);
    let same_times = opened.source.has_same_times(sealed);
    let Some(sha256) = &sealed.sha256 else {
        // An earlier version noted no hash.
        return Ok(if same_times {
            Found::Sealed
        } else {
            Found::Other
        });
    };
    let is_it = match recovered {
        // File systems without lasting inode numbers give new ones after a restart.
        true => same_times,
        false => same_file,
    };
    let same_content = opened.source.size == sealed.size && opened.hash()? == *sha256;
    if !opened.is_unchanged()? || opened.writers() == Writers::Some {
        return Ok(Found::Busy);
    }
    Ok(match (is_it, same_content) {
        (true, true) => Found::Sealed,
        (_, false) if same_file => Found::Changed,
        _ => Found::Other,
    })
}

/// Gives all files their names again, or free ones with a common prefix if one is taken by now; returns their stem.
fn put_all_back(folder: &Path, away: &[(&Source, String)]) -> io::Result<String> {
    let prefix = free_prefix(folder, away.iter().map(|(file, _)| file.name.as_str()))?;
    for (file, name) in away {
        rename(
            &folder.join(name),
            &folder.join(format!("{prefix}{}", file.name)),
        )?;
    }
    let first = away.first().map_or("", |(file, _)| file.name.as_str());
    let stem = first.rsplit_once('.').map_or(first, |(stem, _)| stem);
    Ok(format!("{prefix}{stem}"))
}

#[cfg(test)]
mod tests;
