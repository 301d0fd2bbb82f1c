//! Clearance levels and their RFC 5913 encoding.

mod encoding;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::encoding::ClearanceError;

/// How sensitive the information may be that a person, device or service handles.
///
/// Ordered: a holder of a level may see everything up to that level. Serialised as the integer
/// 0 to 4, the `lvl` of the published certificate profile.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u8", into = "u8")]
#[repr(u8)]
pub enum Clearance {
    /// Level 0, open information.
    #[default]
    Unclassified = 0,
    /// Level 1.
    Restricted = 1,
    /// Level 2.
    Confidential = 2,
    /// Level 3.
    Secret = 3,
    /// Level 4, the highest.
    TopSecret = 4,
}

impl Clearance {
    /// All levels, lowest first.
    pub const ALL: [Self; 5] = [
        Self::Unclassified,
        Self::Restricted,
        Self::Confidential,
        Self::Secret,
        Self::TopSecret,
    ];

    /// The level as a number from 0 to 4.
    #[must_use]
    pub const fn level(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Clearance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unclassified => "unclassified",
            Self::Restricted => "restricted",
            Self::Confidential => "confidential",
            Self::Secret => "secret",
            Self::TopSecret => "top secret",
        })
    }
}

impl TryFrom<u8> for Clearance {
    type Error = UnknownClearance;

    fn try_from(level: u8) -> Result<Self, Self::Error> {
        Self::ALL
            .get(usize::from(level))
            .copied()
            .ok_or(UnknownClearance(level))
    }
}

impl From<Clearance> for u8 {
    fn from(clearance: Clearance) -> Self {
        clearance.level()
    }
}

/// A level outside 0 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("clearance level {0} is not between 0 and 4")]
pub struct UnknownClearance(pub u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_bounded() {
        for (i, level) in Clearance::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(level.level()), i);
            assert_eq!(Clearance::try_from(level.level()), Ok(level));
        }
        assert!(Clearance::Secret < Clearance::TopSecret);
        assert_eq!(Clearance::try_from(5), Err(UnknownClearance(5)));
    }

    #[test]
    fn serialised_as_integer() {
        assert_eq!(serde_json::to_string(&Clearance::Secret).unwrap(), "3");
        assert_eq!(
            serde_json::from_str::<Clearance>("4").unwrap(),
            Clearance::TopSecret
        );
        assert!(serde_json::from_str::<Clearance>("5").is_err());
        assert!(serde_json::from_str::<Clearance>("\"3\"").is_err());
    }
}
