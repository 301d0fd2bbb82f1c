//! Registration requests: the queue, one request, its forms and approvals.
//!
//! A person who does not handle requests gets the page for an address that leads nowhere, with any method and any
//! body: [`SignedIn`] comes first among a handler's arguments.

use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use serde::Deserialize;

use portal::{App, Login, PageError, Viewer};

use crate::objection::Visitor;
use crate::{Desk, RequestForm};

pub(crate) const PATH: &str = "/requests";

/// Longest form in bytes: a certification request of the greatest length in PEM, each of whose signs may take three
/// bytes, and a reason.
pub(crate) const MAX_FORM: usize = 96 * 1024;

/// A person who handles requests, logged in by certificate. A handler that takes one cannot be reached without it.
pub(crate) struct SignedIn<D: Desk> {
    visitor: Visitor,
    pub(crate) officer: D::Officer,
}

impl<D: Desk> FromRequestParts<App<D>> for SignedIn<D> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App<D>) -> Result<Self, Response> {
        let viewer = Viewer::from_request_parts(parts, app).await;
        let viewer = viewer.map_err(|nobody| nobody.into_response())?;
        // A password has no key to sign with, and proves too little for acts that raise others.
        if viewer.login() != Login::Certificate {
            return Err(viewer.missing());
        }
        let page = format!("{} {}", parts.method, parts.uri.path());
        let (who, certificate) = (viewer.principal(), viewer.certificate());
        match app.service.officer(who, certificate, &page).await {
            Ok(officer) => {
                let home = PATH;
                let visitor = Visitor { viewer, home };
                Ok(Self { visitor, officer })
            }
            Err(PageError::NotFound) => Err(viewer.missing()),
            Err(error) => Err(viewer.error(error)),
        }
    }
}

impl<D: Desk> Deref for SignedIn<D> {
    type Target = Visitor;

    fn deref(&self) -> &Visitor {
        &self.visitor
    }
}

/// A form about a request's content.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ContentForm {
    pub(crate) token: String,
    /// Version that the author saw, of a request that is there.
    pub(crate) seen: String,
    /// Filled where a new request is handed in at once.
    pub(crate) submit: String,
    #[serde(flatten)]
    pub(crate) content: RequestForm,
}

/// The version that a form or address names.
pub(crate) fn version(text: &str) -> Result<u64, PageError> {
    text.parse()
        .map_err(|_| PageError::Invalid(format!("seen: \"{text}\" is no version")))
}
