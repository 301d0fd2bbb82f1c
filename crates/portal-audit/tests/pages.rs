//! The pages of the audit log in the portal's shell, over a fake log.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use access::Principal;
use http::{Request, StatusCode};
use portal::PageError;
use portal_audit::{AuditLog, AuditPage, AuditRow, Log, TEXTS};
use portal_testkit::{As, Client, EVIL, assert_headers, assert_sound, assert_translated};

/// A log whose every text tries to break out of the page.
#[derive(Default)]
struct Fake {
    denied: AtomicBool,
}

impl Log for Fake {
    async fn read(&self, _: &Principal, before: Option<u64>) -> Result<AuditPage, PageError> {
        if self.denied.load(Ordering::SeqCst) {
            return Err(PageError::Denied {
                reasons: vec!["you are not an auditor".to_owned()],
                policies: vec!["auditors-read-log".to_owned()],
            });
        }
        Ok(AuditPage {
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
}

fn portal() -> (Client, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let client = Client::new(vec![Arc::new(AuditLog(fake.clone()))]);
    (client, fake)
}

#[test]
fn every_text_is_there_in_each_language() {
    assert_translated(TEXTS);
}

#[tokio::test]
async fn page_is_sound_in_each_language_and_leads_to_older_events() {
    let (portal, _) = portal();
    for language in ["en", "pl"] {
        let request = Request::get("/audit?before=5").header("accept-language", language);
        let answer = portal.send(As::Certificate, request, "").await;
        assert_headers(&answer, language);
        assert_sound(&answer.text, language);
        assert!(answer.text.contains("href=\"/audit?before=4\""));
    }
    let wrong = portal.get(As::Certificate, "/audit?before=x").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    let stranger = portal.get(As::Nobody, "/audit").await;
    assert_eq!(stranger.header("location"), "/login");
}

#[tokio::test]
async fn refusal_names_the_reason_and_the_rule() {
    let (portal, fake) = portal();
    fake.denied.store(true, Ordering::SeqCst);
    let answer = portal.get(As::Certificate, "/audit").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.text.contains("you are not an auditor"));
    assert!(answer.text.contains("<code>auditors-read-log</code>"));
}
