//! Pages of certificate requests: the registration officer's desk, and each person's own certificates.
//!
//! [`Desk`] is what they ask of the registration authority; [`CertificateRequests`] and [`MyCertificates`] are the
//! applications.
#![forbid(unsafe_code)]

mod desk;
mod edit;
mod list;
mod mine;
mod objection;
mod routes;
mod show;
mod types;

use std::sync::Arc;

use access::{Principal, Role};
use axum::Router;
use portal::{App, Application, Login, Outline, PageError, Shell, TextFile, Tile, Viewer};

pub use types::{
    CertificateRequestForm, CertificateRow, ChangedValue, OwnCertificates, OwnStep,
    RequestApproval, RequestChange, RequestConflict, RequestForm, RequestPage, RequestPlace,
    RequestQuery, RequestRow, RequestStep, RequestSteps, RequestView, StepError, SubjectView,
};

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

/// The registration authority, as pages ask for it.
pub trait Desk: Send + Sync + 'static {
    type Officer: Officer;
    type Applicant: Applicant;

    /// Decides whether `who`, who shows `certificate` (DER), handles registration requests, and records the decision; `page`
    /// is what for.
    ///
    /// # Errors
    /// [`PageError::NotFound`] for other people, who learn nothing of requests.
    fn officer(
        &self,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> impl Future<Output = Result<Self::Officer, PageError>> + Send;

    /// Decides whether `who` asks for their own certificates, and records the decision; `certificate` (DER) is empty for a
    /// login by password.
    ///
    /// # Errors
    /// As [`Self::officer`].
    fn applicant(
        &self,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> impl Future<Output = Result<Self::Applicant, PageError>> + Send;
}

/// A person who handles registration requests (ETSI EN 319 401: registration officer), for one request of the browser.
pub trait Officer: Send + Sync {
    /// A page of the queue.
    fn requests(
        &self,
        query: &RequestQuery,
    ) -> impl Future<Output = Result<RequestPage, PageError>> + Send;

    fn request(&self, id: &str) -> impl Future<Output = Result<RequestView, PageError>> + Send;

    /// A person, device or gateway, with a page of the requests about it.
    fn subject(
        &self,
        name: &str,
        before: Option<RequestPlace>,
    ) -> impl Future<Output = Result<SubjectView, PageError>> + Send;

    /// Begins a request, hands it in if `submit`, and gives its identifier.
    fn begin(
        &self,
        form: &RequestForm,
        submit: bool,
    ) -> impl Future<Output = Result<String, StepError>> + Send;

    /// Makes a step with the request `id`, of which the person saw version `seen`.
    fn step(
        &self,
        id: &str,
        seen: u64,
        step: RequestStep,
    ) -> impl Future<Output = Result<(), StepError>> + Send;

    /// The bytes that an approver of version `seen` signs.
    fn statement(
        &self,
        id: &str,
        seen: u64,
    ) -> impl Future<Output = Result<Vec<u8>, StepError>> + Send;

    /// The certificate that came out, with its issuer, in PEM.
    fn certificate(&self, id: &str) -> impl Future<Output = Result<String, PageError>> + Send;
}

/// A person who asks for their own certificates, for one request of the browser. No method shows or changes another
/// person's request.
pub trait Applicant: Send + Sync {
    fn certificates(
        &self,
        before: Option<RequestPlace>,
    ) -> impl Future<Output = Result<OwnCertificates, PageError>> + Send;

    fn request(&self, id: &str) -> impl Future<Output = Result<RequestView, PageError>> + Send;

    /// Begins a request, hands it in if `submit`, and gives its identifier.
    fn begin(
        &self,
        form: &CertificateRequestForm,
        submit: bool,
    ) -> impl Future<Output = Result<String, StepError>> + Send;

    /// Makes a step with the request `id`, of which the person saw version `seen`.
    fn step(
        &self,
        id: &str,
        seen: u64,
        step: OwnStep,
    ) -> impl Future<Output = Result<(), StepError>> + Send;

    /// The certificate that came out, with its issuer, in PEM.
    fn certificate(&self, id: &str) -> impl Future<Output = Result<String, PageError>> + Send;
}

/// Tile, audience and texts of [`CertificateRequests`].
pub const REQUESTS: Outline = Outline {
    tile: Tile {
        path: desk::PATH,
        title: "requests-title",
        about: "requests-about",
    },
    is_offered_to: |viewer| {
        let principal = viewer.principal();
        let handles =
            principal.has_role(Role::Registrar) || principal.has_role(Role::Administrator);
        viewer.login() == Login::Certificate && handles
    },
    texts: TEXTS,
};

/// The application with everybody's requests, for registration officers.
pub struct CertificateRequests<D>(pub Arc<D>);

impl<D: Desk> Application for CertificateRequests<D> {
    fn tile(&self) -> Tile {
        REQUESTS.tile
    }

    fn is_offered_to(&self, viewer: &Viewer) -> bool {
        (REQUESTS.is_offered_to)(viewer)
    }

    fn texts(&self) -> &'static [TextFile] {
        REQUESTS.texts
    }

    fn router(&self, shell: &Shell) -> Router {
        routes::router().with_state(state(shell, &self.0))
    }
}

/// Tile, audience and texts of [`MyCertificates`].
pub const MINE: Outline = Outline {
    tile: Tile {
        path: mine::PATH,
        title: "mine-title",
        about: "mine-about",
    },
    is_offered_to: |_| true,
    texts: TEXTS,
};

/// The application with a person's own certificates.
pub struct MyCertificates<D>(pub Arc<D>);

impl<D: Desk> Application for MyCertificates<D> {
    fn tile(&self) -> Tile {
        MINE.tile
    }

    fn is_offered_to(&self, viewer: &Viewer) -> bool {
        (MINE.is_offered_to)(viewer)
    }

    fn texts(&self) -> &'static [TextFile] {
        MINE.texts
    }

    fn router(&self, shell: &Shell) -> Router {
        mine::router().with_state(state(shell, &self.0))
    }
}

fn state<D>(shell: &Shell, desk: &Arc<D>) -> App<D> {
    App {
        shell: shell.clone(),
        service: desk.clone(),
    }
}
