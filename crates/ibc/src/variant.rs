//! The five pairs of key size and round count (specification, section 2).

use core::fmt;
use core::str::FromStr;

/// A pair of key size and round count that the specification names.
///
/// No other pair is accepted; the `research` feature has a type for experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// 128-bit key, 8 rounds: level *low*.
    Indect128,
    /// 192-bit key, 10 rounds.
    Indect192,
    /// 256-bit key, 10 rounds: level *medium*.
    Indect256,
    /// 320-bit key, 12 rounds: level *high*.
    Indect320,
    /// 128-bit key, 14 rounds: level *veryhigh*.
    Indect128Vh,
}

impl Variant {
    /// All variants, in the order of the specification's tables.
    pub const ALL: [Self; 5] = [
        Self::Indect128,
        Self::Indect192,
        Self::Indect256,
        Self::Indect320,
        Self::Indect128Vh,
    ];

    /// Returns the key size in bytes: 16, 24, 32 or 40.
    #[must_use]
    pub const fn key_size(self) -> usize {
        match self {
            Self::Indect128 | Self::Indect128Vh => 16,
            Self::Indect192 => 24,
            Self::Indect256 => 32,
            Self::Indect320 => 40,
        }
    }

    /// Returns the number of rounds: 8, 10, 12 or 14.
    #[must_use]
    pub const fn rounds(self) -> usize {
        match self {
            Self::Indect128 => 8,
            Self::Indect192 | Self::Indect256 => 10,
            Self::Indect320 => 12,
            Self::Indect128Vh => 14,
        }
    }

    /// Returns the name without a mode, e.g. `INDECT-128-VH`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Indect128 => "INDECT-128",
            Self::Indect192 => "INDECT-192",
            Self::Indect256 => "INDECT-256",
            Self::Indect320 => "INDECT-320",
            Self::Indect128Vh => "INDECT-128-VH",
        }
    }

    /// Returns the published name of the level, if this pair has one (`low`, `medium`, `high`,
    /// `veryhigh`; the 192-bit key has none).
    #[must_use]
    pub const fn level(self) -> Option<&'static str> {
        match self {
            Self::Indect128 => Some("low"),
            Self::Indect192 => None,
            Self::Indect256 => Some("medium"),
            Self::Indect320 => Some("high"),
            Self::Indect128Vh => Some("veryhigh"),
        }
    }

    /// Finds the variant with this key size in bytes and this number of rounds.
    #[must_use]
    pub fn from_parts(key_bytes: usize, rounds: usize) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|v| v.key_size() == key_bytes && v.rounds() == rounds)
    }

    /// Finds the variant of a published level; the names are lower case.
    #[must_use]
    pub fn from_level(level: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.level() == Some(level))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown IBC variant, expected INDECT-128, INDECT-192, INDECT-256, INDECT-320 or INDECT-128-VH"
)]
pub struct UnknownVariant;

impl FromStr for Variant {
    type Err = UnknownVariant;

    /// Reads a name such as `INDECT-320`, in capitals or not.
    fn from_str(text: &str) -> Result<Self, UnknownVariant> {
        Self::ALL
            .into_iter()
            .find(|v| v.name().eq_ignore_ascii_case(text))
            .ok_or(UnknownVariant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_levels_and_parts_lead_back_to_the_variant() {
        for variant in Variant::ALL {
            assert_eq!(variant.name().parse(), Ok(variant));
            assert_eq!(variant.name().to_ascii_lowercase().parse(), Ok(variant));
            assert_eq!(
                Variant::from_parts(variant.key_size(), variant.rounds()),
                Some(variant)
            );
            if let Some(level) = variant.level() {
                assert_eq!(Variant::from_level(level), Some(variant));
            }
        }
    }

    #[test]
    fn other_pairs_and_names_are_refused() {
        assert_eq!(Variant::from_parts(16, 10), None);
        assert_eq!(Variant::from_parts(24, 8), None);
        assert_eq!(Variant::from_level("Low"), None);
        assert_eq!("INDECT-128-CBC".parse::<Variant>(), Err(UnknownVariant));
    }
}
