//! Pages of the audit log, for auditors.
//!
//! [`Log`] is what they ask of the site; [`AuditLog`] is the application.
#![forbid(unsafe_code)]

mod page;

use std::sync::Arc;

use access::{Principal, Role};
use axum::Router;
use axum::routing::get;
use portal::{App, Application, Outline, PageError, Shell, TextFile, Tile, Viewer};

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

/// An event of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub index: u64,
    pub at: String,
    /// Role that recorded it.
    pub role: String,
    /// Person or service that acted.
    pub actor: String,
    pub action: String,
    pub resource: String,
    /// `permit`, `deny`, `ok` or `fail`.
    pub outcome: String,
    pub why: String,
}

/// A page of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPage {
    pub rows: Vec<AuditRow>,
    /// Index to continue below, when there are older ones.
    pub older: Option<u64>,
    /// Size of the log.
    pub size: u64,
    /// The signed checkpoint as published.
    pub checkpoint: String,
}

/// The audit log, as pages ask for it.
pub trait Log: Send + Sync + 'static {
    /// Events below index `before`, newest first. It decides whether the person may, and leaves an audit event either way.
    fn read(
        &self,
        who: &Principal,
        before: Option<u64>,
    ) -> impl Future<Output = Result<AuditPage, PageError>> + Send;
}

/// Tile, audience and texts of [`AuditLog`].
pub const AUDIT_LOG: Outline = Outline {
    tile: Tile {
        path: page::PATH,
        title: "audit-title",
        about: "audit-about",
    },
    is_offered_to: |viewer| viewer.principal().has_role(Role::Auditor),
    texts: TEXTS,
};

/// The application with the audit log.
pub struct AuditLog<L>(pub Arc<L>);

impl<L: Log> Application for AuditLog<L> {
    fn tile(&self) -> Tile {
        AUDIT_LOG.tile
    }

    fn is_offered_to(&self, viewer: &Viewer) -> bool {
        (AUDIT_LOG.is_offered_to)(viewer)
    }

    fn texts(&self) -> &'static [TextFile] {
        AUDIT_LOG.texts
    }

    fn router(&self, shell: &Shell) -> Router {
        Router::new()
            .route(page::PATH, get(page::list::<L>))
            .with_state(App {
                shell: shell.clone(),
                service: self.0.clone(),
            })
    }
}
