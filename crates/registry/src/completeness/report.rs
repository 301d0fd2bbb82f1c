//! What the log shows.

use std::collections::BTreeMap;

use serde::Serialize;

/// Something that the rules do not explain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// Index of the log's entry that shows it, if one does.
    pub entry: Option<u64>,
    pub what: String,
}

/// What the log shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompletenessReport {
    /// Certificates by how they came about: `request`, `order`, `own`, `enrolment`, `renewal`, `unknown`.
    pub certificates: BTreeMap<String, u64>,
    /// Approved acts that were carried out, by name.
    pub acts: BTreeMap<String, u64>,
    /// Approvals with a good signature.
    pub approvals: u64,
    /// Certificates that were looked for in the log.
    pub looked_for: u64,
    pub gaps: Vec<Gap>,
}
