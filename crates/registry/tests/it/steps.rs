//! A crash at every step of issuing and revoking.
//!
//! Lists and audit log are on a disk that records; SQLite writes by itself, so its files are taken as they are before
//! and after each recorded operation, which makes its transactions atomic and durable at their borders. That they are
//! is SQLite's own promise and not tested here.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use audit::{Event, LogKey, SharedLog};
use durable::SharedDisk;
use durable::testing::{Item, RecordingDisk, Tree};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use registry::{AuthorityId, Config, CrlName, Registry, Revoked};
use time::Duration;

use crate::completeness::{book, unordered_gaps};
use crate::fixture::{NOW, SECRETS, an_order, config, csr, key, registrar};
use crate::lists::{delta, list, number, serials, shard};

const DEVICE: &str = "camera-17";

pub(crate) fn sqlite(folder: &Path) -> Tree {
    let mut tree = Tree::default();
    for name in ["registry.sqlite", "registry.sqlite-wal"] {
        if let Ok(bytes) = std::fs::read(folder.join(name)) {
            let bytes = Arc::new(bytes);
            tree.0
                .insert(name.into(), Item::File { bytes, mode: 0o600 });
        }
    }
    tree
}

pub(crate) async fn open(folder: &Path, disk: SharedDisk) -> (Registry, SharedLog) {
    let log_key = LogKey::from_seed("audit.example.org/log", &[7; 32]).unwrap();
    let log = SharedLog::open_on(disk.clone(), &folder.join("audit"), log_key).unwrap();
    let audit = Arc::new(log.role("registry").unwrap());
    let config = Config { disk, ..config() };
    let opened = Registry::open(folder, config, &SECRETS.issuing, audit, NOW).await;
    (opened.unwrap(), log)
}

/// A folder in memory where the system has one: hundreds of synchronised files take minutes on a disk.
pub(crate) fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Events of the log, oldest first.
pub(crate) fn events(log: &SharedLog) -> Vec<Event> {
    let view = log.view().unwrap();
    let leaves = (0..view.size()).map(|i| audit::Leaf::decode(&view.entry(i).unwrap()).unwrap());
    leaves.map(|leaf| leaf.event).collect()
}

/// Serial numbers in events of this action that took effect, as the log says it.
fn told(events: &[Event], action: &str) -> Vec<String> {
    let number = |event: &Event| event.details["transaction"].as_u64().unwrap();
    let mut told = Vec::new();
    for event in events {
        match event.action.as_str() {
            "registry.open" => told.retain(|(transaction, _)| *transaction <= number(event)),
            one if one == action => {
                let serial = event.details["serial"].as_str().unwrap();
                told.push((number(event), serial.to_owned()));
            }
            _ => {}
        }
    }
    told.into_iter().map(|(_, serial)| serial).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn issuing_and_revoking_with_a_crash_at_any_step_is_done_or_not_done() {
    let folder = quick_folder();
    Registry::init(folder.path(), &config(), &SECRETS, NOW).unwrap();
    let (registry, log) = open(folder.path(), durable::real()).await;
    let made = registry.create_code(
        DEVICE,
        Clearance::Restricted,
        Duration::HOUR,
        registrar(),
        NOW,
    );
    let code = made.await.unwrap();
    registry.close(NOW).await;
    drop((registry, log));
    let mut there = Tree::read_settled(folder.path()).unwrap();
    there
        .0
        .retain(|path, _| !path.to_str().unwrap().contains(".sqlite"));

    let root = folder.path().to_owned();
    let disk = Arc::new(RecordingDisk::looking(move || sqlite(&root)));
    let (registry, log) = open(folder.path(), disk.clone()).await;
    let device_key = key();
    let request = csr(DEVICE, &device_key);
    let issued = registry
        .enrol(DEVICE, code.as_str(), &request, NOW)
        .await
        .unwrap();
    let enrolled = disk.ops().len();
    registry.crl_for(shard(&issued), NOW).await.unwrap();
    let reason = RevocationReason::KeyCompromise;
    let revoked = registry.revoke(CaKind::Devices, &issued.serial, reason, an_order(), NOW);
    assert_eq!(revoked.await.unwrap(), Revoked::Now);
    let withdrawn = disk.ops().len();
    let mut crashes = disk.crashes(folder.path(), &there);
    drop((registry, log));
    assert!(crashes.len() > 100, "{}", crashes.len());
    // The same files with the same promises need no second look, which costs the derivation of three keys.
    let mut seen = HashSet::new();
    crashes.retain(|crash| {
        let promises = (crash.done >= enrolled, crash.done >= withdrawn);
        seen.insert((crash.tree.fingerprint(), promises))
    });

    let mut interrupted = 0;
    for crash in crashes {
        let what = &crash.what;
        let after = quick_folder();
        crash.tree.write(after.path()).unwrap();
        let lists = [
            CrlName::Issuing(AuthorityId::first(CaKind::Devices)),
            CrlName::Delta(AuthorityId::first(CaKind::Devices)),
            shard(&issued),
            delta(&issued),
        ]
        .map(|name| {
            let file = after.path().join(format!("pki/crl/{name}.crl"));
            (name, std::fs::read(file).ok())
        });
        let (registry, log) = open(after.path(), durable::real()).await;
        for (name, written) in &lists {
            let (Some(der), Some(written)) = (registry.crl(*name), written) else {
                continue;
            };
            let before = pki::crl::parse(written).unwrap().tbs_cert_list;
            let grew = number(&list(&registry, *name)) > number(&before);
            assert!(grew || der[..] == written[..], "{what}: number of {name}");
        }
        let records = registry.list(CaKind::Devices, None).await.unwrap();
        let events = events(&log);
        let issued_by_book: Vec<String> = records.iter().map(|one| one.serial.clone()).collect();
        let revoked_by_book = records.iter().filter(|one| one.revoked.is_some());
        let revoked_by_book: Vec<String> = revoked_by_book.map(|one| one.serial.clone()).collect();
        assert_eq!(told(&events, "certificate.issue"), issued_by_book, "{what}");
        assert_eq!(
            told(&events, "certificate.revoke"),
            revoked_by_book,
            "{what}"
        );
        let gaps = unordered_gaps(&registry, &events, &book(&after).await);
        assert_eq!(gaps, Vec::<String>::new(), "{what}");
        interrupted += events
            .iter()
            .filter(|event| event.action == "registry.open")
            .count();
        match &records[..] {
            [] => {
                assert!(
                    crash.done < enrolled,
                    "{what}: an acknowledged certificate is gone"
                );
                // Not done: the code still serves.
                let again = registry.enrol(DEVICE, code.as_str(), &request, NOW).await;
                again.unwrap_or_else(|e| panic!("{what}: {e:?}"));
            }
            [record] => {
                assert_eq!(record.serial, issued.serial, "{what}");
                let again = registry
                    .enrol(DEVICE, code.as_str(), &csr(DEVICE, &key()), NOW)
                    .await;
                assert!(again.is_err(), "{what}: the code serves two keys");
                let serial = &record.serial;
                let is_revoked = record.revoked.is_some();
                assert!(
                    is_revoked || crash.done < withdrawn,
                    "{what}: a revocation is undone"
                );
                if is_revoked {
                    for (name, _) in &lists {
                        let listed = serials(&list(&registry, *name));
                        assert!(listed.contains(serial), "{what}: not on {name}");
                    }
                }
                let again = registry.revoke(CaKind::Devices, serial, reason, an_order(), NOW);
                let again = again.await.unwrap();
                assert_eq!(again != Revoked::Now, is_revoked, "{what}");
                assert_eq!(registry.status().revoked_count(), 1, "{what}");
            }
            more => panic!("{what}: {} certificates", more.len()),
        }
        registry.close(NOW).await;
    }
    assert!(
        interrupted > 0,
        "no crash fell between an event and its effect"
    );
}
