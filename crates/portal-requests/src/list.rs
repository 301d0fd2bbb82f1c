//! The queue of requests, and the history of a subject.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query};
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;

use portal::{Texts, format};

use crate::desk::SignedIn;
use crate::{Desk, Officer as _, RequestPage, RequestPlace, RequestQuery, SubjectView};

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
    t: Texts,
    states: [&'static str; 8],
    state: String,
    list: RequestPage,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "request_subject.html")]
struct SubjectPage {
    t: Texts,
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

pub(crate) async fn queue<D: Desk>(
    by: SignedIn<D>,
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
    match by.officer.requests(&query).await {
        Ok(list) => {
            let address = |place| format!("/requests?state={}&{}", query.state, named(place));
            let view = QueuePage {
                t: by.texts().clone(),
                states: STATES,
                older: list.older.as_ref().map(address),
                state: query.state,
                list,
            };
            let title = view.t.say("requests-title").to_string();
            by.page(StatusCode::OK, &title, &view)
        }
        Err(error) => by.error(error),
    }
}

pub(crate) async fn subject<D: Desk>(
    by: SignedIn<D>,
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
    match by.officer.subject(&name, place).await {
        Ok(subject) => {
            let view = SubjectPage {
                t: by.texts().clone(),
                older: subject
                    .requests
                    .older
                    .as_ref()
                    .map(|place| format!("?{}", named(place))),
                subject,
            };
            let title = view.t.say("subject-title").with("name", &name).to_string();
            by.page(StatusCode::OK, &title, &view)
        }
        Err(error) => by.error(error),
    }
}
