//! Many orders at once: recorded together, each with its own outcome.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use audit::{AuditError, AuditSink, Event, Logged, MemorySink, Recorded};
use pki::profile::CaKind;
use registry::{HolderChange, Issued, Registry, RegistryError};
use tokio::task::JoinHandle;

use crate::completeness::{book, unordered_gaps};
use crate::fixture::{NOW, SECRETS, World, an_order, config, csr, key, open};

/// A log whose disk takes its time.
#[derive(Default)]
struct Slow {
    log: Arc<MemorySink>,
    records: AtomicUsize,
    refuses: AtomicBool,
    /// Fails after it has recorded, as a disk may whose answer gets lost.
    records_and_fails: AtomicBool,
}

impl AuditSink for Slow {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        self.records.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        if self.refuses.load(Ordering::SeqCst) {
            return Err(AuditError::Stopped);
        }
        let recorded = self.log.record_all(events);
        match self.records_and_fails.load(Ordering::SeqCst) {
            true => Err(AuditError::Stopped),
            false => recorded,
        }
    }

    fn look_back(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        self.log.look_back(wanted, each)
    }
}

async fn world() -> (World, Arc<Slow>) {
    let folder = tempfile::tempdir().unwrap();
    Registry::init(folder.path(), &config(), &SECRETS, NOW).unwrap();
    let slow = Arc::new(Slow::default());
    let registry = open(folder.path(), Arc::<Slow>::clone(&slow)).await;
    let audit = Arc::clone(&slow.log);
    let world = World {
        folder,
        registry,
        audit,
    };
    (world, slow)
}

type Order = JoinHandle<Result<Issued, RegistryError>>;

/// Orders a certificate for each of so many devices, for keys of their own.
fn orders(world: &World, count: usize) -> Vec<Order> {
    let order = |number: usize| {
        let registry = world.registry.clone();
        tokio::spawn(async move {
            let (name, spki) = (format!("camera-{number}"), key().spki());
            registry
                .issue_vpn_device(&name, spki, an_order(), NOW)
                .await
        })
    };
    (0..count).map(order).collect()
}

/// Serial numbers of the certificates that events name.
fn recorded(world: &World) -> BTreeSet<String> {
    let events = world.audit.events().into_iter();
    let issued = events
        .filter(|event| event.action == "certificate.issue" && event.outcome == audit::Outcome::Ok);
    issued
        .map(|event| event.details["serial"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_that_come_together_share_records_and_each_has_its_outcome() {
    const COUNT: usize = 40;
    let (world, slow) = world().await;
    let registry = &world.registry;
    let first = orders(&world, 1).pop().unwrap().await.unwrap().unwrap();
    let suspend = HolderChange::Suspend;
    let suspended = registry.change_holder(CaKind::Devices, "camera-0", suspend, an_order(), NOW);
    suspended.await.unwrap();
    let before = slow.records.load(Ordering::SeqCst);
    let (mut serials, mut refused) = (BTreeSet::from([first.serial]), 0);
    for order in orders(&world, COUNT) {
        match order.await.unwrap() {
            Ok(issued) => {
                registry
                    .issued(CaKind::Devices, &issued.serial)
                    .await
                    .unwrap();
                serials.insert(issued.serial);
            }
            Err(RegistryError::Holder(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((refused, serials.len()), (1, COUNT));
    assert_eq!(recorded(&world), serials);
    let records = slow.records.load(Ordering::SeqCst) - before;
    assert!(records < COUNT / 2, "{records} records for {COUNT} orders");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_whose_record_fails_leave_nothing() {
    let (world, slow) = world().await;
    slow.refuses.store(true, Ordering::SeqCst);
    for order in orders(&world, 8) {
        assert!(order.await.unwrap().is_err());
    }
    slow.refuses.store(false, Ordering::SeqCst);
    assert_eq!(recorded(&world), BTreeSet::new());
    // Not even the devices' names are known.
    for number in 0..8 {
        let name = format!("camera-{number}");
        let retire = world.registry.change_holder(
            CaKind::Devices,
            &name,
            HolderChange::Retire,
            an_order(),
            NOW,
        );
        assert!(
            matches!(retire.await, Err(RegistryError::UnknownHolder { .. })),
            "{name}"
        );
    }
    for order in orders(&world, 8) {
        order.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_transaction_that_failed_are_named_by_those_of_the_next() {
    let (world, slow) = world().await;
    slow.records_and_fails.store(true, Ordering::SeqCst);
    for order in orders(&world, 8) {
        assert!(order.await.unwrap().is_err());
    }
    slow.records_and_fails.store(false, Ordering::SeqCst);
    let lost = recorded(&world);
    assert_eq!(lost.len(), 8);
    let mut serials = BTreeSet::new();
    for order in orders(&world, 8) {
        serials.insert(order.await.unwrap().unwrap().serial);
    }
    let mut events = world.audit.events();
    for event in &mut events {
        event.role = "registry".to_owned();
    }
    let opened = events.iter().rfind(|event| event.action == "registry.open");
    assert_eq!(opened.unwrap().details["transaction"], 0);
    assert_eq!(&recorded(&world) - &lost, serials);
    let book = book(&world.folder).await;
    let gaps = unordered_gaps(&world.registry, &events, &book);
    assert_eq!(gaps, Vec::<String>::new());
    // Without that event eight certificates are lost.
    let mut silent = events.clone();
    silent.retain(|event| event.action != "registry.open");
    assert_eq!(unordered_gaps(&world.registry, &silent, &book).len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enrolments_and_renewals_that_come_together_share_records() {
    const COUNT: usize = 24;
    let (world, slow) = world().await;
    let mut codes = Vec::new();
    for number in 0..COUNT {
        let name = format!("camera-{number}");
        let code = world.code(&name).await;
        codes.push((name, code.as_str().to_owned()));
    }
    let before = slow.records.load(Ordering::SeqCst);
    let enrol = |(name, code): (String, String)| {
        let registry = world.registry.clone();
        tokio::spawn(async move {
            let request = csr(&name, &key());
            let issued = registry.enrol(&name, &code, &request, NOW).await;
            (name, issued.unwrap())
        })
    };
    let enrolling: Vec<_> = codes.into_iter().map(enrol).collect();
    let mut first = Vec::new();
    for one in enrolling {
        first.push(one.await.unwrap());
    }
    let records = slow.records.load(Ordering::SeqCst) - before;
    assert!(records < COUNT / 2, "{records} records for {COUNT} codes");
    // The first use of each has an event of its own.
    for (_, issued) in &first {
        let purpose = pki::path::Purpose::ClientDevice;
        let used = world.registry.admit(issued.chain.ders(), purpose, NOW);
        used.await.unwrap();
    }
    let enrolled = slow.records.load(Ordering::SeqCst);
    let renew = |(name, issued): (String, Issued)| {
        let registry = world.registry.clone();
        tokio::spawn(async move {
            let request = csr(&name, &key());
            let renewed = registry.reenrol(issued.chain.ders(), &request, NOW);
            renewed.await.unwrap().serial
        })
    };
    let renewing: Vec<_> = first.into_iter().map(renew).collect();
    let mut serials = BTreeSet::new();
    for one in renewing {
        serials.insert(one.await.unwrap());
    }
    assert_eq!(serials.len(), COUNT);
    assert!(serials.is_subset(&recorded(&world)));
    let records = slow.records.load(Ordering::SeqCst) - enrolled;
    assert!(
        records < COUNT / 2,
        "{records} records for {COUNT} renewals"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_orders_for_one_key_that_come_together_one_is_refused() {
    let (world, _) = world().await;
    let key = key();
    let order = |name: &'static str| {
        let (registry, spki) = (world.registry.clone(), key.spki());
        tokio::spawn(async move { registry.issue_vpn_device(name, spki, an_order(), NOW).await })
    };
    let both = ["camera-1", "camera-2"].map(order);
    let mut good = 0;
    for one in both {
        match one.await.unwrap() {
            Ok(_) => good += 1,
            Err(error) => assert!(matches!(error, RegistryError::KeyInUse), "{error}"),
        }
    }
    assert_eq!((good, recorded(&world).len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_orders_and_goes_away_holds_nobody_up() {
    let (world, _) = world().await;
    for order in orders(&world, 8) {
        order.abort();
    }
    for order in orders(&world, 8) {
        order.await.unwrap().unwrap();
    }
    let known = world.registry.list(CaKind::Devices, None).await.unwrap();
    let known: BTreeSet<String> = known.into_iter().map(|one| one.serial).collect();
    assert_eq!(recorded(&world), known, "no certificate without its event");
}

#[tokio::test]
async fn transaction_without_events_does_not_make_a_failed_one_count() {
    let (world, slow) = world().await;
    let registry = &world.registry;
    let code = world.code("camera-1").await;
    let request = csr("camera-1", &key());
    let enrolled = registry.enrol("camera-1", code.as_str(), &request, NOW);
    let issued = enrolled.await.unwrap();
    slow.records_and_fails.store(true, Ordering::SeqCst);
    let cause = pki::crl::RevocationReason::KeyCompromise;
    let failed = registry.revoke(CaKind::Devices, &issued.serial, cause, an_order(), NOW);
    failed.await.unwrap_err();
    slow.records_and_fails.store(false, Ordering::SeqCst);
    // Lists of which nothing is new have no event.
    let later = NOW + time::Duration::days(1);
    registry.refresh_crls(later).await.unwrap();
    let last = |at: usize| {
        let events = slow.log.events();
        events[events.len() - at].action.clone()
    };
    assert_eq!(last(1), "certificate.revoke");
    registry.close(later).await;
    let registry = open(world.folder.path(), Arc::<Slow>::clone(&slow)).await;
    assert_eq!(last(1), "registry.open");
    let purpose = pki::path::Purpose::ClientDevice;
    let admitted = registry.admit(issued.chain.ders(), purpose, NOW);
    admitted.await.unwrap();
}
