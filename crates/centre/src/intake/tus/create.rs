//! Creation of an upload, with or without its bytes.

use axum::body::{Body, HttpBody as _};
use axum::extract::{ConnectInfo, Extension, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use error_report::Report;
use futures_util::StreamExt as _;
use http::header::{EXPECT, LOCATION};
use http::{HeaderMap, StatusCode};
use std::net::SocketAddr;
use std::time::Duration;
use time::OffsetDateTime;

use super::super::Intake;
use super::super::append::OnCut;
use super::super::checksum::Checksum;
use super::super::upload::{Outcome, Upload, UploadError};
use super::{
    BASE, RECEIPT, RECEIPT_WAIT, UPLOAD_CHECKSUM, UPLOAD_EXPIRES, UPLOAD_LENGTH, UPLOAD_METADATA,
    UPLOAD_OFFSET, bad_header, check_content_type, check_version, expires, number, receipt_answer,
    receive, refused,
};
use crate::device::Device;
use crate::problem::Problem;

/// Metadata is a handful of short pairs.
const MAX_METADATA: usize = 4096;
/// Bytes read of a refused creation: as many as a camera sends with an announcement.
const DRAINED: usize = 8 << 20;
/// Time for that: what a camera sends at once takes its bearer two seconds.
const DRAINING: Duration = Duration::from_secs(10);

pub(super) async fn create(
    State(intake): State<Intake>,
    device: Device,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let from = from.map(|Extension(ConnectInfo(peer))| peer.ip().to_string());
    let request = Creation::parse(&headers, &body)?;
    let mut body = request.brings_bytes.then_some(body);
    let created = request.create(&intake, &device, from).await;
    // Whoever asked whether to send has not sent.
    let asked = headers.contains_key(EXPECT);
    let upload = match created {
        Ok(Created::Upload(upload)) => upload,
        Ok(Created::Known(address)) => {
            drain(body.filter(|_| !asked)).await;
            return Ok((StatusCode::OK, [(RECEIPT, address)]).into_response());
        }
        Err(problem) => {
            drain(body.filter(|_| !asked)).await;
            return Err(problem);
        }
    };
    let place = [(LOCATION, format!("{BASE}/{}", upload.id))];
    let expires = [(UPLOAD_EXPIRES, expires(&upload)?)];
    let Some(body) = body.take() else {
        if upload.size == 0 {
            intake.settle_soon(upload);
        }
        return Ok((StatusCode::CREATED, place, expires).into_response());
    };
    let complete = upload.size;
    let id = upload.id.clone();
    let offset = receive_first(&intake, upload, request.checksum, body).await?;
    let arrived = [(UPLOAD_OFFSET, offset.to_string())];
    if offset == complete && request.wants_receipt {
        // Whatever else became of it is asked for at the upload's address.
        if let Ok(Outcome::Receipt(cms)) = intake.outcome(&id, &device, RECEIPT_WAIT).await {
            let receipt = receipt_answer(cms);
            return Ok((StatusCode::CREATED, place, expires, arrived, receipt).into_response());
        }
    }
    Ok((StatusCode::CREATED, place, expires, arrived).into_response())
}

/// The request that announces an upload.
struct Creation {
    size: u64,
    metadata: String,
    block_sha256: Option<String>,
    wants_receipt: bool,
    brings_bytes: bool,
    checksum: Option<Checksum>,
}

enum Created {
    Upload(Upload),
    /// Address of the receipt that the block has.
    Known(String),
}

impl Creation {
    fn parse(headers: &HeaderMap, body: &Body) -> Result<Self, Problem> {
        check_version(headers)?;
        let size = number(headers, &UPLOAD_LENGTH)?;
        let metadata = headers.get(UPLOAD_METADATA).map_or(Ok(""), |v| {
            v.to_str()
                .map_err(|_| bad_header(&UPLOAD_METADATA, "not printable ASCII"))
        })?;
        let brings_bytes = !body.is_end_stream();
        if brings_bytes {
            check_content_type(headers)?;
            if body.size_hint().lower() > size {
                return Err(UploadError::TooLong(size).into());
            }
        }
        let checksum = headers.get(UPLOAD_CHECKSUM).filter(|_| brings_bytes);
        Ok(Self {
            size,
            metadata: metadata.to_owned(),
            block_sha256: announced_hash(metadata)?,
            wants_receipt: headers.contains_key(RECEIPT),
            brings_bytes,
            checksum: checksum.map(Checksum::parse).transpose()?,
        })
    }

    async fn create(
        &self,
        intake: &Intake,
        device: &Device,
        from: Option<String>,
    ) -> Result<Created, Problem> {
        if let Some(hash) = &self.block_sha256
            && self.wants_receipt
            && intake.receipt_of_block(hash, device).await?.is_some()
        {
            let address = format!("/intake/v1/blocks/{hash}/receipt");
            return Ok(Created::Known(address));
        }
        let (block_sha256, metadata) = (self.block_sha256.clone(), self.metadata.clone());
        let now = OffsetDateTime::now_utc();
        let uploads = intake.uploads();
        let upload = uploads.announced(&device.0, self.size, block_sha256, metadata, from, now);
        let upload = upload.map_err(|e| Problem::internal(&e))?;
        match intake.create_upload(upload, now).await {
            Ok(upload) => Ok(Created::Upload(upload)),
            Err(error) => Err(refused(intake, device, error).await),
        }
    }
}

/// Takes the bytes that came with the announcement. If they are cut, nothing stays of the upload: nobody has learnt its address.
async fn receive_first(
    intake: &Intake,
    upload: Upload,
    checksum: Option<Checksum>,
    body: Body,
) -> Result<u64, Problem> {
    let intake = intake.clone();
    // A task of its own, as this request ends with its connection.
    let received = tokio::spawn(async move {
        let received = receive(&intake, &upload, 0, checksum, OnCut::TakeBack, body).await;
        if received.is_err()
            && let Err(error) = intake.uploads().remove(&upload.id, &upload.device).await
        {
            tracing::debug!(error = %Report(&error), "an upload that was cut stays until it expires");
        }
        received
    });
    received.await.map_err(|e| Problem::internal(&e))?
}

/// Reads what a refused request still brings, as far as [`DRAINED`] and for [`DRAINING`]: a client that sends is deaf to an answer,
/// and learns of a closed connection only.
async fn drain(body: Option<Body>) {
    let Some(body) = body else { return };
    let read = async {
        let mut parts = body.into_data_stream();
        let mut drained = 0_usize;
        while let Some(Ok(part)) = parts.next().await {
            drained = drained.saturating_add(part.len());
            if drained > DRAINED {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DRAINING, read).await;
}

/// The metadata value `sha256`: base64 of 64 hexadecimal digits.
fn announced_hash(metadata: &str) -> Result<Option<String>, Problem> {
    if metadata.len() > MAX_METADATA {
        return Err(bad_header(&UPLOAD_METADATA, "longer than 4096 bytes"));
    }
    let Some(value) = metadata.split(',').find_map(|pair| {
        let (key, value) = pair.trim().split_once(' ')?;
        (key == "sha256").then_some(value)
    }) else {
        return Ok(None);
    };
    let text = BASE64
        .decode(value)
        .ok()
        .and_then(|b| String::from_utf8(b).ok());
    text.filter(|t| t.parse::<store::ObjectId>().is_ok())
        .map(|t| Some(t.to_ascii_lowercase()))
        .ok_or_else(|| bad_header(&UPLOAD_METADATA, "sha256 is not 64 hexadecimal digits"))
}
