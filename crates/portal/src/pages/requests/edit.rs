//! Forms for the content of a request: a new one, and one that is changed.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use pki::crl::RevocationReason;

use super::{ContentForm, SignedIn, version};
use crate::backend::Backend;
use crate::form::Fields;
use crate::pages::layout::{Frame, page};
use crate::pages::visitor::Objection;
use crate::requests::{RequestConflict, RequestForm, RequestStep, StepError};
use crate::{App, format};

/// Acts that can be asked for, with what they are.
const ACTS: [(&str, &str); 9] = [
    ("issue", "A certificate for a key that its owner made"),
    (
        "invite",
        "A code by which a person, a server or a device for tunnels enrols with a key of its own",
    ),
    ("renew", "A certificate for the same key anew"),
    ("revoke", "The revocation of one certificate"),
    (
        "recover",
        "An archived key, for the owner of the recovery key",
    ),
    (
        "holder",
        "Suspension, its end, revocation, retirement or readmission of a person, device, gateway or server",
    ),
    ("person", "Other clearance, roles or units of a person"),
    ("profile", "A profile of certificates"),
    (
        "authority",
        "Another generation of an issuing authority, to be put to use",
    ),
];

const CHANGES: [&str; 5] = ["suspend", "resume", "revoke", "retire", "readmit"];

#[derive(Template)]
#[template(path = "request_form.html")]
struct FormPage {
    frame: Frame,
    title: String,
    token: String,
    /// The request with the version that is shown; `None` for a new one.
    present: Option<(String, u64)>,
    acts: [(&'static str, &'static str); 9],
    causes: Vec<&'static str>,
    changes: [&'static str; 5],
    form: RequestForm,
    problem: String,
    conflict: Option<RequestConflict>,
}

impl FormPage {
    fn new<B: Backend>(
        by: &SignedIn<B>,
        present: Option<(String, u64)>,
        form: RequestForm,
    ) -> Self {
        let title = match &present {
            Some((id, _)) => format!("Change request {id}"),
            None => "New request".to_owned(),
        };
        Self {
            frame: by.frame(&title),
            title,
            token: by.viewer.token.clone(),
            present,
            acts: ACTS,
            causes: causes(),
            changes: CHANGES,
            form,
            problem: String::new(),
            conflict: None,
        }
    }

    /// The form as it was sent, with what is against it.
    fn again<B: Backend>(mut self, by: &SignedIn<B>, error: StepError) -> Response {
        let objection = match Objection::of(error) {
            Ok(objection) => objection,
            Err(error) => return by.error(error),
        };
        self.present = objection.seen(self.present);
        (self.problem, self.conflict) = (objection.problem, objection.conflict);
        page(objection.status, &self)
    }
}

/// Reasons of a revocation for good: a hold is a suspension, which is an act of its own.
fn causes() -> Vec<&'static str> {
    let all = RevocationReason::ALL.into_iter();
    all.filter(|cause| *cause != RevocationReason::CertificateHold)
        .map(RevocationReason::name)
        .collect()
}

pub(crate) async fn empty<B: Backend>(
    by: SignedIn<B>,
    form: Result<Query<RequestForm>, QueryRejection>,
) -> Response {
    let form = match form {
        Ok(Query(form)) => form,
        Err(error) => return by.invalid(error.body_text()),
    };
    // An address may say what about, and not what for: nobody hands in a key or a reason that somebody else wrote
    // into a link.
    let form = RequestForm {
        act: form.act,
        holder: form.holder,
        name: form.name,
        serial: form.serial,
        ..RequestForm::default()
    };
    page(StatusCode::OK, &FormPage::new(&by, None, form))
}

pub(crate) async fn begin<B: Backend>(
    State(app): State<App<B>>,
    by: SignedIn<B>,
    Fields(sent): Fields<ContentForm>,
) -> Response {
    if !by.viewer.made(&sent.token) {
        return by.foreign();
    }
    let (form, submit) = (sent.content, !sent.submit.is_empty());
    match app.backend.begin_request(&by.officer, &form, submit).await {
        Ok(id) => Redirect::to(&format!("/requests/{id}")).into_response(),
        Err(error) => FormPage::new(&by, None, form).again(&by, error),
    }
}

pub(crate) async fn filled<B: Backend>(
    State(app): State<App<B>>,
    by: SignedIn<B>,
    Path(id): Path<String>,
) -> Response {
    match app.backend.request(&by.officer, &id).await {
        Ok(view) if view.may.edit => {
            let present = Some((view.id, view.version));
            page(StatusCode::OK, &FormPage::new(&by, present, view.form))
        }
        Ok(view) => by.invalid(format!(
            "you cannot change request {}, which is {}",
            view.id, view.state
        )),
        Err(error) => by.error(error),
    }
}

pub(crate) async fn edit<B: Backend>(
    State(app): State<App<B>>,
    by: SignedIn<B>,
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
    let step = RequestStep::Edit(Box::new(sent.content.clone()));
    match app.backend.step_request(&by.officer, &id, seen, step).await {
        Ok(()) => Redirect::to(&format!("/requests/{id}")).into_response(),
        Err(error) => {
            let present = Some((id, seen));
            FormPage::new(&by, present, sent.content).again(&by, error)
        }
    }
}
