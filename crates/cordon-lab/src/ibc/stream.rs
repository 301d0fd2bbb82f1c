//! Data of any size through a cipher with two buffers.
//!
//! The end of the data decides about padding, so the tool always reads one buffer ahead: the
//! buffer at hand is the last one when nothing comes after it.

use std::io::{self, Read, Write};

use ibc::{BLOCK_SIZE, Block};
use zeroize::Zeroizing;

use super::transform::{FaultFound, Transform};

/// Bytes of a buffer, a multiple of a block: long enough for the parallel back ends, short enough
/// to stay in the second-level cache.
pub(super) const BUFFER: usize = 256 * 1024;
const _: () = assert!(BUFFER.is_multiple_of(BLOCK_SIZE));

/// Treatment of the end of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Encryption appends PKCS#7.
    Pad,
    /// Decryption takes PKCS#7 away.
    Unpad,
    /// The data has whole blocks.
    Whole,
    /// Counter mode takes any length.
    Any,
}

/// Amounts that went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Bytes read behind the header.
    pub(super) read: u64,
    /// Bytes written behind the header.
    pub(super) written: u64,
}

/// Why a stream broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("cannot read")]
    Read(#[source] io::Error),
    #[error("cannot write")]
    Write(#[source] io::Error),
    /// A cut file, or one that never was one of ours.
    #[error("the data has {0} bytes, not a multiple of 32")]
    Length(u64),
    /// Padded data has at least one block.
    #[error("there is no data: even an empty file has one block of padding")]
    Empty,
    /// One message for everything that can be wrong with it.
    #[error("the padding at the end is wrong")]
    Padding,
    #[error("block {block}: {fault}")]
    Fault {
        /// Counted from 0.
        block: u64,
        /// Difference that was found.
        fault: FaultFound,
    },
    #[error("interrupted")]
    Interrupted,
}

/// Reads all in pieces of `buffer` bytes, transforms it and writes it; `progress` gets the bytes read so far and says whether
/// to go on.
pub(super) fn pump(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    transform: &mut dyn Transform,
    ending: Ending,
    buffer: usize,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Totals, StreamError> {
    let mut totals = Totals::default();
    // Room for one block of padding behind the data.
    let room = || Zeroizing::new(vec![0; buffer + BLOCK_SIZE]);
    let (mut current, mut ahead) = (room(), room());
    let mut filled = fill(reader, &mut current, buffer)?;
    loop {
        let next = if filled == buffer {
            fill(reader, &mut ahead, buffer)?
        } else {
            0
        };
        let is_last = next == 0;
        let before = totals.read;
        totals.read += filled as u64;
        let bytes = if is_last {
            last(&mut current, filled, transform, ending, totals.read)
        } else {
            let data = current.get_mut(..filled).unwrap_or_default();
            transform.apply(data).map(|()| &*data).map_err(Into::into)
        };
        let bytes = bytes.map_err(|e| e.at_block(before / BLOCK_SIZE as u64))?;
        writer.write_all(bytes).map_err(StreamError::Write)?;
        totals.written += bytes.len() as u64;
        if !progress(totals.read) {
            return Err(StreamError::Interrupted);
        }
        if is_last {
            writer.flush().map_err(StreamError::Write)?;
            return Ok(totals);
        }
        std::mem::swap(&mut current, &mut ahead);
        filled = next;
    }
}

/// Transforms the last `filled` bytes of the data, `total` in all, and returns what to write.
fn last<'a>(
    buffer: &'a mut [u8],
    filled: usize,
    transform: &mut dyn Transform,
    ending: Ending,
    total: u64,
) -> Result<&'a [u8], StreamError> {
    let whole = filled.is_multiple_of(BLOCK_SIZE);
    let len = match ending {
        Ending::Pad => filled - filled % BLOCK_SIZE + BLOCK_SIZE,
        Ending::Unpad if total == 0 => return Err(StreamError::Empty),
        Ending::Unpad | Ending::Whole if !whole => return Err(StreamError::Length(total)),
        Ending::Unpad | Ending::Whole | Ending::Any => filled,
    };
    let data = buffer.get_mut(..len).unwrap_or_default();
    if ending == Ending::Pad
        && let Some(block) = data.last_chunk_mut::<BLOCK_SIZE>()
    {
        ibc::padding::pad(filled, block);
    }
    transform.apply(data)?;
    if ending != Ending::Unpad {
        return Ok(data);
    }
    let block: &Block = data.last_chunk().ok_or(StreamError::Empty)?;
    let payload = ibc::padding::unpad(block).map_err(|_| StreamError::Padding)?;
    Ok(data.get(..len - BLOCK_SIZE + payload).unwrap_or_default())
}

/// Reads until `limit` bytes are there or the input ends.
fn fill(reader: &mut dyn Read, buffer: &mut [u8], limit: usize) -> Result<usize, StreamError> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..limit)
        && !room.is_empty()
    {
        match reader.read(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(StreamError::Read(e)),
        }
    }
    Ok(filled)
}

impl StreamError {
    /// Counts a fault's block from the start of the data instead of the buffer's.
    fn at_block(self, first: u64) -> Self {
        match self {
            Self::Fault { block, fault } => Self::Fault {
                block: first + block,
                fault,
            },
            other => other,
        }
    }
}

impl From<(u64, FaultFound)> for StreamError {
    fn from((block, fault): (u64, FaultFound)) -> Self {
        Self::Fault { block, fault }
    }
}
