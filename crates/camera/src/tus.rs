//! The client side of tus 1.0 (<https://tus.io/protocols/resumable-upload>): creation, creation with upload,
//! expiration, and the centre's additions for receipts.
//!
//! A block that a fast bearer takes at once goes in one request, which is answered with the receipt:
//!
//! ```text
//! POST files, all bytes           ───►
//!                                 ◄───  201, the receipt
//! ```
//!
//! Any other goes in parts, so that what arrived before a cut counts:
//!
//! ```text
//! POST files                      ───►
//!                                 ◄───  201, Location
//! PATCH Location, a part          ───►  as often as needed
//!                                 ◄───  204, Upload-Offset
//! GET Location/receipt            ───►
//!                                 ◄───  200, the receipt
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use evidence::spool::Entry;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use serde::Deserialize;

use crate::bearer::Bearers;
use crate::transport::body::{self, Body, FilePart};
use crate::transport::{Connection, TransportError};

/// Longest `Retry-After` that is followed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Times that one attempt asks for a receipt that is pending. Who has none by then, for want of room in the quarantine or of a
/// scanner, may take long: others have the turn.
const RECEIPT_POLLS: u32 = 4;
/// Media type of a part of an upload.
const OFFSET_STREAM: &str = "application/offset+octet-stream";
/// Times that one attempt goes back to the server's offset before it gives up.
const MAX_RESYNCS: u32 = 8;

/// Why an upload did not end with a receipt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TusError {
    #[error("cannot reach the centre")]
    Transport(#[from] TransportError),
    #[error("centre answered {status} to {request}: {code}")]
    Status {
        request: &'static str,
        status: StatusCode,
        code: String,
        retry_after: Option<Duration>,
    },
    #[error("centre's answer to {request} is unusable: {problem}")]
    Protocol {
        request: &'static str,
        problem: &'static str,
    },
    #[error("centre has not written the receipt yet")]
    Pending,
    #[error("centre discarded the bytes: {code}")]
    Discarded { code: String },
    #[error("cannot read the block")]
    Block(#[source] std::io::Error),
    #[error("cannot build a request")]
    Request(#[source] http::Error),
}

/// Body of an error answer; `receipt` is the signed receipt of a quarantined block.
#[derive(Debug, Default, Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    receipt: Option<String>,
}

/// Blocks that may be given to the centre with their announcement.
///
/// Only those that are announced for the first time: what became of the others the centre says when they are announced
/// again. A centre that refuses does so after it got all bytes: some blocks, twice as many after each refusal, are
/// then only announced before it is tried again.
#[derive(Default)]
pub(crate) struct AtOnce(Mutex<Attempts>);

#[derive(Default)]
struct Attempts {
    /// Numbers of the blocks that were announced by this process and are in the spool.
    announced: BTreeSet<u64>,
    /// Refusals one after the other.
    refusals: u32,
    /// Announcements that go without bytes.
    without: u32,
}

impl AtOnce {
    /// Most announcements that go without bytes after a refusal.
    const MOST: u32 = 64;

    fn lock(&self) -> MutexGuard<'_, Attempts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of an announcement; whether it may bring the block.
    fn begin(&self, sequence: u64) -> bool {
        let mut attempts = self.lock();
        attempts.announced.insert(sequence) && attempts.without == 0
    }

    fn refused(&self) {
        let mut attempts = self.lock();
        attempts.refusals = attempts.refusals.saturating_add(1);
        attempts.without = 2_u32.saturating_pow(attempts.refusals).min(Self::MOST);
    }

    fn taken(&self) {
        self.lock().refusals = 0;
    }

    fn announced(&self) {
        let mut attempts = self.lock();
        attempts.without = attempts.without.saturating_sub(1);
    }

    /// The centre is of a version that does not look at the bytes: none go in vain as long as this process runs.
    fn not_understood(&self) {
        self.lock().without = u32::MAX;
    }

    /// The block is gone, by a receipt or otherwise.
    pub(crate) fn done(&self, sequence: u64) {
        self.lock().announced.remove(&sequence);
    }
}

/// An upload under way.
pub(crate) struct Upload<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) device: &'a str,
    pub(crate) block: &'a Path,
    /// File that remembers the upload's address across restarts.
    pub(crate) memory: PathBuf,
    /// Path of the upload collection.
    pub(crate) collection: &'a str,
    pub(crate) chunk_len: u32,
    pub(crate) bearers: &'a Bearers,
    pub(crate) at_once: &'a AtOnce,
}

/// Answer of the centre to the announcement of a block.
enum Created {
    /// The upload's address, and the bytes that came with the announcement.
    At(String, u64),
    /// Address of the receipt that was given for this block before.
    Known(String),
    Receipt(Vec<u8>),
}

impl Upload<'_> {
    /// Brings the block to the centre, from wherever an earlier attempt stopped, and fetches the
    /// signed receipt.
    ///
    /// `on_uploaded` is called when the last byte is acknowledged.
    pub(crate) async fn run(
        &self,
        connection: &mut Connection,
        on_uploaded: impl FnOnce(),
    ) -> Result<Vec<u8>, TusError> {
        let resumed = match self.remembered() {
            Some(location) => {
                let offset = self.offset(connection, &location).await?;
                offset.map(|offset| Created::At(location, offset))
            }
            None => None,
        };
        let created = match resumed {
            Some(resumed) => resumed,
            None => self.create(connection).await?,
        };
        let (location, offset) = match created {
            Created::At(location, offset) => (location, offset),
            Created::Known(path) => return self.receipt(connection, &path).await,
            Created::Receipt(receipt) => {
                on_uploaded();
                return Ok(receipt);
            }
        };
        self.send(connection, &location, offset).await?;
        on_uploaded();
        let receipt = self
            .receipt(connection, &format!("{location}/receipt"))
            .await;
        if matches!(receipt, Err(TusError::Discarded { .. })) {
            self.forget();
        }
        receipt
    }

    fn remembered(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.memory).ok()?;
        let (hash, location) = text.trim_end().split_once(' ')?;
        let ours = hash == self.entry.block_sha256.to_string();
        (ours && location.starts_with('/')).then(|| location.to_owned())
    }

    fn remember(&self, location: &str) {
        // Losing this file costs sending some bytes again, so it is not synchronised.
        let text = format!("{} {location}\n", self.entry.block_sha256);
        if let Err(error) = std::fs::write(&self.memory, text) {
            tracing::debug!(%error, "address of the upload not remembered");
        }
    }

    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_file(&self.memory);
    }

    async fn create(&self, connection: &mut Connection) -> Result<Created, TusError> {
        const REQUEST: &str = "creation";
        let encode = |text: &str| STANDARD.encode(text);
        let metadata = format!(
            "sha256 {},device {},sequence {},receipt {}",
            encode(&self.entry.block_sha256.to_string()),
            encode(self.device),
            encode(&self.entry.sequence.to_string()),
            // The newest form of receipt that is understood here.
            encode("2"),
        );
        let mut request = request(Method::POST, self.collection)
            .header("upload-length", self.entry.size)
            .header("upload-metadata", metadata)
            // Of a block that the centre has already, the receipt is all we want.
            .header("cordon-receipt", "1");
        let whole = self.at_once.begin(self.entry.sequence)
            && connection
                .bearer
                .takes_at_once(self.entry.size, self.chunk_len);
        let answer = if whole {
            request = request.header("content-type", OFFSET_STREAM);
            self.send_part(connection, request, 0, self.entry.size)
                .await?
        } else {
            ask(connection, request, body::empty(), 0).await?
        };
        let unusable = |problem| TusError::Protocol {
            request: REQUEST,
            problem,
        };
        match answer.status() {
            StatusCode::CREATED if whole && is_receipt(&answer) => {
                self.at_once.taken();
                Ok(Created::Receipt(answer.into_body().to_vec()))
            }
            StatusCode::CREATED => {
                let location = header(answer.headers(), "location")
                    .and_then(path_of)
                    .ok_or(unusable("no location"))?;
                self.remember(&location);
                let offset = number(answer.headers(), "upload-offset");
                match (whole, offset) {
                    (true, Some(_)) => self.at_once.taken(),
                    (true, None) => self.at_once.not_understood(),
                    (false, _) => self.at_once.announced(),
                }
                let offset = offset.filter(|_| whole).unwrap_or(0);
                Ok(Created::At(location, offset.min(self.entry.size)))
            }
            StatusCode::OK => header(answer.headers(), "cordon-receipt")
                .and_then(path_of)
                .map(Created::Known)
                .ok_or(unusable("neither created nor receipted")),
            _ => {
                if whole {
                    self.at_once.refused();
                }
                Err(refused(REQUEST, &answer))
            }
        }
    }

    /// Bytes the centre has; `None` if it does not know the upload (any more).
    async fn offset(
        &self,
        connection: &mut Connection,
        location: &str,
    ) -> Result<Option<u64>, TusError> {
        const REQUEST: &str = "offset";
        let answer = ask(
            connection,
            request(Method::HEAD, location),
            body::empty(),
            0,
        )
        .await?;
        match answer.status() {
            StatusCode::OK | StatusCode::NO_CONTENT => {
                let offset = number(answer.headers(), "upload-offset");
                let offset = offset.filter(|o| *o <= self.entry.size);
                offset.map(Some).ok_or(TusError::Protocol {
                    request: REQUEST,
                    problem: "no offset, or one beyond the end",
                })
            }
            StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN => {
                self.forget();
                Ok(None)
            }
            _ => Err(refused(REQUEST, &answer)),
        }
    }

    async fn send(
        &self,
        connection: &mut Connection,
        location: &str,
        mut offset: u64,
    ) -> Result<(), TusError> {
        let mut resyncs: u32 = 0;
        while offset < self.entry.size {
            let most = u64::from(connection.bearer.part_len(self.chunk_len));
            let end = self.entry.size.min(offset.saturating_add(most));
            // Without a checksum of the part: a centre has to throw away what arrived of a part that has
            // one and was cut, and over a slow bearer that is most of what is sent. TLS guards each record,
            // and the hash with which the upload was announced guards the whole.
            let request = request(Method::PATCH, location)
                .header("content-type", OFFSET_STREAM)
                .header("upload-offset", offset);
            let answer = self.send_part(connection, request, offset, end).await?;
            let lost = match answer.status() {
                StatusCode::NO_CONTENT => {
                    let next = number(answer.headers(), "upload-offset");
                    let next = next.filter(|n| *n > offset && *n <= self.entry.size);
                    offset = next.ok_or(TusError::Protocol {
                        request: "part",
                        problem: "no progress",
                    })?;
                    // A centre that takes a little of each part would have the rest sent again and again.
                    if offset != end {
                        resyncs = resyncs.saturating_add(1);
                    }
                    if resyncs > MAX_RESYNCS {
                        return Err(TusError::Protocol {
                            request: "part",
                            problem: "takes less than it is sent",
                        });
                    }
                    false
                }
                // Damaged on the way (460 of the checksum extension), or the two ends disagree.
                s if s.as_u16() == 460 || s == StatusCode::CONFLICT => true,
                StatusCode::LOCKED => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    true
                }
                StatusCode::NOT_FOUND | StatusCode::GONE => {
                    // Expired: the next attempt creates it anew.
                    self.forget();
                    return Err(refused("part", &answer));
                }
                _ => return Err(refused("part", &answer)),
            };
            if lost {
                resyncs = resyncs.saturating_add(1);
                if resyncs > MAX_RESYNCS {
                    return Err(refused("part", &answer));
                }
                offset = self
                    .offset(connection, location)
                    .await?
                    .ok_or_else(|| refused("part", &answer))?;
            }
        }
        Ok(())
    }

    /// Sends the block's bytes from `start` to `end`, and notes what the bearer took.
    async fn send_part(
        &self,
        connection: &mut Connection,
        request: http::request::Builder,
        start: u64,
        end: u64,
    ) -> Result<Response<Bytes>, TusError> {
        let file = File::open(self.block).map_err(TusError::Block)?;
        let part = FilePart::new(Arc::new(file), start, end);
        let len = part.len();
        let sending = connection.bearer.send_part();
        let request = request.header("content-length", len);
        let answer = ask(connection, request, part.body(), len).await;
        if let Some(error) = part.failure() {
            return Err(TusError::Block(error));
        }
        let answer = answer?;
        if answer.status().is_success() {
            self.bearers.measured(&sending, len);
        }
        Ok(answer)
    }

    async fn receipt(&self, connection: &mut Connection, path: &str) -> Result<Vec<u8>, TusError> {
        const REQUEST: &str = "receipt";
        for _ in 0..RECEIPT_POLLS {
            let answer = ask(connection, request(Method::GET, path), body::empty(), 0).await?;
            match answer.status() {
                StatusCode::OK => return Ok(answer.into_body().to_vec()),
                StatusCode::ACCEPTED => {
                    let pause = retry_after(answer.headers()).unwrap_or(Duration::from_secs(1));
                    tokio::time::sleep(pause).await;
                }
                StatusCode::UNPROCESSABLE_ENTITY => {
                    let problem = problem(&answer);
                    if let Some(receipt) = problem.receipt.and_then(|r| STANDARD.decode(r).ok()) {
                        return Ok(receipt);
                    }
                    return Err(TusError::Discarded { code: problem.code });
                }
                StatusCode::NOT_FOUND | StatusCode::GONE => {
                    self.forget();
                    return Err(refused(REQUEST, &answer));
                }
                _ => return Err(refused(REQUEST, &answer)),
            }
        }
        Err(TusError::Pending)
    }
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("tus-resumable", "1.0.0")
}

async fn ask(
    connection: &mut Connection,
    builder: http::request::Builder,
    body: Body,
    len: u64,
) -> Result<Response<Bytes>, TusError> {
    let request = builder.body(body).map_err(TusError::Request)?;
    Ok(connection.request(request, len).await?)
}

fn is_receipt(answer: &Response<Bytes>) -> bool {
    let receipt = header(answer.headers(), "content-type") == Some("application/pkcs7-mime");
    receipt && !answer.body().is_empty()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    header(headers, name)?.parse().ok()
}

/// Path and query of a reference; the host stays the one we have authenticated.
fn path_of(reference: &str) -> Option<String> {
    let uri: Uri = reference.parse().ok()?;
    let path = uri.path_and_query()?.as_str();
    path.starts_with('/').then(|| path.to_owned())
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = number(headers, "retry-after")?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

fn problem(answer: &Response<Bytes>) -> Problem {
    serde_json::from_slice(answer.body()).unwrap_or_default()
}

fn refused(request: &'static str, answer: &Response<Bytes>) -> TusError {
    TusError::Status {
        request,
        status: answer.status(),
        code: problem(answer).code.chars().take(100).collect(),
        retry_after: retry_after(answer.headers()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_lose_their_host() {
        for (reference, path) in [
            ("/intake/v1/files/x", Some("/intake/v1/files/x")),
            ("https://evil.example/a?b=c", Some("/a?b=c")),
            ("x y", None),
            ("", None),
        ] {
            assert_eq!(path_of(reference).as_deref(), path, "{reference}");
        }
    }

    #[test]
    fn waiting_is_bounded() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert("retry-after", "5".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(5)));
        headers.insert("retry-after", "999999".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(MAX_RETRY_AFTER));
        headers.insert("retry-after", "tomorrow".parse().unwrap());
        assert_eq!(retry_after(&headers), None);
    }
}
