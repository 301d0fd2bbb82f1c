//! Keys elsewhere that do not answer: whoever waits for one keeps nobody else waiting.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use audit::MemorySink;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::key::{AuthorityKey, KeyError, PrivateKey, Signer};
use pki::name::Subject;
use pki::profile::CaKind;
use pki::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use registry::{AuthorityId, AuthorityKeys, Config, Registry, Revoked};
use tokio::time::timeout;

use crate::fixture::{self, NOW, SECRETS, an_order, key};

const SOON: std::time::Duration = std::time::Duration::from_secs(20);

/// What becomes of signatures.
#[derive(Default)]
struct Gate {
    /// Whether they wait.
    holds: Mutex<bool>,
    opened: Condvar,
    /// Whether they fail.
    refuses: AtomicBool,
    waiting: AtomicUsize,
}

impl Gate {
    fn hold(&self, holds: bool) {
        *self.holds.lock().unwrap() = holds;
        self.opened.notify_all();
    }

    fn pass(&self) -> Result<(), KeyError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waits = self.holds.lock().unwrap();
        drop(self.opened.wait_while(waits, |holds| *holds).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        match self.refuses.load(Ordering::SeqCst) {
            true => Err(KeyError::Elsewhere {
                reason: "it is away".into(),
            }),
            false => Ok(()),
        }
    }
}

/// A key on a token behind a gate.
struct Token {
    key: PrivateKey,
    gate: Arc<Gate>,
}

impl Signer for Token {
    fn signature_algorithm(&self) -> AlgorithmIdentifierOwned {
        self.key.signature_algorithm()
    }

    fn spki(&self) -> SubjectPublicKeyInfoOwned {
        self.key.spki()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.gate.pass()?;
        self.key.sign(message)
    }
}

struct Tokens {
    keys: BTreeMap<AuthorityId, PrivateKey>,
    gate: Arc<Gate>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

impl AuthorityKeys for Tokens {
    fn key(&self, id: AuthorityId) -> Result<Option<AuthorityKey>, KeyError> {
        let key = self.keys.get(&id).cloned();
        Ok(key.map(|key| {
            let gate = Arc::clone(&self.gate);
            Token { key, gate }.into()
        }))
    }
}

struct World {
    _folder: tempfile::TempDir,
    registry: Registry,
    audit: Arc<MemorySink>,
    gate: Arc<Gate>,
}

/// A site whose devices authority has its key on a token.
async fn world() -> World {
    let gate = Arc::new(Gate::default());
    let tokens = Tokens {
        keys: BTreeMap::from([(AuthorityId::first(CaKind::Devices), key())]),
        gate: Arc::clone(&gate),
    };
    let config = Config {
        authority_keys: Arc::new(tokens),
        ..fixture::config()
    };
    let folder = tempfile::tempdir().unwrap();
    Registry::init(folder.path(), &config, &SECRETS, NOW).unwrap();
    let audit = Arc::new(MemorySink::default());
    let sink = Arc::<MemorySink>::clone(&audit);
    let opened = Registry::open(folder.path(), config, &SECRETS.issuing, sink, NOW);
    World {
        registry: opened.await.unwrap(),
        _folder: folder,
        audit,
        gate,
    }
}

impl World {
    fn device(
        &self,
        name: &str,
    ) -> tokio::task::JoinHandle<Result<registry::Issued, registry::RegistryError>> {
        let (registry, name, spki) = (self.registry.clone(), name.to_owned(), key().spki());
        tokio::spawn(async move {
            let issued = registry.issue_device(&name, spki, Clearance::Restricted, an_order(), NOW);
            issued.await
        })
    }

    fn events(&self, action: &str, outcome: &str) -> usize {
        let events = self.audit.events();
        let same =
            |event: &&audit::Event| event.action == action && event.outcome.to_string() == outcome;
        events.iter().filter(same).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authority_whose_key_does_not_answer_keeps_no_revocation_and_no_other_authority_waiting() {
    let world = world().await;
    let stolen = world.device("camera-1").await.unwrap().unwrap();
    world.gate.hold(true);
    // More than there are threads for its signatures.
    let waiting: Vec<_> = (10..30)
        .map(|n| world.device(&format!("camera-{n}")))
        .collect();
    while world.gate.waiting.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let registry = &world.registry;
    let subject = Subject {
        uid: Some("officer-1".into()),
        ..Subject::new("A. Officer")
    };
    let spki = key().spki();
    let person = registry.issue_user(subject, spki, Clearance::Secret, false, an_order(), NOW);
    let person = timeout(SOON, person)
        .await
        .expect("issued meanwhile")
        .unwrap();
    let reason = RevocationReason::KeyCompromise;
    let revoked = registry.revoke(CaKind::Users, &person.serial, reason, an_order(), NOW);
    let revoked = timeout(SOON, revoked).await.expect("revoked meanwhile");
    assert_eq!(revoked.unwrap(), Revoked::Now);
    // Of the same authority too: in the database and the cache, though its list waits for the key.
    let revoking = {
        let (registry, serial) = (registry.clone(), stolen.serial.clone());
        tokio::spawn(async move {
            let revoked = registry.revoke(CaKind::Devices, &serial, reason, an_order(), NOW);
            revoked.await
        })
    };
    let is_revoked = async {
        loop {
            let record = registry
                .issued(CaKind::Devices, &stolen.serial)
                .await
                .unwrap();
            if record.revoked.is_some() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, is_revoked)
        .await
        .expect("revoked while its list waits");
    assert_eq!(world.events("certificate.revoke", "ok"), 2);
    assert_eq!(
        world.events("certificate.issue", "ok"),
        2,
        "nothing was issued without a signature"
    );
    world.gate.hold(false);
    revoking.await.unwrap().unwrap();
    let mut serials = std::collections::BTreeSet::new();
    for issued in waiting {
        serials.insert(issued.await.unwrap().unwrap().serial);
    }
    assert_eq!(serials.len(), 20);
    assert_eq!(world.events("certificate.issue", "ok"), 22);
    for serial in serials {
        registry.issued(CaKind::Devices, &serial).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_who_is_suspended_while_the_certificate_is_signed_gets_none() {
    let world = world().await;
    world.device("camera-1").await.unwrap().unwrap();
    world.gate.hold(true);
    let waiting = world.device("camera-1");
    while world.gate.waiting.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let change = registry::HolderChange::Suspend;
    let suspended =
        world
            .registry
            .change_holder(CaKind::Devices, "camera-1", change, an_order(), NOW);
    timeout(SOON, suspended)
        .await
        .expect("suspended meanwhile")
        .unwrap();
    world.gate.hold(false);
    assert!(waiting.await.unwrap().is_err());
    assert_eq!(world.events("certificate.issue", "ok"), 1);
    assert_eq!(world.events("certificate.issue", "deny"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_that_is_refused_is_an_event_and_leaves_the_code_good() {
    let world = world().await;
    let registry = &world.registry;
    let code = registry
        .create_code(
            "camera-1",
            Clearance::Restricted,
            time::Duration::HOUR,
            fixture::registrar(),
            NOW,
        )
        .await
        .unwrap();
    let csr = fixture::csr("camera-1", &key());
    world.gate.refuses.store(true, Ordering::SeqCst);
    let refused = registry.enrol("camera-1", code.as_str(), &csr, NOW).await;
    assert!(refused.is_err());
    assert_eq!(world.events("certificate.issue", "fail"), 1);
    world.gate.refuses.store(false, Ordering::SeqCst);
    registry
        .enrol("camera-1", code.as_str(), &csr, NOW)
        .await
        .unwrap();
    assert_eq!(world.events("certificate.issue", "ok"), 1);
}
