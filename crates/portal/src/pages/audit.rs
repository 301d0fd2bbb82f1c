//! The audit log, for auditors.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;

use super::layout::{Frame, page};
use crate::App;
use crate::backend::{AuditPage, Backend, BackendError};
use crate::error::error_page;
use crate::who::Viewer;

#[derive(Deserialize)]
pub(crate) struct Position {
    before: Option<u64>,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditView {
    frame: Frame,
    log: AuditPage,
}

pub(crate) async fn list<B: Backend>(
    State(app): State<App<B>>,
    viewer: Viewer,
    position: Result<Query<Position>, QueryRejection>,
) -> Response {
    let position = match position {
        Ok(Query(position)) => position,
        Err(error) => return error_page(&viewer, BackendError::Invalid(error.body_text())),
    };
    match app.backend.audit(&viewer.principal, position.before).await {
        Ok(log) => {
            let frame = Frame::of(&viewer, "Audit log", "/audit");
            page(StatusCode::OK, &AuditView { frame, log })
        }
        Err(error) => error_page(&viewer, error),
    }
}
