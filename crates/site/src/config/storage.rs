//! `[storage]`.

use serde::{Deserialize, Serialize};

/// Where the data lies.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Storage {
    /// What is demanded of the file system under the data folder.
    pub at_rest: AtRest,
}

/// What is demanded of the encryption of the data folder's file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtRest {
    /// A warning if it is not known to be encrypted.
    #[default]
    Warn,
    /// No start unless it is known to be encrypted.
    Required,
    /// Nothing: the operator answers for it.
    Asserted,
}
