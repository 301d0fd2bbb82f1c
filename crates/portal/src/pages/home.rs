//! The overview, and the page for addresses that lead nowhere.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use centre_api::{Filter, Overview, Summary};
use http::StatusCode;

use super::layout::{Frame, page};
use crate::backend::Backend;
use crate::error::{error_page, missing_page};
use crate::who::Viewer;
use crate::{App, format};

/// Violations shown on the overview.
const RECENT: usize = 6;

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage {
    frame: Frame,
    overview: Overview,
    recent: Vec<Summary>,
}

pub(crate) async fn home<B: Backend>(State(app): State<App<B>>, viewer: Viewer) -> Response {
    let overview = match app.backend.overview(&viewer.principal).await {
        Ok(overview) => overview,
        Err(error) => return error_page(&viewer, error),
    };
    let filter = Filter::default();
    // An auditor may see figures without seeing evidence: the list is then simply empty.
    let recent = app.backend.violations(&viewer.principal, &filter).await;
    let mut recent = recent.map(|page| page.rows).unwrap_or_default();
    recent.truncate(RECENT);
    let frame = Frame::of(&viewer, "Overview", "/");
    page(
        StatusCode::OK,
        &HomePage {
            frame,
            overview,
            recent,
        },
    )
}

pub(crate) async fn missing<B: Backend>(_: State<App<B>>, viewer: Viewer) -> Response {
    missing_page(&viewer)
}
