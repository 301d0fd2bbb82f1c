//! The client side of tus 1.0 (<https://tus.io/protocols/resumable-upload>): creation, expiration, and the centre's additions for receipts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use evidence::spool::Entry;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use serde::Deserialize;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::bearer::Bearers;
use crate::transport::{Connection, TransportError};

/// Longest `Retry-After` that is followed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Times that one attempt asks for a receipt that is pending.
const RECEIPT_POLLS: u32 = 20;
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
}

/// Place of the upload at the centre, or the receipt it has already.
enum Created {
    At(String),
    Receipted(String),
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
        let (location, offset) = match self.remembered() {
            Some(location) => match self.offset(connection, &location).await? {
                Some(offset) => (location, offset),
                None => match self.create(connection).await? {
                    Created::At(location) => (location, 0),
                    Created::Receipted(path) => return self.receipt(connection, &path).await,
                },
            },
            None => match self.create(connection).await? {
                Created::At(location) => (location, 0),
                Created::Receipted(path) => return self.receipt(connection, &path).await,
            },
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
        let request = request(Method::POST, self.collection)
            .header("upload-length", self.entry.size)
            .header("upload-metadata", metadata)
            // Of a block that the centre has already, the receipt is all we want.
            .header("cordon-receipt", "1");
        let answer = ask(connection, request, Bytes::new()).await?;
        let unusable = |problem| TusError::Protocol {
            request: REQUEST,
            problem,
        };
        match answer.status() {
            StatusCode::CREATED => {
                let location = header(answer.headers(), "location")
                    .and_then(path_of)
                    .ok_or(unusable("no location"))?;
                self.remember(&location);
                Ok(Created::At(location))
            }
            StatusCode::OK => header(answer.headers(), "cordon-receipt")
                .and_then(path_of)
                .map(Created::Receipted)
                .ok_or(unusable("neither created nor receipted")),
            _ => Err(refused(REQUEST, &answer)),
        }
    }

    /// Bytes the centre has; `None` if it does not know the upload (any more).
    async fn offset(
        &self,
        connection: &mut Connection,
        location: &str,
    ) -> Result<Option<u64>, TusError> {
        const REQUEST: &str = "offset";
        let answer = ask(connection, request(Method::HEAD, location), Bytes::new()).await?;
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
        let mut file = File::open(self.block).await.map_err(TusError::Block)?;
        let mut resyncs: u32 = 0;
        while offset < self.entry.size {
            let chunk = self
                .chunk(
                    &mut file,
                    offset,
                    connection.bearer.part_len(self.chunk_len),
                )
                .await?;
            let (len, part) = (chunk.len(), connection.bearer.send_part());
            let answer = patch(connection, location, offset, chunk).await?;
            if answer.status() == StatusCode::NO_CONTENT {
                self.bearers.measured(&part, len);
            }
            drop(part);
            let lost = match answer.status() {
                StatusCode::NO_CONTENT => {
                    let next = number(answer.headers(), "upload-offset");
                    let next = next.filter(|n| *n > offset && *n <= self.entry.size);
                    offset = next.ok_or(TusError::Protocol {
                        request: "part",
                        problem: "no progress",
                    })?;
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

    async fn chunk(&self, file: &mut File, offset: u64, most: u32) -> Result<Bytes, TusError> {
        let left = self.entry.size.saturating_sub(offset);
        let len = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(usize::try_from(most).unwrap_or(usize::MAX));
        let mut chunk = vec![0; len];
        file.seek(std::io::SeekFrom::Start(offset))
            .await
            .map_err(TusError::Block)?;
        file.read_exact(&mut chunk).await.map_err(TusError::Block)?;
        Ok(Bytes::from(chunk))
    }

    async fn receipt(&self, connection: &mut Connection, path: &str) -> Result<Vec<u8>, TusError> {
        const REQUEST: &str = "receipt";
        for _ in 0..RECEIPT_POLLS {
            let answer = ask(connection, request(Method::GET, path), Bytes::new()).await?;
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

/// Without a checksum of the part: a centre has to throw away what arrived of a part that has one
/// and was cut, and over a slow bearer that is most of what is sent. TLS guards each record, and the
/// hash with which the upload was announced guards the whole.
async fn patch(
    connection: &mut Connection,
    location: &str,
    offset: u64,
    chunk: Bytes,
) -> Result<Response<Bytes>, TusError> {
    let request = request(Method::PATCH, location)
        .header("content-type", "application/offset+octet-stream")
        .header("upload-offset", offset);
    ask(connection, request, chunk).await
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
    body: Bytes,
) -> Result<Response<Bytes>, TusError> {
    let len = body.len() as u64;
    let request = builder.body(Full::new(body)).map_err(TusError::Request)?;
    Ok(connection.request(request, len).await?)
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
