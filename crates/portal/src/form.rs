//! Reading forms; a form that cannot be read is answered with a page, like everything else.

use axum::extract::{FromRequest, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Form};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;

use crate::error::{foreign_form, unreadable};
use crate::language::Texts;

/// Longest form in bytes, unless its pages say otherwise: a decision with its reason.
pub(crate) const MAX_FIELDS: usize = 16 * 1024;

/// The fields of a posted form.
pub struct Fields<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Fields<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let texts = texts(&request);
        let form = Form::from_request(request, state).await;
        let Form(fields) = form.map_err(|e| match texts {
            Some(texts) => unreadable(&texts, e.status(), &e.body_text()),
            None => e.into_response(),
        })?;
        Ok(Self(fields))
    }
}

/// The texts of a request's language, which the shell puts there.
fn texts(request: &Request) -> Option<Texts> {
    request.extensions().get().cloned()
}

/// Refuses what a page of another site posts, where the browser says so (Fetch Metadata).
///
/// Forms for somebody known carry a token besides; this also covers the login form, with which
/// another site could log a visitor in under a name of its choice.
pub(crate) async fn only_own(
    Extension(texts): Extension<Texts>,
    request: Request,
    next: Next,
) -> Response {
    let site = request.headers().get("sec-fetch-site");
    let own = site.is_none_or(|site| site == "same-origin" || site == "none");
    if own || matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    foreign_form(&texts)
}

pub(crate) async fn wrong_method(Extension(texts): Extension<Texts>) -> Response {
    let reason = texts.say("problem-method").to_string();
    unreadable(&texts, StatusCode::METHOD_NOT_ALLOWED, &reason)
}
