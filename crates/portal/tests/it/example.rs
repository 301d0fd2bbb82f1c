//! An application as somebody would write it: a tile, a page, a form, texts in two languages.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use http::StatusCode;
use portal::{App, Application, Fields, Shell, TextFile, Texts, Tile, Viewer};
use portal_testkit::Client;
use serde::Deserialize;
use std::sync::Mutex;

const PATH: &str = "/notes";

const TEXTS: &[TextFile] = &[
    TextFile {
        code: "en",
        content: "notes-title = Notes\nnotes-about = Write something down.\n\
                  notes-count = { $count ->\n    [one] { $count } note\n   *[other] { $count } notes\n }\n",
    },
    TextFile {
        code: "pl",
        content: "notes-title = Notatki\nnotes-about = Zapisz coś.\n\
                  notes-count = { $count ->\n    [one] { $count } notatka\n    [few] { $count } notatki\n   *[many] { $count } notatek\n }\n",
    },
];

/// The service behind the pages.
#[derive(Default)]
pub(crate) struct Notes(pub(crate) Mutex<Vec<String>>);

pub(crate) struct NotesPages(pub(crate) Arc<Notes>);

#[derive(Deserialize)]
struct NoteForm {
    token: String,
    note: String,
}

#[derive(askama::Template)]
#[template(
    source = "<h1>{{ t.say(\"notes-title\") }}</h1><p>{{ t.say(\"notes-count\").with(\"count\", notes.len()) }}</p>\
              <ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>\
              <form method=\"post\"><input type=\"hidden\" name=\"token\" value=\"{{ token }}\"><label>Note <input name=\"note\"></label></form>",
    ext = "html"
)]
struct NotesPage {
    t: Texts,
    notes: Vec<String>,
    token: String,
}

async fn show(State(app): State<App<Notes>>, viewer: Viewer) -> Response {
    let page = NotesPage {
        t: viewer.texts().clone(),
        notes: app.service.0.lock().unwrap().clone(),
        token: viewer.token().to_owned(),
    };
    let title = page.t.say("notes-title").to_string();
    viewer.page(StatusCode::OK, &title, PATH, &page)
}

async fn write(
    State(app): State<App<Notes>>,
    viewer: Viewer,
    Fields(form): Fields<NoteForm>,
) -> Response {
    if !viewer.made(&form.token) {
        return viewer.foreign_form();
    }
    app.service.0.lock().unwrap().push(form.note);
    Redirect::to(PATH).into_response()
}

impl Application for NotesPages {
    fn tile(&self) -> Tile {
        Tile {
            path: PATH,
            title: "notes-title",
            about: "notes-about",
        }
    }

    fn is_offered_to(&self, viewer: &Viewer) -> bool {
        viewer.principal().uid() != "nobody"
    }

    fn router(&self, shell: &Shell) -> Router {
        Router::new()
            .route(PATH, get(show).post(write))
            .with_state(App {
                shell: shell.clone(),
                service: self.0.clone(),
            })
    }

    fn texts(&self) -> &'static [TextFile] {
        TEXTS
    }
}

/// A portal with the example, and its notes.
pub(crate) fn portal() -> (Client, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let client = Client::new(vec![Arc::new(NotesPages(notes.clone()))]);
    (client, notes)
}
