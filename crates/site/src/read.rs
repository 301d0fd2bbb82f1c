//! Reads small files that people name.

use std::path::Path;

use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome};

/// Longest file with keys, certificates or what one signs, in bytes.
pub const MAX_SMALL_FILE: u64 = 1 << 20;

/// Reads a regular file of at most `most` bytes: a device would be read without end, and a pipe waited for.
pub fn read_regular(path: &Path, most: u64, hint: &str) -> Outcome<Zeroizing<Vec<u8>>> {
    keyhost::secret_file::read_public(path, most)
        .map_err(|what| Failure::new(anyhow::anyhow!("cannot read {what}"), hint))
}
