//! The addresses of the registration officer's pages.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use portal::{App, missing};

use crate::desk::MAX_FORM;
use crate::{Desk, edit, list, show};

/// The addresses below `/requests`. What is posted to is there for no other method.
pub(crate) fn router<D: Desk>() -> Router<App<D>> {
    Router::new()
        .route(
            "/requests",
            get(list::queue::<D>)
                .post(edit::begin::<D>)
                .fallback(missing),
        )
        .route("/requests/new", get(edit::empty::<D>).fallback(missing))
        .route(
            "/requests/about/{name}",
            get(list::subject::<D>).fallback(missing),
        )
        .route("/requests/{id}", get(show::show::<D>).fallback(missing))
        .route(
            "/requests/{id}/edit",
            get(edit::filled::<D>)
                .post(edit::edit::<D>)
                .fallback(missing),
        )
        .route(
            "/requests/{id}/steps",
            post(show::step::<D>).fallback(missing),
        )
        .route(
            "/requests/{id}/approvals",
            post(show::approve::<D>).fallback(missing),
        )
        .route(
            "/requests/{id}/statement",
            get(show::statement::<D>).fallback(missing),
        )
        .route(
            "/requests/{id}/certificate",
            get(show::certificate::<D>).fallback(missing),
        )
        .layer(DefaultBodyLimit::max(MAX_FORM))
}
