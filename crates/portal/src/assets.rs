//! The style sheet and the icon, compiled in.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

const STYLE: &str = include_str!("../assets/style.css");
const ICON: &str = include_str!("../assets/icon.svg");

pub(crate) async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

pub(crate) async fn icon() -> Response {
    asset("image/svg+xml", ICON)
}

fn asset(media_type: &'static str, text: &'static str) -> Response {
    (
        [(CONTENT_TYPE, media_type), (CACHE_CONTROL, "max-age=3600")],
        text,
    )
        .into_response()
}
