//! The web portal: server-rendered pages for officers, reviewers and auditors.
//!
//! It knows pages, forms and sessions. Who somebody is, what they may do and where evidence lies
//! is answered by a [`Backend`], which the binary wires to the other services; the portal holds no
//! data and takes no decision of its own. Pages work without JavaScript, and the content security
//! policy forbids it.
//!
//! Start with [`router`]. A request is served in this order: [`who`] finds the principal (by
//! certificate on every request anew, or by a password session checked anew), the handler asks the
//! backend, the page shows what was permitted or says which rule refused.
#![forbid(unsafe_code)]

mod backend;
mod error;
mod form;
mod format;
mod headers;
mod pages;
mod requests;
mod session;
mod who;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

pub use backend::{
    AuditPage, AuditRow, Backend, BackendError, Download, Epoch, PackageDownload, Refused,
};
pub use requests::{
    ApplicantView, ApplicationForm, ApplicationStep, CertificateRow, ChangedValue, RequestApproval,
    RequestChange, RequestConflict, RequestForm, RequestPage, RequestPlace, RequestQuery,
    RequestRow, RequestStep, RequestSteps, RequestView, StepError, SubjectView,
};
pub use session::{SessionLimits, Sessions};

/// State of every handler.
#[derive(Debug)]
pub(crate) struct App<B> {
    pub(crate) backend: Arc<B>,
    pub(crate) sessions: Arc<Sessions>,
}

impl<B> Clone for App<B> {
    fn clone(&self) -> Self {
        Self {
            backend: self.backend.clone(),
            sessions: self.sessions.clone(),
        }
    }
}

/// The portal's pages over `backend`, with `sessions` for password logins.
///
/// Requests carry [`pki::tls::PeerCertificates`] and `ConnectInfo<SocketAddr>` as extensions where
/// the listener knows them.
pub fn router<B: Backend>(backend: Arc<B>, sessions: Arc<Sessions>) -> Router {
    let app = App { backend, sessions };
    Router::new()
        .route("/", get(pages::home::home::<B>))
        .route(
            "/login",
            get(pages::login::form::<B>).post(pages::login::login::<B>),
        )
        .route("/logout", post(pages::login::logout::<B>))
        .route("/violations", get(pages::violations::list::<B>))
        .route("/violations/{id}", get(pages::violation::show::<B>))
        .route(
            "/violations/{id}/thumbnail",
            get(pages::violation::thumbnail::<B>),
        )
        .route(
            "/violations/{id}/media/{index}",
            get(pages::violation::medium::<B>),
        )
        .route(
            "/violations/{id}/review",
            post(pages::violation::review::<B>),
        )
        .route(
            "/violations/{id}/export",
            post(pages::violation::export::<B>),
        )
        .route("/cameras", get(pages::cameras::list::<B>))
        .route("/audit", get(pages::audit::list::<B>))
        .merge(pages::requests::router())
        .merge(pages::applications::router())
        .route("/assets/style.css", get(pages::assets::style))
        .route("/assets/icon.svg", get(pages::assets::icon))
        .fallback(pages::home::missing::<B>)
        .method_not_allowed_fallback(form::wrong_method)
        // Whoever is not known yet may post here too. Forms that carry more say so where they are.
        .layer(DefaultBodyLimit::max(form::MAX_FIELDS))
        .layer(axum::middleware::from_fn(form::only_own))
        .layer(axum::middleware::map_response(headers::add))
        .with_state(app)
}
