//! The people's side over HTTP, as JSON; described by OpenAPI.

mod answers;

use access::Principal;
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use centre_api::{Asked, Camera, Decision, Details, Filter, Page, SetAside, Summary};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_RANGE, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::{OpenApi, ToSchema};

use crate::problem::Problem;
use crate::review::{Review, ReviewError};

/// Longest body in bytes: a decision with its reason.
const MAX_BODY: usize = 16 * 1024;

/// Routes below `/api/v1`; requests carry a [`Principal`] extension.
pub(crate) fn router(review: Review) -> Router {
    Router::new()
        .route("/api/v1/violations", get(list))
        .route("/api/v1/violations/{id}", get(show))
        .route("/api/v1/violations/{id}/media/{index}", get(medium))
        .route("/api/v1/violations/{id}/reviews", post(decide))
        .route("/api/v1/cameras", get(cameras))
        .route("/api/v1/openapi.json", get(openapi))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(axum::middleware::map_response(harden))
        .with_state(review)
}

/// Answers are data, never pages: they share their origin with the portal, and a medium's type and
/// content come from a camera.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'; sandbox",
        ),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        "this address has no such method",
        "see /api/v1/openapi.json",
    )
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Cordon acquisition centre",
        description = "Evidence for the people who may see it. Authenticate with a client \
                       certificate of the users CA. Every call is decided by the access rules \
                       and recorded in the audit log."
    ),
    paths(list, show, medium, decide, cameras, openapi),
    components(schemas(Problem, Summary, Details, Camera, SetAside, Decision, Choice))
)]
struct Description;

pub(crate) fn description() -> utoipa::openapi::OpenApi {
    answers::complete(Description::openapi())
}

#[utoipa::path(get, path = "/api/v1/openapi.json", responses(
    (status = 200, description = "an OpenAPI 3.1 document", content_type = "application/json")))]
async fn openapi(_: Caller) -> Json<utoipa::openapi::OpenApi> {
    Json(description())
}

/// The authenticated caller; no handler can be reached without one.
struct Caller(Principal);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if let Some(principal) = parts.extensions.get::<Principal>() {
            return Ok(Self(principal.clone()));
        }
        let refused = parts.extensions.get::<crate::DeviceRefused>();
        Err(crate::DeviceRefused::answer(refused, "user"))
    }
}

/// Lists violations the caller may see, newest first.
#[utoipa::path(get, path = "/api/v1/violations", params(Filter), responses(
    (status = 200, body = Page<Summary>), (status = 400, body = Problem)))]
async fn list(
    State(review): State<Review>,
    Caller(who): Caller,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<Page<Summary>>, Problem> {
    let Query(filter) = filter.map_err(|e| malformed(e.status(), &e.body_text()))?;
    if !matches!(filter.state.as_str(), "" | "open" | "accepted" | "rejected") {
        return Err(malformed(
            StatusCode::BAD_REQUEST,
            "state: not open, accepted or rejected",
        ));
    }
    Ok(Json(review.list(&who, &filter).await?))
}

#[utoipa::path(get, path = "/api/v1/violations/{id}", params(("id" = String, Path)), responses(
    (status = 200, body = Details), (status = 404, body = Problem)))]
async fn show(
    State(review): State<Review>,
    Caller(who): Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Details>, Problem> {
    let id = named(path)?;
    Ok(Json(review.get(&who, &id).await?))
}

/// Gives a medium, decrypted and checked against the camera's signature.
#[utoipa::path(get, path = "/api/v1/violations/{id}/media/{index}",
    params(("id" = String, Path), ("index" = usize, Path)), responses(
    (status = 200, description = "the medium's bytes", content_type = "application/octet-stream"),
    (status = 206, description = "the bytes of the one range asked for", content_type = "application/octet-stream"),
    (status = 416, description = "the medium has no byte of the range"),
    (status = 404, body = Problem),
    (status = 409, description = "the archived block failed its checks", body = Problem),
    (status = 429, description = "the person has too many media open", body = Problem)))]
async fn medium(
    State(review): State<Review>,
    Caller(who): Caller,
    path: Result<Path<(String, usize)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // An index that is no number names no medium.
    let Path((id, index)) = path.map_err(|_| Problem::not_found("medium"))?;
    let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let asked = Asked {
        range: text(RANGE),
        if_range: text(IF_RANGE),
    };
    let medium = match review.medium_stream(&who, &id, index, &asked).await {
        Ok(medium) => medium,
        Err(ReviewError::Range { size }) => {
            let whole = [(CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, whole).into_response());
        }
        Err(error) => return Err(error.into()),
    };
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = medium.name.chars().map(plain).collect();
    let headers = [
        (CONTENT_TYPE, medium.media_type),
        (CONTENT_LENGTH, medium.served.length().to_string()),
        (ACCEPT_RANGES, "bytes".to_owned()),
        (ETAG, medium.served.etag()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    let body = Body::from_stream(medium.pieces);
    Ok(match medium.served.content_range() {
        Some(range) => {
            let part = (StatusCode::PARTIAL_CONTENT, [(CONTENT_RANGE, range)]);
            (part.0, part.1, headers, body).into_response()
        }
        None => (headers, body).into_response(),
    })
}

/// A reviewer's decision with its reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Choice {
    decision: Decision,
    /// Between 1 and 1000 characters.
    reason: String,
    /// Number of `reviews` in the answer on which the decision rests; 0 if left out.
    #[serde(default)]
    seen: u64,
}

/// Accepts or rejects a violation.
#[utoipa::path(post, path = "/api/v1/violations/{id}/reviews", params(("id" = String, Path)),
    request_body = Choice, responses((status = 204, description = "recorded"),
    (status = 400, body = Problem), (status = 404, body = Problem),
    (status = 409, description = "somebody decided meanwhile", body = Problem),
    (status = 413, description = "the body is too long", body = Problem),
    (status = 415, description = "the content type is not application/json", body = Problem),
    (status = 422, description = "the body is JSON of another shape", body = Problem)))]
async fn decide(
    State(review): State<Review>,
    Caller(who): Caller,
    path: Result<Path<String>, PathRejection>,
    choice: Result<Json<Choice>, JsonRejection>,
) -> Result<StatusCode, Problem> {
    let id = named(path)?;
    let Json(choice) = choice.map_err(|e| malformed(e.status(), &e.body_text()))?;
    let reason = choice.reason.trim();
    if reason.is_empty() || reason.chars().count() > 1000 {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "bad-reason",
            "the reason has no or more than 1000 characters",
            "give a reason",
        ));
    }
    review
        .decide(&who, &id, choice.decision, reason, choice.seen)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(get, path = "/api/v1/cameras", responses(
    (status = 200, body = Vec<Camera>)))]
async fn cameras(
    State(review): State<Review>,
    Caller(who): Caller,
) -> Result<Json<Vec<Camera>>, Problem> {
    Ok(Json(review.cameras(&who).await?))
}

/// A name that is no text names nothing.
fn named(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    path.map(|Path(id)| id)
        .map_err(|_| Problem::not_found("violation"))
}

fn malformed(status: StatusCode, message: &str) -> Problem {
    Problem::new(status, "malformed", message, "see /api/v1/openapi.json")
}

impl From<ReviewError> for Problem {
    fn from(error: ReviewError) -> Self {
        match &error {
            ReviewError::Denied { policies, .. } => {
                let code = policies.first().map_or("denied", String::as_str);
                let hint = "ask for the clearance or unit if you need this for your work";
                Self::new(StatusCode::FORBIDDEN, code, error.to_string(), hint)
            }
            ReviewError::NotFound(what) => Self::not_found(what),
            ReviewError::Stale { .. } | ReviewError::Unseen { .. } => Self::new(
                StatusCode::CONFLICT,
                "stale-decision",
                error.to_string(),
                "read the violation again and send the number of its `reviews` as `seen`",
            ),
            ReviewError::TooMany(_) => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-media",
                error.to_string(),
                "read or close what is open, then try again",
            ),
            ReviewError::Exporting => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "exporting",
                error.to_string(),
                "wait for the end of the other package",
            ),
            ReviewError::Range { .. } => Self::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "range",
                error.to_string(),
                "ask for bytes that the medium has",
            ),
            ReviewError::NotAPicture => Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not-a-picture",
                error.to_string(),
                "open the medium itself",
            ),
            ReviewError::Damaged(cause) => Self::new(
                StatusCode::CONFLICT,
                cause.code(),
                error.to_string(),
                "restore the block from a backup and check the disk",
            ),
            ReviewError::Exchanged(_) => Self::new(
                StatusCode::CONFLICT,
                "block-exchanged",
                error.to_string(),
                "restore the block from a backup and check the disk",
            ),
            ReviewError::Io(_)
            | ReviewError::Store(_)
            | ReviewError::Audit(_)
            | ReviewError::Proof(_)
            | ReviewError::TooManyEvents
            | ReviewError::Export(_)
            | ReviewError::Worker(_) => Self::internal(&error),
        }
    }
}
