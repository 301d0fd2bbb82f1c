//! The configuration file to which a table belongs, and what may be done with a table that is there.
//!
//! Tables are named by their interfaces, and two files may name the same one. So each table says of which file it was made,
//! by the name of an empty chain, and what replaces or removes it does so on condition that this chain is there: `nft`
//! carries all of a script out or nothing of it, so no other command comes in between.

use std::fmt;
use std::io;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};

use super::{FirewallError, deletion, nft};

/// Begins the name of the chain.
const CHAIN: &str = "file_";
/// Bytes of the digest in its name: enough to tell files apart, and short enough for names in older kernels (31 bytes).
const DIGEST: usize = 12;
/// Bytes of a path that are shown; a comment has 128 at most (nft, "COMMENT").
const SHOWN: usize = 100;
/// What `nft` says of a table that is not there.
const MISSING: &str = "No such file or directory";

/// A configuration file, as its table names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    chain: String,
    shown: String,
}

impl Owner {
    /// Finds the one name of a file, from wherever it was named. The file's own name stays as it is: where it is a link that is
    /// switched to a new version, that is still the same configuration.
    ///
    /// # Errors
    /// Those of finding its folder.
    pub fn of(file: &Path) -> io::Result<Self> {
        let absolute = std::path::absolute(file)?;
        let (Some(folder), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        Ok(Self::named(&folder.canonicalize()?.join(name)))
    }

    fn named(path: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        let bytes = path.as_os_str().as_bytes();
        let sum = digest(&SHA256, bytes);
        let sum = sum.as_ref().get(..DIGEST).unwrap_or_default();
        // A quotation mark or a line's end would end the comment.
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\".contains(byte);
        let plain = bytes.iter().map(|byte| match is_plain(byte) {
            true => char::from(*byte),
            false => '?',
        });
        let from = bytes.len().saturating_sub(SHOWN);
        let cut = if from > 0 { "..." } else { "" };
        Self {
            chain: format!("{CHAIN}{}", hex::encode(sum)),
            shown: format!("{cut}{}", plain.skip(from).collect::<String>()),
        }
    }

    /// The declaration of the chain. Nothing leads to it.
    pub(super) fn declaration(&self) -> String {
        let Self { chain, shown } = self;
        format!("  chain {chain} {{\n    return comment \"{shown}\"\n  }}\n")
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A table as it is in force.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Table {
    Missing,
    /// Made by a version that did not say for which file.
    Unmarked,
    Of(Owner),
}

impl Table {
    /// Asks `nft`.
    pub(super) fn look(table: &str) -> Result<Self, FirewallError> {
        match nft(&["list", "table", "inet", table], table, "") {
            Ok(text) => Ok(Self::parse(&String::from_utf8_lossy(&text))),
            Err(FirewallError::Refused { reason, .. }) if reason.contains(MISSING) => {
                Ok(Self::Missing)
            }
            Err(error) => Err(error),
        }
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim);
        let is_mark = |line: &str| {
            let name = line.strip_prefix("chain ")?.strip_suffix(" {")?;
            name.starts_with(CHAIN).then(|| name.to_owned())
        };
        let Some(chain) = lines.find_map(is_mark) else {
            return Self::Unmarked;
        };
        let rule = lines.next().unwrap_or_default();
        let quoted = rule.split('"').nth(1);
        let shown = quoted.unwrap_or("another file").to_owned();
        Self::Of(Owner { chain, shown })
    }

    /// The input of `nft` that takes the table away, if it is still as it was seen: refused where it is another file's.
    pub(super) fn removal(&self, table: &str, owner: &Owner) -> Result<String, FirewallError> {
        match self {
            Self::Missing => Ok(String::new()),
            Self::Unmarked => Ok(deletion(table)),
            Self::Of(found) if found.chain == owner.chain => {
                let chain = &owner.chain;
                Ok(format!(
                    "flush chain inet {table} {chain}\ndelete chain inet {table} {chain}\ndelete table inet {table}\n"
                ))
            }
            Self::Of(found) => Err(FirewallError::Foreign {
                table: table.to_owned(),
                file: found.shown.clone(),
            }),
        }
    }

    /// The beginning of the input of `nft` that makes the table in the place of this one.
    pub(super) fn beginning(&self, table: &str, owner: &Owner) -> Result<String, FirewallError> {
        match self {
            // Refused where somebody has made one meanwhile.
            Self::Missing => Ok(format!("create table inet {table}\n")),
            other => other.removal(table, owner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_one_owner_from_wherever_it_is_named_and_each_file_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("etc")).unwrap();
        std::os::unix::fs::symlink(path("etc"), path("link")).unwrap();
        let owner = Owner::of(&path("etc/vpn.toml")).unwrap();
        assert_eq!(Owner::of(&path("etc/../link/vpn.toml")).unwrap(), owner);
        // A file that is a link to its version stays the same one.
        std::fs::write(path("etc/v1"), "").unwrap();
        std::os::unix::fs::symlink(path("etc/v1"), path("etc/vpn.toml")).unwrap();
        assert_eq!(Owner::of(&path("etc/vpn.toml")).unwrap(), owner);
        assert_ne!(Owner::of(&path("etc/v1")).unwrap().chain, owner.chain);
        assert!(Owner::of(&path("none/vpn.toml")).is_err());
        assert!(Owner::of(Path::new("/")).is_err());
        assert!(owner.chain.len() <= 31, "{}", owner.chain);
    }

    #[test]
    fn name_of_a_file_cannot_end_its_comment() {
        let owner = Owner::named(Path::new("/a\" }\n}\nflush ruleset\n/é/vpn.toml"));
        assert_eq!(owner.shown, "/a??}?}?flush?ruleset?/??/vpn.toml");
        let long = Owner::named(Path::new(&format!("/{}/end.toml", "é".repeat(200))));
        assert!(long.shown.len() <= 128 && long.shown.ends_with("/end.toml"));
    }

    #[test]
    fn table_of_another_file_is_neither_replaced_nor_removed() {
        let (own, other) = (Owner::named(Path::new("/a")), Owner::named(Path::new("/b")));
        let text = format!("table inet t {{\n{}}}\n", own.declaration());
        let table = Table::parse(&text);
        assert_eq!(table, Table::Of(own.clone()));
        assert!(table.removal("t", &own).unwrap().contains(&own.chain));
        for refused in [table.removal("t", &other), table.beginning("t", &other)] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("/a"), "{error}");
        }
        // Of an earlier version, and none.
        let earlier = Table::parse("table inet t {\n\tchain leaving {\n\t}\n}\n");
        assert_eq!(earlier, Table::Unmarked);
        assert_eq!(earlier.beginning("t", &own).unwrap(), deletion("t"));
        assert_eq!(Table::Missing.removal("t", &own).unwrap(), "");
    }
}
