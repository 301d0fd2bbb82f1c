//! A founding gives each of its people one certificate, and nobody else any; what is forged is named.

use std::collections::BTreeSet;
use std::sync::Arc;

use audit::{AuditSink as _, Event, Leaf, LogKey, SharedLog};
use pki::clearance::Clearance;
use pki::key::PrivateKey;
use pki::name::Subject;
use registry::{Founder, FounderRole, FoundingError, Registry, RegistryError, Transcript};
use time::OffsetDateTime;

use crate::completeness::unordered_gaps;
use crate::fixture::{NOW, SECRETS, an_order, config, csr, key, registrar};

const PEOPLE: [(&str, FounderRole); 4] = [
    ("admin-1", FounderRole::Administrator),
    ("admin-2", FounderRole::Administrator),
    ("registrar-1", FounderRole::Registrar),
    ("registrar-2", FounderRole::Registrar),
];

fn founder(uid: &str, role: FounderRole, csr: &[u8]) -> Founder {
    let names = (
        uid.to_owned(),
        format!("Example {uid}"),
        format!("{uid}@example.org"),
    );
    Founder::new(names, role, Clearance::Confidential, BTreeSet::new(), csr)
}

fn founders() -> Vec<Founder> {
    PEOPLE
        .into_iter()
        .map(|(uid, role)| founder(uid, role, &csr(uid, &key())))
        .collect()
}

fn transcript(root: &[u8], people: Vec<Founder>) -> Result<Transcript, FoundingError> {
    let site = ("Police of Example".to_owned(), "PL".to_owned());
    Transcript::new(site, vec!["localhost".to_owned()], root, people)
}

fn subject(uid: &str) -> Subject {
    Subject {
        uid: Some(uid.to_owned()),
        ..Subject::new(format!("Example {uid}"))
    }
}

/// A registry whose log is on disk.
struct Site {
    _folder: tempfile::TempDir,
    log: SharedLog,
    registry: Registry,
}

impl Site {
    /// One whose log begins with this event, made from the root certificate.
    async fn new(first: impl FnOnce(&[u8]) -> Option<Event>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Registry::init(folder.path(), &config(), &SECRETS, NOW).unwrap();
        let log_key = LogKey::generate("log.example.org").unwrap();
        let log = SharedLog::open(&folder.path().join("audit"), log_key).unwrap();
        let root = pki::file::load_chain(&folder.path().join("pki/root.pem")).unwrap();
        if let Some(event) = first(root.ders()[0].as_ref()) {
            log.role("site").unwrap().record(event).unwrap();
        }
        let sink = Arc::new(log.role("registry").unwrap());
        let opened = Registry::open(folder.path(), config(), &SECRETS.issuing, sink, NOW);
        let registry = opened.await.unwrap();
        Self {
            _folder: folder,
            log,
            registry,
        }
    }

    async fn founded() -> Self {
        Self::new(|root| Some(event(root, founders()))).await
    }

    async fn issue(&self, uid: &str) -> Result<registry::Issued, RegistryError> {
        let log = self.log.view().unwrap();
        registry::issue_founder(&self.registry, &log, subject(uid), registrar(), NOW).await
    }

    fn events(&self) -> Vec<Event> {
        let view = self.log.view().unwrap();
        let entries = (0..view.size()).map(|index| view.entry(index).unwrap());
        entries
            .map(|bytes| Leaf::decode(&bytes).unwrap().event)
            .collect()
    }

    fn gaps(&self, events: &[Event]) -> Vec<String> {
        unordered_gaps(&self.registry, events, &[])
    }
}

fn event(root: &[u8], people: Vec<Founder>) -> Event {
    let event = transcript(root, people).unwrap();
    event.event(NOW, registrar()).unwrap()
}

/// The one gap of these events.
fn only(gaps: Vec<String>) -> String {
    let [gap] = gaps.as_slice() else {
        panic!("{gaps:?}");
    };
    gap.clone()
}

#[tokio::test]
async fn founded_people_have_one_certificate_each() {
    let site = Site::founded().await;
    let mut serials = BTreeSet::new();
    for (uid, _) in PEOPLE {
        let first = site.issue(uid).await.unwrap();
        let again = site.issue(uid).await.unwrap();
        assert_eq!(first.serial, again.serial);
        serials.insert(first.serial);
    }
    assert_eq!(serials.len(), 4);
    assert_eq!(site.gaps(&site.events()), Vec::<String>::new());
}

#[tokio::test]
async fn person_outside_of_the_founding_gets_nothing() {
    let site = Site::founded().await;
    let refused = site.issue("chief-1").await.unwrap_err();
    assert!(matches!(
        refused,
        RegistryError::Founding(FoundingError::Stranger(uid)) if uid == "chief-1"
    ));
    for other in [
        // Without a founding, with one of another site, and with one that came later.
        Site::new(|_| None).await,
        Site::new(|_| Some(event(b"another root", founders()))).await,
    ] {
        let refused = other.issue("admin-1").await.unwrap_err();
        assert!(matches!(refused, RegistryError::Founding(_)), "{refused:?}");
    }
    let late = Site::new(|_| None).await;
    let root = pki::cert::to_der(late.registry.root()).unwrap();
    let role = late.log.role("site").unwrap();
    role.record(event(&root, founders())).unwrap();
    assert!(late.issue("admin-1").await.is_err());
    assert_eq!(
        only(late.gaps(&late.events())),
        "a founding that is not the first event of the log"
    );
}

#[tokio::test]
async fn founding_without_a_quorum_of_keys_is_refused() {
    let same: PrivateKey = key();
    let administrators = |count| {
        let role = FounderRole::Administrator;
        (0..count).map(move |n| (format!("admin-{n}"), role))
    };
    let people = |list: Vec<(String, FounderRole)>| -> Vec<Founder> {
        list.into_iter()
            .map(|(uid, role)| founder(&uid, role, &csr(&uid, &key())))
            .collect()
    };
    let with = |at: usize, one: Founder| {
        let mut people = founders();
        people[at] = one;
        people
    };
    let registrar = FounderRole::Registrar;
    let mut shared = with(2, founder("registrar-1", registrar, &csr("a", &same)));
    shared[3] = founder("registrar-2", registrar, &csr("b", &same));
    let mut forged = csr("admin-1", &key());
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let mut many = people(administrators(11).collect());
    many.extend(founders().split_off(2));
    for (people, part) in [
        (founders().split_off(1), "1 of role administrator"),
        (founders()[..3].to_vec(), "1 of role registrar"),
        (people(administrators(4).collect()), "0 of role registrar"),
        (shared, "one key for registrar-1 and registrar-2"),
        (
            with(3, founder("registrar-1", registrar, &csr("c", &key()))),
            "twice",
        ),
        (
            with(3, founder("Registrar-1", registrar, &csr("c", &key()))),
            "twice",
        ),
        (
            with(0, founder("admin-1", FounderRole::Administrator, &forged)),
            "is refused",
        ),
        (
            with(0, founder("admin-1", FounderRole::Administrator, b"")),
            "is refused",
        ),
        (many, "13 people"),
    ] {
        let error = transcript(b"root", people).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn forged_founding_is_named_by_the_audit() {
    let site = Site::founded().await;
    for (uid, _) in PEOPLE {
        site.issue(uid).await.unwrap();
    }
    let good = site.events();
    let at = |uid: &str| {
        let is =
            |event: &Event| event.action == "certificate.issue" && event.resource.ends_with(uid);
        good.iter().position(is).unwrap()
    };
    let changed = |at: usize, name: &str, value: String| {
        let mut events = good.clone();
        events[at] = events[at].clone().with_detail(name, value);
        site.gaps(&events)
    };
    let admin = at("admin-1");
    for (name, value, part) in [
        ("uid", "chief-1", "the founding does not name chief-1"),
        ("spki_sha256", "00", "the founding was for another key"),
        ("profile", "user", "the founding was for another profile"),
        (
            "origin",
            "order",
            "the founding names admin-1, who has no certificate",
        ),
    ] {
        let gaps = changed(admin, name, value.to_owned());
        assert!(
            gaps.iter().any(|gap| gap.contains(part)),
            "{name}: {gaps:?}"
        );
    }
    // A second certificate of a person of the founding.
    let mut events = good.clone();
    let second = events[admin].clone();
    let second = second.with_detail("serial", "77".to_owned());
    events.push(second.with_detail("fingerprint", "77".to_owned()));
    let gaps = site.gaps(&events);
    assert!(only(gaps).contains("gave this person a certificate before"));
    // A second founding, one whose request was exchanged, and none.
    let root = pki::cert::to_der(site.registry.root()).unwrap();
    let mut events = good.clone();
    let mut again = event(&root, founders());
    "site".clone_into(&mut again.role);
    events.push(again.clone());
    assert_eq!(
        only(site.gaps(&events)),
        "a founding that is not the first event of the log"
    );
    let mut events = good.clone();
    events[0] = again;
    let gaps = site.gaps(&events);
    let other_key = |gap: &&String| gap.contains("the founding was for another key");
    assert_eq!(gaps.iter().filter(other_key).count(), 4, "{gaps:?}");
    let gaps = site.gaps(&good[1..]);
    let none = |gap: &&String| gap.contains("the log does not begin with one");
    assert_eq!(gaps.iter().filter(none).count(), 4, "{gaps:?}");
}

#[tokio::test]
async fn person_with_a_certificate_for_the_key_is_not_founded_with_it() {
    let mine = key();
    let mut people = founders();
    people[0] = founder(
        "admin-1",
        FounderRole::Administrator,
        &csr("admin-1", &mine),
    );
    let site = Site::new(|root| Some(event(root, people))).await;
    let at: OffsetDateTime = NOW;
    let registry = &site.registry;
    registry
        .issue_device(
            "camera-1",
            mine.spki(),
            Clearance::Restricted,
            an_order(),
            at,
        )
        .await
        .unwrap();
    assert!(site.issue("admin-1").await.is_err());
}
