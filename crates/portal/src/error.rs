//! Pages for what did not work; each says what, why and what to do.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::CONTENT_RANGE;

use crate::backend::{BackendError, Refused};
use crate::pages::layout::{Frame, page};
use crate::who::Viewer;

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    frame: Frame,
    title: &'a str,
    lead: &'a str,
    reasons: Vec<String>,
    rules: Vec<String>,
    hint: &'a str,
}

/// The page for a form that this portal did not make for this person.
pub(crate) fn foreign_form(frame: Frame) -> Response {
    let problem = ProblemPage {
        frame,
        title: "Form refused",
        lead: "The form is out of date or came from another page. Nothing was changed.",
        reasons: Vec::new(),
        rules: Vec::new(),
        hint: "Open the page anew and fill in the form there.",
    };
    page(StatusCode::FORBIDDEN, &problem)
}

/// The page for a request that cannot be read, whoever sent it.
pub(crate) fn unreadable(status: StatusCode, reason: &str) -> Response {
    let problem = ProblemPage {
        frame: Frame::nobody("Not understood"),
        title: "Not understood",
        lead: "The request could not be carried out as it was sent.",
        reasons: vec![reason.to_owned()],
        rules: Vec::new(),
        hint: "Go back, open the page anew and try again.",
    };
    page(status, &problem)
}

/// The page for somebody who is not let in at all.
pub(crate) fn refused_page(refused: &Refused) -> Response {
    if refused.temporary {
        let problem = ProblemPage {
            frame: Frame::nobody("Something broke"),
            title: "Something broke",
            lead: "The system could not find out who you are.",
            reasons: vec![refused.message.clone()],
            rules: vec![refused.code.clone()],
            hint: "Try again in a minute; if it stays, tell the operator the time of this attempt.",
        };
        return page(StatusCode::SERVICE_UNAVAILABLE, &problem);
    }
    let problem = ProblemPage {
        frame: Frame::nobody("Access refused"),
        title: "Access refused",
        lead: "Your certificate or login was recognised, but it may not be used.",
        reasons: vec![refused.message.clone()],
        rules: vec![refused.code.clone()],
        hint: "Ask your registration office for a new card or certificate. \
               This attempt was recorded.",
    };
    page(StatusCode::FORBIDDEN, &problem)
}

/// The page for a request that came to nothing.
pub(crate) fn error_page(viewer: &Viewer, error: BackendError) -> Response {
    let frame = |title| Frame::of(viewer, title, "");
    let (status, problem) = match error {
        BackendError::Denied { reasons, policies } => (
            StatusCode::FORBIDDEN,
            ProblemPage {
                frame: frame("Access refused"),
                title: "Access refused",
                lead: "The access rules do not permit this.",
                reasons,
                rules: policies,
                hint: "If you need this for your work, ask your superior for the clearance or \
                       unit. This attempt was recorded.",
            },
        ),
        BackendError::NotFound => (StatusCode::NOT_FOUND, missing(frame("Not found"))),
        BackendError::Busy(message) => (
            StatusCode::TOO_MANY_REQUESTS,
            ProblemPage {
                frame: frame("Too much at once"),
                title: "Too much at once",
                lead: "There is a limit to what one person reads at the same time.",
                reasons: vec![message],
                rules: Vec::new(),
                hint: "Read or close what is open, then try again.",
            },
        ),
        BackendError::Stale(message) => (
            StatusCode::CONFLICT,
            ProblemPage {
                frame: frame("Changed meanwhile"),
                title: "Changed meanwhile",
                lead: "Another decision was recorded after this page was opened.",
                reasons: vec![message],
                rules: Vec::new(),
                hint: "Go back, reload the page, read the other decision, and decide again if you still want to.",
            },
        ),
        BackendError::Range { size } => {
            let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            if let Ok(range) = format!("bytes */{size}").parse() {
                response.headers_mut().insert(CONTENT_RANGE, range);
            }
            return response;
        }
        BackendError::Invalid(message) => (
            StatusCode::BAD_REQUEST,
            ProblemPage {
                frame: frame("Not understood"),
                title: "Not understood",
                lead: "The request could not be carried out as it was sent.",
                reasons: vec![message],
                rules: Vec::new(),
                hint: "Go back, correct it and try again.",
            },
        ),
        BackendError::Failed(message) => (
            StatusCode::SERVICE_UNAVAILABLE,
            ProblemPage {
                frame: frame("Something broke"),
                title: "Something broke",
                lead: "The system could not answer. Nothing was lost.",
                reasons: vec![message],
                rules: Vec::new(),
                hint: "Try again in a minute; if it stays, tell the operator the time of this \
                       attempt.",
            },
        ),
    };
    page(status, &problem)
}

/// The page for an address that leads nowhere.
pub(crate) fn missing_page(viewer: &Viewer) -> Response {
    page(
        StatusCode::NOT_FOUND,
        &missing(Frame::of(viewer, "Not found", "")),
    )
}

fn missing(frame: Frame) -> ProblemPage<'static> {
    ProblemPage {
        frame,
        title: "Not found",
        lead: "There is nothing at this address.",
        reasons: Vec::new(),
        rules: Vec::new(),
        hint: "Start from the overview.",
    }
}
