//! The shell around applications: who is there, in which language, what the menu shows.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;

use crate::identity::{Answer, Identity};
use crate::language::{Languages, TEXTS, TextError, TextFile};
use crate::session::Sessions;
use crate::viewer::Viewer;

/// A name and address in the menu and on the home page. Both texts are identifiers of [`Application::texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Address of the first page; every page of the application is below it.
    pub path: &'static str,
    pub title: &'static str,
    /// The use of it, in one sentence.
    pub about: &'static str,
}

/// Tile, audience and texts of an application, wherever its pages are made.
#[derive(Clone, Copy)]
pub struct Outline {
    pub tile: Tile,
    /// Whether a person sees the tile.
    pub is_offered_to: fn(&Viewer) -> bool,
    /// Texts of tile and pages, a file for each language.
    pub texts: &'static [TextFile],
}

/// An application whose pages are made elsewhere: its place in the menu alone.
pub struct Linked(pub Outline);

impl Application for Linked {
    fn tile(&self) -> Tile {
        self.0.tile
    }

    fn is_offered_to(&self, viewer: &Viewer) -> bool {
        (self.0.is_offered_to)(viewer)
    }

    fn router(&self, _shell: &Shell) -> Router {
        Router::new()
    }

    fn texts(&self) -> &'static [TextFile] {
        self.0.texts
    }
}

/// A tile of the home page that leads to something of others. Its texts are shown as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Address in the portal.
    pub path: String,
    pub title: String,
    pub about: String,
    /// A picture, as path data of SVG in a square of 24.
    pub picture: &'static str,
}

/// Something that people open: pages below one address, with a tile.
///
/// An application decides about each request itself, by what it asks of the services behind it. The tile shows; it grants
/// nothing.
pub trait Application: Send + Sync + 'static {
    fn tile(&self) -> Tile;

    /// Whether `viewer` sees the tile.
    fn is_offered_to(&self, viewer: &Viewer) -> bool;

    /// The pages.
    fn router(&self, shell: &Shell) -> Router;

    /// Texts of tile and pages, a file for each language. Applications of one crate name the same files.
    fn texts(&self) -> &'static [TextFile];

    /// Its part of the home page, above the tiles, as HTML.
    fn summary<'a>(&'a self, _viewer: &'a Viewer) -> Answer<'a, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Tiles of the home page that lead to something of others; `None` if the application leads nowhere else.
    fn links<'a>(&'a self, _viewer: &'a Viewer) -> Answer<'a, Option<Vec<Link>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

struct Parts {
    identity: Arc<dyn Identity>,
    sessions: Sessions,
    applications: Vec<Arc<dyn Application>>,
    languages: Languages,
}

/// State that all pages share. A copy is cheap.
#[derive(Clone)]
pub struct Shell(Arc<Parts>);

impl Shell {
    /// A shell over these applications, in the order of the menu. Every page shows the shell's text `notice`, such as
    /// `frame-direct`, above its content.
    ///
    /// # Errors
    /// [`TextError`]: texts of the applications cannot be used.
    pub fn new(
        identity: Arc<dyn Identity>,
        sessions: Sessions,
        applications: Vec<Arc<dyn Application>>,
        notice: Option<&'static str>,
    ) -> Result<Self, TextError> {
        let mut files = TEXTS.to_vec();
        let mut seen: Vec<*const TextFile> = Vec::new();
        for application in &applications {
            let texts = application.texts();
            // Applications of one crate share their texts.
            if !seen.contains(&texts.as_ptr()) {
                seen.push(texts.as_ptr());
                files.extend_from_slice(texts);
            }
        }
        let languages = Languages::new(&files)?.with_notice(notice);
        Ok(Self(Arc::new(Parts {
            identity,
            sessions,
            applications,
            languages,
        })))
    }

    pub(crate) fn applications(&self) -> &[Arc<dyn Application>] {
        &self.0.applications
    }

    pub(crate) fn identity(&self) -> &dyn Identity {
        &*self.0.identity
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    pub(crate) fn languages(&self) -> &Languages {
        &self.0.languages
    }

    /// Names of the password sessions that are open ([`Viewer::session`]).
    pub fn open_sessions(&self) -> HashSet<String> {
        self.sessions().open(Instant::now())
    }

    /// Applications that `viewer` sees.
    pub(crate) fn offered<'a>(
        &'a self,
        viewer: &'a Viewer,
    ) -> impl Iterator<Item = &'a Arc<dyn Application>> {
        let all = self.0.applications.iter();
        all.filter(|application| application.is_offered_to(viewer))
    }
}

/// State of an application's handlers: the shell, and the service behind the pages.
pub struct App<S> {
    pub shell: Shell,
    pub service: Arc<S>,
}

impl<S> Clone for App<S> {
    fn clone(&self) -> Self {
        Self {
            shell: self.shell.clone(),
            service: self.service.clone(),
        }
    }
}
