//! Pages of an applicant: their own certificates, and requests for them.

use std::ops::Deref;

use askama::Template;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;

use portal::{App, Fields, PageError, Texts, Viewer, format, missing};

use crate::desk::{MAX_FORM, version};
use crate::list::{named, place};
use crate::objection::{Objection, Visitor};
use crate::show::download;
use crate::{
    Applicant as _, CertificateRequestForm, Desk, OwnCertificates, OwnStep, RequestConflict,
    RequestView, StepError,
};

pub(crate) const PATH: &str = "/certificates";

/// The addresses below `/certificates`. What is posted to is there for no other method.
pub(crate) fn router<D: Desk>() -> Router<App<D>> {
    Router::new()
        .route(
            "/certificates",
            get(list::<D>).post(begin::<D>).fallback(missing),
        )
        .route("/certificates/new", get(empty::<D>).fallback(missing))
        .route("/certificates/{id}", get(show::<D>).fallback(missing))
        .route(
            "/certificates/{id}/edit",
            get(filled::<D>).post(edit::<D>).fallback(missing),
        )
        .route(
            "/certificates/{id}/steps",
            post(step::<D>).fallback(missing),
        )
        .route(
            "/certificates/{id}/certificate",
            get(certificate::<D>).fallback(missing),
        )
        .layer(DefaultBodyLimit::max(MAX_FORM))
}

/// A person who asks for their own certificates. A handler that takes one cannot be reached without it.
pub(crate) struct Applying<D: Desk> {
    visitor: Visitor,
    applicant: D::Applicant,
}

impl<D: Desk> FromRequestParts<App<D>> for Applying<D> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App<D>) -> Result<Self, Response> {
        let viewer = Viewer::from_request_parts(parts, app).await;
        let viewer = viewer.map_err(|nobody| nobody.into_response())?;
        let page = format!("{} {}", parts.method, parts.uri.path());
        let (who, certificate) = (viewer.principal(), viewer.certificate());
        match app.service.applicant(who, certificate, &page).await {
            Ok(applicant) => {
                let home = PATH;
                let visitor = Visitor { viewer, home };
                Ok(Self { visitor, applicant })
            }
            Err(PageError::NotFound) => Err(viewer.missing()),
            Err(error) => Err(viewer.error(error)),
        }
    }
}

impl<D: Desk> Deref for Applying<D> {
    type Target = Visitor;

    fn deref(&self) -> &Visitor {
        &self.visitor
    }
}

impl<D: Desk> Applying<D> {
    /// What the person may ask for.
    async fn profiles(&self) -> Result<Vec<String>, PageError> {
        let view = self.applicant.certificates(None).await;
        view.map(|view| view.profiles)
    }
}

#[derive(Template)]
#[template(path = "mine.html")]
struct ListPage {
    t: Texts,
    view: OwnCertificates,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "mine_one.html")]
struct OwnRequestPage {
    t: Texts,
    request: RequestView,
    /// Why it came back or was refused; empty otherwise.
    objection: String,
    token: String,
    problem: String,
    conflict: Option<RequestConflict>,
}

impl OwnRequestPage {
    fn new<D: Desk>(by: &Applying<D>, request: RequestView) -> Self {
        let objected = matches!(request.state.as_str(), "returned" | "refused");
        let last = request.history.last().filter(|_| objected);
        Self {
            t: by.texts().clone(),
            objection: last.map(|last| last.reason.clone()).unwrap_or_default(),
            token: by.viewer.token().to_owned(),
            request,
            problem: String::new(),
            conflict: None,
        }
    }
}

#[derive(Template)]
#[template(path = "mine_form.html")]
struct FormPage {
    t: Texts,
    title: String,
    uid: String,
    token: String,
    /// The request with the version that is shown; `None` for a new one.
    present: Option<(String, u64)>,
    profiles: Vec<String>,
    form: CertificateRequestForm,
    problem: String,
    conflict: Option<RequestConflict>,
}

impl FormPage {
    fn new<D: Desk>(
        by: &Applying<D>,
        present: Option<(String, u64)>,
        profiles: Vec<String>,
        form: CertificateRequestForm,
    ) -> Self {
        let t = by.texts();
        let title = match &present {
            Some((id, _)) => t.say("request-change").with("id", id).to_string(),
            None => t.say("mine-new").to_string(),
        };
        Self {
            t: by.texts().clone(),
            title,
            uid: by.viewer.principal().uid().to_owned(),
            token: by.viewer.token().to_owned(),
            present,
            profiles,
            form,
            problem: String::new(),
            conflict: None,
        }
    }
}

/// The form as it was sent, with what is against it.
async fn form_again<D: Desk>(
    by: &Applying<D>,
    present: Option<(String, u64)>,
    form: CertificateRequestForm,
    error: StepError,
) -> Response {
    let objection = match Objection::of(error) {
        Ok(objection) => objection,
        Err(error) => return by.error(error),
    };
    match by.profiles().await {
        Ok(profiles) => {
            let again = FormPage::new(by, objection.seen(present), profiles, form);
            let view = FormPage {
                problem: objection.problem,
                conflict: objection.conflict,
                ..again
            };
            by.page(objection.status, &view.title, &view)
        }
        Err(error) => by.error(error),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Position {
    before: String,
}

/// A form about a request's content.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ContentForm {
    token: String,
    /// Version that the author saw, of a request that is there.
    seen: String,
    /// Filled where a new request is handed in at once.
    submit: String,
    #[serde(flatten)]
    content: CertificateRequestForm,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct StepForm {
    token: String,
    seen: String,
    step: String,
}

async fn list<D: Desk>(
    by: Applying<D>,
    position: Result<Query<Position>, QueryRejection>,
) -> Response {
    let found = match position {
        Ok(Query(position)) => place(&position.before),
        Err(error) => Err(error.body_text()),
    };
    let before = match found {
        Ok(before) => before,
        Err(message) => return by.invalid(message),
    };
    match by.applicant.certificates(before).await {
        Ok(view) => {
            let older = view.requests.older.as_ref();
            let view = ListPage {
                t: by.texts().clone(),
                older: older.map(|place| format!("/certificates?{}", named(place))),
                view,
            };
            let title = view.t.say("mine-title").to_string();
            by.page(StatusCode::OK, &title, &view)
        }
        Err(error) => by.error(error),
    }
}

async fn empty<D: Desk>(by: Applying<D>) -> Response {
    match by.profiles().await {
        Ok(profiles) => {
            let form = FormPage::new(&by, None, profiles, CertificateRequestForm::default());
            by.page(StatusCode::OK, &form.title, &form)
        }
        Err(error) => by.error(error),
    }
}

async fn begin<D: Desk>(by: Applying<D>, Fields(sent): Fields<ContentForm>) -> Response {
    if !by.viewer.made(&sent.token) {
        return by.foreign();
    }
    let (form, submit) = (sent.content, !sent.submit.is_empty());
    let begun = by.applicant.begin(&form, submit);
    match begun.await {
        Ok(id) => Redirect::to(&format!("/certificates/{id}")).into_response(),
        Err(error) => form_again(&by, None, form, error).await,
    }
}

async fn show<D: Desk>(by: Applying<D>, Path(id): Path<String>) -> Response {
    match by.applicant.request(&id).await {
        Ok(request) => {
            let view = OwnRequestPage::new(&by, request);
            by.page(StatusCode::OK, &by.title_of(&view.request), &view)
        }
        Err(error) => by.error(error),
    }
}

async fn filled<D: Desk>(by: Applying<D>, Path(id): Path<String>) -> Response {
    let view = match by.applicant.request(&id).await {
        Ok(view) if view.may.edit => view,
        Ok(view) => {
            return by.invalid(by.not_changed(&view));
        }
        Err(error) => return by.error(error),
    };
    let form = CertificateRequestForm {
        csr: view.form.csr,
        profile: view.form.profile,
        reason: view.form.reason,
    };
    match by.profiles().await {
        Ok(profiles) => {
            let present = Some((view.id, view.version));
            let form = FormPage::new(&by, present, profiles, form);
            by.page(StatusCode::OK, &form.title, &form)
        }
        Err(error) => by.error(error),
    }
}

async fn edit<D: Desk>(
    by: Applying<D>,
    Path(id): Path<String>,
    Fields(sent): Fields<ContentForm>,
) -> Response {
    if !by.viewer.made(&sent.token) {
        return by.foreign();
    }
    let seen = match version(&sent.seen) {
        Ok(seen) => seen,
        Err(error) => return by.error(error),
    };
    let step = OwnStep::Edit(sent.content.clone());
    let made = by.applicant.step(&id, seen, step);
    match made.await {
        Ok(()) => Redirect::to(&format!("/certificates/{id}")).into_response(),
        Err(error) => form_again(&by, Some((id, seen)), sent.content, error).await,
    }
}

async fn step<D: Desk>(
    by: Applying<D>,
    Path(id): Path<String>,
    Fields(sent): Fields<StepForm>,
) -> Response {
    if !by.viewer.made(&sent.token) {
        return by.foreign();
    }
    let seen = match version(&sent.seen) {
        Ok(seen) => seen,
        Err(error) => return by.error(error),
    };
    let step = match sent.step.as_str() {
        "submit" => OwnStep::Submit,
        "withdraw" => OwnStep::Withdraw,
        "carry-out" => OwnStep::CarryOut,
        other => return by.invalid(format!("step: \"{other}\" is unknown")),
    };
    let made = by.applicant.step(&id, seen, step);
    let error = match made.await {
        Ok(()) => return Redirect::to(&format!("/certificates/{id}")).into_response(),
        Err(error) => error,
    };
    let objection = match Objection::of(error) {
        Ok(objection) => objection,
        Err(error) => return by.error(error),
    };
    match by.applicant.request(&id).await {
        Ok(request) => {
            let view = OwnRequestPage {
                problem: objection.problem,
                conflict: objection.conflict,
                ..OwnRequestPage::new(&by, request)
            };
            by.page(objection.status, &by.title_of(&view.request), &view)
        }
        Err(error) => by.error(error),
    }
}

async fn certificate<D: Desk>(by: Applying<D>, Path(id): Path<String>) -> Response {
    let pem = by.applicant.certificate(&id);
    match pem.await {
        Ok(pem) => download(
            "application/x-pem-file",
            &format!("certificate-{id}.pem"),
            pem.into_bytes(),
        ),
        Err(error) => by.error(error),
    }
}
