//! Pages of an applicant: certificates of the own, and what was asked for.

use std::ops::Deref;

use askama::Template;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;

use super::home::missing;
use super::layout::{Frame, page};
use super::requests::list::{named, place};
use super::requests::show::download;
use super::requests::{MAX_FORM, version};
use super::visitor::{Objection, Visitor};
use crate::backend::{Backend, BackendError};
use crate::error::{error_page, missing_page};
use crate::form::Fields;
use crate::requests::{
    ApplicantView, ApplicationForm, ApplicationStep, RequestConflict, RequestView, StepError,
};
use crate::who::Viewer;
use crate::{App, format};

/// The addresses below `/certificates`. What is posted to is there for no other method.
pub(crate) fn router<B: Backend>() -> Router<App<B>> {
    Router::new()
        .route(
            "/certificates",
            get(list::<B>).post(begin::<B>).fallback(missing::<B>),
        )
        .route("/certificates/new", get(empty::<B>).fallback(missing::<B>))
        .route("/certificates/{id}", get(show::<B>).fallback(missing::<B>))
        .route(
            "/certificates/{id}/edit",
            get(filled::<B>).post(edit::<B>).fallback(missing::<B>),
        )
        .route(
            "/certificates/{id}/steps",
            post(step::<B>).fallback(missing::<B>),
        )
        .route(
            "/certificates/{id}/certificate",
            get(certificate::<B>).fallback(missing::<B>),
        )
        .layer(DefaultBodyLimit::max(MAX_FORM))
}

/// Somebody who asks for certificates of the own; a handler that takes one cannot be reached without it.
pub(crate) struct Applying<B: Backend> {
    visitor: Visitor,
    applicant: B::Applicant,
}

impl<B: Backend> FromRequestParts<App<B>> for Applying<B> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App<B>) -> Result<Self, Response> {
        let viewer = Viewer::from_request_parts(parts, app).await;
        let viewer = viewer.map_err(|nobody| nobody.into_response())?;
        let page = format!("{} {}", parts.method, parts.uri.path());
        let (who, certificate) = (&viewer.principal, &viewer.certificate);
        match app.backend.applicant(who, certificate, &page).await {
            Ok(applicant) => {
                let home = "/certificates";
                let visitor = Visitor { viewer, home };
                Ok(Self { visitor, applicant })
            }
            Err(BackendError::NotFound) => Err(missing_page(&viewer)),
            Err(error) => Err(error_page(&viewer, error)),
        }
    }
}

impl<B: Backend> Deref for Applying<B> {
    type Target = Visitor;

    fn deref(&self) -> &Visitor {
        &self.visitor
    }
}

impl<B: Backend> Applying<B> {
    /// What the person may ask for.
    async fn profiles(&self, app: &App<B>) -> Result<Vec<String>, BackendError> {
        let view = app.backend.applications(&self.applicant, None).await;
        view.map(|view| view.profiles)
    }
}

#[derive(Template)]
#[template(path = "applications.html")]
struct ListPage {
    frame: Frame,
    view: ApplicantView,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "application.html")]
struct ApplicationPage {
    frame: Frame,
    request: RequestView,
    /// Why it came back or was refused; empty otherwise.
    objection: String,
    token: String,
    problem: String,
    conflict: Option<RequestConflict>,
}

impl ApplicationPage {
    fn new<B: Backend>(by: &Applying<B>, request: RequestView) -> Self {
        let objected = matches!(request.state.as_str(), "returned" | "refused");
        let last = request.history.last().filter(|_| objected);
        Self {
            frame: by.frame(&format!("Application {}", request.id)),
            objection: last.map(|last| last.reason.clone()).unwrap_or_default(),
            token: by.viewer.token.clone(),
            request,
            problem: String::new(),
            conflict: None,
        }
    }
}

#[derive(Template)]
#[template(path = "application_form.html")]
struct FormPage {
    frame: Frame,
    title: String,
    uid: String,
    token: String,
    /// The application with the version that is shown; `None` for a new one.
    present: Option<(String, u64)>,
    profiles: Vec<String>,
    form: ApplicationForm,
    problem: String,
    conflict: Option<RequestConflict>,
}

impl FormPage {
    fn new<B: Backend>(
        by: &Applying<B>,
        present: Option<(String, u64)>,
        profiles: Vec<String>,
        form: ApplicationForm,
    ) -> Self {
        let title = match &present {
            Some((id, _)) => format!("Change application {id}"),
            None => "Apply for a certificate".to_owned(),
        };
        Self {
            frame: by.frame(&title),
            title,
            uid: by.viewer.principal.uid().to_owned(),
            token: by.viewer.token.clone(),
            present,
            profiles,
            form,
            problem: String::new(),
            conflict: None,
        }
    }
}

/// The form as it was sent, with what is against it.
async fn form_again<B: Backend>(
    app: &App<B>,
    by: &Applying<B>,
    present: Option<(String, u64)>,
    form: ApplicationForm,
    error: StepError,
) -> Response {
    let objection = match Objection::of(error) {
        Ok(objection) => objection,
        Err(error) => return by.error(error),
    };
    match by.profiles(app).await {
        Ok(profiles) => {
            let again = FormPage::new(by, objection.seen(present), profiles, form);
            let view = FormPage {
                problem: objection.problem,
                conflict: objection.conflict,
                ..again
            };
            page(objection.status, &view)
        }
        Err(error) => by.error(error),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Position {
    before: String,
}

/// A form about an application's content.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ContentForm {
    token: String,
    /// Version that the author saw, of an application that is there.
    seen: String,
    /// Filled where a new application is handed in at once.
    submit: String,
    #[serde(flatten)]
    content: ApplicationForm,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct StepForm {
    token: String,
    seen: String,
    step: String,
}

async fn list<B: Backend>(
    State(app): State<App<B>>,
    by: Applying<B>,
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
    match app.backend.applications(&by.applicant, before).await {
        Ok(view) => {
            let older = view.applications.older.as_ref();
            let view = ListPage {
                frame: by.frame("My certificates"),
                older: older.map(|place| format!("/certificates?{}", named(place))),
                view,
            };
            page(StatusCode::OK, &view)
        }
        Err(error) => by.error(error),
    }
}

async fn empty<B: Backend>(State(app): State<App<B>>, by: Applying<B>) -> Response {
    match by.profiles(&app).await {
        Ok(profiles) => {
            let form = FormPage::new(&by, None, profiles, ApplicationForm::default());
            page(StatusCode::OK, &form)
        }
        Err(error) => by.error(error),
    }
}

async fn begin<B: Backend>(
    State(app): State<App<B>>,
    by: Applying<B>,
    Fields(sent): Fields<ContentForm>,
) -> Response {
    if !by.viewer.made(&sent.token) {
        return by.foreign();
    }
    let (form, submit) = (sent.content, !sent.submit.is_empty());
    let begun = app.backend.begin_application(&by.applicant, &form, submit);
    match begun.await {
        Ok(id) => Redirect::to(&format!("/certificates/{id}")).into_response(),
        Err(error) => form_again(&app, &by, None, form, error).await,
    }
}

async fn show<B: Backend>(
    State(app): State<App<B>>,
    by: Applying<B>,
    Path(id): Path<String>,
) -> Response {
    match app.backend.application(&by.applicant, &id).await {
        Ok(request) => page(StatusCode::OK, &ApplicationPage::new(&by, request)),
        Err(error) => by.error(error),
    }
}

async fn filled<B: Backend>(
    State(app): State<App<B>>,
    by: Applying<B>,
    Path(id): Path<String>,
) -> Response {
    let view = match app.backend.application(&by.applicant, &id).await {
        Ok(view) if view.may.edit => view,
        Ok(view) => {
            return by.invalid(format!(
                "you cannot change application {}, which is {}",
                view.id, view.state
            ));
        }
        Err(error) => return by.error(error),
    };
    let form = ApplicationForm {
        csr: view.form.csr,
        profile: view.form.profile,
        reason: view.form.reason,
    };
    match by.profiles(&app).await {
        Ok(profiles) => {
            let present = Some((view.id, view.version));
            page(StatusCode::OK, &FormPage::new(&by, present, profiles, form))
        }
        Err(error) => by.error(error),
    }
}

async fn edit<B: Backend>(
    State(app): State<App<B>>,
    by: Applying<B>,
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
    let step = ApplicationStep::Edit(sent.content.clone());
    let made = app.backend.step_application(&by.applicant, &id, seen, step);
    match made.await {
        Ok(()) => Redirect::to(&format!("/certificates/{id}")).into_response(),
        Err(error) => form_again(&app, &by, Some((id, seen)), sent.content, error).await,
    }
}

async fn step<B: Backend>(
    State(app): State<App<B>>,
    by: Applying<B>,
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
        "submit" => ApplicationStep::Submit,
        "withdraw" => ApplicationStep::Withdraw,
        "carry-out" => ApplicationStep::CarryOut,
        other => return by.invalid(format!("step: \"{other}\" is unknown")),
    };
    let made = app.backend.step_application(&by.applicant, &id, seen, step);
    let error = match made.await {
        Ok(()) => return Redirect::to(&format!("/certificates/{id}")).into_response(),
        Err(error) => error,
    };
    let objection = match Objection::of(error) {
        Ok(objection) => objection,
        Err(error) => return by.error(error),
    };
    match app.backend.application(&by.applicant, &id).await {
        Ok(request) => {
            let view = ApplicationPage {
                problem: objection.problem,
                conflict: objection.conflict,
                ..ApplicationPage::new(&by, request)
            };
            page(objection.status, &view)
        }
        Err(error) => by.error(error),
    }
}

async fn certificate<B: Backend>(
    State(app): State<App<B>>,
    by: Applying<B>,
    Path(id): Path<String>,
) -> Response {
    let pem = app.backend.application_certificate(&by.applicant, &id);
    match pem.await {
        Ok(pem) => download(
            "application/x-pem-file",
            &format!("certificate-{id}.pem"),
            pem.into_bytes(),
        ),
        Err(error) => by.error(error),
    }
}
