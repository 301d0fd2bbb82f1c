//! Opening: checks a block, decrypts it, and verifies the camera's signature.
//!
//! [`Opener::open`] reads the two ends of the block and returns the verified manifest; media are
//! then decrypted one by one with [`Opened::read_medium`], each byte authenticated before it is
//! passed on. Trust in the signer's certificate is the caller's decision (`pki::path`), with the
//! chain and the signing time found here.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use offload_policy::Policy;
use pki::cert::CertificateChain;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::block::{
    self, CHUNK_LEN, ChunkCipher, FOOTER_LEN, Footer, KEY_LEN, PREFIX_LEN, Prefix, TAG_LEN, VERSION,
};
use crate::cms::{self, CmsError, MAX_MESSAGE_LEN, RecipientKey};
use crate::digest::{Sha256, Sha256Digest};
use crate::manifest::{Manifest, ManifestError, Medium};
use crate::names;
use crate::seal::read_full;

/// One of the two envelopes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopePart {
    /// The one that holds the media key.
    Key,
    /// The one that holds the signed manifest.
    Manifest,
}

impl EnvelopePart {
    const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Manifest => "manifest",
        }
    }
}

/// Why a block was refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The first bytes are not a block's.
    #[error("not a sealed block")]
    NotABlock,
    /// A format version we do not know.
    #[error("block format version {version} is not supported")]
    UnsupportedVersion { version: u16 },
    /// Flags we do not know.
    #[error("block flags {flags:#06x} are not supported")]
    UnsupportedFlags { flags: u16 },
    /// The block's end is missing or its parts do not add up to its size.
    #[error("block of {size} bytes is truncated or has bytes added")]
    Truncated { size: u64 },
    /// An envelope is malformed, altered, or of a profile we refuse.
    #[error("{} envelope cannot be opened", part.name())]
    Envelope {
        part: EnvelopePart,
        source: CmsError,
    },
    /// None of our keys is among the recipients.
    #[error("block is not for any of our keys")]
    NotForUs,
    /// The block's outline was altered.
    #[error("block outline failed authentication")]
    FooterAuthentication,
    /// The camera's signature over the manifest is not valid.
    #[error("signature of the manifest is not valid")]
    SignatureInvalid(#[source] CmsError),
    /// The signed content is not an acceptable manifest.
    #[error("manifest is not acceptable")]
    ManifestInvalid(#[source] ManifestError),
    /// The manifest names another device than the signer's certificate.
    #[error("manifest is of device {manifest:?} but signed by {signer:?}")]
    DeviceMismatch {
        /// Device in the manifest.
        manifest: String,
        /// Common name of the signer.
        signer: String,
    },
    /// The manifest's sealing time is not the signing time.
    #[error("sealing time differs from signing time")]
    TimeMismatch,
    /// The media of the manifest do not fill the media section.
    #[error("media take {expected} bytes by the manifest, {found} in the block")]
    LayoutMismatch {
        /// Bytes by the manifest.
        expected: u64,
        /// Bytes in the block.
        found: u64,
    },
    #[error("block has {count} media, no number {index}")]
    NoSuchMedium {
        /// Index asked for, from 0.
        index: usize,
        count: usize,
    },
    /// A chunk was altered, swapped, repeated or cut.
    #[error("chunk {chunk} of medium {medium} failed authentication")]
    ChunkAuthentication {
        /// Index of the medium, from 0.
        medium: usize,
        /// Index of the chunk, from 0.
        chunk: u64,
    },
    /// A medium decrypts but is not what the manifest names.
    #[error("medium {medium} does not have the hash in the manifest")]
    DigestMismatch {
        /// Index of the medium, from 0.
        medium: usize,
    },
    /// The block could not be read.
    #[error("cannot read the block")]
    Read(#[source] io::Error),
    /// The plaintext could not be written.
    #[error("cannot write the medium")]
    Write(#[source] io::Error),
}

impl OpenError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotABlock => "not-a-block",
            Self::UnsupportedVersion { .. } => "unsupported-version",
            Self::UnsupportedFlags { .. } => "unsupported-flags",
            Self::Truncated { .. } => "truncated",
            Self::Envelope { .. } => "envelope-invalid",
            Self::NotForUs => "not-for-us",
            Self::FooterAuthentication => "footer-authentication",
            Self::SignatureInvalid(_) => "signature-invalid",
            Self::ManifestInvalid(_) => "manifest-invalid",
            Self::DeviceMismatch { .. } => "device-mismatch",
            Self::TimeMismatch => "time-mismatch",
            Self::LayoutMismatch { .. } => "layout-mismatch",
            Self::NoSuchMedium { .. } => "no-such-medium",
            Self::ChunkAuthentication { .. } => "chunk-authentication",
            Self::DigestMismatch { .. } => "digest-mismatch",
            Self::Read(_) => "read-failed",
            Self::Write(_) => "write-failed",
        }
    }

    /// Whether the block itself is at fault, rather than our keys, disk or call.
    #[must_use]
    pub const fn is_block_fault(&self) -> bool {
        !matches!(
            self,
            Self::Read(_) | Self::Write(_) | Self::NotForUs | Self::NoSuchMedium { .. }
        )
    }
}

/// Opens blocks with one or more recipient keys, for instance the current and the previous one.
pub struct Opener {
    keys: Vec<RecipientKey>,
    engines: Arc<Policy>,
}

impl Opener {
    /// Makes an opener that tries `keys`.
    #[must_use]
    pub fn new(keys: Vec<RecipientKey>) -> Self {
        Self {
            keys,
            engines: Policy::software(),
        }
    }

    /// Has media decrypted by the engines of this policy; by software unless given.
    #[must_use]
    pub fn with_engines(self, engines: Arc<Policy>) -> Self {
        Self { engines, ..self }
    }

    /// Checks and decrypts everything but the media.
    ///
    /// Reads at most 2 MiB, whatever the size of the block.
    ///
    /// # Errors
    /// [`OpenError`], one variant per reason.
    pub fn open<R: Read + Seek>(&self, mut reader: R) -> Result<Opened<R>, OpenError> {
        let outline = Outline::read(&mut reader)?;
        let cipher = self.media_cipher(&outline)?;
        let manifest_envelope = outline.manifest_envelope(&mut reader)?;
        cipher
            .check_footer(&outline.footer, &Sha256Digest::of(&manifest_envelope))
            .map_err(|_| OpenError::FooterAuthentication)?;
        let signed_data_der = self.decrypt(EnvelopePart::Manifest, &manifest_envelope)?;
        let verified = cms::parse_signed_data(&signed_data_der)
            .and_then(|message| message.verify())
            .map_err(OpenError::SignatureInvalid)?;
        let manifest =
            Manifest::parse_canonical(&verified.content).map_err(OpenError::ManifestInvalid)?;
        check_signer(&manifest, &verified)?;
        outline.check_layout(&manifest)?;
        Ok(Opened {
            manifest,
            manifest_sha256: Sha256Digest::of(&verified.content),
            manifest_bytes: verified.content,
            signed_data_der: signed_data_der.to_vec(),
            signer_chain: verified.signer_chain,
            signing_time: verified.signing_time,
            media_start: outline.media_start,
            cipher,
            reader,
        })
    }

    fn media_cipher(&self, outline: &Outline) -> Result<ChunkCipher, OpenError> {
        let key = self.decrypt(EnvelopePart::Key, &outline.key_envelope)?;
        let key: &[u8; KEY_LEN] = key.as_slice().try_into().map_err(|_| OpenError::Envelope {
            part: EnvelopePart::Key,
            source: CmsError::KeyUnwrap,
        })?;
        ChunkCipher::new(&self.engines, key, &outline.prefix_sha256).map_err(|_| {
            OpenError::Envelope {
                part: EnvelopePart::Key,
                source: CmsError::KeyUnwrap,
            }
        })
    }

    fn decrypt(&self, part: EnvelopePart, der: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        cms::parse_auth_enveloped_data(der)
            .and_then(|message| message.decrypt(&self.keys))
            .map_err(|source| match source {
                CmsError::NotForUs => OpenError::NotForUs,
                source => OpenError::Envelope { part, source },
            })
    }
}

fn check_signer(manifest: &Manifest, verified: &cms::Verified) -> Result<(), OpenError> {
    let signer = names::common_name(verified.signer_chain.leaf()).unwrap_or_default();
    if signer != manifest.device {
        return Err(OpenError::DeviceMismatch {
            manifest: manifest.device.clone(),
            signer,
        });
    }
    if manifest.sealed_at != verified.signing_time {
        return Err(OpenError::TimeMismatch);
    }
    Ok(())
}

/// The ends of a block, read and added up, nothing decrypted.
struct Outline {
    key_envelope: Vec<u8>,
    prefix_sha256: Sha256Digest,
    media_start: u64,
    footer: Footer,
}

impl Outline {
    fn read<R: Read + Seek>(reader: &mut R) -> Result<Self, OpenError> {
        let size = reader.seek(SeekFrom::End(0)).map_err(OpenError::Read)?;
        let truncated = || OpenError::Truncated { size };
        reader.rewind().map_err(OpenError::Read)?;
        let mut prefix_bytes = [0; PREFIX_LEN];
        let found = read_full(reader, &mut prefix_bytes).map_err(OpenError::Read)?;
        if found < PREFIX_LEN && prefix_bytes.starts_with(block::MAGIC) {
            return Err(truncated());
        }
        let prefix = Prefix::parse(&prefix_bytes).ok_or(OpenError::NotABlock)?;
        if prefix.version != VERSION {
            return Err(OpenError::UnsupportedVersion {
                version: prefix.version,
            });
        }
        if prefix.flags != 0 {
            return Err(OpenError::UnsupportedFlags {
                flags: prefix.flags,
            });
        }
        let key_len = bounded(prefix.key_envelope_len).ok_or_else(truncated)?;
        let mut key_envelope = vec![0; key_len];
        read_exact(reader, &mut key_envelope)?.ok_or_else(truncated)?;
        let mut hash = Sha256::new();
        hash.update(&prefix_bytes);
        hash.update(&key_envelope);

        let media_start = (PREFIX_LEN as u64).saturating_add(key_len as u64);
        let footer_start = size
            .checked_sub(FOOTER_LEN as u64)
            .filter(|start| *start >= media_start)
            .ok_or_else(truncated)?;
        reader
            .seek(SeekFrom::Start(footer_start))
            .map_err(OpenError::Read)?;
        let mut footer_bytes = [0; FOOTER_LEN];
        read_exact(reader, &mut footer_bytes)?.ok_or_else(truncated)?;
        let footer = Footer::parse(&footer_bytes).ok_or_else(truncated)?;
        let end = media_start
            .checked_add(footer.lengths.media_len)
            .and_then(|at| at.checked_add(u64::from(footer.lengths.manifest_len)));
        if end != Some(footer_start) {
            return Err(truncated());
        }
        Ok(Self {
            key_envelope,
            prefix_sha256: hash.finish(),
            media_start,
            footer,
        })
    }

    fn manifest_envelope<R: Read + Seek>(&self, reader: &mut R) -> Result<Vec<u8>, OpenError> {
        let lengths = &self.footer.lengths;
        let at = self.media_start.saturating_add(lengths.media_len);
        let too_large = || OpenError::Envelope {
            part: EnvelopePart::Manifest,
            source: CmsError::TooLarge {
                len: usize::try_from(lengths.manifest_len).unwrap_or(usize::MAX),
            },
        };
        let mut envelope = vec![0; bounded(lengths.manifest_len).ok_or_else(too_large)?];
        reader.seek(SeekFrom::Start(at)).map_err(OpenError::Read)?;
        read_exact(reader, &mut envelope)?.ok_or(OpenError::Truncated { size: at })?;
        Ok(envelope)
    }

    fn check_layout(&self, manifest: &Manifest) -> Result<(), OpenError> {
        let found = self.footer.lengths.media_len;
        let expected = media_len(&manifest.media).unwrap_or(u64::MAX);
        if expected == found {
            Ok(())
        } else {
            Err(OpenError::LayoutMismatch { expected, found })
        }
    }
}

fn media_len(media: &[Medium]) -> Option<u64> {
    media
        .iter()
        .try_fold(0_u64, |sum, m| sum.checked_add(block::sealed_len(m.size)?))
}

/// An envelope's length, if it is within the bound.
fn bounded(len: u32) -> Option<usize> {
    usize::try_from(len).ok().filter(|l| *l <= MAX_MESSAGE_LEN)
}

/// Fills `buffer`; `None` if the source ends before.
fn read_exact(reader: &mut impl Read, buffer: &mut [u8]) -> Result<Option<()>, OpenError> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(Some(())),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(OpenError::Read(e)),
    }
}

/// A block whose manifest is decrypted and verified, ready to give its media.
pub struct Opened<R> {
    pub manifest: Manifest,
    /// Its canonical bytes, as signed.
    pub manifest_bytes: Vec<u8>,
    /// SHA-256 of these bytes.
    pub manifest_sha256: Sha256Digest,
    /// The CMS `SignedData` that holds and signs the manifest, for `openssl cms -verify`.
    pub signed_data_der: Vec<u8>,
    /// The signer's certificate and issuers as found in the block; trust is not checked.
    pub signer_chain: CertificateChain,
    /// When the camera claims to have signed.
    pub signing_time: OffsetDateTime,
    media_start: u64,
    cipher: ChunkCipher,
    reader: R,
}

/// Place up to which a medium has been read.
pub struct MediumCursor {
    index: usize,
    nonce_index: u32,
    size: u64,
    expected: Sha256Digest,
    chunk: u64,
    /// Offset of the chunk in the block.
    at: u64,
    left: u64,
    /// Taken when it has been compared.
    hash: Option<Sha256>,
}

impl<R: Read + Seek> Opened<R> {
    /// Decrypts medium `index` (from 0) into `out`; the result is its size in bytes.
    ///
    /// Each chunk is authenticated before it is written. After [`OpenError::DigestMismatch`] all
    /// bytes have been written, and the caller must discard them.
    ///
    /// # Errors
    /// [`OpenError::ChunkAuthentication`], [`OpenError::DigestMismatch`],
    /// [`OpenError::NoSuchMedium`], [`OpenError::Read`] or [`OpenError::Write`].
    pub fn read_medium(&mut self, index: usize, out: &mut dyn Write) -> Result<u64, OpenError> {
        let mut cursor = self.cursor(index)?;
        // One buffer for all chunks: a new one each time costs as much as deciphering into it.
        let mut buffer = Zeroizing::new(Vec::new());
        while let Some(plaintext) = self.chunk_into(&mut cursor, &mut buffer)? {
            out.write_all(plaintext).map_err(OpenError::Write)?;
        }
        Ok(cursor.size)
    }

    /// A place at the start of medium `index` (from 0), for [`Self::next_chunk`].
    ///
    /// # Errors
    /// [`OpenError::NoSuchMedium`].
    pub fn cursor(&self, index: usize) -> Result<MediumCursor, OpenError> {
        let (medium, start) = self.locate(index)?;
        Ok(MediumCursor {
            index,
            nonce_index: u32::try_from(index).map_err(|_| self.no_such(index))?,
            size: medium.size,
            expected: medium.sha256,
            chunk: 0,
            at: start,
            left: medium.size,
            hash: Some(Sha256::new()),
        })
    }

    /// A place at the chunk with byte `first` of medium `index`, and how many bytes of that chunk are before it.
    ///
    /// Each chunk is authenticated with its number, but the hash of the medium is not compared at the end: who gives
    /// parts out reads the whole medium once before.
    ///
    /// # Errors
    /// [`OpenError::NoSuchMedium`].
    pub fn cursor_at(&self, index: usize, first: u64) -> Result<(MediumCursor, usize), OpenError> {
        let cursor = self.cursor(index)?;
        let first = first.min(cursor.size);
        let chunk = first / CHUNK_LEN as u64;
        let before = chunk.saturating_mul(CHUNK_LEN as u64);
        let sealed = chunk.saturating_mul((CHUNK_LEN + TAG_LEN) as u64);
        let skip = usize::try_from(first.saturating_sub(before)).unwrap_or(CHUNK_LEN);
        let cursor = MediumCursor {
            chunk,
            at: cursor.at.saturating_add(sealed),
            left: cursor.left.saturating_sub(before),
            hash: None,
            ..cursor
        };
        Ok((cursor, skip))
    }

    /// Decrypts the chunk at `cursor`, at most 64 KiB, and moves on; `None` at the end, where the
    /// medium has the hash in the manifest. For readers that give out a medium piece by piece.
    ///
    /// # Errors
    /// As [`Self::read_medium`]; what was given out before [`OpenError::DigestMismatch`] must be
    /// discarded.
    pub fn next_chunk(
        &mut self,
        cursor: &mut MediumCursor,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, OpenError> {
        let mut buffer = Zeroizing::new(Vec::new());
        let len = self
            .chunk_into(cursor, &mut buffer)?
            .map(|chunk| chunk.len());
        Ok(len.map(|len| {
            buffer.truncate(len);
            buffer
        }))
    }

    /// The same into `buffer`, of which the plaintext is the beginning.
    fn chunk_into<'a>(
        &mut self,
        cursor: &mut MediumCursor,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, OpenError> {
        let chunks = block::chunk_count(cursor.size);
        if cursor.chunk >= chunks {
            let differs = cursor
                .hash
                .take()
                .is_some_and(|hash| hash.finish() != cursor.expected);
            return if differs {
                let medium = cursor.index;
                Err(OpenError::DigestMismatch { medium })
            } else {
                Ok(None)
            };
        }
        let refused = OpenError::ChunkAuthentication {
            medium: cursor.index,
            chunk: cursor.chunk,
        };
        self.reader
            .seek(SeekFrom::Start(cursor.at))
            .map_err(OpenError::Read)?;
        let len = usize::try_from(cursor.left.min(CHUNK_LEN as u64)).unwrap_or(CHUNK_LEN);
        buffer.resize(len.saturating_add(TAG_LEN), 0);
        if read_exact(&mut self.reader, buffer)?.is_none() {
            return Err(refused);
        }
        let last = cursor.chunk.saturating_add(1) == chunks;
        let opened = self
            .cipher
            .open(cursor.nonce_index, cursor.chunk, last, buffer)
            .map_err(|_| refused)?;
        if let Some(hash) = &mut cursor.hash {
            hash.update(opened);
        }
        cursor.chunk = cursor.chunk.saturating_add(1);
        cursor.at = cursor.at.saturating_add(len.saturating_add(TAG_LEN) as u64);
        cursor.left = cursor.left.saturating_sub(len as u64);
        Ok(Some(opened))
    }

    /// Decrypts every medium and drops the plaintext: proves that the whole block is sound.
    ///
    /// # Errors
    /// As [`Self::read_medium`], for the first medium at fault.
    pub fn verify_media(&mut self) -> Result<(), OpenError> {
        for index in 0..self.manifest.media.len() {
            self.read_medium(index, &mut io::sink())?;
        }
        Ok(())
    }

    fn locate(&self, index: usize) -> Result<(&Medium, u64), OpenError> {
        let media = &self.manifest.media;
        let medium = media.get(index).ok_or_else(|| self.no_such(index))?;
        let before = media.get(..index).and_then(media_len);
        let start = before
            .and_then(|len| len.checked_add(self.media_start))
            .ok_or_else(|| self.no_such(index))?;
        Ok((medium, start))
    }

    fn no_such(&self, index: usize) -> OpenError {
        OpenError::NoSuchMedium {
            index,
            count: self.manifest.media.len(),
        }
    }
}
