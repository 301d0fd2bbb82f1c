//! SHA-256 for the writer's side; the verifier has its own.

use aws_lc_rs::digest::{Context, SHA256};

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// SHA-256 over the concatenation of `parts`.
pub(crate) fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}
