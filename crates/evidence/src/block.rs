//! The sealed block's file format: what [`crate::seal`] writes and [`crate::open`] reads.
//!
//! ```text
//! offset  size        content
//! 0       8           "CORDONEB"
//! 8       2           format version, 1
//! 10      2           flags, zero
//! 12      4           length K of the key envelope
//! 16      K           key envelope: AuthEnvelopedData, plaintext = 32-byte media key
//! 16+K    M           media section: for each medium its chunks, one after the other
//! 16+K+M  N           manifest envelope: AuthEnvelopedData, plaintext = SignedData (manifest)
//! …       8           M
//! …       4           N
//! …       16          footer tag
//! …       8           "CORDONEF"
//! ```
//!
//! All integers are big endian. Each medium is cut into chunks of 64 KiB (the last may be shorter,
//! an empty medium has one empty chunk), each encrypted with AES-256-GCM under the media key and
//! followed by its 16-byte tag. This is the STREAM construction: the nonce is
//! `medium index (4) ‖ chunk counter (7) ‖ last flag (1)`, so chunks cannot be swapped, repeated,
//! left out or cut off. The associated data is the SHA-256 of everything before the media section,
//! which ties the chunks to this block and its list of recipients. The footer tag (the same key,
//! medium index `ffffffff`, no plaintext) covers that hash, M, N and the SHA-256 of the manifest
//! envelope, so that nobody without the media key can alter any byte.

use std::sync::Arc;

use offload_policy::{AeadMessage, AesGcm, Policy};

use crate::digest::{SHA256_LEN, Sha256Digest};

/// First bytes of a block.
pub const MAGIC: &[u8; 8] = b"CORDONEB";
/// Last bytes of a block.
pub const FOOTER_MAGIC: &[u8; 8] = b"CORDONEF";
/// Format version that is written and read.
pub const VERSION: u16 = 1;
/// Bytes before the key envelope.
pub const PREFIX_LEN: usize = 16;
/// Bytes after the manifest envelope.
pub const FOOTER_LEN: usize = 36;
/// Bytes of a media key.
pub const KEY_LEN: usize = 32;
/// Plaintext bytes of a full chunk: large enough that the cost per chunk vanishes, small enough
/// that a reader holds little unauthenticated data.
pub const CHUNK_LEN: usize = 64 * 1024;
/// Bytes that each chunk grows by.
pub const TAG_LEN: usize = 16;

/// Bytes of a nonce of AES-GCM.
const NONCE_LEN: usize = 12;
const FOOTER_MEDIUM: u32 = u32::MAX;
const MAX_COUNTER: u64 = (1 << 56) - 1;

/// The crypto library refused, or a chunk failed authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CipherFailure;

/// Bytes that a medium of `size` plaintext bytes takes in the media section.
///
/// `None` on overflow.
#[must_use]
pub fn sealed_len(size: u64) -> Option<u64> {
    chunk_count(size)
        .checked_mul(TAG_LEN as u64)?
        .checked_add(size)
}

/// Chunks of a medium of `size` plaintext bytes; at least 1.
#[must_use]
pub const fn chunk_count(size: u64) -> u64 {
    let full = size.div_ceil(CHUNK_LEN as u64);
    if full == 0 { 1 } else { full }
}

/// Encrypts and decrypts the chunks of one block, with the engine that a policy chooses.
pub(crate) struct ChunkCipher {
    key: AesGcm,
    prefix_sha256: [u8; SHA256_LEN],
}

impl ChunkCipher {
    pub(crate) fn new(
        policy: &Arc<Policy>,
        key: &[u8; KEY_LEN],
        prefix_sha256: &Sha256Digest,
    ) -> Result<Self, CipherFailure> {
        Ok(Self {
            key: AesGcm::with_library(policy, key).map_err(|_| CipherFailure)?,
            prefix_sha256: *prefix_sha256.as_bytes(),
        })
    }

    /// Encrypts `chunk` in place; the result is the tag to write behind it.
    pub(crate) fn seal(
        &self,
        medium: u32,
        counter: u64,
        last: bool,
        chunk: &mut [u8],
    ) -> Result<[u8; TAG_LEN], CipherFailure> {
        let mut messages = [AeadMessage {
            nonce: nonce(medium, counter, last)?,
            aad: &self.prefix_sha256,
            data: chunk,
            tag: [0; TAG_LEN],
            outcome: Ok(()),
        }];
        self.key.seal_batch(&mut messages);
        let [AeadMessage { tag, outcome, .. }] = messages;
        outcome.map(|()| tag).map_err(|_| CipherFailure)
    }

    /// Decrypts `chunk_and_tag` in place; the result is the plaintext inside of it.
    pub(crate) fn open<'a>(
        &self,
        medium: u32,
        counter: u64,
        last: bool,
        chunk_and_tag: &'a mut [u8],
    ) -> Result<&'a [u8], CipherFailure> {
        let (chunk, tag) = chunk_and_tag
            .split_last_chunk_mut::<TAG_LEN>()
            .ok_or(CipherFailure)?;
        let mut messages = [AeadMessage {
            nonce: nonce(medium, counter, last)?,
            aad: &self.prefix_sha256,
            data: &mut *chunk,
            tag: *tag,
            outcome: Ok(()),
        }];
        self.key.open_batch(&mut messages);
        let [AeadMessage { outcome, .. }] = messages;
        outcome.map(|()| &*chunk).map_err(|_| CipherFailure)
    }

    fn footer_aad(&self, footer: &FooterLengths, manifest_envelope: &Sha256Digest) -> Vec<u8> {
        let mut aad = self.prefix_sha256.to_vec();
        aad.extend_from_slice(&footer.media_len.to_be_bytes());
        aad.extend_from_slice(&footer.manifest_len.to_be_bytes());
        aad.extend_from_slice(manifest_envelope.as_bytes());
        aad
    }

    /// Makes the footer, tag and magic included.
    pub(crate) fn footer(
        &self,
        lengths: &FooterLengths,
        manifest_envelope: &Sha256Digest,
    ) -> Result<Vec<u8>, CipherFailure> {
        let aad = self.footer_aad(lengths, manifest_envelope);
        let tag = self
            .key
            .seal(nonce(FOOTER_MEDIUM, 0, true)?, &aad, &mut [])
            .map_err(|_| CipherFailure)?;
        let mut out = Vec::with_capacity(FOOTER_LEN);
        out.extend_from_slice(&lengths.media_len.to_be_bytes());
        out.extend_from_slice(&lengths.manifest_len.to_be_bytes());
        out.extend_from_slice(&tag);
        out.extend_from_slice(FOOTER_MAGIC);
        Ok(out)
    }

    /// Checks the footer's tag.
    pub(crate) fn check_footer(
        &self,
        footer: &Footer,
        manifest_envelope: &Sha256Digest,
    ) -> Result<(), CipherFailure> {
        let aad = self.footer_aad(&footer.lengths, manifest_envelope);
        let nonce = nonce(FOOTER_MEDIUM, 0, true)?;
        let opened = self.key.open(nonce, &aad, &mut [], &footer.tag);
        opened.map_err(|_| CipherFailure)
    }
}

fn nonce(medium: u32, counter: u64, last: bool) -> Result<[u8; NONCE_LEN], CipherFailure> {
    if counter > MAX_COUNTER {
        return Err(CipherFailure);
    }
    let value =
        (u128::from(medium) << 64) | (u128::from(counter) << 8) | u128::from(u8::from(last));
    let bytes = value.to_be_bytes();
    bytes.last_chunk().copied().ok_or(CipherFailure)
}

/// The lengths that the footer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FooterLengths {
    pub(crate) media_len: u64,
    pub(crate) manifest_len: u32,
}

/// A footer as read.
pub(crate) struct Footer {
    pub(crate) lengths: FooterLengths,
    tag: [u8; TAG_LEN],
}

impl Footer {
    /// Reads a footer; `None` if the magic is missing.
    pub(crate) fn parse(bytes: &[u8; FOOTER_LEN]) -> Option<Self> {
        let (media_len, rest) = bytes.split_first_chunk::<8>()?;
        let (manifest_len, rest) = rest.split_first_chunk::<4>()?;
        let (tag, magic) = rest.split_first_chunk::<TAG_LEN>()?;
        (magic == FOOTER_MAGIC).then_some(Self {
            lengths: FooterLengths {
                media_len: u64::from_be_bytes(*media_len),
                manifest_len: u32::from_be_bytes(*manifest_len),
            },
            tag: *tag,
        })
    }
}

/// The fixed bytes at the start of a block and the length of the key envelope.
pub(crate) fn prefix(key_envelope_len: u32) -> [u8; PREFIX_LEN] {
    let mut out = [0; PREFIX_LEN];
    let version = VERSION.to_be_bytes();
    let flags = [0, 0];
    let len = key_envelope_len.to_be_bytes();
    let parts = MAGIC.iter().chain(&version).chain(&flags).chain(&len);
    for (to, from) in out.iter_mut().zip(parts) {
        *to = *from;
    }
    out
}

/// First bytes of a file, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) version: u16,
    pub(crate) flags: u16,
    pub(crate) key_envelope_len: u32,
}

impl Prefix {
    /// Reads the first bytes of a file; `None` if they are not a block's.
    pub(crate) fn parse(bytes: &[u8; PREFIX_LEN]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<2>()?;
        let (flags, len) = rest.split_first_chunk::<2>()?;
        let len = len.first_chunk::<4>()?;
        (magic == MAGIC).then_some(Self {
            version: u16::from_be_bytes(*version),
            flags: u16::from_be_bytes(*flags),
            key_envelope_len: u32::from_be_bytes(*len),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_length_counts_tags_and_the_empty_chunk() {
        let chunk = CHUNK_LEN as u64;
        assert_eq!(sealed_len(0), Some(16));
        assert_eq!(sealed_len(1), Some(17));
        assert_eq!(sealed_len(chunk), Some(chunk + 16));
        assert_eq!(sealed_len(chunk + 1), Some(chunk + 33));
        assert_eq!(sealed_len(u64::MAX), None);
    }

    #[test]
    fn nonces_differ_in_every_part() {
        let bytes = |m, c, l| nonce(m, c, l).unwrap();
        assert_eq!(bytes(1, 2, true), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 1]);
        assert_eq!(
            bytes(u32::MAX, MAX_COUNTER, false),
            [255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0]
        );
        assert!(nonce(0, MAX_COUNTER + 1, false).is_err());
    }

    #[test]
    fn prefix_and_footer_survive_a_round_trip() {
        let parsed = Prefix::parse(&prefix(0x0102_0304)).unwrap();
        assert_eq!(
            parsed,
            Prefix {
                version: 1,
                flags: 0,
                key_envelope_len: 0x0102_0304
            }
        );
        let hash = Sha256Digest::of(b"prefix");
        let cipher = ChunkCipher::new(&Policy::software(), &[7; KEY_LEN], &hash).unwrap();
        let lengths = FooterLengths {
            media_len: 5,
            manifest_len: 6,
        };
        let manifest = Sha256Digest::of(b"manifest");
        let bytes: [u8; FOOTER_LEN] = cipher
            .footer(&lengths, &manifest)
            .unwrap()
            .try_into()
            .unwrap();
        let footer = Footer::parse(&bytes).unwrap();
        assert_eq!(footer.lengths, lengths);
        assert!(cipher.check_footer(&footer, &manifest).is_ok());
        assert!(cipher.check_footer(&footer, &hash).is_err());
    }
}
