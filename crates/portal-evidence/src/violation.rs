//! One violation: its page, its pictures, the reviewer's form and the export.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use centre_api::{Decision, Details};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
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
) -> Response {
    let Ok(index) = index.parse() else {
        return viewer.missing();
    };
    match app.service.medium(viewer.principal(), &id, index).await {
        Ok(download) => give(download, "inline"),
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
    match app
        .service
        .review(viewer.principal(), &id, decision, reason)
        .await
    {
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

fn give(download: Download, disposition: &str) -> Response {
    let name = plain(&download.name);
    // Only pictures and films are shown; anything else could be a page and is saved instead.
    let shown = matches!(
        download.media_type.as_str(),
        "image/jpeg" | "image/png" | "video/mp4"
    );
    let disposition = if shown { disposition } else { "attachment" };
    let media_type = if shown {
        download.media_type
    } else {
        "application/octet-stream".to_owned()
    };
    let headers = [
        (CONTENT_TYPE, media_type),
        (CONTENT_LENGTH, download.size.to_string()),
        (
            CONTENT_DISPOSITION,
            format!("{disposition}; filename=\"{name}\""),
        ),
    ];
    (headers, download.body).into_response()
}
