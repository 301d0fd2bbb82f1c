//! Units that cameras belong to.

use std::collections::BTreeMap;

/// The unit that each camera belongs to, for need-to-know.
#[derive(Clone, Debug)]
pub struct Units {
    /// Unit of a camera that is not listed.
    pub default: String,
    /// Units of the listed cameras.
    pub by_device: BTreeMap<String, String>,
}

impl Units {
    /// The unit of `device`.
    #[must_use]
    pub fn of_device(&self, device: &str) -> &str {
        self.by_device.get(device).unwrap_or(&self.default)
    }
}
