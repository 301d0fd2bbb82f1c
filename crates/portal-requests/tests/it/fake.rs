//! A fake desk whose every text tries to break out of the page.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use access::Principal;
use portal::PageError;
use portal_requests::{
    Applicant, CertificateRequestForm, CertificateRequests, CertificateRow, ChangedValue, Desk,
    MyCertificates, Officer, OwnCertificates, OwnStep, RequestApproval, RequestChange,
    RequestConflict, RequestForm, RequestPage, RequestPlace, RequestQuery, RequestRow, RequestStep,
    RequestSteps, RequestView, StepError, SubjectView,
};
use portal_testkit::{Client, EVIL};
use time::OffsetDateTime;
use time::macros::datetime;

pub(crate) const REQUEST: &str = "0123456789ab";
const AT: OffsetDateTime = datetime!(2026-11-21 11:12:07 UTC);

/// The fake: answers are fixed, switches refuse, calls are noted.
#[derive(Default)]
pub(crate) struct Fake {
    /// Whether the person has nothing to do with requests.
    pub(crate) not_officer: AtomicBool,
    /// What the next step with a request ends with.
    pub(crate) step_error: Mutex<Option<StepError>>,
    pub(crate) calls: Mutex<Vec<String>>,
}

struct FakeDesk(Arc<Fake>);

/// A person at the desk.
pub(crate) struct AtDesk(Arc<Fake>);

/// The pages in the portal, and the fake behind them.
pub(crate) struct Portal {
    pub(crate) fake: Arc<Fake>,
    client: Client,
}

impl Deref for Portal {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Portal {
    pub(crate) fn new() -> Self {
        let fake = Arc::new(Fake::default());
        let desk = Arc::new(FakeDesk(fake.clone()));
        let client = Client::new(vec![
            Arc::new(CertificateRequests(desk.clone())),
            Arc::new(MyCertificates(desk)),
        ]);
        Self { fake, client }
    }

    /// What was asked of people and of the fake since the last call.
    pub(crate) fn calls(&self) -> Vec<String> {
        let mut calls = self.client.calls();
        calls.append(&mut self.fake.calls.lock().unwrap());
        calls
    }
}

impl Fake {
    fn note(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }
}

fn value() -> ChangedValue {
    ChangedValue {
        name: EVIL.into(),
        old: EVIL.into(),
        new: EVIL.into(),
    }
}

pub(crate) fn conflict() -> RequestConflict {
    RequestConflict {
        shown: 3,
        current: 4,
        by: EVIL.into(),
        step: "edit".into(),
        at: AT,
        changes: Some(vec![value()]),
    }
}

fn row() -> RequestRow {
    RequestRow {
        id: REQUEST.into(),
        act: "issue".into(),
        subject: EVIL.into(),
        requester: EVIL.into(),
        state: "submitted".into(),
        changed_at: AT,
        overdue: true,
    }
}

fn request_page() -> RequestPage {
    RequestPage {
        rows: vec![row()],
        older: Some(RequestPlace {
            changed_at: 17,
            id: REQUEST.into(),
        }),
    }
}

fn request_view() -> RequestView {
    RequestView {
        id: REQUEST.into(),
        version: 3,
        state: "submitted".into(),
        act: "issue".into(),
        subject: EVIL.into(),
        requester: EVIL.into(),
        reason: EVIL.into(),
        values: vec![value()],
        history: vec![RequestChange {
            version: 3,
            at: AT,
            by: EVIL.into(),
            step: "edit".into(),
            state: "submitted".into(),
            reason: EVIL.into(),
            changes: vec![value()],
        }],
        approvals: vec![RequestApproval {
            uid: EVIL.into(),
            at: AT,
            certificate_sha256: "33".repeat(32),
        }],
        needed: 2,
        missing: vec![EVIL.into()],
        others: vec![row()],
        form: RequestForm {
            act: "issue".into(),
            holder: "person".into(),
            name: EVIL.into(),
            csr: EVIL.into(),
            clearance: "3".into(),
            reason: EVIL.into(),
            ..RequestForm::default()
        },
        may: RequestSteps {
            edit: true,
            submit: true,
            withdraw: true,
            object: true,
            approve: true,
            no_approval: String::new(),
            carry_out: true,
            collect: true,
        },
    }
}

impl Fake {
    fn stepped(&self) -> Result<(), StepError> {
        match self.step_error.lock().unwrap().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

fn certificate_row() -> CertificateRow {
    CertificateRow {
        serial: EVIL.into(),
        profile: EVIL.into(),
        clearance: EVIL.into(),
        issued_at: AT,
        not_after: AT,
        status: EVIL.into(),
        valid: true,
    }
}

impl Desk for FakeDesk {
    type Officer = AtDesk;
    type Applicant = AtDesk;

    async fn officer(
        &self,
        _: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<AtDesk, PageError> {
        self.0.note(format!("officer {} {page}", certificate.len()));
        match self.0.not_officer.load(Ordering::SeqCst) {
            true => Err(PageError::NotFound),
            false => Ok(AtDesk(self.0.clone())),
        }
    }

    async fn applicant(
        &self,
        _: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<AtDesk, PageError> {
        self.0
            .note(format!("applicant {} {page}", certificate.len()));
        Ok(AtDesk(self.0.clone()))
    }
}

impl Officer for AtDesk {
    async fn requests(&self, query: &RequestQuery) -> Result<RequestPage, PageError> {
        self.0.note(format!("requests {query:?}"));
        Ok(request_page())
    }

    async fn request(&self, id: &str) -> Result<RequestView, PageError> {
        if id != REQUEST {
            return Err(PageError::NotFound);
        }
        Ok(request_view())
    }

    async fn subject(
        &self,
        name: &str,
        before: Option<RequestPlace>,
    ) -> Result<SubjectView, PageError> {
        self.0.note(format!("subject {name} {before:?}"));
        Ok(SubjectView {
            name: EVIL.into(),
            facts: vec![value()],
            warnings: vec![EVIL.into()],
            certificates: vec![certificate_row()],
            requests: request_page(),
        })
    }

    async fn begin(&self, form: &RequestForm, submit: bool) -> Result<String, StepError> {
        self.0
            .note(format!("begin {} {submit} {}", form.act, form.csr));
        self.0.stepped().map(|()| REQUEST.to_owned())
    }

    async fn step(&self, id: &str, seen: u64, step: RequestStep) -> Result<(), StepError> {
        self.0.note(format!("step {id} {seen} {step:?}"));
        self.0.stepped()
    }

    async fn statement(&self, id: &str, seen: u64) -> Result<Vec<u8>, StepError> {
        self.0.note(format!("statement {id} {seen}"));
        self.0.stepped().map(|()| b"{}".to_vec())
    }

    async fn certificate(&self, id: &str) -> Result<String, PageError> {
        self.0.note(format!("certificate {id}"));
        Ok("-----BEGIN CERTIFICATE-----".to_owned())
    }
}

impl Applicant for AtDesk {
    async fn certificates(
        &self,
        before: Option<RequestPlace>,
    ) -> Result<OwnCertificates, PageError> {
        self.0.note(format!("certificates {before:?}"));
        Ok(OwnCertificates {
            certificates: vec![certificate_row()],
            requests: request_page(),
            profiles: vec![EVIL.into()],
        })
    }

    async fn request(&self, id: &str) -> Result<RequestView, PageError> {
        if id != REQUEST {
            return Err(PageError::NotFound);
        }
        Ok(request_view())
    }

    async fn begin(
        &self,
        form: &CertificateRequestForm,
        submit: bool,
    ) -> Result<String, StepError> {
        self.0
            .note(format!("apply {submit} {} {}", form.profile, form.csr));
        self.0.stepped().map(|()| REQUEST.to_owned())
    }

    async fn step(&self, id: &str, seen: u64, step: OwnStep) -> Result<(), StepError> {
        self.0.note(format!("own {id} {seen} {step:?}"));
        self.0.stepped()
    }

    async fn certificate(&self, id: &str) -> Result<String, PageError> {
        self.0.note(format!("certificate {id}"));
        Ok("-----BEGIN CERTIFICATE-----".to_owned())
    }
}
