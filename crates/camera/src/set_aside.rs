//! Sources that could not be sealed: set aside with the reason, listed, and given back to be tried again.
//!
//! The folder `watch.rejected` has the files of each group beside `STEM.reason.txt`. The reason is on disk before the first
//! file moves, so that no crash leaves files without one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pki::file;
use rustix::fs::{CWD, RenameFlags};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use untrusted_text::escape_invisible;

/// Ends the name of the file with the reason.
const REASON: &str = ".reason.txt";
/// Longest reason that is read back, in bytes: it is shown in full.
const MAX_REASON: u64 = 4 * 1024;
/// Sources are evidence; the folder says who may read them.
const FILE_MODE: u32 = 0o666;

/// Most names of files that are not taken; a person needs a few to see what is wrong.
const MAX_NOT_TAKEN: usize = 20;
/// Longest reason in a summary, in bytes.
const MAX_SUMMARY: usize = 512;
/// File of the spool with what the site was last told.
const REPORTED: &str = "set-aside.json";

/// What is set aside, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Groups.
    pub count: u64,
    /// When the oldest was set aside, by the clock of that time.
    #[serde(with = "time::serde::timestamp::option")]
    pub since: Option<OffsetDateTime>,
    /// Why the newest was set aside, without quoted values: everyone who may list cameras sees it, whatever the
    /// classification of the facts.
    pub reason: String,
}

impl Summary {
    /// Sums up what a folder has.
    #[must_use]
    pub fn of(groups: &[SetAside]) -> Self {
        let newest = groups.iter().max_by_key(|group| group.since);
        let reason = newest.map_or("", |group| group.reason.as_str());
        let mut reason = escape_invisible(&without_values(reason)).into_owned();
        while reason.len() > MAX_SUMMARY {
            reason.pop();
        }
        Self {
            count: groups.len() as u64,
            since: groups.iter().filter_map(|group| group.since).min(),
            reason,
        }
    }

    /// Reads what the site was last told; nothing set aside if that is not known.
    pub(crate) fn reported(spool: &Path) -> Self {
        let bytes = fs::read(spool.join(REPORTED)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(crate) fn keep_reported(&self, spool: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        file::write_atomic(&spool.join(REPORTED), &bytes, 0o600).map_err(io::Error::other)
    }
}

/// One group that was set aside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// Common part of the files' names.
    pub name: String,
    /// Why; empty if the file with the reason is missing.
    pub reason: String,
    /// Names in the folder, without the one with the reason.
    pub files: Vec<String>,
    /// When, by the clock of that time.
    #[serde(with = "time::serde::rfc3339::option")]
    pub since: Option<OffsetDateTime>,
}

/// Moves files into `folder` under a free name, after writing why.
pub(crate) fn set_aside(
    watched: &Path,
    folder: &Path,
    stem: &str,
    names: &[&str],
    reason: &str,
) -> io::Result<()> {
    let note = format!("{stem}{REASON}");
    let prefix = free_prefix(folder, names.iter().copied().chain([note.as_str()]))?;
    let path = folder.join(format!("{prefix}{note}"));
    let text = format!("{reason}\n");
    file::write_atomic(&path, text.as_bytes(), FILE_MODE).map_err(io::Error::other)?;
    for name in names {
        let to = folder.join(format!("{prefix}{name}"));
        if let Err(error) = move_to(&watched.join(name), &to) {
            // Without any file the reason is about nothing.
            if names.first() == Some(name) {
                fs::remove_file(&path)?;
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Lists what is in `folder`, by name.
///
/// # Errors
/// Those of reading; a folder that is not there yet is empty.
pub fn list(folder: &Path) -> io::Result<Vec<SetAside>> {
    let mut groups: BTreeMap<String, SetAside> = BTreeMap::new();
    let items = match fs::read_dir(folder) {
        Ok(items) => items,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    for item in items {
        let item = item?;
        let name = item.file_name().display().to_string();
        let (stem, is_reason) = match name.strip_suffix(REASON) {
            Some(stem) => (stem, true),
            None => (
                name.rsplit_once('.').map_or(name.as_str(), |(s, _)| s),
                false,
            ),
        };
        // Hidden: unfinished files of this program, or of others.
        if name.starts_with('.') || !item.file_type()?.is_file() {
            continue;
        }
        let group = groups.entry(stem.to_owned()).or_default();
        stem.clone_into(&mut group.name);
        let changed = item.metadata().and_then(|data| data.modified());
        if is_reason {
            group.reason = read_reason(&item.path())?;
            group.since = changed.ok().map(SystemTime::into);
        } else {
            group.files.push(name);
        }
    }
    let mut groups: Vec<SetAside> = groups.into_values().collect();
    // A reason whose files a person removed.
    groups.retain(|group| !group.files.is_empty());
    for group in &mut groups {
        group.files.sort();
    }
    Ok(groups)
}

/// Lists files of the watched folder whose names `is_source` and that are never taken, with what is wrong.
///
/// # Errors
/// Those of reading; a folder that is not there yet is empty.
pub(crate) fn not_taken(
    watched: &Path,
    is_source: impl Fn(&str) -> bool,
) -> io::Result<Vec<String>> {
    let items = match fs::read_dir(watched) {
        Ok(items) => items,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for item in items {
        let item = item?;
        let (name, kind) = (item.file_name(), item.file_type()?);
        let shown = name.display().to_string();
        if shown.starts_with('.') || !is_source(&shown) || kind.is_dir() {
            continue;
        }
        let problem = match name.to_str() {
            None => "the name is not UTF-8, rename it",
            Some(_) if !kind.is_file() => "it is no regular file, put a copy there",
            Some(_) => continue,
        };
        names.push(format!("{shown}: {problem}"));
        if names.len() == MAX_NOT_TAKEN {
            break;
        }
    }
    names.sort();
    Ok(names)
}

/// Replaces what is in double quotes or backticks.
fn without_values(reason: &str) -> String {
    let mut text = String::new();
    let mut quote = None;
    for c in reason.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => continue,
            None if matches!(c, '"' | '`') => {
                quote = Some(c);
                text.push(c);
                text.push('…');
                continue;
            }
            None => {}
        }
        text.push(c);
    }
    text
}

fn read_reason(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_REASON).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Moves a group back into the watched folder, and removes the reason.
///
/// # Errors
/// Those of the file system. What was moved before stays in the watched folder, and a second attempt moves the rest.
pub fn give_back(folder: &Path, watched: &Path, group: &SetAside) -> io::Result<()> {
    let prefix = free_prefix(watched, group.files.iter().map(String::as_str))?;
    // The facts first: until they are there, a picture could be sealed by its EXIF.
    let is_facts = |name: &&String| name.to_lowercase().ends_with(".json");
    let (facts, media): (Vec<_>, Vec<_>) = group.files.iter().partition(is_facts);
    for name in facts.into_iter().chain(media) {
        move_to(&folder.join(name), &watched.join(format!("{prefix}{name}")))?;
    }
    match fs::remove_file(folder.join(format!("{}{REASON}", group.name))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A prefix with which none of the names is taken in `folder`: none, or `1-`, `2-`, …
pub(crate) fn free_prefix<'a>(
    folder: &Path,
    names: impl IntoIterator<Item = &'a str> + Clone,
) -> io::Result<String> {
    let mut prefix = String::new();
    let mut n: u64 = 0;
    loop {
        let mut taken = false;
        for name in names.clone() {
            taken |= exists(&folder.join(format!("{prefix}{name}")))?;
        }
        if !taken {
            return Ok(prefix);
        }
        n = n.saturating_add(1);
        prefix = format!("{n}-");
    }
}

/// Moves a file into `folder` under a free name.
pub(crate) fn move_into(from: &Path, folder: &Path, name: &str) -> io::Result<PathBuf> {
    let to = folder.join(format!("{}{name}", free_prefix(folder, [name])?));
    move_to(from, &to)?;
    Ok(to)
}

/// Moves a file, by copying if the folder is on another file system; nothing is overwritten.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    match rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            let copied = copy(from, to);
            if copied.is_err() {
                // Half of a file, which would take the name.
                let _ = fs::remove_file(to);
            }
            copied?;
            fs::remove_file(from)
        }
        other => other,
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut target = File::create_new(to)?;
    io::copy(&mut File::open(from)?, &mut target)?;
    target.sync_all()?;
    match to.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Renames a file, and replaces none.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot promise it (NFS, some of FUSE).
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if exists(to)? {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        other => Ok(other?),
    }
}

/// Returns whether the name is taken, also by a symbolic link to nothing.
pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
