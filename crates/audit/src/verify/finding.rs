//! What can be wrong, in terms of events.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

/// Longest piece of an unreadable entry that is shown, in bytes.
const SNIPPET_BYTES: usize = 120;

/// The first thing that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Finding {
    /// Kind of the defect.
    pub kind: FindingKind,
    /// The events concerned; `None` when the defect is not about events (key, checkpoint).
    pub place: Option<Box<Place>>,
    /// The file that shows it.
    pub path: Option<PathBuf>,
    /// More words, lower case.
    pub detail: String,
}

/// Kind of a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The verifier was given something that is no key.
    Key,
    /// The checkpoint is missing, malformed, or not signed by the key.
    Checkpoint,
    /// A file could not be read for another reason than its absence.
    Unreadable,
    /// The log is shorter than the checkpoint seen earlier.
    SetBack,
    /// The log is signed but does not continue the checkpoint seen earlier.
    Forked,
    /// An event was changed.
    Changed,
    /// An event was removed and later ones moved up.
    Removed,
    /// Events are missing from here on, or from here to the end of a bundle.
    Missing,
    /// There is more than the checkpoint covers inside a file that it covers.
    Surplus,
    /// The events are right but a hash tile was changed or removed.
    Tile,
    /// An event is in the tree but cannot be read as one.
    Malformed,
    /// The tree is right but a role's numbers or links are not: it was signed like that.
    Chain,
    /// A journal's record was changed or removed; the log has the right one.
    Journal,
    /// A journal has a record that the log lacks.
    NotInLog,
}

/// The events concerned, and what is readable at the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Index of the first event concerned.
    pub first: u64,
    /// Index of the last one; equal to `first` when the event is known exactly.
    pub last: u64,
    pub readable: Readable,
}

/// Readable part of an event, which may itself be damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Readable {
    /// The role that recorded it.
    pub role: Option<String>,
    /// Its number within the role.
    pub seq: Option<u64>,
    pub action: Option<String>,
    pub at: Option<String>,
    pub actor: Option<String>,
    /// The object of the act.
    pub resource: Option<String>,
    /// The beginning of the bytes, when they are not JSON.
    pub snippet: Option<String>,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            place: None,
            path: None,
            detail: detail.into(),
        }
    }

    pub(super) fn at(self, first: u64, readable: Readable) -> Self {
        self.between(first, first, readable)
    }

    pub(super) fn between(mut self, first: u64, last: u64, readable: Readable) -> Self {
        self.place = Some(Box::new(Place {
            first,
            last,
            readable,
        }));
        self
    }

    pub(super) fn in_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }
}

impl Readable {
    /// Reads `bytes` as they are now.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let Ok(leaf) = serde_json::from_slice::<Value>(bytes) else {
            let start = bytes.get(..SNIPPET_BYTES).unwrap_or(bytes);
            return Self {
                snippet: Some(String::from_utf8_lossy(start).into_owned()),
                ..Self::default()
            };
        };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let event = leaf.get("event");
        let of_event = |name: &str| text(event.and_then(|event| event.get(name)));
        Self {
            role: text(leaf.get("role")),
            seq: leaf.get("seq").and_then(Value::as_u64),
            action: of_event("action"),
            at: of_event("at"),
            actor: text(leaf.pointer("/event/actor/id")),
            resource: of_event("resource"),
            snippet: None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) if place.first == place.last => write!(f, "event {}", place.first)?,
            Some(place) => write!(f, "events {} to {}", place.first, place.last)?,
            None => write!(f, "log")?,
        }
        write!(f, " {}", self.kind)?;
        if let Some(place) = &self.place {
            write!(f, "{}", place.readable)?;
        }
        write!(f, ": {}", self.detail)?;
        match &self.path {
            Some(path) => write!(f, " ({})", path.display()),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "cannot be checked with this key",
            Self::Checkpoint => "has no acceptable checkpoint",
            Self::Unreadable => "unreadable",
            Self::SetBack => "lost, the log was set back",
            Self::Forked => "differ from the earlier checkpoint, the log was rewritten",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Missing => "missing",
            Self::Surplus => "added without a signature",
            Self::Tile => "intact, but hashes over them changed",
            Self::Malformed => "signed but malformed",
            Self::Chain => "signed but out of its role's order",
            Self::Journal => "damaged in the journal",
            Self::NotInLog => "in the journal but not in the log",
        })
    }
}

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let named = [
            ("role", &self.role),
            ("action", &self.action),
            ("at", &self.at),
            ("actor", &self.actor),
            ("resource", &self.resource),
        ];
        for (name, value) in named {
            parts.extend(value.as_ref().map(|value| format!("{name} {value:?}")));
            if name == "role" {
                parts.extend(self.seq.map(|seq| format!("number {seq}")));
            }
        }
        parts.extend(self.snippet.as_ref().map(|s| format!("bytes {s:?}")));
        if parts.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", parts.join(", "))
    }
}
