//! Registration requests: the queue, one request, its forms and approvals.
//!
//! Whoever has nothing to do with requests gets the page for an address that leads nowhere, whatever the method and
//! whatever is in the body: [`SignedIn`] comes first among a handler's arguments.

mod edit;
pub(crate) mod list;
pub(crate) mod show;

use std::ops::Deref;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::request::Parts;
use serde::Deserialize;

use crate::App;
use crate::backend::{Backend, BackendError};
use crate::error::{error_page, missing_page};
use crate::pages::home::missing;
use crate::pages::visitor::Visitor;
use crate::requests::RequestForm;
use crate::who::{Login, Viewer};

/// Longest form in bytes: a certification request of the greatest length in PEM, each of whose signs may take three
/// bytes, and a reason.
pub(crate) const MAX_FORM: usize = 96 * 1024;

/// The addresses below `/requests`. What is posted to is there for no other method.
pub(crate) fn router<B: Backend>() -> Router<App<B>> {
    Router::new()
        .route(
            "/requests",
            get(list::queue::<B>)
                .post(edit::begin::<B>)
                .fallback(missing::<B>),
        )
        .route(
            "/requests/new",
            get(edit::empty::<B>).fallback(missing::<B>),
        )
        .route(
            "/requests/about/{name}",
            get(list::subject::<B>).fallback(missing::<B>),
        )
        .route(
            "/requests/{id}",
            get(show::show::<B>).fallback(missing::<B>),
        )
        .route(
            "/requests/{id}/edit",
            get(edit::filled::<B>)
                .post(edit::edit::<B>)
                .fallback(missing::<B>),
        )
        .route(
            "/requests/{id}/steps",
            post(show::step::<B>).fallback(missing::<B>),
        )
        .route(
            "/requests/{id}/approvals",
            post(show::approve::<B>).fallback(missing::<B>),
        )
        .route(
            "/requests/{id}/statement",
            get(show::statement::<B>).fallback(missing::<B>),
        )
        .route(
            "/requests/{id}/certificate",
            get(show::certificate::<B>).fallback(missing::<B>),
        )
        .layer(DefaultBodyLimit::max(MAX_FORM))
}

/// Somebody who handles requests, by certificate; a handler that takes one cannot be reached without it.
pub(crate) struct SignedIn<B: Backend> {
    visitor: Visitor,
    pub(crate) officer: B::RegistrationOfficer,
}

impl<B: Backend> FromRequestParts<App<B>> for SignedIn<B> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App<B>) -> Result<Self, Response> {
        let viewer = Viewer::from_request_parts(parts, app).await;
        let viewer = viewer.map_err(|nobody| nobody.into_response())?;
        // A password has no key to sign with, and proves too little for acts that raise others.
        if viewer.login != Login::Certificate {
            return Err(missing_page(&viewer));
        }
        let page = format!("{} {}", parts.method, parts.uri.path());
        let (who, certificate) = (&viewer.principal, &viewer.certificate);
        match app
            .backend
            .registration_officer(who, certificate, &page)
            .await
        {
            Ok(officer) => {
                let home = "/requests";
                let visitor = Visitor { viewer, home };
                Ok(Self { visitor, officer })
            }
            Err(BackendError::NotFound) => Err(missing_page(&viewer)),
            Err(error) => Err(error_page(&viewer, error)),
        }
    }
}

impl<B: Backend> Deref for SignedIn<B> {
    type Target = Visitor;

    fn deref(&self) -> &Visitor {
        &self.visitor
    }
}

/// A form about a request's content.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ContentForm {
    token: String,
    /// Version that the author saw, of a request that is there.
    seen: String,
    /// Filled where a new request is handed in at once.
    submit: String,
    #[serde(flatten)]
    content: RequestForm,
}

/// The version that a form or address names.
pub(crate) fn version(text: &str) -> Result<u64, BackendError> {
    text.parse()
        .map_err(|_| BackendError::Invalid(format!("seen: \"{text}\" is no version")))
}
