//! Pages for what did not work; each says what, why and what to do.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::CONTENT_RANGE;

use crate::frame::{Frame, page};
use crate::identity::{PageError, Refused};
use crate::language::Texts;

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    t: Texts,
    title: String,
    lead: String,
    hint: String,
    reasons: Vec<String>,
    rules: Vec<String>,
    /// Whether the home page is open to the reader.
    is_for_somebody: bool,
}

/// A kind of problem. The texts `NAME-title`, `NAME-lead` and `NAME-hint` belong to it.
#[derive(Clone, Copy)]
enum Problem {
    ForeignForm,
    Unreadable,
    Unknown,
    Refused,
    Denied,
    NotFound,
    Busy,
    Stale,
    Broken,
}

impl Problem {
    fn name(self) -> &'static str {
        match self {
            Self::ForeignForm => "problem-form",
            Self::Unreadable => "problem-unreadable",
            Self::Unknown => "problem-unknown",
            Self::Refused => "problem-refused",
            Self::Denied => "problem-denied",
            Self::NotFound => "problem-missing",
            Self::Busy => "problem-busy",
            Self::Stale => "problem-stale",
            Self::Broken => "problem-broken",
        }
    }

    fn title(self, t: &Texts) -> String {
        t.say(&format!("{}-title", self.name())).to_string()
    }

    fn page(
        self,
        status: StatusCode,
        frame: Frame,
        reasons: Vec<String>,
        rules: Vec<String>,
    ) -> Response {
        let t = frame.texts().clone();
        let content = ProblemPage {
            title: self.title(&t),
            lead: t.say(&format!("{}-lead", self.name())).to_string(),
            hint: t.say(&format!("{}-hint", self.name())).to_string(),
            reasons,
            rules,
            is_for_somebody: frame.is_for_somebody(),
            t,
        };
        page(status, frame, &content)
    }

    fn to_nobody(
        self,
        status: StatusCode,
        t: &Texts,
        reasons: Vec<String>,
        rules: Vec<String>,
    ) -> Response {
        let frame = Frame::nobody(t, &self.title(t));
        self.page(status, frame, reasons, rules)
    }
}

/// The page for a form that this portal did not make, to somebody unknown.
pub(crate) fn foreign_form(t: &Texts) -> Response {
    Problem::ForeignForm.to_nobody(StatusCode::FORBIDDEN, t, Vec::new(), Vec::new())
}

/// The page for a request that cannot be read, from anybody.
pub fn unreadable(t: &Texts, status: StatusCode, reason: &str) -> Response {
    Problem::Unreadable.to_nobody(status, t, vec![reason.to_owned()], Vec::new())
}

/// The page for somebody who is not let in at all.
pub(crate) fn refused_page(t: &Texts, refused: &Refused) -> Response {
    let (status, problem) = match refused.temporary {
        true => (StatusCode::SERVICE_UNAVAILABLE, Problem::Unknown),
        false => (StatusCode::FORBIDDEN, Problem::Refused),
    };
    let reasons = vec![refused.message.clone()];
    problem.to_nobody(status, t, reasons, vec![refused.code.clone()])
}

/// Status, kind and content of the page for a request that came to nothing.
pub(crate) struct Failed {
    pub(crate) status: StatusCode,
    problem: Problem,
    reasons: Vec<String>,
    rules: Vec<String>,
    /// Bytes of a medium that has none of those that were asked for.
    size: Option<u64>,
}

impl Failed {
    pub(crate) fn foreign_form() -> Self {
        Self::new(StatusCode::FORBIDDEN, Problem::ForeignForm, Vec::new())
    }

    pub(crate) fn of(error: PageError) -> Self {
        match error {
            PageError::Denied { reasons, policies } => Self {
                rules: policies,
                ..Self::new(StatusCode::FORBIDDEN, Problem::Denied, reasons)
            },
            PageError::NotFound => Self::new(StatusCode::NOT_FOUND, Problem::NotFound, Vec::new()),
            PageError::Busy(message) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, Problem::Busy, vec![message])
            }
            PageError::Stale(message) => {
                Self::new(StatusCode::CONFLICT, Problem::Stale, vec![message])
            }
            // The reader is a player, which reads no page.
            PageError::Range { size } => Self {
                size: Some(size),
                ..Self::new(
                    StatusCode::RANGE_NOT_SATISFIABLE,
                    Problem::Unreadable,
                    Vec::new(),
                )
            },
            PageError::Invalid(message) => {
                Self::new(StatusCode::BAD_REQUEST, Problem::Unreadable, vec![message])
            }
            PageError::Failed(message) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, Problem::Broken, vec![message])
            }
        }
    }

    fn new(status: StatusCode, problem: Problem, reasons: Vec<String>) -> Self {
        Self {
            status,
            problem,
            reasons,
            rules: Vec::new(),
            size: None,
        }
    }

    pub(crate) fn title(&self, t: &Texts) -> String {
        self.problem.title(t)
    }

    /// The page in its frame.
    pub(crate) fn page(self, frame: Frame) -> Response {
        if let Some(size) = self.size {
            let range = [(CONTENT_RANGE, format!("bytes */{size}"))];
            return (self.status, range).into_response();
        }
        let (reasons, rules) = (self.reasons, self.rules);
        self.problem.page(self.status, frame, reasons, rules)
    }
}
