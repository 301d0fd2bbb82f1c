//! The home page, and the page for addresses that lead nowhere.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use crate::language::Texts;
use crate::shell::Link;
use crate::viewer::Viewer;

struct TileView {
    path: &'static str,
    title: String,
    about: String,
}

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage {
    t: Texts,
    summaries: Vec<String>,
    tiles: Vec<TileView>,
    /// Tiles that lead to something of others, if an application has such.
    links: Option<Vec<Link>>,
}

pub(crate) async fn home(viewer: Viewer) -> Response {
    let t = viewer.texts();
    let mut summaries = Vec::new();
    let mut tiles = Vec::new();
    let mut links: Option<Vec<Link>> = None;
    for application in viewer.shell().offered(&viewer) {
        let tile = application.tile();
        tiles.push(TileView {
            path: tile.path,
            title: t.say(tile.title).to_string(),
            about: t.say(tile.about).to_string(),
        });
        match application.summary(&viewer).await {
            Ok(summary) => summaries.extend(summary),
            Err(error) => return viewer.error(error),
        }
        match application.links(&viewer).await {
            Ok(None) => {}
            Ok(Some(more)) => links.get_or_insert_default().extend(more),
            Err(error) => return viewer.error(error),
        }
    }
    let title = t.say("home-title").to_string();
    let content = HomePage {
        t: t.clone(),
        summaries,
        tiles,
        links,
    };
    viewer.page(StatusCode::OK, &title, "/", &content)
}

/// Answers for an address that leads nowhere, to somebody known.
pub async fn missing(viewer: Viewer) -> Response {
    viewer.missing()
}
