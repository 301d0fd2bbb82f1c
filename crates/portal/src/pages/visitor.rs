//! The common part of pages about requests, for applicants and for those who handle them.

use axum::response::Response;
use http::StatusCode;

use super::layout::Frame;
use crate::backend::BackendError;
use crate::error::{error_page, foreign_form};
use crate::requests::{RequestConflict, StepError};
use crate::who::Viewer;

/// Somebody on pages below one address.
pub(crate) struct Visitor {
    pub(crate) viewer: Viewer,
    /// The address that the navigation shows as the present one.
    pub(crate) home: &'static str,
}

impl Visitor {
    pub(crate) fn frame(&self, title: &str) -> Frame {
        Frame::of(&self.viewer, title, self.home)
    }

    pub(crate) fn error(&self, error: BackendError) -> Response {
        error_page(&self.viewer, error)
    }

    pub(crate) fn invalid(&self, message: impl Into<String>) -> Response {
        self.error(BackendError::Invalid(message.into()))
    }

    /// The page for a form that was not made for this person.
    pub(crate) fn foreign(&self) -> Response {
        foreign_form(self.frame("Form refused"))
    }
}

/// An objection to a step, for the page that is shown again.
pub(crate) struct Objection {
    pub(crate) status: StatusCode,
    /// Empty where somebody else was quicker.
    pub(crate) problem: String,
    pub(crate) conflict: Option<RequestConflict>,
}

impl Objection {
    /// Takes an error for the page; a fault on our side has a page of its own.
    pub(crate) fn of(error: StepError) -> Result<Self, BackendError> {
        match error {
            StepError::Backend(error) => Err(error),
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
