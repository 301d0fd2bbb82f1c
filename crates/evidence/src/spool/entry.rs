//! One stored block, and the file name that says all the spool needs to know about it.

use pki::clearance::Clearance;
use time::OffsetDateTime;

use crate::digest::Sha256Digest;
use crate::manifest::Kind;
use crate::seal::Sealed;

const EXTENSION: &str = ".block";

/// A block in the spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Sequence number of its manifest.
    pub sequence: u64,
    pub kind: Kind,
    /// Classification, which decides who is evicted first.
    pub class: Clearance,
    /// When it was sealed.
    pub sealed_at: OffsetDateTime,
    /// SHA-256 of the manifest.
    pub manifest_sha256: Sha256Digest,
    /// SHA-256 of the block.
    pub block_sha256: Sha256Digest,
    /// Size of the block in bytes.
    pub size: u64,
}

impl Entry {
    pub(super) fn of(sealed: &Sealed) -> Self {
        Self {
            sequence: sealed.manifest.sequence,
            kind: sealed.manifest.kind,
            class: sealed.manifest.classification,
            sealed_at: sealed.manifest.sealed_at,
            manifest_sha256: sealed.manifest_sha256,
            block_sha256: sealed.block_sha256,
            size: sealed.block_size,
        }
    }

    /// The name carries the whole record, so that one rename commits block and record together.
    #[must_use]
    pub fn file_name(&self) -> String {
        let kind = match self.kind {
            Kind::Violation => 'v',
            Kind::Notice => 'n',
        };
        format!(
            "{:016}.{kind}{}.{:011}.{}.{}{EXTENSION}",
            self.sequence,
            self.class.level(),
            self.sealed_at.unix_timestamp(),
            self.manifest_sha256,
            self.block_sha256,
        )
    }

    /// Reads a name back; `None` if it is not exactly one that [`Self::file_name`] writes.
    pub(super) fn from_file_name(name: &str, size: u64) -> Option<Self> {
        let mut parts = name.strip_suffix(EXTENSION)?.split('.');
        let sequence = parts.next()?.parse().ok()?;
        let class = parts.next()?;
        let (kind, level) = if let Some(level) = class.strip_prefix('v') {
            (Kind::Violation, level)
        } else {
            (Kind::Notice, class.strip_prefix('n')?)
        };
        let entry = Self {
            sequence,
            kind,
            class: Clearance::try_from(level.parse::<u8>().ok()?).ok()?,
            sealed_at: OffsetDateTime::from_unix_timestamp(parts.next()?.parse().ok()?).ok()?,
            manifest_sha256: parts.next()?.parse().ok()?,
            block_sha256: parts.next()?.parse().ok()?,
            size,
        };
        (parts.next().is_none() && entry.file_name() == name).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn name_holds_the_whole_record() {
        let entry = Entry {
            sequence: 42,
            kind: Kind::Notice,
            class: Clearance::Secret,
            sealed_at: datetime!(2026-11-21 10:00:00 UTC),
            manifest_sha256: Sha256Digest::of(b"manifest"),
            block_sha256: Sha256Digest::of(b"block"),
            size: 7,
        };
        let name = entry.file_name();
        assert!(
            name.starts_with("0000000000000042.n3.01795255200."),
            "{name}"
        );
        assert!(name.len() < 200);
        assert_eq!(Entry::from_file_name(&name, 7), Some(entry));
        for wrong in [
            name.replace(".block", ".bloc"),
            name.replace(".n3.", ".n5."),
            name.replace(".n3.", ".x3."),
            name.replacen('0', "", 1),
            format!("x{name}"),
            name.replace(".block", ".0.block"),
            String::new(),
        ] {
            assert_eq!(Entry::from_file_name(&wrong, 7), None, "{wrong}");
        }
    }
}
