//! A fake backend with one violation whose every text tries to break out of the page.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use access::{PersonRecord, Principal, Role};
use axum::body::Body;
use centre_api::{
    Asked, Camera, Cursor, CustodyStep, Decision, Details, Disputing, Filter, Medium, Overview,
    Page, ReviewedBy, Served, SetAside, Summary, Wanted,
};
use pki::clearance::Clearance;
use pki::tls::PeerCertificates;
use portal::{
    ApplicantView, ApplicationForm, ApplicationStep, AuditPage, AuditRow, Backend, BackendError,
    CertificateRow, ChangedValue, Download, Epoch, PackageDownload, Refused, RequestApproval,
    RequestChange, RequestConflict, RequestForm, RequestPage, RequestPlace, RequestQuery,
    RequestRow, RequestStep, RequestSteps, RequestView, StepError, SubjectView,
};
use time::OffsetDateTime;
use time::macros::datetime;

/// Text that somebody might type, paint on a plate or write into a certificate.
pub(crate) const EVIL: &str = "\"><script>alert('x')</script><img src=x onerror=alert(1)>&amp;";
pub(crate) const ID: &str = "v-0123456789abcdef";
pub(crate) const PASSWORD: &str = "correct horse";
pub(crate) const REQUEST: &str = "0123456789ab";
const AT: OffsetDateTime = datetime!(2026-11-21 11:12:07 UTC);

/// The fake: answers are fixed, switches refuse, calls are noted.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) certificate_revoked: AtomicBool,
    pub(crate) session_over: AtomicBool,
    pub(crate) epoch: AtomicI64,
    pub(crate) unrecorded: AtomicBool,
    pub(crate) unreadable: AtomicBool,
    pub(crate) denied: AtomicBool,
    pub(crate) broken: AtomicBool,
    /// Whether the person has nothing to do with requests.
    pub(crate) not_officer: AtomicBool,
    /// What the next step with a request ends with.
    pub(crate) step_error: Mutex<Option<StepError>>,
    pub(crate) medium_type: Mutex<String>,
    pub(crate) calls: Mutex<Vec<String>>,
}

pub(crate) fn person() -> Principal {
    let record = PersonRecord {
        uid: "officer-4711".into(),
        name: format!("Ana {EVIL}"),
        organisation: format!("LEA-EU {EVIL}"),
        clearance: Clearance::Restricted,
        roles: [Role::Reviewer, Role::Auditor].into(),
        units: ["traffic".to_owned()].into(),
        active: true,
    };
    Principal::by_password(&record).unwrap()
}

impl Fake {
    fn epoch(&self) -> Epoch {
        Epoch([self.epoch.load(Ordering::SeqCst), 0])
    }

    fn note(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }

    fn answer<T>(&self, answer: T) -> Result<T, BackendError> {
        if self.denied.load(Ordering::SeqCst) {
            let reasons = vec!["its classification is above your clearance".to_owned()];
            let policies = vec!["no-read-up".to_owned()];
            return Err(BackendError::Denied { reasons, policies });
        }
        if self.broken.load(Ordering::SeqCst) {
            return Err(BackendError::Failed("the index failed".into()));
        }
        Ok(answer)
    }
}

fn refused(code: &str, message: &str) -> Refused {
    Refused {
        code: code.into(),
        message: message.into(),
        temporary: code.ends_with("-failed"),
    }
}

fn summary() -> Summary {
    Summary {
        id: ID.into(),
        captured_at: AT,
        kind: "speeding".into(),
        place: format!("A4 {EVIL}"),
        device: format!("camera-17 {EVIL}"),
        unit: EVIL.into(),
        plate: Some(format!("KR {EVIL}")),
        speed_kmh: Some(163),
        limit_kmh: Some(140),
        classification: 1,
        state: "open".into(),
        disputed: true,
        similar: true,
    }
}

fn violation() -> Details {
    let medium = |name: &str, media_type: &str| Medium {
        name: name.into(),
        media_type: media_type.into(),
        size: 640_250,
        sha256: "00".repeat(32),
    };
    Details {
        summary: summary(),
        latitude_microdeg: 50_064_650,
        longitude_microdeg: -19_944_980,
        lane: Some(2),
        media: vec![
            medium(EVIL, "image/jpeg"),
            medium("film.mp4", "video/mp4"),
            medium(EVIL, "text/html"),
            medium("mast.png", "image/png"),
            medium("drawing.svg", "image/svg+xml"),
        ],
        reviews: vec![ReviewedBy {
            at: AT,
            name: EVIL.into(),
            decision: "accepted".into(),
            reason: EVIL.into(),
        }],
        custody: vec![CustodyStep {
            at: AT,
            actor: EVIL.into(),
            action: EVIL.into(),
            log_index: 4,
        }],
        block_sha256: "11".repeat(32),
        block_size: 700_000,
        manifest_sha256: "22".repeat(32),
        sequence: 1,
        received_at: AT,
        log_index: Some(3),
        log_origin: EVIL.into(),
        disputed_by: vec![Disputing {
            block_sha256: "d1sputed".into(),
            found_at: AT,
        }],
        may_review: true,
        may_export: true,
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

impl Backend for Fake {
    type RegistrationOfficer = ();
    type Applicant = ();

    async fn by_certificate(
        &self,
        _: &PeerCertificates,
        _: Option<IpAddr>,
    ) -> Result<Principal, Refused> {
        if self.certificate_revoked.load(Ordering::SeqCst) {
            return Err(refused(
                "certificate-revoked",
                "certificate of Ana was revoked <today>",
            ));
        }
        Ok(person())
    }

    async fn by_password(
        &self,
        uid: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<(Principal, Epoch), Refused> {
        self.note(format!("login {uid} {from:?}"));
        if password == PASSWORD {
            return Ok((person(), self.epoch()));
        }
        Err(refused("wrong-password", "user name or password is wrong"))
    }

    async fn by_session(
        &self,
        _: &str,
        epoch: Epoch,
        _: Option<IpAddr>,
    ) -> Result<Principal, Refused> {
        if self.unreadable.load(Ordering::SeqCst) {
            return Err(refused("directory-failed", "the database failed"));
        }
        if epoch != self.epoch() {
            return Err(refused("session-ended", "your password was changed"));
        }
        if self.session_over.load(Ordering::SeqCst) {
            return Err(refused(
                "account-disabled",
                "the account of officer-4711 is disabled",
            ));
        }
        Ok(person())
    }

    async fn overview(&self, _: &Principal) -> Result<Overview, BackendError> {
        self.answer(Overview {
            open: 7,
            today: 3,
            cameras: 2,
            cameras_with_gaps: 1,
        })
    }

    async fn violations(
        &self,
        _: &Principal,
        filter: &Filter,
    ) -> Result<Page<Summary>, BackendError> {
        self.note(format!(
            "list {} {:?}",
            filter.plate,
            filter.before.map(|at| at.0)
        ));
        self.answer(Page {
            rows: vec![summary()],
            older: Some(Cursor(4)),
            newer: None,
            hidden: 2,
        })
    }

    async fn violation(&self, _: &Principal, id: &str) -> Result<Details, BackendError> {
        if id != ID {
            return Err(BackendError::NotFound);
        }
        self.answer(violation())
    }

    async fn thumbnail(&self, _: &Principal, _: &str) -> Result<Vec<u8>, BackendError> {
        self.answer(b"small".to_vec())
    }

    async fn medium(
        &self,
        _: &Principal,
        _: &str,
        _: usize,
        asked: &Asked,
    ) -> Result<Download, BackendError> {
        let part = match asked.wanted(5, "00") {
            Wanted::Whole => None,
            Wanted::Part(part) => Some(part),
            Wanted::Unsatisfiable => return Err(BackendError::Range { size: 5 }),
        };
        self.answer(Download {
            media_type: self.medium_type.lock().unwrap().clone(),
            name: "a \"b\"\r\nx: y.jpg".into(),
            served: Served {
                size: 5,
                sha256: "00".into(),
                part,
            },
            body: Body::from(match part {
                Some(part) => {
                    let at = |place: u64| usize::try_from(place).unwrap();
                    &"bytes"[at(part.first)..=at(part.last)]
                }
                None => "bytes",
            }),
        })
    }

    async fn review(
        &self,
        _: &Principal,
        id: &str,
        decision: Decision,
        reason: &str,
        seen: u64,
    ) -> Result<(), BackendError> {
        self.note(format!("review {id} {} {reason}", decision.as_str()));
        // Fewer decisions were recorded.
        if seen == 7 {
            return Err(BackendError::Stale("A. Other decided meanwhile".into()));
        }
        self.answer(())
    }

    async fn export(&self, _: &Principal, id: &str) -> Result<PackageDownload, BackendError> {
        self.note(format!("export {id}"));
        self.answer(PackageDownload {
            name: format!("{id}.zip"),
            body: Body::from("PK"),
        })
    }

    async fn cameras(&self, _: &Principal) -> Result<Vec<Camera>, BackendError> {
        self.answer(vec![Camera {
            device: EVIL.into(),
            unit: EVIL.into(),
            last_seen: Some(AT),
            blocks: 9,
            quarantined: 1,
            head: 12,
            gaps: vec![(3, 3), (5, 6)],
            dropped: 2,
            forks: 5,
            set_aside: Some(SetAside {
                count: 4,
                since: Some(AT),
                reason: EVIL.into(),
                reported_at: AT,
            }),
        }])
    }

    async fn audit(&self, _: &Principal, before: Option<u64>) -> Result<AuditPage, BackendError> {
        self.answer(AuditPage {
            rows: vec![AuditRow {
                index: before.unwrap_or(9),
                at: "2026-11-21T11:12:07Z".into(),
                role: "centre".into(),
                actor: EVIL.into(),
                action: EVIL.into(),
                resource: EVIL.into(),
                outcome: "ok".into(),
                why: EVIL.into(),
            }],
            older: Some(4),
            size: 10,
            checkpoint: EVIL.into(),
        })
    }

    async fn registration_officer(
        &self,
        _: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<(), BackendError> {
        self.note(format!("officer {} {page}", certificate.len()));
        if self.not_officer.load(Ordering::SeqCst) {
            return Err(BackendError::NotFound);
        }
        self.answer(())
    }

    async fn requests(&self, _: &(), query: &RequestQuery) -> Result<RequestPage, BackendError> {
        self.note(format!("requests {query:?}"));
        self.answer(request_page())
    }

    async fn request(&self, _: &(), id: &str) -> Result<RequestView, BackendError> {
        if id != REQUEST {
            return Err(BackendError::NotFound);
        }
        self.answer(request_view())
    }

    async fn subject(
        &self,
        _: &(),
        name: &str,
        before: Option<RequestPlace>,
    ) -> Result<SubjectView, BackendError> {
        self.note(format!("subject {name} {before:?}"));
        self.answer(SubjectView {
            name: EVIL.into(),
            facts: vec![value()],
            warnings: vec![EVIL.into()],
            certificates: vec![certificate_row()],
            requests: request_page(),
        })
    }

    async fn applicant(
        &self,
        _: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<(), BackendError> {
        self.note(format!("applicant {} {page}", certificate.len()));
        self.answer(())
    }

    async fn applications(
        &self,
        _: &(),
        before: Option<RequestPlace>,
    ) -> Result<ApplicantView, BackendError> {
        self.note(format!("applications {before:?}"));
        self.answer(ApplicantView {
            certificates: vec![certificate_row()],
            applications: request_page(),
            profiles: vec![EVIL.into()],
        })
    }

    async fn application(&self, applicant: &(), id: &str) -> Result<RequestView, BackendError> {
        self.request(applicant, id).await
    }

    async fn begin_application(
        &self,
        _: &(),
        form: &ApplicationForm,
        submit: bool,
    ) -> Result<String, StepError> {
        self.note(format!("apply {submit} {} {}", form.profile, form.csr));
        self.stepped().map(|()| REQUEST.to_owned())
    }

    async fn step_application(
        &self,
        _: &(),
        id: &str,
        seen: u64,
        step: ApplicationStep,
    ) -> Result<(), StepError> {
        self.note(format!("application {id} {seen} {step:?}"));
        self.stepped()
    }

    async fn application_certificate(
        &self,
        applicant: &(),
        id: &str,
    ) -> Result<String, BackendError> {
        self.request_certificate(applicant, id).await
    }

    async fn begin_request(
        &self,
        _: &(),
        form: &RequestForm,
        submit: bool,
    ) -> Result<String, StepError> {
        self.note(format!("begin {} {submit} {}", form.act, form.csr));
        self.stepped().map(|()| REQUEST.to_owned())
    }

    async fn step_request(
        &self,
        _: &(),
        id: &str,
        seen: u64,
        step: RequestStep,
    ) -> Result<(), StepError> {
        self.note(format!("step {id} {seen} {step:?}"));
        self.stepped()
    }

    async fn request_statement(&self, _: &(), id: &str, seen: u64) -> Result<Vec<u8>, StepError> {
        self.note(format!("statement {id} {seen}"));
        self.stepped().map(|()| b"{}".to_vec())
    }

    async fn request_certificate(&self, _: &(), id: &str) -> Result<String, BackendError> {
        self.note(format!("certificate {id}"));
        self.answer("-----BEGIN CERTIFICATE-----".to_owned())
    }

    async fn note_session(
        &self,
        uid: &str,
        action: &'static str,
        _: Option<IpAddr>,
    ) -> Result<(), BackendError> {
        self.note(format!("{action} {uid}"));
        if self.unrecorded.load(Ordering::SeqCst) {
            return Err(BackendError::Failed("the log is full".into()));
        }
        Ok(())
    }
}
