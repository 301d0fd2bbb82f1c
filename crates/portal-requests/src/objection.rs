//! The common part of pages about requests, for applicants and for those who handle them.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use portal::{PageError, Texts, Viewer};

use crate::{RequestConflict, RequestView, StepError};

/// A person on pages below one address.
pub(crate) struct Visitor {
    pub(crate) viewer: Viewer,
    /// The address that the navigation shows as the present one.
    pub(crate) home: &'static str,
}

impl Visitor {
    pub(crate) fn page(
        &self,
        status: StatusCode,
        title: &str,
        content: &impl Template,
    ) -> Response {
        self.viewer.page(status, title, self.home, content)
    }

    /// The title of a request's page.
    pub(crate) fn title_of(&self, request: &RequestView) -> String {
        let title = self.texts().say("request-title");
        title.with("id", &request.id).to_string()
    }

    /// The objection to a change of a request in this state.
    pub(crate) fn not_changed(&self, request: &RequestView) -> String {
        let t = self.texts();
        let state = t.value("request-state", &request.state);
        let text = t.say("request-not-changed").with("id", &request.id);
        text.with("state", state).to_string()
    }

    pub(crate) fn texts(&self) -> &Texts {
        self.viewer.texts()
    }

    pub(crate) fn error(&self, error: PageError) -> Response {
        self.viewer.error(error)
    }

    pub(crate) fn invalid(&self, message: impl Into<String>) -> Response {
        self.error(PageError::Invalid(message.into()))
    }

    /// The page for a form that was not made for this person.
    pub(crate) fn foreign(&self) -> Response {
        self.viewer.foreign_form()
    }
}

/// An objection to a step, for the page that is shown again.
pub(crate) struct Objection {
    pub(crate) status: StatusCode,
    /// Empty where another person was quicker.
    pub(crate) problem: String,
    pub(crate) conflict: Option<RequestConflict>,
}

impl Objection {
    /// Takes an error for the page; a fault on our side has a page of its own.
    pub(crate) fn of(error: StepError) -> Result<Self, PageError> {
        match error {
            StepError::Page(error) => Err(error),
            StepError::Refused { message, .. } => Ok(Self {
                status: StatusCode::BAD_REQUEST,
                problem: message,
                conflict: None,
            }),
            StepError::Conflict(conflict) => Ok(Self {
                status: StatusCode::CONFLICT,
                problem: String::new(),
                conflict: Some(conflict),
            }),
        }
    }

    /// The version that a form shown again is about: what was typed stays, and sending it once more is a change of what is shown
    /// above it.
    pub(crate) fn seen(&self, before: Option<(String, u64)>) -> Option<(String, u64)> {
        let (id, seen) = before?;
        let current = self.conflict.as_ref().map(|conflict| conflict.current);
        Some((id, current.unwrap_or(seen)))
    }
}
