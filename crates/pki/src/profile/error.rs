//! Mistakes in profiles.

use std::fmt;

/// A mistake in a profile: where, what is there, and what could be there in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ProfileError {
    /// Dotted key, or line and column of what is no profile at all.
    pub place: String,
    /// Value that stands there; empty where none does.
    pub value: String,
    pub problem: String,
    pub advice: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            value,
            problem,
            ..
        } = self;
        match value.is_empty() {
            true => write!(f, "{place}: {problem}"),
            false => write!(f, "{place} = {value}: {problem}"),
        }
    }
}

pub(super) fn mistake<T>(
    place: impl Into<String>,
    value: impl Into<String>,
    problem: impl Into<String>,
    advice: impl Into<String>,
) -> Result<T, ProfileError> {
    Err(ProfileError {
        place: place.into(),
        value: value.into(),
        problem: problem.into(),
        advice: advice.into(),
    })
}
