//! The frame around a page: title, menu, who is logged in, the choice of language.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;

use crate::language::Texts;

pub(crate) struct MenuEntry {
    pub(crate) path: &'static str,
    pub(crate) title: String,
    /// Whether the page belongs to this entry.
    pub(crate) current: bool,
}

/// The person shown in the page's head.
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) organisation: String,
    pub(crate) clearance: String,
    pub(crate) by_password: bool,
    pub(crate) token: String,
}

/// The frame; [`page`] puts the content into it.
pub(crate) struct Frame {
    t: Texts,
    title: String,
    menu: Vec<MenuEntry>,
    is_home: bool,
    person: Option<Person>,
    /// Code and own name of each language that can be chosen.
    languages: Vec<(String, String)>,
    /// Address to which the choice of a language leads back.
    address: String,
}

impl Frame {
    /// A frame for somebody unknown.
    pub(crate) fn nobody(t: &Texts, title: &str) -> Self {
        Self {
            t: t.clone(),
            title: title.to_owned(),
            menu: Vec::new(),
            is_home: false,
            person: None,
            languages: Vec::new(),
            address: "/".to_owned(),
        }
    }

    /// The same with a choice of languages, which leads back to `address`.
    pub(crate) fn with_languages(self, languages: Vec<(String, String)>, address: &str) -> Self {
        Self {
            languages,
            address: address.to_owned(),
            ..self
        }
    }

    /// The frame for somebody, on the page `current` of this menu.
    pub(crate) fn for_person(self, person: Person, menu: Vec<MenuEntry>, current: &str) -> Self {
        Self {
            menu,
            is_home: current == "/",
            person: Some(person),
            ..self
        }
    }

    pub(crate) fn texts(&self) -> &Texts {
        &self.t
    }

    pub(crate) fn is_for_somebody(&self) -> bool {
        self.person.is_some()
    }
}

#[derive(Template)]
#[template(path = "frame.html")]
struct Framed {
    frame: Frame,
    /// The page's own HTML, escaped where it was made.
    content: String,
}

/// Renders `content` in its frame.
pub(crate) fn page(status: StatusCode, frame: Frame, content: &impl Template) -> Response {
    let html = content
        .render()
        .and_then(|content| Framed { frame, content }.render());
    match html {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot render a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
