//! What was done at a ceremony.

use serde::{Deserialize, Serialize};

use super::script::Participant;

/// The form of a transcript.
pub const FORMAT: &str = "cordon.ceremony/1";

/// The record of a ceremony, which its signature covers. Digests are SHA-256 in hexadecimal digits, times are UTC (RFC 3339).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transcript {
    /// [`FORMAT`].
    pub format: String,
    /// From 1 on, without gaps.
    pub number: u32,
    pub title: String,
    pub program: Program,
    /// Digest of `script.toml`.
    pub script: String,
    /// Digest of the transcript before; absent in the first.
    pub previous: Option<String>,
    /// Digest of the root's certificate (DER).
    pub root: String,
    pub participants: Vec<Participant>,
    pub began: String,
    pub ended: String,
    pub steps: Vec<Step>,
}

/// What carried the ceremony out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub version: String,
    /// Digest of its file, to be held against that of the release.
    pub digest: String,
}

/// One act.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// In words.
    pub act: String,
    /// When it was done.
    pub at: String,
    /// Who was asked and said yes, by name; empty where the script was carried out without asking.
    pub confirmed_by: Vec<String>,
    /// What it was done with.
    pub used: Vec<FileRecord>,
    /// What came of it.
    pub made: Vec<FileRecord>,
}

/// A file in the ceremony's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    pub file: String,
    pub digest: String,
    /// What is in it, in words.
    pub content: String,
}
