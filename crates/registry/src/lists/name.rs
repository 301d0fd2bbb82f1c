//! Names of revocation lists, as they stand in addresses and files.

use std::fmt;
use std::str::FromStr;

use pki::profile::CaKind;

/// Names a revocation list of the root or of an issuing authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrlName {
    Root,
    /// Revoked certificates of an issuing authority, all of them.
    Issuing(CaKind),
    /// The delta list to that: what came since.
    Delta(CaKind),
    /// Those of one shard, a part of the authority's certificates that is fixed when each is issued.
    Shard(CaKind, u16),
    /// The delta list of a shard.
    ShardDelta(CaKind, u16),
}

/// What of an authority's certificates a list speaks for: one shard, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Whole,
    Shard(u16),
}

impl Part {
    pub(super) const fn complete(self, kind: CaKind) -> CrlName {
        match self {
            Self::Whole => CrlName::Issuing(kind),
            Self::Shard(shard) => CrlName::Shard(kind, shard),
        }
    }

    pub(super) const fn delta(self, kind: CaKind) -> CrlName {
        match self {
            Self::Whole => CrlName::Delta(kind),
            Self::Shard(shard) => CrlName::ShardDelta(kind, shard),
        }
    }

    /// The shard's number in the database, where -1 stands for all certificates.
    pub(super) fn row(self) -> i64 {
        match self {
            Self::Whole => -1,
            Self::Shard(shard) => i64::from(shard),
        }
    }
}

impl fmt::Display for CrlName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Issuing(kind) => kind.fmt(f),
            Self::Delta(kind) => write!(f, "{kind}-delta"),
            Self::Shard(kind, shard) => write!(f, "{kind}-{shard:03}"),
            Self::ShardDelta(kind, shard) => write!(f, "{kind}-{shard:03}-delta"),
        }
    }
}

impl FromStr for CrlName {
    type Err = UnknownCrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = read(text).ok_or(UnknownCrl)?;
        // One spelling only: `users-7` and `users-+07` are nobody's.
        match name.to_string() == text {
            true => Ok(name),
            false => Err(UnknownCrl),
        }
    }
}

fn read(text: &str) -> Option<CrlName> {
    if text == "root" {
        return Some(CrlName::Root);
    }
    let (complete, is_delta) = match text.strip_suffix("-delta") {
        Some(complete) => (complete, true),
        None => (text, false),
    };
    let (kind, part) = match complete.split_once('-') {
        Some((kind, shard)) => (kind, Part::Shard(shard.parse().ok()?)),
        None => (complete, Part::Whole),
    };
    let kind: CaKind = kind.parse().ok()?;
    Some(match is_delta {
        true => part.delta(kind),
        false => part.complete(kind),
    })
}

/// Not the name of a [`CrlName`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such revocation list")]
pub struct UnknownCrl;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_read_as_it_is_written_and_in_no_other_spelling() {
        for name in [
            CrlName::Root,
            CrlName::Issuing(CaKind::Users),
            CrlName::Delta(CaKind::Devices),
            CrlName::Shard(CaKind::Services, 7),
            CrlName::ShardDelta(CaKind::Users, 255),
        ] {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for text in [
            "",
            "roots",
            "root-delta",
            "users-7",
            "users-+07",
            "users-0017",
            "users-delta-017",
            "users-017-delta-delta",
            "users-70000",
            "../users",
        ] {
            assert_eq!(text.parse::<CrlName>(), Err(UnknownCrl), "{text}");
        }
    }
}
