//! A crash at every step of approving a request and carrying it out.
//!
//! What stands in the log and not in the database is named there as interrupted; see `steps` for how disks are
//! recorded.

use std::collections::HashSet;
use std::sync::Arc;

use audit::Event;
use durable::testing::{RecordingDisk, Tree};
use pki::clearance::Clearance;
use pki::profile::CaKind;
use registry::Registry;

use crate::completeness::{book, unordered_gaps};
use crate::fixture::{NOW, SECRETS, config, key};
use crate::staff::{Staff, issue, order};
use crate::steps::{events, open, quick_folder, sqlite};

const DEVICE: &str = "camera-17";

/// Versions of the request for which the log has an event that took effect, as the log says it.
fn told(events: &[Event], id: &str) -> Vec<u64> {
    let resource = format!("request/{id}");
    let mut versions = Vec::new();
    for event in events.iter().filter(|event| event.resource == resource) {
        let version = event.details["version"].as_u64().unwrap();
        match event.action.as_str() {
            "request.interrupted" => versions.retain(|told| *told != version),
            _ => versions.push(version),
        }
    }
    versions
}

#[tokio::test(flavor = "multi_thread")]
async fn log_and_database_agree_on_a_request_after_a_crash_at_any_step() {
    let folder = quick_folder();
    Registry::init(folder.path(), &config(), &SECRETS, NOW).unwrap();
    let (registry, log) = open(folder.path(), durable::real()).await;
    // People, their keys and the submitted request are there before.
    let staff = Staff::new(&registry).await;
    let key = key();
    let request = staff
        .submitted(issue(DEVICE, &key, Clearance::Restricted))
        .await;
    let members = staff.members;
    registry.close(NOW).await;
    drop((registry, log));
    let mut there = Tree::read_settled(folder.path()).unwrap();
    there
        .0
        .retain(|path, _| !path.to_str().unwrap().contains(".sqlite"));

    let root = folder.path().to_owned();
    let disk = Arc::new(RecordingDisk::looking(move || sqlite(&root)));
    let (registry, log) = open(folder.path(), disk.clone()).await;
    let mut staff = Staff::of(&registry, members);
    let approved = staff.approve(&request, "registrar-2").await.unwrap();
    let approved_at = disk.ops().len();
    let warrant = staff.authorize(&approved).await.unwrap();
    let issued = registry.issue(order(DEVICE, &key, Clearance::Restricted), warrant, NOW);
    let issued = issued.await.unwrap();
    let issued_at = disk.ops().len();
    let mut crashes = disk.crashes(folder.path(), &there);
    drop((registry, log));
    assert!(crashes.len() > 30, "{}", crashes.len());
    let mut seen = HashSet::new();
    crashes.retain(|crash| {
        let promises = (crash.done >= approved_at, crash.done >= issued_at);
        seen.insert((crash.tree.fingerprint(), promises))
    });

    let id = &request.id().0;
    let mut interrupted = 0;
    for crash in crashes {
        let what = &crash.what;
        let after = quick_folder();
        crash.tree.write(after.path()).unwrap();
        let (registry, log) = open(after.path(), durable::real()).await;
        let record = registry.request(id).await.unwrap();
        let state = record.request.state().name();
        let certificates = registry.list(CaKind::Devices, None).await.unwrap();
        assert!(
            state != "submitted" || crash.done < approved_at,
            "{what}: {state}"
        );
        assert!(
            state == "issued" || crash.done < issued_at,
            "{what}: {state}"
        );
        assert_eq!(certificates.len(), usize::from(state == "issued"), "{what}");
        if let Some(certificate) = certificates.first() {
            assert_eq!(certificate.serial, issued.serial, "{what}");
        }
        let events = events(&log);
        let versions: Vec<u64> = (1..=record.request.version()).collect();
        assert_eq!(
            told(&events, id),
            versions,
            "{what}: log and database differ"
        );
        // The log alone says the same: nothing is missed, and a certificate without effect is none.
        let book = book(&after).await;
        let gaps = unordered_gaps(&registry, &events, &book);
        assert_eq!(gaps, Vec::<String>::new(), "{what}");
        interrupted += events
            .iter()
            .filter(|event| event.action == "request.interrupted")
            .count();
        registry.close(NOW).await;
    }
    assert!(
        interrupted > 0,
        "no crash fell between an event and its effect"
    );
}
