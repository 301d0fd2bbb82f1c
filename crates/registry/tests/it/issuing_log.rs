//! Which generation issues, by the database, is held against the audit log.

use std::path::Path;
use std::sync::Arc;

use audit::{Actor, AuditSink as _, Event, LogKey, Outcome, SharedLog};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use registry::{AuthorityId, Contradiction, HolderChange, Registry, RegistryError, Wanted};

use crate::fixture::{NOW, SECRETS, an_order, config, key, registrar};
use crate::generations::{FIRST, made, second};
use crate::generations_kept::meddle;
use crate::profiles::PATROL;
use crate::staff::{Staff, order};

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
        assert!(site.check(&registry).await.unwrap());
        registry.note_issuing(NOW).await.unwrap();
        registry.close().await;
        site
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn open(&self) -> Registry {
        let sink = Arc::new(self.log.role("registry").unwrap());
        let open = Registry::open(self.path(), config(), &SECRETS.issuing, sink, NOW);
        open.await.unwrap()
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
    registry.close().await;
    put_to_use_by_hand(site.path(), id).await;
    let registry = site.open().await;
    let error = site.check(&registry).await.unwrap_err();
    let is_noticed =
        matches!(error, RegistryError::NotByLog { row, logged } if (row, logged) == (id, FIRST));
    assert!(is_noticed, "{error}");
    registry.close().await;
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
    registry.close().await;
    put_to_use_by_hand(site.path(), FIRST).await;
    let registry = site.open().await;
    let error = site.check(&registry).await.unwrap_err();
    let is_noticed =
        matches!(error, RegistryError::NotByLog { row, logged } if (row, logged) == (FIRST, id));
    assert!(is_noticed, "{error}");
    // A person may let the site go on, which is in the log.
    site.record("registry", event("audit.accept-loss"));
    assert!(site.check(&registry).await.is_err());
    site.record("site", event("audit.accept-loss"));
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
    registry.close().await;
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

#[tokio::test]
async fn profile_that_the_log_does_not_have_in_force_is_noticed() {
    let site = Site::new().await;
    let registry = site.open().await;
    let changed = |days: u32| PATROL.replace("days = 30", &format!("days = {days}"));
    for days in [30, 7] {
        let text = changed(days);
        let done = registry.change_profile(&text, an_order(), NOW);
        done.await.unwrap();
        if days == 30 {
            let copy = "CREATE TABLE older AS SELECT * FROM profiles";
            meddle(site.path(), copy).await;
        }
    }
    assert!(!site.check(&registry).await.unwrap());
    // Whether the log says so at the end, or what was noted from time to time.
    for is_noted in [false, true] {
        if is_noted {
            registry.note_issuing(NOW).await.unwrap();
        }
        for (change, is_there) in [
            ("INSERT INTO profiles SELECT * FROM older", true),
            ("DELETE FROM older WHERE 0", false),
        ] {
            meddle(
                site.path(),
                "CREATE TABLE newest AS SELECT * FROM profiles; DELETE FROM profiles",
            )
            .await;
            meddle(site.path(), change).await;
            let other = site.open().await;
            let error = site.check(&other).await.unwrap_err();
            let is_noticed = matches!(
                &error,
                RegistryError::Contradiction(Contradiction::Profile(name)) if name == "patrol-login"
            );
            assert!(is_noticed, "{is_noted} {is_there}: {error}");
            other.close().await;
            meddle(
                site.path(),
                "DELETE FROM profiles; INSERT INTO profiles SELECT * FROM newest; DROP TABLE newest",
            )
            .await;
        }
        let same = site.open().await;
        assert!(!site.check(&same).await.unwrap());
        same.close().await;
    }
    // One that nobody put in force.
    let made_up = "INSERT INTO profiles (name, definition, changed_at) SELECT 'night-login',
         replace(definition, 'patrol-login', 'night-login'), changed_at FROM profiles";
    meddle(site.path(), made_up).await;
    let other = site.open().await;
    let error = site.check(&other).await.unwrap_err();
    assert!(
        matches!(&error, RegistryError::Contradiction(Contradiction::Profile(name)) if name == "night-login"),
        "{error}"
    );
}

#[tokio::test]
async fn revocation_that_was_taken_out_of_the_database_stops_the_start() {
    let site = Site::new().await;
    let registry = site.open().await;
    let mut issued = Vec::new();
    for name in ["camera-1", "camera-2", "camera-3"] {
        let order = order(name, &key(), Clearance::Restricted);
        issued.push(registry.issue(order, an_order(), NOW).await.unwrap());
    }
    let (one, two) = (issued[0].serial.clone(), issued[1].serial.clone());
    let devices = CaKind::Devices;
    let cause = RevocationReason::KeyCompromise;
    for serial in [&one, &two] {
        let done = registry.revoke(devices, serial, cause, an_order(), NOW);
        done.await.unwrap();
    }
    let suspend =
        registry.change_holder(devices, "camera-3", HolderChange::Suspend, an_order(), NOW);
    suspend.await.unwrap();
    assert!(!site.check(&registry).await.unwrap());
    let back = "DELETE FROM revoked; INSERT INTO revoked SELECT * FROM kept_revoked;
         DELETE FROM holders; INSERT INTO holders SELECT * FROM kept_holders";
    meddle(
        site.path(),
        "CREATE TABLE kept_revoked AS SELECT * FROM revoked; CREATE TABLE kept_holders AS SELECT * FROM holders",
    )
    .await;
    // Of what the log says at its end, and of what was noted.
    for is_noted in [false, true] {
        if is_noted {
            registry.note_issuing(NOW).await.unwrap();
            // A holder's state of before the note, and another one since.
            let change = HolderChange::Resume;
            let resume = registry.change_holder(devices, "camera-3", change, an_order(), NOW);
            resume.await.unwrap();
            assert!(!site.check(&registry).await.unwrap());
            let third = &issued[2].serial;
            let done = registry.revoke(devices, third, cause, an_order(), NOW);
            done.await.unwrap();
            assert!(!site.check(&registry).await.unwrap());
            meddle(
                site.path(),
                "DROP TABLE kept_revoked; DROP TABLE kept_holders;
                 CREATE TABLE kept_revoked AS SELECT * FROM revoked; CREATE TABLE kept_holders AS SELECT * FROM holders",
            )
            .await;
        }
        let mut changes = vec![
            format!("DELETE FROM revoked WHERE serial = '{one}'"),
            format!("DELETE FROM revoked WHERE serial = '{one}' OR serial = '{two}'"),
            "DELETE FROM revoked".to_owned(),
            "UPDATE holders SET state = iif(state = 'enrolled', 'suspended', 'enrolled') WHERE holder_id = 'camera-3'"
                .to_owned(),
        ];
        if is_noted {
            // One row that looks like all of them, were lines put together without care.
            changes.push(format!(
                "DELETE FROM revoked; INSERT INTO revoked (authority, serial, at, reason, generation)
                 VALUES ('devices/{}' || char(10) || 'devices', '{}', 1, 'key-compromise', 1)",
                one.clone().min(two.clone()),
                one.clone().max(two.clone())
            ));
            let others = "UPDATE holders SET state = 'retired' WHERE holder_id = 'camera-1'";
            changes.push(others.to_owned());
            changes.push(format!(
                "UPDATE revoked SET serial = '{}' WHERE serial = '{two}'",
                "ab".repeat(16)
            ));
        }
        for change in changes {
            meddle(site.path(), &format!("PRAGMA foreign_keys = OFF; {change}")).await;
            let error = site.check(&registry).await.expect_err(&change);
            let is_noticed = matches!(error, RegistryError::Contradiction(_));
            assert!(is_noticed, "{change}: {error}");
            meddle(site.path(), &format!("PRAGMA foreign_keys = OFF; {back}")).await;
            assert!(!site.check(&registry).await.unwrap(), "{change}");
        }
    }
}
