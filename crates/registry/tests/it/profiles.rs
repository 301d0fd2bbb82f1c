//! Profiles that a site puts in force, and certificates by them.

use std::sync::Arc;

use access::PersonRecord;
use approval::Act;
use pki::clearance::Clearance;
use pki::key::PrivateKey;
use pki::name::{Subject, WindowsAccount};
use pki::path::Purpose;
use pki::profile::{CaKind, Definition, Profile, purpose_name};
use pki::spki::spki_sha256;
use registry::{
    Approvals, Invitation, ListedPerson, Order, Registration, Registry, RegistryError, Wanted,
};
use store::sqlx;
use store::sqlx::Connection as _;
use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use time::Duration;

use crate::fixture::{NOW, SECRETS, World, an_order, config, csr, key, world};
use crate::staff::{Staff, event, names, rights, subject as subject_of};

pub(crate) const PATROL: &str = r#"
name = "patrol-login"
issuer = "users"
clearance = "optional"
highest_clearance = 2
days = 30
[names]
uid = "required"
email = "optional"
[key_usage]
ecdsa = ["digitalSignature"]
[extended_key_usage]
purposes = ["clientAuth"]
"#;

pub(crate) fn named(registry: &Registry, name: &str) -> Profile {
    registry.requested_profile(name).expect(name)
}

fn account() -> WindowsAccount {
    WindowsAccount::new("officer-9@police.example", "S-1-5-21-1-2-3-1104").unwrap()
}

pub(crate) fn text_of(registry: &Registry, name: &str) -> String {
    let mut all = registry.profiles().into_iter();
    all.find(|one| one.name == name).unwrap().text
}

/// Opens the site's folder again, with another rule for approvals.
pub(crate) async fn reopened(
    world: &World,
    approvals: Approvals,
) -> Result<Registry, RegistryError> {
    let config = registry::Config {
        registration: Registration {
            approvals,
            ..Registration::default()
        },
        ..config()
    };
    let (audit, secret) = (world.audit.clone(), &SECRETS.issuing);
    let opened = Registry::open(world.folder.path(), config, secret, audit, NOW).await;
    Ok(opened?.with_people(crate::staff::directory()))
}

pub(crate) fn wanted(text: &str, clearance: Clearance) -> Wanted {
    Wanted {
        act: Act::ChangeProfile {
            profile: Definition::parse(text).unwrap().name().to_owned(),
            clearance,
            definition: text.to_owned(),
        },
        csr: None,
    }
}

#[tokio::test]
async fn new_profile_counts_for_certificates_from_then_on_and_after_a_restart() {
    let world = world().await;
    let registry = &world.registry;
    assert!(registry.requested_profile("patrol-login").is_none());
    registry
        .change_profile(PATROL, an_order(), NOW)
        .await
        .unwrap();
    let told = event(&world, "profile.change");
    assert_eq!(told.resource, "profile/patrol-login");
    assert_eq!(told.details["definition"], PATROL);
    let issued = |registry: Registry, clearance, key: PrivateKey| async move {
        let profile = named(&registry, "patrol-login");
        let order = Order::new(profile, subject_of("officer-9"), key.spki());
        let order = order.with_clearance(clearance);
        registry.issue(order, an_order(), NOW).await
    };
    let first = issued(registry.clone(), Clearance::Confidential, key())
        .await
        .unwrap();
    assert_eq!(first.not_after, NOW + Duration::days(30));
    assert_eq!(first.authority, CaKind::Users);
    let event = event(&world, "certificate.issue");
    assert_eq!(event.details["profile"], "patrol-login");
    assert_eq!(event.details["profile_sha256"], told.details["sha256"]);
    registry
        .admit(first.chain.ders(), Purpose::ClientUser, NOW)
        .await
        .unwrap();
    // Above its bound nothing is signed, and the event says why.
    let refused = issued(registry.clone(), Clearance::Secret, key()).await;
    assert!(
        matches!(refused, Err(RegistryError::Issue(_))),
        "{refused:?}"
    );
    let failed = crate::staff::event(&world, "certificate.issue");
    assert!(failed.reason.unwrap().contains("(clearance)"));
    // A key that its table does not have.
    let ed25519 = PrivateKey::generate(pki::KeyAlgorithm::Ed25519).unwrap();
    issued(registry.clone(), Clearance::Restricted, ed25519)
        .await
        .unwrap_err();
    world.registry.close(NOW).await;
    let again = reopened(&world, Approvals::Direct).await.unwrap();
    let second = issued(again.clone(), Clearance::Confidential, key())
        .await
        .unwrap();
    assert_eq!(second.not_after, first.not_after);
    // A narrower user profile takes the place of the one that is built in.
    let user = Profile::User {
        administrator: false,
    };
    let text = text_of(&again, "user").replace("  \"msEFS\",\n", "");
    again.change_profile(&text, an_order(), NOW).await.unwrap();
    let order = Order::new(user, subject_of("officer-9"), key().spki());
    let issued = again.issue(order, an_order(), NOW).await.unwrap();
    let uses: Definition = (*again.definition(user).unwrap()).clone();
    let uses: Vec<String> = uses
        .purposes()
        .iter()
        .map(|one| purpose_name(*one))
        .collect();
    assert!(!uses.contains(&"msEFS".to_owned()));
    let leaf = pki::cert::to_der(issued.chain.leaf()).unwrap();
    let efs = [0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 4];
    assert!(!leaf.windows(efs.len()).any(|bytes| bytes == efs));
}

#[tokio::test]
async fn profile_goes_neither_beyond_its_authority_nor_to_another_one() {
    let world = world().await;
    let registry = &world.registry;
    registry
        .change_profile(PATROL, an_order(), NOW)
        .await
        .unwrap();
    let moved = PATROL
        .replace("\"users\"", "\"devices\"")
        .replace("uid = \"required\"\n", "");
    let refused = registry.change_profile(&moved, an_order(), NOW).await;
    assert!(matches!(
        refused,
        Err(RegistryError::NotCovered("authority"))
    ));
    // Devices are bounded at secret.
    let high = r#"
name = "high-device"
issuer = "devices"
clearance = "optional"
highest_clearance = 4
[key_usage]
ecdsa = ["digitalSignature"]
[extended_key_usage]
purposes = ["clientAuth"]
"#;
    let refused = registry.change_profile(high, an_order(), NOW).await;
    assert!(
        matches!(refused, Err(RegistryError::Issue(_))),
        "{refused:?}"
    );
    let broken = registry.change_profile("name = 1", an_order(), NOW).await;
    assert!(matches!(broken, Err(RegistryError::Profile(_))));
    let full = registry::MAX_PROFILES;
    for number in 1..full {
        let text = PATROL.replace("patrol-login", &format!("p-{number}"));
        registry
            .change_profile(&text, an_order(), NOW)
            .await
            .unwrap();
    }
    let one_more = PATROL.replace("patrol-login", "one-more");
    let refused = registry.change_profile(&one_more, an_order(), NOW).await;
    assert!(matches!(refused, Err(RegistryError::TooManyProfiles)));
    registry
        .change_profile(PATROL, an_order(), NOW)
        .await
        .unwrap();
}

#[tokio::test]
async fn profile_needs_two_administrators_and_the_row_is_not_believed() {
    let world = world().await;
    let members = Staff::new(&world.registry).await.members;
    world.registry.close(NOW).await;
    let registry = reopened(&world, Approvals::Required).await.unwrap();
    let mut staff = Staff::of(&registry, members);
    // Another clearance than the file says is not asked for.
    let draft = registry.draft_request(
        wanted(PATROL, Clearance::Unclassified),
        staff.principal("applicant"),
        "more patrols",
        NOW,
    );
    draft.await.unwrap_err();
    let one = staff
        .approved(
            wanted(PATROL, Clearance::Confidential),
            &["administrator-4"],
        )
        .await;
    staff.authorize(&one).await.unwrap_err();
    let role = staff.approve(&one, "registrar-4").await;
    assert_eq!(role.unwrap_err().code(), "role-missing");
    let both = staff.approve(&one, "administrator-3").await.unwrap();
    // The warrant is for this file and no other.
    let warrant = staff.authorize(&both).await.unwrap();
    let other = PATROL.replace("days = 30", "days = 31");
    let refused = registry.change_profile(&other, warrant, NOW).await;
    assert!(matches!(refused, Err(RegistryError::NotCovered("profile"))));
    let warrant = staff.authorize(&both).await.unwrap();
    let changed = registry.change_profile(PATROL, warrant, NOW).await.unwrap();
    assert_eq!(changed.request.as_ref(), Some(&both.id().0));
    let carried_out = event(&world, "request.change-profile");
    assert_eq!(carried_out.details["result"], changed.sha256.as_str());
    named(&registry, "patrol-login");
    registry.close(NOW).await;
    let good = reopened(&world, Approvals::Required).await.unwrap();
    named(&good, "patrol-login");
    good.close(NOW).await;
    // Whoever writes into the database makes no profile.
    let file = world.folder.path().join("registry.sqlite");
    let options = SqliteConnectOptions::new().filename(file);
    for change in [
        "UPDATE profiles SET definition = replace(definition, 'days = 30', 'days = 300')",
        "UPDATE profiles SET request = NULL",
        "UPDATE profiles SET request = 'ffffffffffff'",
        "UPDATE profiles SET name = 'user'",
    ] {
        let mut database = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query("CREATE TEMP TABLE kept AS SELECT * FROM profiles")
            .execute(&mut database)
            .await
            .unwrap();
        sqlx::query(change).execute(&mut database).await.unwrap();
        let refused = reopened(&world, Approvals::Required).await.err();
        assert!(
            matches!(refused, Some(RegistryError::ProfileNotApproved(_))),
            "{change}: {refused:?}"
        );
        for back in [
            "DELETE FROM profiles",
            "INSERT INTO profiles SELECT * FROM kept",
            "DROP TABLE kept",
        ] {
            sqlx::query(back).execute(&mut database).await.unwrap();
        }
        database.close().await.unwrap();
    }
    reopened(&world, Approvals::Required).await.unwrap();
}

#[tokio::test]
async fn logon_certificate_is_for_the_account_that_was_approved() {
    let world = world().await;
    let members = Staff::new(&world.registry).await.members;
    world.registry.close(NOW).await;
    let registry = reopened(&world, Approvals::Required).await.unwrap();
    let mut staff = Staff::of(&registry, members);
    let mine = key();
    let wanted = |account: Option<WindowsAccount>, profile: &str| Wanted {
        act: Act::Issue {
            subject: "officer-9".to_owned(),
            profile: profile.to_owned(),
            clearance: Clearance::Unclassified,
            spki_sha256: spki_sha256(&mine.spki()).unwrap(),
            account,
            rights: rights("officer-9"),
            distinguished_name: names("officer-9"),
            by_password: false,
        },
        csr: Some(pki::csr::build(&mine, &subject_of("officer-9"), &[]).unwrap()),
    };
    for (account, profile) in [
        (None, "smart-card-logon"),
        (Some(account()), "mail-signing"),
        (Some(account()), "no-such-profile"),
        (None, "gateway"),
        (None, "network server"),
    ] {
        let by = staff.principal("applicant");
        let draft = registry.draft_request(wanted(account, profile), by, "card", NOW);
        draft.await.unwrap_err();
    }
    let request = staff.approved(
        wanted(Some(account()), "smart-card-logon"),
        &["registrar-2"],
    );
    let request = request.await;
    let profile = named(&registry, "smart-card-logon");
    let order = |account| {
        Order::new(profile, subject_of("officer-9"), mine.spki())
            .with_clearance(Clearance::Unclassified)
            .with_account(account)
    };
    let chief = WindowsAccount::new("chief@police.example", "S-1-5-21-1-2-3-1105").unwrap();
    for other in [None, Some(chief)] {
        let warrant = staff.authorize(&request).await.unwrap();
        let refused = registry.issue(order(other), warrant, NOW).await;
        assert!(matches!(refused, Err(RegistryError::NotCovered("account"))));
    }
    let warrant = staff.authorize(&request).await.unwrap();
    let issued = registry.issue(order(Some(account())), warrant, NOW).await;
    let issued = issued.unwrap();
    let leaf = issued.chain.leaf();
    assert_eq!(pki::cert::windows_account(leaf), Some(account()));
    // A renewal by request keeps the account, and certifies the same key.
    let renewal = Wanted {
        act: Act::Renew {
            subject: "officer-9".to_owned(),
            serial: issued.serial.clone(),
            clearance: Clearance::Unclassified,
            rights: rights("officer-9"),
        },
        csr: None,
    };
    let request = staff.approved(renewal, &["registrar-2"]).await;
    let warrant = staff.authorize(&request).await.unwrap();
    let renewed = registry.renew(warrant, NOW).await.unwrap();
    assert_eq!(
        pki::cert::windows_account(renewed.chain.leaf()),
        Some(account())
    );
}

#[tokio::test]
async fn invited_person_enrols_a_key_for_mail_apart_from_the_one_for_signing() {
    let world = world().await;
    let record = PersonRecord {
        uid: "officer-9".to_owned(),
        name: "Ninth Officer".to_owned(),
        organisation: "LEA-EU".to_owned(),
        clearance: Clearance::Secret,
        roles: [access::Role::Officer].into(),
        units: std::collections::BTreeSet::new(),
        active: true,
    };
    let subject = Subject {
        email: Some("nine@police.example".to_owned()),
        ..subject_of("officer-9")
    };
    let entry = ListedPerson {
        record,
        subject: subject.clone(),
    };
    let registry = world.registry.with_people(Arc::new(move |_: &str| {
        let entry = entry.clone();
        Box::pin(async move { Ok(Some(entry)) })
    }));
    let invite = |name: &str, clearance, account| {
        let invitation = Invitation {
            profile: named(&registry, name),
            subject: subject.clone(),
            clearance,
            hours: 24,
            renewals: 0,
            names: Vec::new(),
            account,
        };
        let registry = registry.clone();
        async move { registry.invite(&invitation, an_order(), NOW).await }
    };
    let none = Clearance::Unclassified;
    let signing = invite("mail-signing", none, None).await.unwrap();
    let (sign_key, ignored) = (key(), csr("x", &key()));
    let csr_of = |key: &PrivateKey| csr("x", key);
    let first = registry
        .enrol_by_code("officer-9", signing.code.as_str(), &csr_of(&sign_key), NOW)
        .await
        .unwrap();
    let encryption = invite("mail-encryption", none, None).await.unwrap();
    let code = encryption.code.as_str();
    let same_csr = csr_of(&sign_key);
    let same_key = registry.enrol_by_code("officer-9", code, &same_csr, NOW);
    assert_eq!(same_key.await.unwrap_err().code(), "key-in-use");
    // The centre may make this one.
    let made = registry.enrol_with_server_key("officer-9", code, &ignored, NOW);
    let (second, made) = made.await.unwrap();
    let usage = |issued: &registry::Issued| {
        let found = issued
            .chain
            .leaf()
            .tbs_certificate
            .get::<x509_cert::ext::pkix::KeyUsage>();
        found.unwrap().unwrap().1
    };
    assert!(usage(&first).digital_signature() && !usage(&first).key_agreement());
    assert!(usage(&second).key_agreement() && !usage(&second).digital_signature());
    let spki = &second.chain.leaf().tbs_certificate.subject_public_key_info;
    assert_eq!(*spki, made.spki());
    // Neither opens a door: they say nothing of logging in.
    for issued in [&first, &second] {
        let admitted = registry.admit(issued.chain.ders(), Purpose::ClientUser, NOW);
        assert!(admitted.await.is_err());
    }
    // The centre makes no key for signing.
    let signing = invite("document-signing", none, None).await.unwrap();
    let refused = registry.enrol_with_server_key("officer-9", signing.code.as_str(), &ignored, NOW);
    assert_eq!(refused.await.err().unwrap().code(), "server-key");
    // Somebody invited to log on to Windows has the account of the invitation.
    invite("smart-card-logon", none, None).await.err().unwrap();
    let logon = invite("smart-card-logon", none, Some(account()))
        .await
        .unwrap();
    let card = registry
        .enrol_by_code("officer-9", logon.code.as_str(), &csr_of(&key()), NOW)
        .await
        .unwrap();
    assert_eq!(
        pki::cert::windows_account(card.chain.leaf()),
        Some(account())
    );
    // No profile without a clearance promises one.
    let above = invite("mail-signing", Clearance::Secret, None).await;
    assert!(above.is_err());
}

#[tokio::test]
async fn time_stamping_authority_is_a_server_that_can_be_revoked() {
    let world = world().await;
    let registry = &world.registry;
    let profile = named(registry, "time-stamping");
    let order = Order::new(profile, Subject::new("tsa.police.example"), key().spki());
    let issued = registry.issue(order, an_order(), NOW).await.unwrap();
    assert_eq!(issued.authority, CaKind::Services);
    let change = registry::HolderChange::Revoke(pki::crl::RevocationReason::KeyCompromise);
    let changed = registry
        .change_holder(
            CaKind::Services,
            "tsa.police.example",
            change,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    assert_eq!(changed.revoked, [issued.serial]);
    assert_eq!(
        event(&world, "server.revoke").resource,
        "server/tsa.police.example"
    );
}
