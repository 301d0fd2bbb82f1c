//! Which files of the watched folder belong together, and what is to be done with them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

/// A file as it was seen; enough to recognise it after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: u128,
    #[serde(skip)]
    pub(crate) complete: bool,
}

/// Files with one stem.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) metadata: Option<Source>,
    pub(crate) media: Vec<Source>,
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
    Reject(&'static str),
}

impl Group {
    pub(crate) fn files(&self) -> impl Iterator<Item = &Source> {
        self.metadata.iter().chain(&self.media)
    }

    /// Decides by what is there and how long it has been there.
    pub(crate) fn verdict(&self, age: Duration, pair_wait: Duration) -> Verdict {
        if self.files().any(|f| !f.complete) {
            return Verdict::Wait;
        }
        match (&self.metadata, self.media.as_slice()) {
            (Some(_), [_, ..]) => Verdict::Seal,
            _ if age < pair_wait => Verdict::Wait,
            (None, [one]) if media_type(&one.name) == Some("image/jpeg") => Verdict::SealByExif,
            (None, _) => Verdict::Reject("no metadata file"),
            (Some(_), []) => Verdict::Reject("no picture or film for the metadata file"),
        }
    }
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

/// Remembers between looks which files were closed and since when groups are known.
pub(crate) struct Folder {
    path: PathBuf,
    settle: Duration,
    closed: HashSet<OsString>,
    first_seen: HashMap<String, Instant>,
}

impl Folder {
    pub(crate) fn new(path: &Path, settle: Duration) -> Self {
        Self {
            path: path.to_owned(),
            settle,
            closed: HashSet::new(),
            first_seen: HashMap::new(),
        }
    }

    /// Notes that the kernel reported a file closed after writing, or moved in.
    pub(crate) fn closed(&mut self, name: OsString) {
        self.closed.insert(name);
    }

    /// Looks at the folder; the groups come with the time they have been known.
    pub(crate) fn look(&mut self, now: Instant) -> io::Result<BTreeMap<String, (Group, Duration)>> {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        let mut present = HashSet::new();
        for item in std::fs::read_dir(&self.path)? {
            let item = item?;
            let Ok(name) = item.file_name().into_string() else {
                continue;
            };
            let data = match item.metadata() {
                Ok(data) => data,
                // The file has gone meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                // What cannot be seen is not missing: a picture without its metadata is rejected.
                Err(e) => return Err(e),
            };
            let Some((stem, extension)) = name.rsplit_once('.') else {
                continue;
            };
            if !data.is_file() || stem.is_empty() || stem.starts_with('.') {
                continue;
            }
            let is_metadata = extension.eq_ignore_ascii_case("json");
            if !is_metadata && media_type(&name).is_none() {
                continue;
            }
            let modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let quiet = modified.elapsed().is_ok_and(|age| age >= self.settle);
            let source = Source {
                size: data.len(),
                modified: modified
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .map_or(0, |d| d.as_nanos()),
                complete: quiet || self.closed.contains(&item.file_name()),
                name: name.clone(),
            };
            present.insert(item.file_name());
            let group = groups.entry(stem.to_owned()).or_default();
            if is_metadata {
                group.metadata = Some(source);
            } else {
                group.media.push(source);
            }
        }
        self.closed.retain(|name| present.contains(name));
        self.first_seen.retain(|stem, _| groups.contains_key(stem));
        let aged = groups.into_iter().map(|(stem, mut group)| {
            group.media.sort_by(|a, b| a.name.cmp(&b.name));
            let since = *self.first_seen.entry(stem.clone()).or_insert(now);
            (stem, (group, now.saturating_duration_since(since)))
        });
        Ok(aged.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, complete: bool) -> Source {
        Source {
            name: name.into(),
            size: 1,
            modified: 1,
            complete,
        }
    }

    fn group(names: &[(&str, bool)]) -> Group {
        let mut group = Group::default();
        for (name, complete) in names {
            if name.ends_with("json") {
                group.metadata = Some(source(name, *complete));
            } else {
                group.media.push(source(name, *complete));
            }
        }
        group
    }

    #[test]
    fn every_combination_has_its_verdict() {
        let wait = Duration::from_secs(30);
        let (young, old) = (Duration::from_secs(29), wait);
        let no_metadata = Verdict::Reject("no metadata file");
        let no_picture = Verdict::Reject("no picture or film for the metadata file");
        type Case<'a> = (&'a [(&'a str, bool)], Duration, Verdict);
        let cases: [Case<'_>; 9] = [
            (&[("a.jpg", true), ("a.json", true)], young, Verdict::Seal),
            (
                &[("a.jpg", true), ("a.mp4", true), ("a.json", true)],
                young,
                Verdict::Seal,
            ),
            (&[("a.jpg", true), ("a.json", false)], old, Verdict::Wait),
            (&[("a.jpg", false), ("a.json", true)], old, Verdict::Wait),
            (&[("a.jpg", true)], young, Verdict::Wait),
            (&[("a.jpg", true)], old, Verdict::SealByExif),
            (&[("a.mp4", true)], old, no_metadata.clone()),
            (&[("a.jpg", true), ("a.png", true)], old, no_metadata),
            (&[("a.json", true)], old, no_picture),
        ];
        for (files, age, expected) in cases {
            assert_eq!(group(files).verdict(age, wait), expected, "{files:?}");
        }
    }

    #[test]
    fn a_file_is_complete_when_closed_or_quiet() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("a.jpg"), b"x").unwrap();
        std::fs::write(temp.path().join("a.txt"), b"x").unwrap();
        std::fs::write(temp.path().join(".hidden.jpg"), b"x").unwrap();
        std::fs::create_dir(temp.path().join("b.jpg")).unwrap();
        let complete = |folder: &mut Folder| {
            let groups = folder.look(Instant::now()).unwrap();
            assert_eq!(groups.len(), 1);
            groups["a"].0.media[0].complete
        };
        let mut folder = Folder::new(temp.path(), Duration::from_secs(3_600));
        assert!(!complete(&mut folder));
        folder.closed("a.jpg".into());
        assert!(complete(&mut folder));
        assert!(complete(&mut Folder::new(temp.path(), Duration::ZERO)));
    }
}
