//! The tus 1.0 resumable upload protocol over HTTP: core, creation, creation with upload, checksum,
//! expiration and termination (<https://tus.io/protocols/resumable-upload>).
//!
//! Additions of ours, invisible to other clients: each upload has a `receipt` below its address; and a
//! creation with the header `Cordon-Receipt` is answered with the address of the receipt if the block
//! announced by the metadata key `sha256` is archived already (others get an upload as always, and the same
//! receipt at its end), and with the receipt itself if it brought the whole block.
//!
//! An upload whose block is settled is gone from the journal. To its sender it is complete.
//!
//! Not offered: `X-HTTP-Method-Override`, which the protocol has for browsers that cannot send
//! PATCH; a camera can.

mod create;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::time::Duration;
use time::format_description::well_known::Rfc2822;

use super::Intake;
use super::append::OnCut;
use super::checksum::Checksum;
use super::upload::{Outcome, Upload, UploadError};
use crate::device::Device;
use crate::problem::Problem;

pub(crate) const BASE: &str = "/intake/v1/files";
/// Version of the protocol, sent with every answer.
const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const UPLOAD_CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
const RECEIPT: HeaderName = HeaderName::from_static("cordon-receipt");
/// A sender that is silent for this long is gone. There is no other limit on how long a part takes: a
/// camera on a bearer of some kbit/s gets on, and its next connection need not wait for this one
/// ([`super::Uploads::end_silent`]).
const IDLE: Duration = Duration::from_secs(60);
/// How long a request for a receipt waits for the verdict before it is told to come back.
const RECEIPT_WAIT: Duration = Duration::from_secs(15);

/// The routes below [`BASE`]; requests carry a [`Device`] extension.
pub(crate) fn router(intake: Intake) -> Router {
    Router::new()
        .route(BASE, post(create::create).options(options))
        .route(
            &format!("{BASE}/{{id}}"),
            get(status_not_offered)
                .head(offset)
                .patch(append)
                .delete(terminate)
                .options(options),
        )
        .route(&format!("{BASE}/{{id}}/receipt"), get(receipt))
        .route("/intake/v1/blocks/{sha256}/receipt", get(block_receipt))
        // Parts are streamed to disk and bounded by the announced size.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::map_response(add_version))
        .with_state(intake.clone())
        .merge(super::journal::router(intake))
}

async fn add_version(mut response: Response) -> Response {
    let refused = response.status() == StatusCode::PRECONDITION_FAILED;
    let headers = response.headers_mut();
    headers.insert(TUS_RESUMABLE, VERSION);
    if refused {
        // The protocol: a server that refuses a version MUST say which it speaks.
        headers.insert(TUS_VERSION, VERSION);
    }
    response
}

async fn options(State(intake): State<Intake>, _admitted: Device) -> Response {
    let fixed = [
        ("tus-version", "1.0.0"),
        (
            "tus-extension",
            "creation,creation-with-upload,checksum,expiration,termination",
        ),
        ("tus-checksum-algorithm", "sha256,sha1"),
    ];
    let max = [("tus-max-size", intake.limits().max_block.to_string())];
    (StatusCode::NO_CONTENT, fixed, max).into_response()
}

/// A GET of an upload is no part of the protocol; sealed bytes are not given back here.
async fn status_not_offered() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        "uploads are not readable",
        "use HEAD for the offset",
    )
}

/// The answer to an upload that is refused, after it was noted.
async fn refused(intake: &Intake, device: &Device, error: UploadError) -> Problem {
    intake.note_refusal(&device.0, &error).await;
    error.into()
}

async fn offset(
    State(intake): State<Intake>,
    device: Device,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    check_version(&headers)?;
    let (upload, offset) = match offset_of(&intake, &id, &device).await {
        Ok(found) => found,
        // Settled, maybe this moment.
        Err(UploadError::Unknown) => {
            let size = intake.settled_size(&id, &device).await?;
            let size = size.ok_or(UploadError::Unknown)?.to_string();
            let complete = [(UPLOAD_OFFSET, size.clone()), (UPLOAD_LENGTH, size)];
            return Ok((StatusCode::OK, complete, [(CACHE_CONTROL, "no-store")]).into_response());
        }
        Err(error) => return Err(error.into()),
    };
    let mut answer = (
        StatusCode::OK,
        [
            (UPLOAD_OFFSET, offset.to_string()),
            (UPLOAD_LENGTH, upload.size.to_string()),
            (UPLOAD_EXPIRES, expires(&upload)?),
        ],
        [(CACHE_CONTROL, "no-store")],
    )
        .into_response();
    if !upload.metadata.is_empty()
        && let Ok(value) = HeaderValue::from_str(&upload.metadata)
    {
        answer.headers_mut().insert(UPLOAD_METADATA, value);
    }
    Ok(answer)
}

async fn offset_of(
    intake: &Intake,
    id: &str,
    device: &Device,
) -> Result<(Upload, u64), UploadError> {
    intake.uploads().find(id, &device.0).await?;
    intake.uploads().end_silent(id).await;
    intake.take_up(id, device).await?;
    intake.uploads().find(id, &device.0).await
}

async fn append(
    State(intake): State<Intake>,
    device: Device,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    check_version(&headers)?;
    check_content_type(&headers)?;
    let offset = number(&headers, &UPLOAD_OFFSET)?;
    let checksum = headers
        .get(UPLOAD_CHECKSUM)
        .map(Checksum::parse)
        .transpose()?;
    let upload = match intake.uploads().find(&id, &device.0).await {
        Ok((upload, _)) => upload,
        Err(UploadError::Unknown) => {
            let size = intake.settled_size(&id, &device).await?;
            return append_nothing(offset, size.ok_or(UploadError::Unknown)?, body).await;
        }
        Err(error) => return Err(error.into()),
    };
    let announced = body.size_hint().exact().unwrap_or_default();
    if offset.saturating_add(announced) > upload.size {
        // Before the first byte, where the request says how many there are.
        return Err(UploadError::TooLong(upload.size).into());
    }
    let on_cut = if checksum.is_some() {
        OnCut::TakeBack
    } else {
        OnCut::Keep
    };
    let offset = receive(&intake, &upload, offset, checksum, on_cut, body).await?;
    let headers = [
        (UPLOAD_OFFSET, offset.to_string()),
        (UPLOAD_EXPIRES, expires(&upload)?),
    ];
    Ok((StatusCode::NO_CONTENT, headers).into_response())
}

/// The answer to a part of an upload that is complete: whoever sends nothing more is right.
async fn append_nothing(offset: u64, size: u64, body: Body) -> Result<Response, Problem> {
    if offset != size {
        return Err(UploadError::WrongOffset(size).into());
    }
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        if part.map_or(true, |part| !part.is_empty()) {
            return Err(UploadError::TooLong(size).into());
        }
    }
    Ok((StatusCode::NO_CONTENT, [(UPLOAD_OFFSET, size.to_string())]).into_response())
}

/// Another connection goes on with the upload.
#[derive(Debug, thiserror::Error)]
#[error("another connection goes on with the upload")]
struct Superseded;

/// Streams the body to the end of the upload's file and returns the new offset.
async fn receive(
    intake: &Intake,
    upload: &Upload,
    offset: u64,
    mut checksum: Option<Checksum>,
    on_cut: OnCut,
    body: Body,
) -> Result<u64, Problem> {
    let mut append = match intake.uploads().append(upload, offset, on_cut) {
        Ok(append) => append,
        Err(error) => return Err(refused(intake, &Device(upload.device.clone()), error).await),
    };
    let mut parts = body.into_data_stream();
    let superseded = append.superseded();
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(IDLE, parts.next()) => next,
            () = superseded.cancelled() => Ok(Some(Err(axum::Error::new(Superseded)))),
        };
        let cut = match next {
            Ok(None) => break,
            Ok(Some(Ok(part))) => {
                if let Some(checksum) = &mut checksum {
                    checksum.update(&part);
                }
                if let Err(error) = append.write(&part) {
                    // Of a refused request nothing stays.
                    let device = Device(upload.device.clone());
                    let taken_back = intake.pool().run(move || append.take_back()).await;
                    taken_back.map_err(|e| Problem::internal(&e))??;
                    return Err(refused(intake, &device, error).await);
                }
                if append.is_ahead() {
                    // The next bytes come meanwhile: at the end nobody would send any while the disk works.
                    let synced = intake.pool().run(move || append.sync()).await;
                    append = synced.map_err(|e| Problem::internal(&e))??;
                }
                continue;
            }
            Ok(Some(Err(_))) => cut("the connection broke, or another goes on"),
            Err(_) => cut("nothing came for a minute"),
        };
        // Keeping or taking back waits for the disk.
        let _ = intake.pool().run(move || drop(append)).await;
        return Err(cut);
    }
    if let Some(checksum) = checksum
        && !checksum.matches()
    {
        append.take_back()?;
        return Err(Problem::new(
            // "460 Checksum Mismatch" of the protocol.
            StatusCode::from_u16(460).unwrap_or(StatusCode::BAD_REQUEST),
            "checksum-mismatch",
            "the bytes do not have the announced checksum; they were discarded",
            "send the part again",
        ));
    }
    // A data sync takes a fraction of a millisecond on a healthy disk and seconds on a sick one.
    // The thread also starts the settlement: it goes on when this request is dropped.
    let pool = intake.pool();
    let (intake, upload) = (intake.clone(), upload.clone());
    let commit = move || {
        let offset = append.commit()?;
        if offset == upload.size {
            intake.settle_soon(upload);
        }
        Ok::<_, UploadError>(offset)
    };
    Ok(pool
        .run(commit)
        .await
        .map_err(|e| Problem::internal(&e))??)
}

async fn terminate(
    State(intake): State<Intake>,
    device: Device,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    check_version(&headers)?;
    intake.uploads().remove(&id, &device.0).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn receipt(
    State(intake): State<Intake>,
    device: Device,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    match intake.outcome(&id, &device, RECEIPT_WAIT).await? {
        Outcome::Receipt(cms) => Ok(receipt_answer(cms)),
        Outcome::Pending => Ok((StatusCode::ACCEPTED, [(RETRY_AFTER, "1")]).into_response()),
        Outcome::Discarded(code) => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            &code,
            "the bytes that arrived are not the announced block; they were discarded",
            "upload the block again",
        )),
    }
}

async fn block_receipt(
    State(intake): State<Intake>,
    device: Device,
    Path(sha256): Path<String>,
) -> Result<Response, Problem> {
    let cms = intake.receipt_of_block(&sha256, &device).await?;
    cms.map(receipt_answer)
        .ok_or_else(|| Problem::not_found("block"))
}

fn receipt_answer(cms: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, "application/pkcs7-mime")], cms).into_response()
}

/// Protocol section "Tus-Resumable": a version we do not speak is answered with 412.
fn check_version(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(TUS_RESUMABLE) == Some(&VERSION) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "wrong-tus-version",
        "this server speaks tus 1.0.0",
        "send the header Tus-Resumable: 1.0.0",
    ))
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    if headers
        .get(CONTENT_TYPE)
        .is_some_and(|t| t == "application/offset+octet-stream")
    {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "wrong-content-type",
        "bytes of an upload have the content type application/offset+octet-stream",
        "set the content type",
    ))
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64, Problem> {
    let value = headers
        .get(name)
        .ok_or_else(|| bad_header(name, "missing"))?;
    value
        .to_str()
        .ok()
        // `u64::from_str` would also take a leading plus sign.
        .filter(|v| v.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|v| v.parse().ok())
        .ok_or_else(|| bad_header(name, "not a number"))
}

fn bad_header(name: &HeaderName, what: &str) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "bad-header",
        format!("header {name}: {what}"),
        "see the tus 1.0 protocol",
    )
}

fn expires(upload: &Upload) -> Result<String, Problem> {
    // RFC 9110 wants "GMT", which the library's RFC 2822 format spells "+0000".
    let text = upload
        .expires_at
        .format(&Rfc2822)
        .map_err(|e| Problem::internal(&e))?;
    Ok(text.replace("+0000", "GMT"))
}

fn cut(message: &str) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "upload-cut",
        message,
        "ask for the offset with HEAD and continue there",
    )
}

impl From<UploadError> for Problem {
    fn from(error: UploadError) -> Self {
        let message = error.to_string();
        let answer = |status, code, hint| Self::new(status, code, message.clone(), hint);
        match &error {
            UploadError::Unknown => Self::not_found("upload"),
            UploadError::TooLarge { .. } => answer(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-large",
                "raise max_block at the centre",
            ),
            UploadError::TooLong(_) => answer(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-long",
                "announce the right size",
            ),
            UploadError::TooMany(_) => answer(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-uploads",
                "finish or terminate unfinished uploads first",
            ),
            UploadError::TooFast { retry_after } => answer(
                StatusCode::TOO_MANY_REQUESTS,
                "too-fast",
                "wait for the next hour",
            )
            .retry_after(*retry_after),
            UploadError::DayFull { retry_after } => answer(
                StatusCode::TOO_MANY_REQUESTS,
                "day-full",
                "wait, or raise max_bytes_per_day at the centre",
            )
            .retry_after(*retry_after),
            UploadError::QuarantineFull => answer(
                StatusCode::INSUFFICIENT_STORAGE,
                "quarantine-full",
                "look at the camera's blocks in quarantine at the centre",
            ),
            UploadError::NoSpace => answer(
                StatusCode::INSUFFICIENT_STORAGE,
                "no-space",
                "keep the data and try again later",
            ),
            UploadError::Busy => answer(
                StatusCode::LOCKED,
                "upload-locked",
                "wait a moment and try again",
            ),
            UploadError::WrongOffset(_) => answer(
                StatusCode::CONFLICT,
                "wrong-offset",
                "ask for the offset with HEAD",
            ),
            UploadError::Io(_) | UploadError::Store(_) => Self::internal(&error),
        }
    }
}
