//! One violation: its page, its pictures, the reviewer's form and the export.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use centre_api::{Asked, Decision, Details, Presentation};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    ETAG, IF_RANGE, RANGE,
};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use portal::{App, Fields, PageError, Texts, Viewer, format};

use crate::list::PATH;
use crate::{Download, Evidence};

#[derive(Template)]
#[template(path = "violation.html")]
struct ViolationPage {
    t: Texts,
    violation: Details,
    token: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ReviewForm {
    decision: String,
    reason: String,
    /// Decisions on the page that the form was part of.
    seen: String,
    token: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ExportForm {
    token: String,
}

pub(crate) async fn show<E: Evidence>(
    State(app): State<App<E>>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Response {
    match app.service.violation(viewer.principal(), &id).await {
        Ok(violation) => {
            let t = viewer.texts().clone();
            let plate = plate(&t, violation.summary.plate.as_deref());
            let title = t.say("violation-title").with("plate", plate).to_string();
            let token = viewer.token().to_owned();
            let content = ViolationPage {
                t,
                violation,
                token,
            };
            viewer.page(StatusCode::OK, &title, PATH, &content)
        }
        Err(error) => viewer.error(error),
    }
}

pub(crate) async fn thumbnail<E: Evidence>(
    State(app): State<App<E>>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Response {
    match app.service.thumbnail(viewer.principal(), &id).await {
        // Private: no shared cache may keep what only some may see.
        Ok(jpeg) => (
            [
                (CONTENT_TYPE, "image/jpeg"),
                (CACHE_CONTROL, "private, max-age=60"),
            ],
            jpeg,
        )
            .into_response(),
        Err(error) => viewer.error(error),
    }
}

pub(crate) async fn medium<E: Evidence>(
    State(app): State<App<E>>,
    viewer: Viewer,
    Path((id, index)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Ok(index) = index.parse() else {
        return viewer.missing();
    };
    let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let asked = Asked {
        range: text(RANGE),
        if_range: text(IF_RANGE),
    };
    let medium = app.service.medium(viewer.principal(), &id, index, &asked);
    match medium.await {
        Ok(download) => give(download),
        Err(error) => viewer.error(error),
    }
}

pub(crate) async fn review<E: Evidence>(
    State(app): State<App<E>>,
    viewer: Viewer,
    Path(id): Path<String>,
    Fields(form): Fields<ReviewForm>,
) -> Response {
    if !viewer.made(&form.token) {
        return viewer.foreign_form();
    }
    let decision = match form.decision.as_str() {
        "accept" => Decision::Accepted,
        "reject" => Decision::Rejected,
        other => {
            let t = viewer.texts();
            let message = t.say("review-unknown").with("value", other).to_string();
            return viewer.error(PageError::Invalid(message));
        }
    };
    let reason = form.reason.trim();
    if reason.is_empty() || reason.chars().count() > 1000 {
        let message = viewer.texts().say("review-length").to_string();
        return viewer.error(PageError::Invalid(message));
    }
    // A form that does not say was made before the first decision.
    let seen = match form.seen.as_str() {
        "" => Ok(0),
        seen => seen.parse(),
    };
    let Ok(seen) = seen else {
        let message = viewer.texts().say("review-seen").to_string();
        return viewer.error(PageError::Invalid(message));
    };
    let outcome = app
        .service
        .review(viewer.principal(), &id, decision, reason, seen);
    match outcome.await {
        Ok(()) => Redirect::to(&format!("/violations/{id}")).into_response(),
        Err(error) => viewer.error(error),
    }
}

pub(crate) async fn export<E: Evidence>(
    State(app): State<App<E>>,
    viewer: Viewer,
    Path(id): Path<String>,
    Fields(form): Fields<ExportForm>,
) -> Response {
    if !viewer.made(&form.token) {
        return viewer.foreign_form();
    }
    match app.service.export(viewer.principal(), &id).await {
        Ok(package) => {
            let name = plain(&package.name);
            let headers = [
                (CONTENT_TYPE, "application/zip".to_owned()),
                (
                    CONTENT_DISPOSITION,
                    format!("attachment; filename=\"{name}\""),
                ),
            ];
            (headers, package.body).into_response()
        }
        Err(error) => viewer.error(error),
    }
}

/// A number plate, or the words for none.
fn plate(t: &Texts, plate: Option<&str>) -> String {
    plate.map_or_else(|| t.say("plate-none").to_string(), str::to_owned)
}

/// A file name from a camera's manifest, which allows more than a header does.
fn plain(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

fn give(download: Download) -> Response {
    let name = plain(&download.name);
    let (disposition, media_type) = match Presentation::of(&download.media_type) {
        Presentation::Picture | Presentation::Film => ("inline", download.media_type),
        Presentation::File => ("attachment", "application/octet-stream".to_owned()),
    };
    let served = download.served;
    let headers = [
        (CONTENT_TYPE, media_type),
        (CONTENT_LENGTH, served.length().to_string()),
        (ACCEPT_RANGES, "bytes".to_owned()),
        (ETAG, served.etag()),
        (
            CONTENT_DISPOSITION,
            format!("{disposition}; filename=\"{name}\""),
        ),
    ];
    match served.content_range() {
        Some(range) => {
            let part = [(CONTENT_RANGE, range)];
            (StatusCode::PARTIAL_CONTENT, part, headers, download.body).into_response()
        }
        None => (headers, download.body).into_response(),
    }
}
