//! Which generation issues, by the database, is held against the audit log.

use std::path::Path;
use std::sync::Arc;

use audit::{Actor, AuditSink as _, Event, LogKey, Outcome, SharedLog};
use pki::profile::CaKind;
use registry::{AuthorityId, Registry, RegistryError, Wanted};

use crate::fixture::{NOW, SECRETS, an_order, config, registrar};
use crate::generations::{FIRST, made, second};
use crate::generations_kept::meddle;
use crate::staff::Staff;

/// A site with its log on the disk.
struct Site {
    folder: tempfile::TempDir,
    log: SharedLog,
}

impl Site {
    /// One whose first start has noted what issues.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Registry::init(folder.path(), &config(), &SECRETS, NOW).unwrap();
        let key = LogKey::generate("log.example.org").unwrap();
        let log = SharedLog::open(&folder.path().join("audit"), key).unwrap();
        let site = Self { folder, log };
        let registry = site.open().await;
        assert!(!site.check(&registry).await.unwrap());
        registry.note_issuing(NOW).await.unwrap();
        registry.close(NOW).await;
        site
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn open(&self) -> Registry {
        self.try_open().await.unwrap()
    }

    async fn try_open(&self) -> Result<Registry, RegistryError> {
        let sink = Arc::new(self.log.role("registry").unwrap());
        Registry::open(self.path(), config(), &SECRETS.issuing, sink, NOW).await
    }

    async fn check(&self, registry: &Registry) -> Result<bool, RegistryError> {
        registry.check_issuing(self.log.view().unwrap()).await
    }

    fn record(&self, role: &str, event: Event) {
        self.log.role(role).unwrap().record(event).unwrap();
    }
}

fn event(action: &str) -> Event {
    Event::new(NOW, registrar(), action, "authority/devices", Outcome::Ok)
}

fn takeover(new: AuthorityId) -> Event {
    event("authority.activate").with_detail("new", new.to_string())
}

/// Has the database say that this generation issues.
async fn put_to_use_by_hand(folder: &Path, id: AuthorityId) {
    let kind = id.kind();
    let row = |generation: u16, state: &str| {
        format!(
            "UPDATE authorities SET state = '{state}' WHERE kind = '{kind}' AND generation = {generation};"
        )
    };
    let others = format!("UPDATE authorities SET state = 'retired' WHERE kind = '{kind}';");
    meddle(folder, &(others + &row(id.generation(), "issuing"))).await;
}

#[tokio::test]
async fn generation_that_was_put_to_use_in_the_database_alone_is_noticed_also_one_of_before() {
    let site = Site::new().await;
    let registry = site.open().await;
    assert!(!site.check(&registry).await.unwrap());
    let id = made(&registry, site.path()).await;
    registry.close(NOW).await;
    put_to_use_by_hand(site.path(), id).await;
    let error = site.try_open().await.err().unwrap();
    assert!(matches!(error, RegistryError::Contradiction(_)), "{error}");
    put_to_use_by_hand(site.path(), FIRST).await;
    meddle(
        site.path(),
        "UPDATE authorities SET state = 'ready' WHERE generation = 2",
    )
    .await;
    let registry = site.open().await;
    registry
        .activate_authority(id, an_order(), NOW)
        .await
        .unwrap();
    assert!(!site.check(&registry).await.unwrap());
    registry.close(NOW).await;
    put_to_use_by_hand(site.path(), FIRST).await;
    let error = site.try_open().await.err().unwrap();
    assert!(matches!(error, RegistryError::Contradiction(_)), "{error}");
    // A person may let the site go on, which is in the log.
    site.record("registry", event("audit.accept-loss"));
    assert!(site.try_open().await.is_err());
    site.record("site", event("audit.accept-loss"));
    let registry = site.open().await;
    assert!(site.check(&registry).await.unwrap());
}

#[tokio::test]
async fn takeover_by_a_request_needs_its_approvals_in_the_log() {
    let site = Site::new().await;
    let registry = site.open().await;
    let id = made(&registry, site.path()).await;
    let mut staff = Staff::new(&registry).await;
    let act = registry.activation(id).unwrap();
    let wanted = Wanted { act, csr: None };
    let request = staff
        .approved(wanted, &["administrator-3", "administrator-4"])
        .await;
    let warrant = staff.authorize(&request).await.unwrap();
    registry.activate_authority(id, warrant, NOW).await.unwrap();
    assert!(!site.check(&registry).await.unwrap());
    registry.close(NOW).await;
    let registry = site.open().await;
    assert!(!site.check(&registry).await.unwrap());

    // Whoever can write to the log, and has one approver instead of two.
    let third = made(&registry, site.path()).await;
    let staff = Staff::of(&registry, staff.members);
    let act = registry.activation(third).unwrap();
    let approval::Act::AddAuthority {
        certificate_sha256, ..
    } = act.clone()
    else {
        panic!("{act:?}");
    };
    let wanted = Wanted { act, csr: None };
    let request = staff.approved(wanted, &["administrator-4"]).await;
    let forged = takeover(third)
        .with_detail("certificate_sha256", certificate_sha256)
        .with_detail("request", request.id().0.clone());
    site.record("registry", forged);
    let error = site.check(&registry).await.unwrap_err();
    let is_noticed = matches!(
        &error,
        RegistryError::NotApproved { id, found: 1, needed: 2, .. } if *id == third
    );
    assert!(is_noticed, "{error}");
}

#[tokio::test]
async fn takeover_that_was_not_committed_has_no_effect() {
    let site = Site::new().await;
    let registry = site.open().await;
    let id = AuthorityId::first(CaKind::Users).next().unwrap();
    site.record("registry", takeover(id).with_detail("transaction", 9));
    let error = site.check(&registry).await.unwrap_err();
    assert!(
        matches!(error, RegistryError::NotByLog { logged, .. } if logged == id),
        "{error}"
    );
    site.record(
        "registry",
        event("registry.open").with_detail("transaction", 8),
    );
    assert!(!site.check(&registry).await.unwrap());
    // Others' events say nothing.
    for role in ["site", "centre"] {
        site.record(role, takeover(second()));
    }
    let failed = Event::new(
        NOW,
        registrar(),
        "authority.activate",
        "authority/devices",
        Outcome::Fail,
    );
    site.record("registry", failed.with_detail("new", "devices-g2"));
    assert!(!site.check(&registry).await.unwrap());
}

#[tokio::test]
async fn start_reads_the_log_back_to_what_was_noted_last() {
    let site = Site::new().await;
    let registry = site.open().await;
    let centre = site.log.role("centre").unwrap();
    for _ in 0..17 {
        let events = (0..1000).map(|number| {
            Event::new(
                NOW,
                Actor::service("centre"),
                "evidence.show",
                format!("violation/{number}"),
                Outcome::Ok,
            )
        });
        centre.record_all(events.collect()).unwrap();
    }
    assert!(site.check(&registry).await.unwrap());
    registry.note_issuing(NOW).await.unwrap();
    assert!(!site.check(&registry).await.unwrap());
}
