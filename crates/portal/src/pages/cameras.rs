//! The cameras with what is known of their health.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use centre_api::Camera;
use http::StatusCode;
use time::OffsetDateTime;

use super::layout::{Frame, page};
use crate::backend::Backend;
use crate::error::error_page;
use crate::who::Viewer;
use crate::{App, format};

#[derive(Template)]
#[template(path = "cameras.html")]
struct CamerasPage {
    frame: Frame,
    cameras: Vec<Camera>,
    now: OffsetDateTime,
}

pub(crate) async fn list<B: Backend>(State(app): State<App<B>>, viewer: Viewer) -> Response {
    match app.backend.cameras(&viewer.principal).await {
        Ok(cameras) => {
            let frame = Frame::of(&viewer, "Cameras", "/cameras");
            page(
                StatusCode::OK,
                &CamerasPage {
                    frame,
                    cameras,
                    now: OffsetDateTime::now_utc(),
                },
            )
        }
        Err(error) => error_page(&viewer, error),
    }
}
