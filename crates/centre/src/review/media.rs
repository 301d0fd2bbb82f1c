//! Opening archived blocks for people: media and thumbnails.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Cursor};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use error_report::Report;

use super::Review;
use super::error::ReviewError;
use super::openings::{Key, Stamp};
use super::shares::Stream;
use access::{Action, Principal};
use bytes::Bytes;
use centre_api::{Asked, Served, Wanted};
use event_catalogue::Details as _;
use event_catalogue::context::Viewed;
use evidence::digest::Sha256Digest;
use evidence::manifest::Medium;
use evidence::open::{MediumCursor, OpenError, Opened};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use image::codecs::jpeg::JpegEncoder;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, ImageResult, Limits};
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
    pub served: Served,
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
        self.with_block(id, move |mut block, _| read(&mut block, index, MAX_MEDIUM))
            .await
    }

    /// As [`Self::medium`], of any size and in bounded memory, the whole or the part that is asked for.
    ///
    /// The whole medium is checked before its first byte is given out, then decrypted once more. A request for a part
    /// that belongs to an [opening](super::openings) writes no further event, and the medium is not checked again
    /// while its file is the same.
    ///
    /// # Errors
    /// [`ReviewError`]; nothing of a damaged medium is given out.
    pub async fn medium_stream(
        &self,
        who: &Principal,
        id: &str,
        index: usize,
        asked: &Asked,
    ) -> Result<MediumStream, ReviewError> {
        let resource = self.resource(id).await?;
        let key = Key::new(who, id, index);
        let action = Action::EvidenceOpenMedium;
        if asked.range.is_some() && self.openings.continues(&key, Instant::now()) {
            self.still_permit(who, action, &resource, id).await?;
        } else {
            self.permit(who, action, &resource, Some(id)).await?;
            self.parts.metrics.opened.inc();
            self.openings.begin(key.clone(), Instant::now());
        }
        let stream = self.shares.stream(who.uid())?;
        let (mut block, stamp) = self.with_block(id, |block, file| Ok((block, file))).await?;
        if !self.openings.is_verified(&key, stamp) {
            block = self.checked(block, index).await?;
            self.openings.verified(&key, stamp);
        }
        let medium = block.manifest.media.get(index).cloned();
        let medium = medium.ok_or(ReviewError::NotFound("medium"))?;
        let sha256 = medium.sha256.to_string();
        let part = match asked.wanted(medium.size, &sha256) {
            Wanted::Whole => None,
            Wanted::Part(part) => Some(part),
            Wanted::Unsatisfiable => return Err(ReviewError::Range { size: medium.size }),
        };
        let (cursor, skip) = match part {
            Some(part) => block.cursor_at(index, part.first).map_err(damaged)?,
            None => (block.cursor(index).map_err(damaged)?, 0),
        };
        let served = Served {
            size: medium.size,
            sha256,
            part,
        };
        let reading = Reading {
            block,
            cursor,
            skip,
            left: part.is_some().then_some(served.length()),
            pool: self.parts.pool.clone(),
            _stream: stream,
        };
        Ok(MediumStream {
            name: medium.name,
            media_type: medium.media_type,
            served,
            pieces: stream::unfold(Some(reading), next_piece).boxed(),
        })
    }

    /// Reads a medium to its end, in short works, so that readers of long films take turns with readers of pictures.
    async fn checked(&self, mut block: Block, index: usize) -> Result<Block, ReviewError> {
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
                return Ok(block);
            }
        }
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
            .with_block(id, |mut block, _| thumbnail(&mut block))
            .await?;
        self.thumbnails.put(id, &jpeg);
        Ok(jpeg)
    }

    /// Opens the block of violation `id` and works on it off the async threads.
    async fn with_block<T: Send + 'static>(
        &self,
        id: &str,
        work: impl FnOnce(Block, Stamp) -> Result<T, ReviewError> + Send + 'static,
    ) -> Result<T, ReviewError> {
        let known = self.ledger().violation(id);
        let known = known.ok_or(ReviewError::NotFound("violation"))?;
        let file = self.parts.archive.get(&object(&known.block))?;
        let opener = self.parts.keys.opener();
        let work = move || {
            let stamp = Stamp::of(&file.metadata()?);
            let block = opener.open(BufReader::new(file)).map_err(damaged)?;
            // Another sealed block in its place would open as well.
            match known.manifest == Some(block.manifest_sha256) {
                true => work(block, stamp),
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
    /// Bytes of the next piece that are before the part.
    skip: usize,
    /// Bytes of the part to come; `None`: the whole medium, to its end, where its hash is compared.
    left: Option<u64>,
    pool: Pool,
    _stream: Stream,
}

impl Reading {
    /// What of a piece belongs to the part.
    fn within_part(&mut self, mut piece: Bytes) -> Bytes {
        let before = std::mem::take(&mut self.skip).min(piece.len());
        let mut piece = piece.split_off(before);
        if let Some(left) = &mut self.left {
            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left = left.saturating_sub(piece.len() as u64);
        }
        piece
    }
}

/// The next piece, and what is left; an error is the last piece.
async fn next_piece(reading: Option<Reading>) -> Option<(io::Result<Bytes>, Option<Reading>)> {
    let mut reading = reading.filter(|reading| reading.left != Some(0))?;
    let pool = reading.pool.clone();
    let read = pool
        .run(move || {
            let piece = chunks(&mut reading.block, &mut reading.cursor);
            let piece = piece.map(|piece| piece.map(|piece| reading.within_part(piece)));
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
    let format = |medium: &Medium| match medium.media_type.as_str() {
        "image/jpeg" => Some(ImageFormat::Jpeg),
        "image/png" => Some(ImageFormat::Png),
        _ => None,
    };
    let mut pictures = block.manifest.media.iter().enumerate();
    let first = pictures.find_map(|(index, medium)| Some((index, format(medium)?)));
    let (first, format) = first.ok_or(ReviewError::NotAPicture)?;
    let picture = read(block, first, MAX_PICTURE)?;
    scaled(&picture.bytes, format).map_err(|_| ReviewError::NotAPicture)
}

/// A small JPEG of a picture, upright: the camera says in the EXIF how it was held.
fn scaled(picture: &[u8], format: ImageFormat) -> ImageResult<Vec<u8>> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODED);
    let mut reader = ImageReader::with_format(Cursor::new(picture), format);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    limits.reserve(decoder.total_bytes())?;
    // Without EXIF, or with one that cannot be read, the picture is as it is.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let (width, height) = match orientation {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => (THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH),
        _ => (THUMBNAIL_WIDTH, THUMBNAIL_HEIGHT),
    };
    let mut small = DynamicImage::from_decoder(decoder)?.thumbnail(width, height);
    small.apply_orientation(orientation);
    let mut jpeg = Vec::new();
    JpegEncoder::new_with_quality(&mut jpeg, THUMBNAIL_QUALITY).encode_image(&small.into_rgb8())?;
    Ok(jpeg)
}

#[cfg(test)]
mod tests;
