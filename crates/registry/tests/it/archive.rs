//! Keys for decryption that the centre made, archived and recovered.

use std::sync::Arc;

use access::PersonRecord;
use approval::Act;
use evidence::cms::{RecipientKey, parse_auth_enveloped_data};
use pki::clearance::Clearance;
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::key::PrivateKey;
use pki::name::Subject;
use pki::oid::ExtensionArc;
use pki::profile::Profile;
use registry::{
    Approvals, Contradiction, InBook, Invitation, Issued, ListedPerson, Order, Registration,
    Registry, RegistryError, Wanted,
};
use time::Duration;

use crate::completeness::begin;
use crate::fixture::{NOW, SECRETS, World, an_order, config, csr, key, world};
use crate::generations_kept::meddle;
use crate::staff::{Staff, event};

const UID: &str = "officer-9";

/// A certificate to encrypt to, whose key is nowhere on the site.
fn recovery() -> (PrivateKey, pki::Certificate) {
    let key = key();
    let validity = Validity::starting(NOW, Duration::days(900));
    let request = CertificateRequest::new(
        Profile::Root,
        Subject::new("Key recovery"),
        key.spki(),
        validity,
    );
    let made = CertificateAuthority::create_root(&request, key.clone(), ExtensionArc::default());
    (key, made.unwrap().certificate().clone())
}

fn subject() -> Subject {
    Subject {
        uid: Some(UID.to_owned()),
        email: Some("nine@police.example".to_owned()),
        ..Subject::new("Ninth Officer")
    }
}

async fn open(
    world: &World,
    approvals: Approvals,
    recovery: Option<&pki::Certificate>,
) -> Registry {
    let config = registry::Config {
        registration: Registration {
            approvals,
            ..Registration::default()
        },
        recovery: recovery.map(|one| Arc::from(vec![one.clone()])),
        ..config()
    };
    let (audit, secret) = (world.audit.clone(), &SECRETS.issuing);
    let opened = Registry::open(world.folder.path(), config, secret, audit, NOW);
    let entry = ListedPerson {
        record: PersonRecord {
            uid: UID.to_owned(),
            name: "Ninth Officer".to_owned(),
            organisation: "LEA-EU".to_owned(),
            clearance: Clearance::Secret,
            roles: [access::Role::Officer].into(),
            units: std::collections::BTreeSet::new(),
            active: true,
        },
        subject: subject(),
    };
    opened.await.unwrap().with_people(Arc::new(move |_: &str| {
        let entry = entry.clone();
        Box::pin(async move { Ok(Some(entry)) })
    }))
}

/// A key for mail that the centre makes over EST.
async fn mail_key(registry: &Registry) -> (Issued, PrivateKey) {
    let invitation = Invitation {
        profile: registry.requested_profile("mail-encryption").unwrap(),
        subject: subject(),
        clearance: Clearance::Unclassified,
        hours: 24,
        renewals: 0,
        names: Vec::new(),
        account: None,
    };
    let invited = registry.invite(&invitation, an_order(), NOW).await.unwrap();
    let code = invited.code.as_str();
    let ignored = csr("x", &key());
    let made = registry.enrol_with_server_key(UID, code, &ignored, NOW);
    made.await.unwrap()
}

fn wanted(serial: &str) -> Wanted {
    Wanted {
        act: Act::RecoverKey {
            subject: UID.to_owned(),
            serial: serial.to_owned(),
            clearance: Clearance::Unclassified,
            rights: Some(approval::Rights {
                clearance: Clearance::Secret,
                roles: [access::Role::Officer].into(),
                units: std::collections::BTreeSet::new(),
            }),
        },
        csr: None,
    }
}

/// Whether a file of the registry has these bytes anywhere.
fn is_on_disk(world: &World, bytes: &[u8]) -> bool {
    let files = std::fs::read_dir(world.folder.path()).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files = files.filter(|path| path.is_file());
    files.any(|path| {
        let content = std::fs::read(path).unwrap();
        content.windows(bytes.len()).any(|part| part == bytes)
    })
}

#[tokio::test]
async fn archived_key_leaves_by_two_approvals_and_only_the_recovery_key_opens_it() {
    let world = world().await;
    let members = Staff::new(&world.registry).await.members;
    world.registry.close(NOW).await;
    let (recovery_key, certificate) = recovery();
    let registry = open(&world, Approvals::Direct, Some(&certificate)).await;
    let (issued, made) = mail_key(&registry).await;
    let told = event(&world, "certificate.issue");
    assert!(told.details.contains_key("archived_sha256"));
    let pkcs8 = made.to_pkcs8_der();
    // The private number of a key on P-256 (SEC 1), after the headers of PKCS#8.
    let secret = &pkcs8[36..68];
    assert!(PrivateKey::from_pkcs8_der(&pkcs8).is_ok());
    assert!(!is_on_disk(&world, secret));
    // An order does not do, not even where orders do.
    let by_order = registry.recover_key(an_order(), NOW).await;
    assert!(matches!(by_order, Err(RegistryError::NotCovered(_))));
    registry.close(NOW).await;
    let registry = open(&world, Approvals::Required, Some(&certificate)).await;
    let mut staff = Staff::of(&registry, members);
    let one = staff
        .approved(wanted(&issued.serial), &["registrar-3"])
        .await;
    staff.authorize(&one).await.unwrap_err();
    let both = staff.approve(&one, "registrar-4").await.unwrap();
    let warrant = staff.authorize(&both).await.unwrap();
    let envelope = registry.recover_key(warrant, NOW).await.unwrap();
    let event = event(&world, "request.recover-key");
    assert_eq!(event.details["approvers"], "registrar-3 registrar-4");
    assert_eq!(event.details["result"], issued.serial.as_str());
    let message = parse_auth_enveloped_data(&envelope).unwrap();
    let owner = RecipientKey::new(recovery_key, certificate.clone()).unwrap();
    assert_eq!(*message.decrypt(&[owner]).unwrap(), *pkcs8);
    let (other_key, other) = recovery();
    let other = RecipientKey::new(other_key, other).unwrap();
    assert!(message.decrypt(&[other]).is_err());
    // It is done once; another time is another request.
    assert!(staff.authorize(&both).await.is_err());
}

#[tokio::test]
async fn nothing_is_archived_that_signs_or_without_a_recovery_certificate() {
    let world = world().await;
    world.registry.close(NOW).await;
    let (_, certificate) = recovery();
    let registry = open(&world, Approvals::Direct, Some(&certificate)).await;
    let key = key();
    for name in ["user-centre-key", "vpn device", "mail-signing"] {
        let profile = registry.requested_profile(name).unwrap();
        assert!(registry.archive(profile, &key).unwrap().is_none(), "{name}");
    }
    registry.close(NOW).await;
    let registry = open(&world, Approvals::Direct, None).await;
    let (issued, _) = mail_key(&registry).await;
    let by = Staff::new(&registry).await;
    let principal = by.principal("applicant");
    for (serial, what) in [(issued.serial.as_str(), "not archived"), ("0a", "unknown")] {
        let draft = registry.draft_request(wanted(serial), principal, "lost", NOW);
        let refused = draft.await.unwrap_err();
        assert!(
            refused.to_string().contains("no key of certificate"),
            "{what}: {refused}"
        );
    }
    // A profile that archives a key that signs is none.
    let mut all = registry.profiles().into_iter();
    let text = all.find(|one| one.name == "mail-encryption").unwrap().text;
    let signs = text
        .replace(
            "[\"keyAgreement\"]",
            "[\"keyAgreement\", \"digitalSignature\"]",
        )
        .replace("mail-encryption", "mail-both");
    let refused = registry.change_profile(&signs, an_order(), NOW).await;
    assert!(
        matches!(refused, Err(RegistryError::Profile(_))),
        "{refused:?}"
    );
    let order = Order::new(
        registry.requested_profile("mail-encryption").unwrap(),
        subject(),
        key.spki(),
    );
    registry.issue(order, an_order(), NOW).await.unwrap();
}

#[tokio::test]
async fn changed_envelope_does_not_leave_and_the_log_says_what_is_not_there() {
    let world = world().await;
    let members = Staff::new(&world.registry).await.members;
    world.registry.close(NOW).await;
    let (_, certificate) = recovery();
    let registry = open(&world, Approvals::Direct, Some(&certificate)).await;
    let (issued, _) = mail_key(&registry).await;
    registry.close(NOW).await;
    let registry = open(&world, Approvals::Required, Some(&certificate)).await;
    let mut staff = Staff::of(&registry, members);
    let request = staff
        .approved(wanted(&issued.serial), &["registrar-3", "registrar-4"])
        .await;
    let gaps = async || {
        let mut events = world.audit.events();
        for event in &mut events {
            "registry".clone_into(&mut event.role);
        }
        let mut completeness = begin(&registry, &events, approval::Policy::default());
        let each = |row: InBook<'_>| completeness.look_for_of_book(row);
        let read = registry::for_each_in_book(world.folder.path(), each);
        read.await.unwrap();
        let gaps = completeness.finish(true).gaps.into_iter();
        gaps.map(|gap| gap.what)
            .filter(|what| what.contains("archived key"))
            .collect::<Vec<_>>()
    };
    assert_eq!(gaps().await, Vec::<String>::new());
    let folder = world.folder.path();
    meddle(
        folder,
        "CREATE TABLE aside.kept AS SELECT * FROM archived_keys; UPDATE archived_keys SET envelope = x'00'",
    )
    .await;
    assert!(gaps().await[0].contains("is another than its event says"));
    let warrant = staff.authorize(&request).await.unwrap();
    let refused = registry.recover_key(warrant, NOW).await.unwrap_err();
    assert!(
        matches!(
            refused,
            RegistryError::Contradiction(Contradiction::Rows { .. })
        ),
        "{refused}"
    );
    meddle(folder, "DELETE FROM archived_keys").await;
    assert!(gaps().await[0].contains("is not in the registry's book any more"));
    // Nothing of it used the approvals up.
    meddle(folder, "INSERT INTO archived_keys SELECT * FROM kept").await;
    // Whose it is, the certificate says and not the row.
    let other = "CREATE TABLE aside.whose AS SELECT serial AS of, uid, holder FROM issued;
        UPDATE issued SET uid = 'officer-9', holder = 'officer-9' WHERE uid = 'applicant'";
    meddle(folder, other).await;
    let list = registry
        .list(pki::profile::CaKind::Users, Some(UID))
        .await
        .unwrap();
    let of_another = list.iter().find(|one| one.serial != issued.serial).unwrap();
    let by = staff.principal("applicant");
    let draft = registry.draft_request(wanted(&of_another.serial), by, "lost", NOW);
    assert!(draft.await.is_err());
    let back = "UPDATE issued SET (uid, holder) = (SELECT w.uid, w.holder FROM aside.whose w WHERE w.of = serial)";
    meddle(folder, back).await;
    let warrant = staff.authorize(&request).await.unwrap();
    registry.recover_key(warrant, NOW).await.unwrap();
}
