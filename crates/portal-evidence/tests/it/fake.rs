//! Fake evidence with one violation whose every text tries to break out of the page.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use access::Principal;
use axum::body::Body;
use centre_api::{
    Asked, Camera, Cursor, CustodyStep, Decision, Details, Disputing, Filter, Medium, Overview,
    Page, ReviewedBy, Served, SetAside, Summary, Wanted,
};
use portal::PageError;
use portal_evidence::{Cameras, Download, Evidence, PackageDownload, Violations};
use portal_testkit::{Client, EVIL};
use time::OffsetDateTime;
use time::macros::datetime;

pub(crate) const ID: &str = "v-0123456789abcdef";
const AT: OffsetDateTime = datetime!(2026-11-21 11:12:07 UTC);

/// The fake: answers are fixed, switches refuse, calls are noted.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) denied: AtomicBool,
    pub(crate) broken: AtomicBool,
    pub(crate) medium_type: Mutex<String>,
    pub(crate) calls: Mutex<Vec<String>>,
}

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
        let client = Client::new(vec![
            Arc::new(Violations(fake.clone())),
            Arc::new(Cameras(fake.clone())),
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

    fn answer<T>(&self, answer: T) -> Result<T, PageError> {
        if self.denied.load(Ordering::SeqCst) {
            let reasons = vec!["its classification is above your clearance".to_owned()];
            let policies = vec!["no-read-up".to_owned()];
            return Err(PageError::Denied { reasons, policies });
        }
        if self.broken.load(Ordering::SeqCst) {
            return Err(PageError::Failed("the index failed".into()));
        }
        Ok(answer)
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

impl Evidence for Fake {
    async fn overview(&self, _: &Principal) -> Result<Overview, PageError> {
        self.answer(Overview {
            open: 7,
            today: 3,
            cameras: 2,
            cameras_with_gaps: 1,
        })
    }

    async fn violations(&self, _: &Principal, filter: &Filter) -> Result<Page<Summary>, PageError> {
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

    async fn violation(&self, _: &Principal, id: &str) -> Result<Details, PageError> {
        if id != ID {
            return Err(PageError::NotFound);
        }
        self.answer(violation())
    }

    async fn thumbnail(&self, _: &Principal, _: &str) -> Result<Vec<u8>, PageError> {
        self.answer(b"small".to_vec())
    }

    async fn medium(
        &self,
        _: &Principal,
        _: &str,
        _: usize,
        asked: &Asked,
    ) -> Result<Download, PageError> {
        let part = match asked.wanted(5, "00") {
            Wanted::Whole => None,
            Wanted::Part(part) => Some(part),
            Wanted::Unsatisfiable => return Err(PageError::Range { size: 5 }),
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
    ) -> Result<(), PageError> {
        self.note(format!("review {id} {} {reason}", decision.as_str()));
        // Fewer decisions were recorded.
        if seen == 7 {
            return Err(PageError::Stale("A. Other decided meanwhile".into()));
        }
        self.answer(())
    }

    async fn export(&self, _: &Principal, id: &str) -> Result<PackageDownload, PageError> {
        self.note(format!("export {id}"));
        self.answer(PackageDownload {
            name: format!("{id}.zip"),
            body: Body::from("PK"),
        })
    }

    async fn cameras(&self, _: &Principal) -> Result<Vec<Camera>, PageError> {
        self.answer(vec![Camera {
            device: EVIL.into(),
            unit: EVIL.into(),
            last_seen: Some(AT),
            blocks: 9,
            quarantined: 1,
            epoch: 2,
            head: 12,
            gaps: vec![(3, 3), (5, 6)],
            missing_before: 7,
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
}
