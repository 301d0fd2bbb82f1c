//! Sealing: signs and encrypts media and facts into one block, in a single pass.
//!
//! Memory is bounded whatever the size of the media: two chunks of 64 KiB are held, nothing else
//! grows. The order is *sign, then encrypt*: the manifest, which names each medium by SHA-256, is
//! signed, and signature and content are encrypted together, so a network observer learns neither.

use std::io::{self, Read, Write};
use std::sync::Arc;

use aws_lc_rs::rand;
use offload_policy::Policy;
use pki::cert::{Certificate, CertificateChain};
use pki::clearance::Clearance;
use pki::key::PrivateKey;
use time::{OffsetDateTime, UtcOffset};
use zeroize::Zeroizing;

use crate::block::{self, CHUNK_LEN, ChunkCipher, FooterLengths, KEY_LEN, TAG_LEN};
use crate::cms::{self, CmsError, Placement};
use crate::digest::{HashingWriter, Sha256, Sha256Digest};
use crate::manifest::{Kind, Manifest, ManifestError, Medium, Notice, SCHEMA, Violation};
use crate::names;

/// Subject of a block.
#[derive(Clone, Debug)]
pub enum Statement {
    Violation(Violation),
    /// A statement of the camera about itself.
    Notice(Notice),
}

/// The parts of a manifest that the caller decides.
#[derive(Clone, Debug)]
pub struct ManifestDraft {
    /// Position in the camera's chain, from 1.
    pub sequence: u64,
    /// SHA-256 of the previous manifest; zeros for the first.
    pub previous: Sha256Digest,
    /// When the violation was seen; any offset, stored in UTC.
    pub captured_at: OffsetDateTime,
    /// Clearance needed to see the content.
    pub classification: Clearance,
    pub statement: Statement,
}

/// One medium to be sealed, read to its end.
pub struct MediumSource<'a> {
    /// File name without folder, unique in the block.
    pub name: String,
    /// Media type, for instance `image/jpeg`.
    pub media_type: String,
    /// The bytes.
    pub reader: Box<dyn Read + 'a>,
}

#[derive(Clone, Debug)]
pub struct Sealed {
    /// SHA-256 over the whole block.
    pub block_sha256: Sha256Digest,
    /// Size of the block in bytes.
    pub block_size: u64,
    pub manifest: Manifest,
    /// SHA-256 of the manifest's canonical bytes: `previous` of the next one.
    pub manifest_sha256: Sha256Digest,
}

/// Why a block could not be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The signer's certificate is for another key.
    #[error("signing key does not belong to the certificate")]
    KeyMismatch,
    /// The signer's certificate has no common name to be the device's name.
    #[error("certificate of the signer has no common name")]
    NoCommonName,
    /// The draft breaks a rule of the manifest format.
    #[error("manifest is not acceptable")]
    Manifest(#[source] ManifestError),
    /// More data than the format can express.
    #[error("block is too large")]
    TooLarge,
    /// A medium could not be read.
    #[error("cannot read medium {name:?}")]
    Read { name: String, source: io::Error },
    /// The block could not be written.
    #[error("cannot write the block")]
    Write(#[source] io::Error),
    /// Signing or encrypting an envelope failed.
    #[error("cannot make an envelope")]
    Envelope(#[source] CmsError),
    /// The crypto library failed.
    #[error("crypto library failed")]
    Crypto,
}

impl SealError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::KeyMismatch => "key-mismatch",
            Self::NoCommonName => "no-common-name",
            Self::Manifest(_) => "manifest-invalid",
            Self::TooLarge => "too-large",
            Self::Read { .. } => "read-failed",
            Self::Write(_) => "write-failed",
            Self::Envelope(_) => "envelope-failed",
            Self::Crypto => "crypto-failed",
        }
    }
}

/// Seals blocks for one camera; keep it for the life of the key.
pub struct Sealer {
    signer: PrivateKey,
    chain: CertificateChain,
    recipients: Vec<Certificate>,
    device: String,
    engines: Arc<Policy>,
}

impl Sealer {
    /// Makes a sealer that signs with `signer` (certificate and issuers in `chain`, leaf first) and
    /// encrypts to all of `recipients`. The leaf's common name becomes the device's name.
    ///
    /// # Errors
    /// [`SealError::KeyMismatch`], [`SealError::NoCommonName`], or [`SealError::Envelope`] if there
    /// is no recipient.
    pub fn new(
        signer: PrivateKey,
        chain: CertificateChain,
        recipients: Vec<Certificate>,
    ) -> Result<Self, SealError> {
        if chain.leaf().tbs_certificate.subject_public_key_info != signer.spki() {
            return Err(SealError::KeyMismatch);
        }
        let device = names::common_name(chain.leaf()).ok_or(SealError::NoCommonName)?;
        // An unusable recipient must show at start, not with the first violation.
        cms::encrypt(&[], &recipients).map_err(SealError::Envelope)?;
        Ok(Self {
            signer,
            chain,
            recipients,
            device,
            engines: Policy::software(),
        })
    }

    /// Has media encrypted by the engines of this policy; by software unless given.
    #[must_use]
    pub fn with_engines(self, engines: Arc<Policy>) -> Self {
        Self { engines, ..self }
    }

    /// The device's name, as it stands in manifests.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Seals `draft` and `media` into `out`, which is written once from start to end.
    ///
    /// `now` becomes `sealed_at` and the signing time, cut to seconds. Nothing is flushed or
    /// synchronised. After an error `out` holds a part of a block that no reader accepts.
    ///
    /// # Errors
    /// [`SealError`], one variant per reason.
    pub fn seal(
        &self,
        draft: ManifestDraft,
        media: Vec<MediumSource<'_>>,
        now: OffsetDateTime,
        out: &mut dyn Write,
    ) -> Result<Sealed, SealError> {
        let now = whole_seconds(now)?;
        let mut manifest = self.manifest(draft, &media, now);
        // Before any byte is written: sizes and hashes are all that is still unknown.
        manifest.to_canonical().map_err(SealError::Manifest)?;

        let mut out = HashingWriter::new(out);
        let cipher = self.write_prefix(&mut out)?;
        let media_start = out.written();
        for (index, (source, entry)) in media.into_iter().zip(&mut manifest.media).enumerate() {
            let index = u32::try_from(index).map_err(|_| SealError::TooLarge)?;
            (entry.size, entry.sha256) = write_medium(&cipher, index, source, &mut out)?;
        }
        let media_len = out.written().saturating_sub(media_start);

        let manifest_bytes = manifest.to_canonical().map_err(SealError::Manifest)?;
        let manifest_sha256 = Sha256Digest::of(&manifest_bytes);
        self.write_manifest(&cipher, &manifest_bytes, media_len, now, &mut out)?;
        let (block_sha256, block_size) = out.finish();
        Ok(Sealed {
            block_sha256,
            block_size,
            manifest,
            manifest_sha256,
        })
    }

    fn manifest(
        &self,
        draft: ManifestDraft,
        media: &[MediumSource<'_>],
        now: OffsetDateTime,
    ) -> Manifest {
        let (kind, violation, notice) = match draft.statement {
            Statement::Violation(violation) => (Kind::Violation, Some(violation), None),
            Statement::Notice(notice) => (Kind::Notice, None, Some(notice)),
        };
        let media = media.iter().map(|m| Medium {
            name: m.name.clone(),
            media_type: m.media_type.clone(),
            size: 0,
            sha256: Sha256Digest::ZERO,
        });
        Manifest {
            schema: SCHEMA.to_owned(),
            kind,
            device: self.device.clone(),
            sequence: draft.sequence,
            previous: draft.previous,
            captured_at: draft.captured_at.to_offset(UtcOffset::UTC),
            sealed_at: now,
            classification: draft.classification,
            violation,
            media: media.collect(),
            notice,
        }
    }

    fn write_prefix(&self, out: &mut HashingWriter<'_>) -> Result<ChunkCipher, SealError> {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        rand::fill(key.as_mut()).map_err(|_| SealError::Crypto)?;
        let envelope = cms::encrypt(key.as_ref(), &self.recipients).map_err(SealError::Envelope)?;
        let len = u32::try_from(envelope.len()).map_err(|_| SealError::TooLarge)?;
        let prefix = block::prefix(len);
        let mut hash = Sha256::new();
        hash.update(&prefix);
        hash.update(&envelope);
        out.write_all(&prefix).map_err(SealError::Write)?;
        out.write_all(&envelope).map_err(SealError::Write)?;
        ChunkCipher::new(&self.engines, &key, &hash.finish()).map_err(|_| SealError::Crypto)
    }

    fn write_manifest(
        &self,
        cipher: &ChunkCipher,
        manifest_bytes: &[u8],
        media_len: u64,
        now: OffsetDateTime,
        out: &mut HashingWriter<'_>,
    ) -> Result<(), SealError> {
        let signed = cms::sign(
            &self.signer,
            &self.chain,
            manifest_bytes,
            Placement::Attached,
            now,
        )
        .map_err(SealError::Envelope)?;
        let envelope = cms::encrypt(&signed, &self.recipients).map_err(SealError::Envelope)?;
        let lengths = FooterLengths {
            media_len,
            manifest_len: u32::try_from(envelope.len()).map_err(|_| SealError::TooLarge)?,
        };
        let footer = cipher
            .footer(&lengths, &Sha256Digest::of(&envelope))
            .map_err(|_| SealError::Crypto)?;
        out.write_all(&envelope).map_err(SealError::Write)?;
        out.write_all(&footer).map_err(SealError::Write)
    }
}

fn whole_seconds(at: OffsetDateTime) -> Result<OffsetDateTime, SealError> {
    at.to_offset(UtcOffset::UTC)
        .replace_nanosecond(0)
        .map_err(|_| SealError::TooLarge)
}

/// Encrypts one medium chunk by chunk; the result is its size and hash.
fn write_medium(
    cipher: &ChunkCipher,
    index: u32,
    source: MediumSource<'_>,
    out: &mut HashingWriter<'_>,
) -> Result<(u64, Sha256Digest), SealError> {
    let MediumSource {
        name, mut reader, ..
    } = source;
    let mut read = |buffer: &mut [u8]| {
        read_full(&mut *reader, buffer).map_err(|source| SealError::Read {
            name: name.clone(),
            source,
        })
    };
    let mut hash = Sha256::new();
    let mut size: u64 = 0;
    // A chunk must know whether it is the last, so reading is one chunk ahead.
    // Each has room for the tag, so that both are one write.
    let mut current = Zeroizing::new(vec![0; CHUNK_LEN + TAG_LEN]);
    let mut ahead = Zeroizing::new(vec![0; CHUNK_LEN + TAG_LEN]);
    let mut len = read(room(&mut current)?)?;
    for counter in 0.. {
        let next = if len == CHUNK_LEN {
            read(room(&mut ahead)?)?
        } else {
            0
        };
        let (chunk, rest) = current.split_at_mut_checked(len).ok_or(SealError::Crypto)?;
        hash.update(chunk);
        size = size.saturating_add(len as u64);
        let tag = cipher
            .seal(index, counter, next == 0, chunk)
            .map_err(|_| SealError::Crypto)?;
        let place = rest.first_chunk_mut().ok_or(SealError::Crypto)?;
        *place = tag;
        let written = len.saturating_add(TAG_LEN);
        let sealed = current.get(..written).ok_or(SealError::Crypto)?;
        out.write_all(sealed).map_err(SealError::Write)?;
        if next == 0 {
            break;
        }
        std::mem::swap(&mut current, &mut ahead);
        len = next;
    }
    Ok((size, hash.finish()))
}

/// The part of a buffer that takes plaintext.
fn room(buffer: &mut [u8]) -> Result<&mut [u8], SealError> {
    buffer.get_mut(..CHUNK_LEN).ok_or(SealError::Crypto)
}

/// Reads until `buffer` is full or the source ends.
pub(crate) fn read_full(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest) {
            Ok(0) => break,
            Ok(n) => filled = filled.saturating_add(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
