//! A fresh registry in a temporary directory.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, LazyLock};

use audit::{Actor, AuditError, AuditSink, Event, Logged, MemorySink, Recorded};
use pki::clearance::Clearance;
use pki::key::{KeyAlgorithm, PrivateKey};
use registry::{Config, OneTimeCode, Passphrases, Registry, Warrant};
use tempfile::TempDir;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

/// The instant at which these tests play.
pub(crate) const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
/// Shared by all tests: a key is derived from each once.
pub(crate) static SECRETS: LazyLock<Passphrases> = LazyLock::new(|| Passphrases {
    root: "root secret".into(),
    issuing: "issuing secret".into(),
});

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) registry: Registry,
    pub(crate) audit: Arc<MemorySink>,
}

pub(crate) fn config() -> Config {
    Config {
        // Key generation and signatures are quicker than with the default.
        authority_algorithm: KeyAlgorithm::EcdsaP256,
        country: Some("EU".into()),
        crl_base_url: Some("http://pki.example.org/crl/".into()),
        ca_base_url: Some("http://pki.example.org/ca/".into()),
        ..Config::new("LEA-EU")
    }
}

pub(crate) async fn open(folder: &Path, audit: Arc<dyn AuditSink>) -> Registry {
    let opened = Registry::open(folder, config(), &SECRETS.issuing, audit, NOW).await;
    opened.unwrap().with_people(crate::staff::directory())
}

pub(crate) async fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    Registry::init(folder.path(), &config(), &SECRETS, NOW).unwrap();
    let audit = Arc::new(MemorySink::default());
    let registry = open(folder.path(), Arc::<MemorySink>::clone(&audit)).await;
    World {
        folder,
        registry,
        audit,
    }
}

impl World {
    pub(crate) async fn code(&self, device: &str) -> OneTimeCode {
        self.registry
            .create_code(
                device,
                Clearance::Restricted,
                Duration::HOUR,
                registrar(),
                NOW,
            )
            .await
            .unwrap()
    }

    /// Audited actions with their outcomes, oldest first.
    pub(crate) fn audited(&self) -> Vec<(String, String)> {
        let line = |e: Event| (e.action, e.outcome.to_string());
        self.audit.events().into_iter().map(line).collect()
    }
}

pub(crate) fn registrar() -> Actor {
    Actor::user("registrar-1", "R. Example")
}

pub(crate) fn key() -> PrivateKey {
    PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()
}

/// An order of [`registrar`], where that is enough.
pub(crate) fn an_order() -> Warrant {
    config().direct(registrar()).unwrap()
}

/// A request in DER for the device called `name`.
pub(crate) fn csr(name: &str, key: &PrivateKey) -> Vec<u8> {
    pki::csr::build(key, &pki::name::Subject::new(name), &[]).unwrap()
}

/// An audit log that has stopped, and can be read.
#[derive(Default)]
pub(crate) struct Broken(pub(crate) Arc<MemorySink>);

impl AuditSink for Broken {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        // Without this one a start fails.
        match events.iter().all(|event| event.action == "registry.open") {
            true => self.0.record_all(events),
            false => Err(AuditError::Stopped),
        }
    }

    fn look_back(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        self.0.look_back(wanted, each)
    }
}

/// Runs openssl and returns its standard output; panics unless it succeeds.
pub(crate) fn openssl(arguments: &[&str], directory: &Path) -> String {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("openssl is needed by this test");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "openssl {arguments:?} failed\n{text}\n{errors}"
    );
    text + &errors
}
