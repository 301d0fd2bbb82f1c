//! The cameras with what is known of their health.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use centre_api::Camera;
use http::StatusCode;
use time::OffsetDateTime;

use portal::{App, Texts, Viewer, format};

use crate::Evidence;

pub(crate) const PATH: &str = "/cameras";

#[derive(Template)]
#[template(path = "cameras.html")]
struct CamerasPage {
    t: Texts,
    cameras: Vec<Camera>,
    now: OffsetDateTime,
}

pub(crate) async fn list<E: Evidence>(State(app): State<App<E>>, viewer: Viewer) -> Response {
    match app.service.cameras(viewer.principal()).await {
        Ok(cameras) => {
            let view = CamerasPage {
                t: viewer.texts().clone(),
                cameras,
                now: OffsetDateTime::now_utc(),
            };
            let title = view.t.say("cameras-title").to_string();
            viewer.page(StatusCode::OK, &title, PATH, &view)
        }
        Err(error) => viewer.error(error),
    }
}
