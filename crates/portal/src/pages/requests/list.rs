//! The queue of requests, and the history of a subject.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;

use super::SignedIn;
use crate::backend::Backend;
use crate::pages::layout::{Frame, page};
use crate::requests::{RequestPage, RequestPlace, RequestQuery, SubjectView};
use crate::{App, format};

/// States by which the queue can be narrowed.
const STATES: [&str; 8] = [
    "draft",
    "submitted",
    "returned",
    "approved",
    "issued",
    "delivered",
    "refused",
    "withdrawn",
];

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Position {
    state: String,
    before: String,
}

#[derive(Template)]
#[template(path = "requests.html")]
struct QueuePage {
    frame: Frame,
    states: [&'static str; 8],
    state: String,
    list: RequestPage,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "request_subject.html")]
struct SubjectPage {
    frame: Frame,
    subject: SubjectView,
    older: Option<String>,
}

impl Position {
    fn query(&self) -> Result<RequestQuery, String> {
        let state = self.state.as_str();
        if !matches!(state, "" | "all") && !STATES.contains(&state) {
            return Err(format!("state: \"{state}\" is unknown"));
        }
        Ok(RequestQuery {
            state: state.to_owned(),
            before: place(&self.before)?,
        })
    }
}

/// The place that an address names, as [`named`] writes it.
pub(crate) fn place(before: &str) -> Result<Option<RequestPlace>, String> {
    if before.is_empty() {
        return Ok(None);
    }
    let place = before.split_once('.').and_then(|(at, id)| {
        let is_id = id.bytes().all(|b| b.is_ascii_alphanumeric());
        Some(RequestPlace {
            changed_at: at.parse().ok()?,
            id: id.to_owned(),
        })
        .filter(|_| is_id)
    });
    match place {
        Some(place) => Ok(Some(place)),
        None => Err(format!("before: \"{before}\" is no place in the list")),
    }
}

pub(crate) fn named(place: &RequestPlace) -> String {
    format!("before={}.{}", place.changed_at, place.id)
}

pub(crate) async fn queue<B: Backend>(
    State(app): State<App<B>>,
    by: SignedIn<B>,
    position: Result<Query<Position>, QueryRejection>,
) -> Response {
    let position = match position {
        Ok(Query(position)) => position,
        Err(error) => return by.invalid(error.body_text()),
    };
    let query = match position.query() {
        Ok(query) => query,
        Err(message) => return by.invalid(message),
    };
    match app.backend.requests(&by.officer, &query).await {
        Ok(list) => {
            let address = |place| format!("/requests?state={}&{}", query.state, named(place));
            let view = QueuePage {
                frame: by.frame("Requests"),
                states: STATES,
                older: list.older.as_ref().map(address),
                state: query.state,
                list,
            };
            page(StatusCode::OK, &view)
        }
        Err(error) => by.error(error),
    }
}

pub(crate) async fn subject<B: Backend>(
    State(app): State<App<B>>,
    by: SignedIn<B>,
    Path(name): Path<String>,
    position: Result<Query<Position>, QueryRejection>,
) -> Response {
    let found = match position {
        Ok(Query(position)) => place(&position.before),
        Err(error) => Err(error.body_text()),
    };
    let place = match found {
        Ok(place) => place,
        Err(message) => return by.invalid(message),
    };
    match app.backend.subject(&by.officer, &name, place).await {
        Ok(subject) => {
            let view = SubjectPage {
                frame: by.frame(&format!("About {name}")),
                older: subject
                    .requests
                    .older
                    .as_ref()
                    .map(|place| format!("?{}", named(place))),
                subject,
            };
            page(StatusCode::OK, &view)
        }
        Err(error) => by.error(error),
    }
}
