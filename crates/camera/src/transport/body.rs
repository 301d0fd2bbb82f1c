//! Bodies of requests: bytes in memory, or a part of a file that is read while it is sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use tokio::task::spawn_blocking;

/// Bytes of a file in memory at a time.
const PIECE: u64 = 256 * 1024;

/// Body of any request.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Body of a request that has none.
pub(crate) fn empty() -> Body {
    in_memory(Bytes::new())
}

/// Body of bytes in memory.
pub(crate) fn in_memory(bytes: impl Into<Bytes>) -> Body {
    let body = Full::new(bytes.into());
    body.map_err(|never| match never {}).boxed_unsync()
}

/// Bytes of a file from one offset to another.
pub(crate) struct FilePart {
    file: Arc<File>,
    start: u64,
    end: u64,
    /// Error that ended the reading: the request that fails of it must not count as one that the
    /// bearer failed.
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl FilePart {
    pub(crate) fn new(file: Arc<File>, start: u64, end: u64) -> Self {
        Self {
            file,
            start,
            end,
            failed: Arc::default(),
        }
    }

    /// Bytes of the part.
    pub(crate) fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Body that reads a piece when the one before is on its way.
    pub(crate) fn body(&self) -> Body {
        let failed = Arc::clone(&self.failed);
        let pieces = stream::try_unfold((self.start, self.end, Arc::clone(&self.file)), {
            move |(at, end, file)| {
                let failed = Arc::clone(&failed);
                async move {
                    if at >= end {
                        return Ok(None);
                    }
                    let next = end.min(at.saturating_add(PIECE));
                    match read(&file, at, next).await {
                        Ok(piece) => Ok(Some((Frame::data(piece), (next, end, file)))),
                        Err(error) => {
                            let told = io::Error::new(error.kind(), "block cannot be read");
                            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            Err(told)
                        }
                    }
                }
            }
        });
        StreamBody::new(pieces).boxed_unsync()
    }

    /// Error of the disk that broke the body off, once.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take()
    }
}

async fn read(file: &Arc<File>, start: u64, end: u64) -> io::Result<Bytes> {
    let file = Arc::clone(file);
    let len = usize::try_from(end.saturating_sub(start)).map_err(io::Error::other)?;
    let read = spawn_blocking(move || {
        let mut piece = vec![0; len];
        file.read_exact_at(&mut piece, start)?;
        Ok(Bytes::from(piece))
    });
    read.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn part_of_a_file_is_read_in_pieces_and_a_short_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block");
        let content: Vec<u8> = (0..PIECE * 2 + 7).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        let end = content.len() as u64;
        for (start, end) in [(0, end), (5, PIECE), (PIECE, end), (end - 1, end), (3, 3)] {
            let part = FilePart::new(Arc::clone(&file), start, end);
            let read = part.body().collect().await.unwrap().to_bytes();
            assert_eq!(read.len() as u64, part.len());
            let [from, to] = [start, end].map(|at| usize::try_from(at).unwrap());
            assert_eq!(read, content[from..to]);
            assert!(part.failure().is_none());
        }
        let part = FilePart::new(file, 0, end + 1);
        assert!(part.body().collect().await.is_err());
        assert_eq!(part.failure().unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }
}
