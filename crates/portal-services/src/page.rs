//! The list of services that a person may open, and the way to one of them.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use portal::{App, Link, PageError, Texts, Viewer};
use serde::Deserialize;
use services::{Icon, Service};

use crate::Services;

pub(crate) const PATH: &str = "/services";
/// Longest search in characters; no name is longer.
const MAX_SEARCH: usize = 64;

#[derive(Deserialize)]
pub(crate) struct Search {
    #[serde(default)]
    q: String,
}

#[derive(Template)]
#[template(path = "services.html")]
struct ServicesView {
    t: Texts,
    query: String,
    links: Vec<Link>,
}

/// The picture of an icon, as path data of SVG in a square of 24.
const fn picture(icon: Icon) -> &'static str {
    match icon {
        Icon::Application => "M4 4h16v16H4zM4 9h16",
        Icon::Chart => "M4 20V4M4 20h16M8 16v-5M12 16V7M16 16v-3",
        Icon::Document => "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
        Icon::Mail => "M3 6h18v12H3zM3 6l9 7 9-7",
        Icon::Map => "M3 6l6-2 6 2 6-2v14l-6 2-6-2-6 2zM9 4v14M15 6v14",
        Icon::People => "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21a8 8 0 0 1 16 0",
        Icon::Search => "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
        Icon::Video => "M3 6h12v12H3zM15 11l6-4v10l-6-4",
    }
}

pub(crate) fn link(service: Service) -> Link {
    Link {
        path: format!("{PATH}/{}", service.id),
        title: service.name,
        about: service.owner,
        picture: picture(service.icon),
    }
}

pub(crate) async fn list<S: Services>(
    State(app): State<App<S>>,
    viewer: Viewer,
    search: Result<Query<Search>, QueryRejection>,
) -> Response {
    let query: String = match search {
        Ok(Query(search)) => search.q.chars().take(MAX_SEARCH).collect(),
        Err(error) => return viewer.error(PageError::Invalid(error.body_text())),
    };
    let open = match app.service.open_to(viewer.principal()).await {
        Ok(open) => open,
        Err(error) => return viewer.error(error),
    };
    let wanted = query.trim().to_lowercase();
    let fits = |text: &str| text.to_lowercase().contains(&wanted);
    let links = open.into_iter();
    let links = links.filter(|service| fits(&service.name) || fits(&service.owner));
    let t = viewer.texts().clone();
    let title = t.say("services-title").to_string();
    let view = ServicesView {
        t,
        links: links.map(link).collect(),
        query,
    };
    viewer.page(StatusCode::OK, &title, PATH, &view)
}

pub(crate) async fn open<S: Services>(
    State(app): State<App<S>>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Response {
    match app.service.open(viewer.principal(), &id).await {
        // The registry takes `https` addresses only.
        Ok(service) => Redirect::to(&service.address).into_response(),
        Err(error) => viewer.error(error),
    }
}
