//! Public keys as they stand in certificates and requests.

use aws_lc_rs::digest;
use der::Encode;

pub use ::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

/// SHA-256 over the DER encoding of a public key, in lower-case hexadecimal: the same for every
/// certificate and request of one key.
///
/// # Errors
/// A value that cannot be encoded.
pub fn spki_sha256(spki: &SubjectPublicKeyInfoOwned) -> Result<String, der::Error> {
    Ok(hex::encode(
        digest::digest(&digest::SHA256, &spki.to_der()?).as_ref(),
    ))
}
