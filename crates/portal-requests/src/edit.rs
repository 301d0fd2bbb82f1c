//! Forms for the content of a request: a new one, and one that is changed.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use pki::crl::RevocationReason;

use portal::{Fields, Texts, format};

use crate::desk::{ContentForm, SignedIn, version};
use crate::objection::Objection;
use crate::{Desk, Officer as _, RequestConflict, RequestForm, RequestStep, StepError};

/// Acts that can be asked for; the text `act-NAME-about` says what each is.
const ACTS: [&str; 9] = [
    "issue",
    "invite",
    "renew",
    "revoke",
    "recover",
    "holder",
    "person",
    "profile",
    "authority",
];

const CHANGES: [&str; 5] = ["suspend", "resume", "revoke", "retire", "readmit"];

#[derive(Template)]
#[template(path = "request_form.html")]
struct FormPage {
    t: Texts,
    title: String,
    token: String,
    /// The request with the version that is shown; `None` for a new one.
    present: Option<(String, u64)>,
    acts: [&'static str; 9],
    causes: Vec<&'static str>,
    changes: [&'static str; 5],
    form: RequestForm,
    problem: String,
    conflict: Option<RequestConflict>,
}

impl FormPage {
    fn new<D: Desk>(by: &SignedIn<D>, present: Option<(String, u64)>, form: RequestForm) -> Self {
        let t = by.texts();
        let title = match &present {
            Some((id, _)) => t.say("request-change").with("id", id).to_string(),
            None => t.say("request-new").to_string(),
        };
        Self {
            t: by.texts().clone(),
            title,
            token: by.viewer.token().to_owned(),
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
    fn again<D: Desk>(mut self, by: &SignedIn<D>, error: StepError) -> Response {
        let objection = match Objection::of(error) {
            Ok(objection) => objection,
            Err(error) => return by.error(error),
        };
        self.present = objection.seen(self.present);
        (self.problem, self.conflict) = (objection.problem, objection.conflict);
        by.page(objection.status, &self.title, &self)
    }
}

/// Reasons of a revocation for good: a hold is a suspension, which is an act of its own.
fn causes() -> Vec<&'static str> {
    let all = RevocationReason::ALL.into_iter();
    all.filter(|cause| *cause != RevocationReason::CertificateHold)
        .map(RevocationReason::name)
        .collect()
}

pub(crate) async fn empty<D: Desk>(
    by: SignedIn<D>,
    form: Result<Query<RequestForm>, QueryRejection>,
) -> Response {
    let form = match form {
        Ok(Query(form)) => form,
        Err(error) => return by.invalid(error.body_text()),
    };
    // An address may name the subject only: a person must not hand in a key or a reason that another person wrote
    // into a link.
    let form = RequestForm {
        act: form.act,
        holder: form.holder,
        name: form.name,
        serial: form.serial,
        ..RequestForm::default()
    };
    let form = FormPage::new(&by, None, form);
    by.page(StatusCode::OK, &form.title, &form)
}

pub(crate) async fn begin<D: Desk>(by: SignedIn<D>, Fields(sent): Fields<ContentForm>) -> Response {
    if !by.viewer.made(&sent.token) {
        return by.foreign();
    }
    let (form, submit) = (sent.content, !sent.submit.is_empty());
    match by.officer.begin(&form, submit).await {
        Ok(id) => Redirect::to(&format!("/requests/{id}")).into_response(),
        Err(error) => FormPage::new(&by, None, form).again(&by, error),
    }
}

pub(crate) async fn filled<D: Desk>(by: SignedIn<D>, Path(id): Path<String>) -> Response {
    match by.officer.request(&id).await {
        Ok(view) if view.may.edit => {
            let present = Some((view.id, view.version));
            let form = FormPage::new(&by, present, view.form);
            by.page(StatusCode::OK, &form.title, &form)
        }
        Ok(view) => by.invalid(by.not_changed(&view)),
        Err(error) => by.error(error),
    }
}

pub(crate) async fn edit<D: Desk>(
    by: SignedIn<D>,
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
    match by.officer.step(&id, seen, step).await {
        Ok(()) => Redirect::to(&format!("/requests/{id}")).into_response(),
        Err(error) => {
            let present = Some((id, seen));
            FormPage::new(&by, present, sent.content).again(&by, error)
        }
    }
}
