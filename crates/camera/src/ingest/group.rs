//! Which files of the watched folder belong together, which are complete, and what is to be done with them.
//!
//! No modification time and no wall clock decides whether a file is complete: a camera's clock may be wrong, and a writer
//! may pause. The kernel says when a file was closed or moved in, and whether it has a writer. A file that was there
//! before the agent counts as complete when it has no writer and was the same on several looks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::source::{Source, Writers};

/// Time without a change after which a file counts as complete if nobody can say whether it has a writer, and no close was
/// seen: the file was there before the agent, or another computer writes it. A radio link is rarely silent for longer
/// within a file.
const UNKNOWN_QUIET: Duration = Duration::from_secs(60);
/// The same if the file was created while the agent watched, and was not closed since: a writer on this computer is
/// likely to have it open.
const CREATED_QUIET: Duration = Duration::from_secs(600);

/// What the kernel reports of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FolderEvent {
    /// A file was closed after writing, or moved in.
    Closed(OsString),
    /// A file was created and is not closed yet.
    Created(OsString),
    /// Events were lost, or the folder is another one: nothing that was reported counts any more.
    Lost,
}

/// Files with one stem.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) metadata: Option<Source>,
    pub(crate) media: Vec<Source>,
    /// Files of other kinds beside facts that have no picture or film; they are set aside together.
    pub(crate) others: Vec<Source>,
    /// Time for which the group has been the same, with every file settled.
    pub(crate) age: Duration,
    /// Whether a file was closed, or was the same for long enough.
    settled: bool,
}

/// Next step for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Something is still being written, or the other half may still come.
    Wait,
    /// Media with their metadata file.
    Seal,
    /// One JPEG without metadata file.
    SealByExif,
    /// Set aside, for this reason.
    Reject(String),
}

impl Group {
    pub(crate) fn files(&self) -> impl Iterator<Item = &Source> {
        self.metadata.iter().chain(&self.media).chain(&self.others)
    }

    /// Decides by what is there and how long it has been there.
    pub(crate) fn verdict(&self, pair_wait: Duration) -> Verdict {
        if !self.settled {
            return Verdict::Wait;
        }
        match (&self.metadata, self.media.as_slice()) {
            (Some(_), [_, ..]) => Verdict::Seal,
            _ if self.age < pair_wait => Verdict::Wait,
            (None, [one]) if media_type(&one.name) == Some("image/jpeg") => Verdict::SealByExif,
            (None, _) => Verdict::Reject("no metadata file".to_owned()),
            (Some(_), []) => Verdict::Reject(self.no_media()),
        }
    }

    fn no_media(&self) -> String {
        let names: Vec<&str> = self.others.iter().map(|one| one.name.as_str()).collect();
        match names.is_empty() {
            true => "no picture or film for the metadata file".to_owned(),
            false => format!(
                "no picture or film for the metadata file: {} has another ending than jpg, jpeg, png and mp4",
                names.join(", ")
            ),
        }
    }

    fn add(&mut self, source: Source) {
        if is_metadata(&source.name) {
            self.metadata = Some(source);
        } else {
            self.media.push(source);
        }
    }
}

fn is_metadata(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("json"))
}

/// The media type that a file name's extension stands for.
pub(crate) fn media_type(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" => Some("image/jpeg"),
        "png" => Some("image/png"),
        "mp4" => Some("video/mp4"),
        _ => None,
    }
}

/// Returns whether a file with this name is a picture, a film or facts.
pub(crate) fn is_source_name(name: &str) -> bool {
    is_metadata(name) || media_type(name).is_some()
}

/// The stem of a name that is not hidden.
fn stem(name: &str) -> Option<&str> {
    let (stem, _) = name.rsplit_once('.')?;
    (!stem.is_empty() && !stem.starts_with('.')).then_some(stem)
}

/// The name under which a medium is sealed: a colon of a time in it would be a drive or a stream on other systems, so
/// manifests refuse it.
pub(crate) fn sealed_name(name: &str) -> String {
    name.replace(':', "-")
}

/// What is known of one name.
struct Seen {
    source: Source,
    /// First look at which it was as it is.
    since: Instant,
    /// Closed after writing, or moved in, and not changed since.
    closed: bool,
    /// Created while the kernel reported events, and not closed.
    created: bool,
}

impl Seen {
    fn quiet(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

/// Remembers between looks what was seen of files and groups.
pub(crate) struct Folder {
    path: PathBuf,
    settle: Duration,
    seen: HashMap<String, Seen>,
    closed: HashSet<OsString>,
    created: HashSet<OsString>,
    /// Since when each group is complete, as far as events and looks say.
    settled: HashMap<String, Instant>,
}

impl Folder {
    pub(crate) fn new(path: &Path, settle: Duration) -> Self {
        Self {
            path: path.to_owned(),
            settle,
            seen: HashMap::new(),
            closed: HashSet::new(),
            created: HashSet::new(),
            settled: HashMap::new(),
        }
    }

    /// Notes what the kernel reported since the last look.
    pub(crate) fn note(&mut self, event: FolderEvent) {
        match event {
            FolderEvent::Closed(name) => {
                self.created.remove(&name);
                self.closed.insert(name);
            }
            FolderEvent::Created(name) => {
                self.closed.remove(&name);
                self.created.insert(name);
            }
            FolderEvent::Lost => {
                self.seen.clear();
                self.closed.clear();
                self.created.clear();
            }
        }
    }

    /// Looks at the folder.
    pub(crate) fn look(&mut self, now: Instant) -> io::Result<BTreeMap<String, Group>> {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        let mut present = HashSet::new();
        let mut others = Vec::new();
        for item in std::fs::read_dir(&self.path)? {
            let item = item?;
            let Ok(name) = item.file_name().into_string() else {
                continue;
            };
            let Some(stem) = stem(&name) else {
                continue;
            };
            let is_taken = is_source_name(&name);
            let data = match item.metadata() {
                Ok(data) => data,
                // The file has gone meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                // What cannot be seen is not missing: a picture without its metadata is rejected.
                Err(e) => return Err(e),
            };
            if !data.is_file() {
                continue;
            }
            let source = Source::new(name.clone(), &data);
            if !is_taken {
                others.push((stem.to_owned(), source));
                continue;
            }
            self.see(&source, now);
            present.insert(name.clone());
            groups.entry(stem.to_owned()).or_default().add(source);
        }
        for (stem, source) in others {
            let group = groups.get_mut(&stem);
            if let Some(group) = group.filter(|one| one.metadata.is_some() && one.media.is_empty())
            {
                self.see(&source, now);
                present.insert(source.name.clone());
                group.others.push(source);
            }
        }
        self.seen.retain(|name, _| present.contains(name));
        self.closed.clear();
        // A file that was created and is not seen yet is seen by the next look.
        self.created.clear();
        self.settled.retain(|stem, _| groups.contains_key(stem));
        for (stem, group) in &mut groups {
            group.media.sort_by(|a, b| a.name.cmp(&b.name));
            group.others.sort_by(|a, b| a.name.cmp(&b.name));
            self.settle_group(stem, group, now);
        }
        Ok(groups)
    }

    /// Updates what is known of one file.
    fn see(&mut self, source: &Source, now: Instant) {
        let name = OsStr::new(&source.name);
        let (closed, created) = (self.closed.contains(name), self.created.contains(name));
        let known = self.seen.get_mut(&source.name);
        match known.filter(|seen| seen.source.is_unchanged(source)) {
            Some(seen) => {
                seen.closed |= closed;
                seen.created = (seen.created || created) && !seen.closed;
            }
            None => {
                let before = self.seen.get(&source.name);
                let open = before.is_some_and(|seen| seen.created && !closed);
                let seen = Seen {
                    source: source.clone(),
                    since: now,
                    closed,
                    created: created || open,
                };
                self.seen.insert(source.name.clone(), seen);
            }
        }
    }

    fn settle_group(&mut self, stem: &str, group: &mut Group, now: Instant) {
        let mut newest = None;
        for source in group.files() {
            let Some(seen) = self.seen.get(&source.name) else {
                return;
            };
            if !seen.closed && seen.quiet(now) < self.settle {
                self.settled.remove(stem);
                return;
            }
            newest = newest.max(Some(seen.since));
        }
        let since = self.settled.entry(stem.to_owned()).or_insert(now);
        // A file that came or changed since begins the wait for the other half again.
        *since = newest.map_or(*since, |newest| newest.max(*since));
        group.age = now.saturating_duration_since(*since);
        group.settled = true;
    }

    /// Returns whether a file of a settled group is complete, by what the kernel says about writers.
    pub(crate) fn is_complete(&self, name: &str, writers: Writers, now: Instant) -> bool {
        let Some(seen) = self.seen.get(name) else {
            return false;
        };
        match writers {
            Writers::None => true,
            Writers::Some => false,
            Writers::Unknown if seen.closed => true,
            Writers::Unknown if seen.created => seen.quiet(now) >= CREATED_QUIET.max(self.settle),
            Writers::Unknown => seen.quiet(now) >= UNKNOWN_QUIET.max(self.settle),
        }
    }

    /// Begins the wait for the other half again: a file of the group still has a writer.
    pub(crate) fn is_busy(&mut self, stem: &str, now: Instant) {
        self.settled.insert(stem.to_owned(), now);
    }
}

#[cfg(test)]
mod tests;
