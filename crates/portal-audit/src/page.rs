//! The audit log, for auditors.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;

use portal::{App, PageError, Texts, Viewer};

use crate::{AuditPage, Log};

pub(crate) const PATH: &str = "/audit";

#[derive(Deserialize)]
pub(crate) struct Position {
    before: Option<u64>,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditView {
    t: Texts,
    log: AuditPage,
}

pub(crate) async fn list<L: Log>(
    State(app): State<App<L>>,
    viewer: Viewer,
    position: Result<Query<Position>, QueryRejection>,
) -> Response {
    let position = match position {
        Ok(Query(position)) => position,
        Err(error) => return viewer.error(PageError::Invalid(error.body_text())),
    };
    match app.service.read(viewer.principal(), position.before).await {
        Ok(log) => {
            let t = viewer.texts().clone();
            let title = t.say("audit-title").to_string();
            viewer.page(StatusCode::OK, &title, PATH, &AuditView { t, log })
        }
        Err(error) => viewer.error(error),
    }
}
