//! Pages of evidence: violations with their pictures and films, and the cameras.
//!
//! [`Evidence`] is what they ask of the acquisition centre; [`Violations`] and [`Cameras`] are the applications.
#![forbid(unsafe_code)]

mod cameras;
mod list;
mod overview;
mod violation;

use std::sync::Arc;

use access::Principal;
use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use centre_api::{Asked, Camera, Decision, Details, Filter, Overview, Page, Served, Summary};
use portal::{Answer, App, Application, Outline, PageError, Shell, TextFile, Tile, Viewer};

/// Texts of these pages.
pub const TEXTS: &[TextFile] = &[
    TextFile {
        code: "en",
        content: include_str!("../locales/en.ftl"),
    },
    TextFile {
        code: "pl",
        content: include_str!("../locales/pl.ftl"),
    },
];

/// Bytes for the browser, made while it reads.
#[derive(Debug)]
pub struct Download {
    pub media_type: String,
    /// Suggested file name, plain ASCII.
    pub name: String,
    pub served: Served,
    pub body: Body,
}

/// A custody package for the browser.
#[derive(Debug)]
pub struct PackageDownload {
    /// Suggested file name, plain ASCII.
    pub name: String,
    /// A ZIP file, made while it is read.
    pub body: Body,
}

/// The evidence, as pages ask for it.
///
/// Every method decides whether the person may, and leaves an audit event either way.
pub trait Evidence: Send + Sync + 'static {
    /// Figures for the home page.
    fn overview(&self, who: &Principal)
    -> impl Future<Output = Result<Overview, PageError>> + Send;

    fn violations(
        &self,
        who: &Principal,
        filter: &Filter,
    ) -> impl Future<Output = Result<Page<Summary>, PageError>> + Send;

    fn violation(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<Details, PageError>> + Send;

    /// A small JPEG of the first picture.
    fn thumbnail(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<Vec<u8>, PageError>> + Send;

    /// A medium or a part of it, decrypted and checked against the camera's signature.
    fn medium(
        &self,
        who: &Principal,
        id: &str,
        index: usize,
        asked: &Asked,
    ) -> impl Future<Output = Result<Download, PageError>> + Send;

    /// Accepts or rejects a violation for a person who saw `seen` decisions about it; [`PageError::Stale`] if there are others.
    fn review(
        &self,
        who: &Principal,
        id: &str,
        decision: Decision,
        reason: &str,
        seen: u64,
    ) -> impl Future<Output = Result<(), PageError>> + Send;

    /// The custody package as one archive file.
    fn export(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<PackageDownload, PageError>> + Send;

    fn cameras(
        &self,
        who: &Principal,
    ) -> impl Future<Output = Result<Vec<Camera>, PageError>> + Send;
}

/// Tile, audience and texts of [`Violations`].
pub const VIOLATIONS: Outline = Outline {
    tile: Tile {
        path: list::PATH,
        title: "violations-title",
        about: "violations-about",
    },
    is_offered_to: |_| true,
    texts: TEXTS,
};

/// The application with violations.
pub struct Violations<E>(pub Arc<E>);

impl<E: Evidence> Application for Violations<E> {
    fn tile(&self) -> Tile {
        VIOLATIONS.tile
    }

    fn is_offered_to(&self, viewer: &Viewer) -> bool {
        (VIOLATIONS.is_offered_to)(viewer)
    }

    fn texts(&self) -> &'static [TextFile] {
        VIOLATIONS.texts
    }

    fn router(&self, shell: &Shell) -> Router {
        Router::new()
            .route("/violations", get(list::list::<E>))
            .route("/violations/{id}", get(violation::show::<E>))
            .route("/violations/{id}/thumbnail", get(violation::thumbnail::<E>))
            .route(
                "/violations/{id}/media/{index}",
                get(violation::medium::<E>),
            )
            .route("/violations/{id}/review", post(violation::review::<E>))
            .route("/violations/{id}/export", post(violation::export::<E>))
            .with_state(App {
                shell: shell.clone(),
                service: self.0.clone(),
            })
    }

    fn summary<'a>(&'a self, viewer: &'a Viewer) -> Answer<'a, Option<String>> {
        Box::pin(async move { overview::summary(&*self.0, viewer).await.map(Some) })
    }
}

/// Tile, audience and texts of [`Cameras`].
pub const CAMERAS: Outline = Outline {
    tile: Tile {
        path: cameras::PATH,
        title: "cameras-title",
        about: "cameras-about",
    },
    is_offered_to: |_| true,
    texts: TEXTS,
};

/// The application with cameras.
pub struct Cameras<E>(pub Arc<E>);

impl<E: Evidence> Application for Cameras<E> {
    fn tile(&self) -> Tile {
        CAMERAS.tile
    }

    fn is_offered_to(&self, viewer: &Viewer) -> bool {
        (CAMERAS.is_offered_to)(viewer)
    }

    fn texts(&self) -> &'static [TextFile] {
        CAMERAS.texts
    }

    fn router(&self, shell: &Shell) -> Router {
        Router::new()
            .route("/cameras", get(cameras::list::<E>))
            .with_state(App {
                shell: shell.clone(),
                service: self.0.clone(),
            })
    }
}
