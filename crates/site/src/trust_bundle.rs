//! The trust bundle that cameras fetch: made when asked for, signed again when its content changed.
//!
//! `keys/trust-bundle.json` has the number and content that were signed last. A number is on the disk
//! before a bundle with it leaves the site: cameras refuse two contents under one number, and a number
//! below one they have seen. After a restore from an older copy the next change takes a number from the
//! clock, so that it is larger than all that the lost copy gave out, one per second at most.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use evidence::bundle::{self, TrustBundle};
use evidence::digest::Sha256Digest;
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::sync::Mutex;

use crate::failure::{OrHint as _, Outcome};
use crate::keys::KeyPair;
use crate::trust_state::TrustState;

const HINT: &str = "check the folder keys and the room on its disk";

// What cameras learn of fits into what they take, with the root's list.
const _: () = assert!(registry::TOLD_TO_CAMERAS < bundle::MAX_LISTS);
const _: () = assert!(3 * registry::TOLD_TO_CAMERAS <= bundle::MAX_AUTHORITIES);

/// The last signed bundle.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    version: u64,
    content_sha256: Option<Sha256Digest>,
}

struct Current {
    signed: Signed,
    /// Fingerprint of the signer's certificate, and the message.
    message: Option<(String, Bytes)>,
}

/// The bundles of one site.
pub struct Bundles {
    path: PathBuf,
    /// Held while a bundle is made: a number is given once.
    current: Mutex<Current>,
}

impl Bundles {
    /// Reads which number was given last.
    pub fn open(folder: &Path) -> Outcome<Self> {
        let path = folder.join("trust-bundle.json");
        let what = || format!("cannot read {}", path.display());
        let signed = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).or_hint(
                what(),
                "remove it: the next bundle takes its number from the clock",
            )?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Signed::default(),
            Err(error) => return Err(error).or_hint(what(), HINT),
        };
        Ok(Self {
            path,
            current: Mutex::new(Current {
                signed,
                message: None,
            }),
        })
    }

    /// The bundle with this content and its number, signed by `signer`.
    pub async fn current(
        &self,
        content: Content,
        signer: KeyPair,
        now: OffsetDateTime,
    ) -> Outcome<(u64, Bytes)> {
        let fingerprint = signer.chain.leaf_fingerprint();
        let mut bundle = content.unsigned(now)?;
        let content = bundle
            .content_sha256()
            .or_hint("trust bundle", "report this")?;
        let mut current = self.current.lock().await;
        let same = current.signed.content_sha256 == Some(content);
        if let Some((by, message)) = &current.message
            && same
            && *by == fingerprint
        {
            return Ok((current.signed.version, message.clone()));
        }
        if !same {
            let signed = Signed {
                version: next(current.signed.version, now),
                content_sha256: Some(content),
            };
            self.store(signed).await?;
            current.signed = signed;
        }
        bundle.version = current.signed.version;
        let message = sign(bundle, signer).await?;
        current.message = Some((fingerprint, message.clone()));
        Ok((current.signed.version, message))
    }

    async fn store(&self, signed: Signed) -> Outcome {
        let bytes = serde_json::to_vec(&signed).or_hint("trust bundle", "report this")?;
        let path = self.path.clone();
        let shown = self.path.display().to_string();
        tokio::task::spawn_blocking(move || durable::write_atomic(&path, &bytes, 0o600))
            .await
            .or_hint(format!("cannot write {shown}"), HINT)?
            .or_hint(format!("cannot write {shown}"), HINT)
    }
}

/// One more than the last, or the seconds of the clock if that is more.
fn next(last: u64, now: OffsetDateTime) -> u64 {
    let seconds = u64::try_from(now.unix_timestamp()).unwrap_or(0);
    last.saturating_add(1).max(seconds)
}

async fn sign(bundle: TrustBundle, signer: KeyPair) -> Outcome<Bytes> {
    let signed = tokio::task::spawn_blocking(move || bundle.sign(&signer.key, &signer.chain)).await;
    let signed = signed.or_hint("trust bundle", "try again")?;
    Ok(signed.or_hint("cannot sign the trust bundle", HINT)?.into())
}

/// What cameras learn of their site.
pub struct Content {
    pub recipients: Vec<pki::Certificate>,
    pub authorities: Vec<pki::Certificate>,
    /// Revocation lists in DER.
    pub lists: Vec<Arc<[u8]>>,
    /// The key with which checkpoints of the audit log are verified.
    pub log_key: String,
}

impl Content {
    fn unsigned(self, now: OffsetDateTime) -> Outcome<TrustBundle> {
        let encode = |certificates: &[pki::Certificate]| {
            let encoded = certificates.iter().map(bundle::encoded);
            let encoded: Result<Vec<String>, _> = encoded.collect();
            encoded.or_hint("cannot encode the trust bundle", HINT)
        };
        let lists = self.lists.iter().map(|der| bundle::encoded_list(der));
        Ok(TrustBundle {
            schema: bundle::SCHEMA.to_owned(),
            version: 1,
            issued_at: now.replace_nanosecond(0).unwrap_or(now),
            recipients: encode(&self.recipients)?,
            authorities: encode(&self.authorities)?,
            lists: lists.collect(),
            log_key: self.log_key,
        })
    }
}

/// `GET /intake/v1/trust`, for each client of the listener: nothing in it is secret.
pub fn router(trust: &TrustState) -> Router {
    Router::new()
        .route("/intake/v1/trust", get(answer))
        .with_state(trust.clone())
}

async fn answer(State(trust): State<TrustState>, headers: HeaderMap) -> Response {
    let now = OffsetDateTime::now_utc();
    let (version, message) = match trust.bundle(now).await {
        Ok(current) => current,
        Err(failure) => {
            tracing::error!("no trust bundle: {}", failure.message());
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    };
    let tag = format!("\"{version}\"");
    if headers
        .get(IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes())
    {
        return (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response();
    }
    let headers = [
        (ETAG, tag),
        (CONTENT_TYPE, "application/pkcs7-mime".to_owned()),
    ];
    (headers, message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn numbers_grow_whatever_the_clock_does() {
        let now = datetime!(2030-01-01 00:00 UTC);
        let seconds = now.unix_timestamp().unsigned_abs();
        assert_eq!(next(0, now), seconds);
        assert_eq!(next(seconds, now), seconds + 1);
        assert_eq!(next(seconds + 9, OffsetDateTime::UNIX_EPOCH), seconds + 10);
        assert_eq!(next(7, datetime!(1960-01-01 00:00 UTC)), 8);
    }
}
