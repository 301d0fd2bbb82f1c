//! What all pages share.

use access::Role;
use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;

use crate::format;
use crate::who::{Login, Viewer};

/// The frame around a page: title, navigation, who is logged in.
pub(crate) struct Frame {
    pub(crate) title: String,
    /// Path of the navigation entry that is marked as current.
    pub(crate) current: &'static str,
    pub(crate) person: Option<Person>,
}

/// The person shown in the page's head.
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) organisation: String,
    pub(crate) clearance: String,
    pub(crate) by_password: bool,
    pub(crate) auditor: bool,
    /// Whether the pages of registration requests may be of use.
    pub(crate) registration: bool,
    pub(crate) token: String,
}

impl Frame {
    /// A frame for somebody unknown.
    pub(crate) fn nobody(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            current: "",
            person: None,
        }
    }

    /// A frame for `viewer`.
    pub(crate) fn of(viewer: &Viewer, title: &str, current: &'static str) -> Self {
        let principal = &viewer.principal;
        let person = Person {
            name: principal.name().to_owned(),
            organisation: principal.organisation().to_owned(),
            clearance: format::level(principal.clearance().level()),
            by_password: viewer.login == Login::Password,
            auditor: principal.has_role(Role::Auditor),
            registration: viewer.login == Login::Certificate
                && (principal.has_role(Role::Registrar) || principal.has_role(Role::Administrator)),
            token: viewer.token.clone(),
        };
        Self {
            title: title.to_owned(),
            current,
            person: Some(person),
        }
    }
}

/// Renders `template` with `status`.
pub(crate) fn page(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot render a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
