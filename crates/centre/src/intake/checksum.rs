//! The checksum extension of tus: `Upload-Checksum: sha256 BASE64`.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderValue, StatusCode};

use crate::problem::Problem;

/// A running digest and the value it has to reach.
///
/// It guards against damage on the way, not against an attacker, who could change both; so SHA-1,
/// which the protocol obliges every server to know, does no harm.
pub(crate) struct Checksum {
    context: Context,
    expected: Vec<u8>,
}

impl Checksum {
    /// Reads the header.
    pub(crate) fn parse(header: &HeaderValue) -> Result<Self, Problem> {
        let bad = |what: &str| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "bad-checksum-header",
                format!("header upload-checksum: {what}"),
                "send `sha256` or `sha1` and the digest in base64",
            )
        };
        let text = header.to_str().map_err(|_| bad("not printable ASCII"))?;
        let (name, value) = text.split_once(' ').ok_or_else(|| bad("no digest"))?;
        let algorithm = match name {
            "sha256" => &SHA256,
            "sha1" => &SHA1_FOR_LEGACY_USE_ONLY,
            _ => return Err(bad("unknown algorithm")),
        };
        let expected = BASE64.decode(value).map_err(|_| bad("not base64"))?;
        if expected.len() != algorithm.output_len() {
            return Err(bad("wrong length"));
        }
        Ok(Self {
            context: Context::new(algorithm),
            expected,
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    pub(crate) fn matches(self) -> bool {
        self.context.finish().as_ref() == self.expected
    }
}
