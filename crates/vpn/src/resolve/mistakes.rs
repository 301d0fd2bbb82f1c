//! Mistakes of a configuration, gathered so that the operator sees all of them at once.

use super::ResolveError;

/// Mistakes in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<ResolveError>);

impl Mistakes {
    /// Returns a value, or keeps the mistake for which there is none.
    pub(super) fn take<T>(&mut self, result: Result<T, ResolveError>) -> Option<T> {
        result.map_err(|mistake| self.0.push(mistake)).ok()
    }

    pub(super) fn extend(&mut self, others: Vec<ResolveError>) {
        self.0.extend(others);
    }

    /// Drops what is only said because `[trust]` could not be read.
    pub(super) fn without_missing_trust(mut self) -> Self {
        let missing = |mistake: &ResolveError| matches!(mistake, ResolveError::NoTrust { .. });
        self.0.retain(|mistake| !missing(mistake));
        self
    }

    /// Returns the value if there is one and no mistake was made.
    pub(super) fn or<T>(self, value: Option<T>) -> Result<T, Vec<ResolveError>> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self.0),
        }
    }
}
