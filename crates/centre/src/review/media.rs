//! Opening archived blocks for people: media and thumbnails.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Cursor};
use std::sync::{Mutex, PoisonError};

use error_report::Report;

use super::Review;
use super::error::ReviewError;
use super::shares::Stream;
use access::{Action, Principal};
use bytes::Bytes;
use event_catalogue::Details as _;
use event_catalogue::context::Viewed;
use evidence::digest::Sha256Digest;
use evidence::open::{MediumCursor, OpenError, Opened};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use image::codecs::jpeg::JpegEncoder;
use image::{ImageFormat, ImageReader, Limits};
use pool::Pool;
use store::ObjectId;

/// Width of a thumbnail in pixels; two per CSS pixel of the list's cards.
const THUMBNAIL_WIDTH: u32 = 640;
const THUMBNAIL_HEIGHT: u32 = 360;
const THUMBNAIL_QUALITY: u8 = 78;
/// Thumbnails kept in memory, about 40 kB each.
const CACHED: usize = 500;
/// Largest picture that is decoded, in pixels on one side; a bomb fails before it is unpacked.
const MAX_SIDE: u32 = 16_384;
const MAX_DECODED: u64 = 256 << 20;
/// Largest picture that is made small, in bytes.
const MAX_PICTURE: u64 = 64 << 20;
/// Largest medium handed out through memory, in bytes; larger ones are streamed.
const MAX_MEDIUM: u64 = 256 << 20;
/// Pictures decoded at the same time: a page asks for two dozen at once, and each one may take
/// [`MAX_DECODED`].
pub(super) const DECODERS: usize = 2;
/// Chunks of 64 KiB that are decrypted at once, and hence memory of one stream.
const CHUNKS: usize = 4;

/// A medium as the camera signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumBytes {
    pub name: String,
    /// Media type by the manifest.
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// A medium that is decrypted while it is read.
pub struct MediumStream {
    pub name: String,
    /// Media type by the manifest.
    pub media_type: String,
    /// Bytes to come.
    pub size: u64,
    /// The content in order. An error means that the rest cannot be read: the reader must not
    /// take what it has for the whole.
    ///
    /// Each piece is decrypted when it is asked for, by a short work on the threads for media: a
    /// reader that does not read holds no thread, only its place among the person's streams.
    pub pieces: BoxStream<'static, io::Result<Bytes>>,
}

/// Small pictures of the last violations that were listed.
///
/// Kept in memory only: on disk evidence exists sealed and not otherwise.
#[derive(Debug, Default)]
pub(crate) struct Thumbnails {
    kept: Mutex<VecDeque<(String, Vec<u8>)>>,
}

impl Thumbnails {
    fn get(&self, id: &str) -> Option<Vec<u8>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter()
            .find(|(known, _)| known == id)
            .map(|(_, jpeg)| jpeg.clone())
    }

    fn put(&self, id: &str, jpeg: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().any(|(known, _)| known == id) {
            return;
        }
        if kept.len() >= CACHED {
            kept.pop_front();
        }
        kept.push_back((id.to_owned(), jpeg.to_owned()));
    }
}

type Block = Opened<BufReader<File>>;

impl Review {
    /// Medium number `index` (from 0), decrypted and checked against the camera's signature.
    ///
    /// # Errors
    /// [`ReviewError`]; nothing of a damaged medium is given out.
    pub async fn medium(
        &self,
        who: &Principal,
        id: &str,
        index: usize,
    ) -> Result<MediumBytes, ReviewError> {
        let resource = self.resource(id).await?;
        self.permit(who, Action::EvidenceOpenMedium, &resource, Some(id))
            .await?;
        self.parts.metrics.opened.inc();
        self.with_block(id, move |mut block| read(&mut block, index, MAX_MEDIUM))
            .await
    }

    /// As [`Self::medium`], of any size and in bounded memory.
    ///
    /// The whole medium is checked before its first byte is given out, then decrypted once more.
    ///
    /// # Errors
    /// [`ReviewError`]; nothing of a damaged medium is given out.
    pub async fn medium_stream(
        &self,
        who: &Principal,
        id: &str,
        index: usize,
    ) -> Result<MediumStream, ReviewError> {
        let resource = self.resource(id).await?;
        self.permit(who, Action::EvidenceOpenMedium, &resource, Some(id))
            .await?;
        self.parts.metrics.opened.inc();
        let stream = self.shares.stream(who.uid())?;
        let mut block = self.with_block(id, Ok).await?;
        // In short works, so that readers of long films take turns with readers of pictures.
        let mut cursor = block.cursor(index).map_err(damaged)?;
        loop {
            let (back, outcome) = self
                .parts
                .pool
                .run(move || {
                    let outcome = chunks(&mut block, &mut cursor).map(|c| c.is_some());
                    ((block, cursor), outcome)
                })
                .await?;
            (block, cursor) = back;
            if !outcome.map_err(damaged)? {
                break;
            }
        }
        let medium = block.manifest.media.get(index).cloned();
        let medium = medium.ok_or(ReviewError::NotFound("medium"))?;
        let cursor = block.cursor(index).map_err(damaged)?;
        let reading = Reading {
            block,
            cursor,
            pool: self.parts.pool.clone(),
            _stream: stream,
        };
        Ok(MediumStream {
            name: medium.name,
            media_type: medium.media_type,
            size: medium.size,
            pieces: stream::unfold(Some(reading), next_piece).boxed(),
        })
    }

    /// A small JPEG of the first picture. Who has seen it has seen evidence: it leaves an event.
    ///
    /// # Errors
    /// [`ReviewError`].
    pub async fn thumbnail(&self, who: &Principal, id: &str) -> Result<Vec<u8>, ReviewError> {
        let resource = self.resource(id).await?;
        self.permit_described(who, Action::EvidenceView, &resource, Some(id), |event| {
            let viewed = Viewed {
                thumbnail: Some(true),
                page: None,
                before: None,
            };
            viewed.add_to(event)
        })
        .await?;
        if let Some(jpeg) = self.thumbnails.get(id) {
            return Ok(jpeg);
        }
        // The semaphore lives as long as `self` and is never closed.
        let _permit = self.decoders.acquire().await.ok();
        if let Some(jpeg) = self.thumbnails.get(id) {
            return Ok(jpeg);
        }
        let jpeg = self
            .with_block(id, |mut block| thumbnail(&mut block))
            .await?;
        self.thumbnails.put(id, &jpeg);
        Ok(jpeg)
    }

    /// Opens the block of violation `id` and works on it off the async threads.
    async fn with_block<T: Send + 'static>(
        &self,
        id: &str,
        work: impl FnOnce(Block) -> Result<T, ReviewError> + Send + 'static,
    ) -> Result<T, ReviewError> {
        let known = self.ledger().violation(id);
        let known = known.ok_or(ReviewError::NotFound("violation"))?;
        let file = self.parts.archive.get(&object(&known.block))?;
        let opener = self.parts.keys.opener();
        let work = move || {
            let block = opener.open(BufReader::new(file)).map_err(damaged)?;
            // Another sealed block in its place would open as well.
            match known.manifest == Some(block.manifest_sha256) {
                true => work(block),
                false => Err(ReviewError::Exchanged(known.block)),
            }
        };
        self.parts.pool.run(work).await?
    }
}

pub(super) const fn object(block: &Sha256Digest) -> ObjectId {
    ObjectId(*block.as_bytes())
}

pub(super) fn damaged(error: OpenError) -> ReviewError {
    match error {
        OpenError::Read(e) | OpenError::Write(e) => ReviewError::Io(e),
        OpenError::NoSuchMedium { .. } => ReviewError::NotFound("medium"),
        other => ReviewError::Damaged(other),
    }
}

/// A medium on its way to a reader.
struct Reading {
    block: Block,
    cursor: MediumCursor,
    pool: Pool,
    _stream: Stream,
}

/// The next piece, and what is left; an error is the last piece.
async fn next_piece(reading: Option<Reading>) -> Option<(io::Result<Bytes>, Option<Reading>)> {
    let mut reading = reading?;
    let pool = reading.pool.clone();
    let read = pool
        .run(move || {
            let piece = chunks(&mut reading.block, &mut reading.cursor);
            (piece, reading)
        })
        .await;
    match read {
        Ok((Ok(Some(piece)), reading)) => Some((Ok(piece), Some(reading))),
        Ok((Ok(None), _)) => None,
        Ok((Err(error), _)) => {
            tracing::warn!(error = %Report(&error), "a medium was not read to its end");
            Some((Err(io::Error::other(error)), None))
        }
        Err(error) => Some((Err(io::Error::other(error)), None)),
    }
}

/// The next [`CHUNKS`] chunks; `None` at the end.
fn chunks(block: &mut Block, cursor: &mut MediumCursor) -> Result<Option<Bytes>, OpenError> {
    let mut piece = Vec::new();
    for _ in 0..CHUNKS {
        match block.next_chunk(cursor)? {
            Some(chunk) => piece.extend_from_slice(&chunk),
            None => break,
        }
    }
    Ok((!piece.is_empty()).then(|| piece.into()))
}

fn read(block: &mut Block, index: usize, limit: u64) -> Result<MediumBytes, ReviewError> {
    let medium = block.manifest.media.get(index).cloned();
    let medium = medium.ok_or(ReviewError::NotFound("medium"))?;
    if medium.size > limit {
        return Err(ReviewError::Io(io::Error::other(
            "the medium is too large to show; open the block with `cordon evidence open`",
        )));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(medium.size).unwrap_or(0));
    block.read_medium(index, &mut bytes).map_err(damaged)?;
    Ok(MediumBytes {
        name: medium.name,
        media_type: medium.media_type,
        bytes,
    })
}

fn thumbnail(block: &mut Block) -> Result<Vec<u8>, ReviewError> {
    let first = block
        .manifest
        .media
        .iter()
        .position(|m| m.media_type == "image/jpeg");
    let picture = read(block, first.ok_or(ReviewError::NotAPicture)?, MAX_PICTURE)?;
    let mut reader = ImageReader::with_format(Cursor::new(picture.bytes), ImageFormat::Jpeg);
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits);
    let decoded = reader.decode().map_err(|_| ReviewError::NotAPicture)?;
    let small = decoded
        .thumbnail(THUMBNAIL_WIDTH, THUMBNAIL_HEIGHT)
        .into_rgb8();
    let mut jpeg = Vec::new();
    JpegEncoder::new_with_quality(&mut jpeg, THUMBNAIL_QUALITY)
        .encode_image(&small)
        .map_err(|_| ReviewError::NotAPicture)?;
    Ok(jpeg)
}
