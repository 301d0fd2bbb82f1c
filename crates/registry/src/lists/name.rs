//! Names of revocation lists, as they stand in addresses and files.

use std::fmt;
use std::str::FromStr;

use crate::generation::AuthorityId;

/// Names a revocation list of the root or of an issuing authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrlName {
    Root,
    /// Revoked certificates of an issuing authority, all of them.
    Issuing(AuthorityId),
    /// The delta list to that: what came since.
    Delta(AuthorityId),
    /// Those of one shard, a part of the authority's certificates that is fixed when each is issued.
    Shard(AuthorityId, u16),
    /// The delta list of a shard.
    ShardDelta(AuthorityId, u16),
}

impl CrlName {
    /// Whose certificates it lists; `None` for the root's.
    #[must_use]
    pub const fn authority(self) -> Option<AuthorityId> {
        match self {
            Self::Root => None,
            Self::Issuing(id) | Self::Delta(id) | Self::Shard(id, _) | Self::ShardDelta(id, _) => {
                Some(id)
            }
        }
    }
}

/// What of an authority's certificates a list speaks for: one shard, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Whole,
    Shard(u16),
}

impl Part {
    pub(super) const fn complete(self, id: AuthorityId) -> CrlName {
        match self {
            Self::Whole => CrlName::Issuing(id),
            Self::Shard(shard) => CrlName::Shard(id, shard),
        }
    }

    pub(super) const fn delta(self, id: AuthorityId) -> CrlName {
        match self {
            Self::Whole => CrlName::Delta(id),
            Self::Shard(shard) => CrlName::ShardDelta(id, shard),
        }
    }

    /// A condition on a row `r`, in whose query the third parameter is [`Self::row`].
    pub(super) const fn condition(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Shard(_) => "AND r.shard = ?3",
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
            Self::Issuing(id) => id.fmt(f),
            Self::Delta(id) => write!(f, "{id}-delta"),
            Self::Shard(id, shard) => write!(f, "{id}-{shard:03}"),
            Self::ShardDelta(id, shard) => write!(f, "{id}-{shard:03}-delta"),
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
    let shard = complete
        .rsplit_once('-')
        .filter(|(_, shard)| shard.bytes().all(|byte| byte.is_ascii_digit()));
    let (authority, part) = match shard {
        Some((authority, shard)) => (authority, Part::Shard(shard.parse().ok()?)),
        None => (complete, Part::Whole),
    };
    let id: AuthorityId = authority.parse().ok()?;
    Some(match is_delta {
        true => part.delta(id),
        false => part.complete(id),
    })
}

/// Not the name of a [`CrlName`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such revocation list")]
pub struct UnknownCrl;

#[cfg(test)]
mod tests {
    use super::*;
    use pki::profile::CaKind;

    #[test]
    fn name_is_read_as_it_is_written_and_in_no_other_spelling() {
        let [users, devices, services] = CaKind::ALL.map(AuthorityId::first);
        let second = users.next().unwrap();
        for name in [
            CrlName::Root,
            CrlName::Issuing(users),
            CrlName::Issuing(second),
            CrlName::Delta(devices),
            CrlName::Delta(second),
            CrlName::Shard(services, 7),
            CrlName::Shard(second, 7),
            CrlName::ShardDelta(users, 255),
            CrlName::ShardDelta(second, 0),
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
            "users-g1",
            "users-g1-017",
            "users-017-g2",
            "users--017",
            "../users",
        ] {
            assert_eq!(text.parse::<CrlName>(), Err(UnknownCrl), "{text}");
        }
    }
}
