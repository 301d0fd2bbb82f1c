//! One request: its page, steps with it, approvals, and what is downloaded.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse as _, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use pki::key::KeyAlgorithm;
use serde::Deserialize;

use portal::{Fields, PageError, Texts, format};

use crate::desk::{SignedIn, version};
use crate::objection::Objection;
use crate::{Desk, Officer as _, RequestConflict, RequestStep, RequestView, StepError};

/// Longest signature in base64: one of RSA with 8192 bits, with room for lines.
const MAX_SIGNATURE: usize = 2048;

#[derive(Template)]
#[template(path = "request.html")]
struct RequestPage {
    t: Texts,
    request: RequestView,
    token: String,
    /// The command that signs the statement with a key of the viewer's kind.
    command: String,
    /// Reason and signature that were typed, when they come back.
    reason: String,
    signature: String,
    problem: String,
    conflict: Option<RequestConflict>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct StepForm {
    token: String,
    seen: String,
    step: String,
    reason: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ApprovalForm {
    token: String,
    seen: String,
    signature: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Seen {
    seen: String,
}

/// Name of the file with the bytes that are signed.
fn file_of(id: &str, version: u64) -> String {
    format!("request-{id}-{version}.json")
}

/// The one command that signs `file` as [`pki::PrivateKey::sign`] does, with the key of `certificate` (DER).
fn command(certificate: &[u8], file: &str) -> String {
    let spki = pki::cert::from_der(certificate)
        .ok()
        .map(|certificate| certificate.tbs_certificate.subject_public_key_info);
    let algorithm = spki.and_then(|spki| KeyAlgorithm::of_spki(&spki).ok());
    let sign = match algorithm {
        Some(KeyAlgorithm::Ed25519) => format!("pkeyutl -sign -rawin -inkey ME.p12 -in {file}"),
        Some(KeyAlgorithm::EcdsaP384) => format!("dgst -sha384 -sign ME.p12 {file}"),
        _ => format!("dgst -sha256 -sign ME.p12 {file}"),
    };
    format!("openssl {sign} | openssl base64")
}

impl RequestPage {
    fn new<D: Desk>(by: &SignedIn<D>, request: RequestView) -> Self {
        let file = file_of(&request.id, request.version);
        Self {
            t: by.texts().clone(),
            command: command(by.viewer.certificate(), &file),
            request,
            token: by.viewer.token().to_owned(),
            reason: String::new(),
            signature: String::new(),
            problem: String::new(),
            conflict: None,
        }
    }
}

/// What a person typed that is not to be lost.
#[derive(Default)]
struct Typed {
    reason: String,
    signature: String,
}

pub(crate) async fn show<D: Desk>(by: SignedIn<D>, Path(id): Path<String>) -> Response {
    match by.officer.request(&id).await {
        Ok(request) => {
            let view = RequestPage::new(&by, request);
            by.page(StatusCode::OK, &by.title_of(&view.request), &view)
        }
        Err(error) => by.error(error),
    }
}

/// The request as it is, with why a step was not made.
async fn again<D: Desk>(by: &SignedIn<D>, id: &str, error: StepError, typed: Typed) -> Response {
    let objection = match Objection::of(error) {
        Ok(objection) => objection,
        Err(error) => return by.error(error),
    };
    match by.officer.request(id).await {
        Ok(request) => {
            let view = RequestPage {
                reason: typed.reason,
                signature: typed.signature,
                problem: objection.problem,
                conflict: objection.conflict,
                ..RequestPage::new(by, request)
            };
            by.page(objection.status, &by.title_of(&view.request), &view)
        }
        Err(error) => by.error(error),
    }
}

pub(crate) async fn step<D: Desk>(
    by: SignedIn<D>,
    Path(id): Path<String>,
    Fields(sent): Fields<StepForm>,
) -> Response {
    if !by.viewer.made(&sent.token) {
        return by.foreign();
    }
    let seen = match version(&sent.seen) {
        Ok(seen) => seen,
        Err(error) => return by.error(error),
    };
    let reason = sent.reason;
    let step = match sent.step.as_str() {
        "submit" => RequestStep::Submit,
        "withdraw" => RequestStep::Withdraw,
        "carry-out" => RequestStep::CarryOut,
        "return" => RequestStep::Return {
            reason: reason.clone(),
        },
        "refuse" => RequestStep::Refuse {
            reason: reason.clone(),
        },
        other => return by.invalid(format!("step: \"{other}\" is unknown")),
    };
    match by.officer.step(&id, seen, step).await {
        Ok(()) => Redirect::to(&format!("/requests/{id}")).into_response(),
        Err(error) => {
            let typed = Typed {
                reason,
                ..Typed::default()
            };
            again(&by, &id, error, typed).await
        }
    }
}

/// Takes an approval, which is a signature: the form has nothing else to say.
pub(crate) async fn approve<D: Desk>(
    by: SignedIn<D>,
    Path(id): Path<String>,
    Fields(sent): Fields<ApprovalForm>,
) -> Response {
    if !by.viewer.made(&sent.token) {
        return by.foreign();
    }
    let seen = match version(&sent.seen) {
        Ok(seen) => seen,
        Err(error) => return by.error(error),
    };
    let Some(signature) = signature(&sent.signature) else {
        let error = StepError::Refused {
            code: "bad-signature".to_owned(),
            message: by.texts().say("request-no-signature").to_string(),
        };
        return again(&by, &id, error, Typed::default()).await;
    };
    let step = RequestStep::Approve { signature };
    match by.officer.step(&id, seen, step).await {
        Ok(()) => Redirect::to(&format!("/requests/{id}")).into_response(),
        Err(error) => {
            // Over the same content it is good for the next version as well: another approval came first.
            let typed = Typed {
                signature: sent.signature,
                ..Typed::default()
            };
            again(&by, &id, error, typed).await
        }
    }
}

fn signature(text: &str) -> Option<Vec<u8>> {
    if text.len() > MAX_SIGNATURE {
        return None;
    }
    let text: String = text.split_ascii_whitespace().collect();
    let signature = BASE64.decode(text).ok()?;
    (!signature.is_empty()).then_some(signature)
}

pub(crate) async fn statement<D: Desk>(
    by: SignedIn<D>,
    Path(id): Path<String>,
    seen: Result<Query<Seen>, QueryRejection>,
) -> Response {
    let seen = match seen {
        Ok(Query(Seen { seen })) => version(&seen),
        Err(error) => Err(PageError::Invalid(error.body_text())),
    };
    let seen = match seen {
        Ok(seen) => seen,
        Err(error) => return by.error(error),
    };
    match by.officer.statement(&id, seen).await {
        Ok(bytes) => download("application/json", &file_of(&id, seen), bytes),
        Err(error) => again(&by, &id, error, Typed::default()).await,
    }
}

pub(crate) async fn certificate<D: Desk>(by: SignedIn<D>, Path(id): Path<String>) -> Response {
    match by.officer.certificate(&id).await {
        Ok(pem) => download(
            "application/x-pem-file",
            &format!("request-{id}.pem"),
            pem.into_bytes(),
        ),
        Err(error) => by.error(error),
    }
}

/// A file to be saved. The name is of an identifier that the backend knew, hence plain.
pub(crate) fn download(media_type: &'static str, name: &str, bytes: Vec<u8>) -> Response {
    let headers = [
        (CONTENT_TYPE, media_type.to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    (headers, bytes).into_response()
}

#[cfg(test)]
mod tests {
    use pki::cert::{CertificateChain, to_der, verify_signature};
    use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
    use pki::key::PrivateKey;
    use pki::name::Subject;
    use pki::oid::ExtensionArc;
    use pki::profile::Profile;
    use time::{Duration, OffsetDateTime};

    use super::*;

    #[test]
    fn the_command_signs_with_a_key_of_each_kind_as_the_server_verifies() {
        for algorithm in [
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::Rsa2048,
            KeyAlgorithm::Ed25519,
        ] {
            let folder = tempfile::tempdir().unwrap();
            let key = PrivateKey::generate(algorithm).unwrap();
            let validity = Validity::starting(OffsetDateTime::now_utc(), Duration::DAY);
            let subject = Subject::new("registrar-1");
            let request = CertificateRequest::new(Profile::Root, subject, key.spki(), validity);
            let arc = ExtensionArc::default();
            let root = CertificateAuthority::create_root(&request, key.clone(), arc).unwrap();
            let chain = CertificateChain::new(vec![root.certificate().clone()]).unwrap();
            let certificate = to_der(root.certificate()).unwrap();
            let p12 = pki::pkcs12::export(&key, &chain, "registrar-1", "secret").unwrap();
            std::fs::write(folder.path().join("me.p12"), p12).unwrap();
            std::fs::write(folder.path().join("request.json"), "{}").unwrap();

            // The password would be asked for at a terminal; here is none.
            let command = command(&certificate, "request.json");
            let command = command.replace("ME.p12", "me.p12 -passin pass:secret");
            let done = std::process::Command::new("sh")
                .args(["-c", &command])
                .current_dir(folder.path())
                .output()
                .unwrap();
            let printed = String::from_utf8(done.stdout).unwrap();
            let signature = signature(&printed).expect(&command);
            verify_signature(&certificate, b"{}", &signature).expect(&command);
            verify_signature(&certificate, b"{} ", &signature).unwrap_err();
        }
    }
}
