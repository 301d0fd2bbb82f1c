//! People who enrol and renew by invitation: as many refusals as acceptances, each with its event.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use access::{PersonRecord, Role};
use approval::Act;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::key::PrivateKey;
use pki::name::Subject;
use pki::path::Purpose;
use pki::profile::{CaKind, Profile};
use registry::{
    EnrolError, HolderChange, Invitation, Invited, Issued, ListedPerson, Registry, RegistryError,
    Wanted,
};
use time::{Duration, OffsetDateTime};

use crate::completeness::{book, unordered_gaps};
use crate::fixture::{NOW, SECRETS, World, an_order, config, csr, key, world};
use crate::staff::{Staff, rights_of};

const UID: &str = "officer-9";

type Change = fn(&mut PersonRecord);
type Directory = Arc<Mutex<Option<PersonRecord>>>;

fn person() -> PersonRecord {
    PersonRecord {
        uid: UID.to_owned(),
        name: "Ninth Officer".to_owned(),
        organisation: "LEA-EU".to_owned(),
        clearance: Clearance::Confidential,
        roles: BTreeSet::from([Role::Officer]),
        units: BTreeSet::from(["traffic".to_owned()]),
        active: true,
    }
}

/// An entry with the names that a certificate gets.
fn listed(record: PersonRecord) -> ListedPerson {
    let uid = Some(record.uid.clone());
    let named = Subject::new(&record.name);
    let subject = Subject { uid, ..named };
    ListedPerson { record, subject }
}

/// The registry with a directory of one person, whose entry the test may change.
fn with_directory(world: &World) -> (Registry, Directory) {
    let directory = Directory::new(Mutex::new(Some(person())));
    let there = directory.clone();
    let registry = world.registry.with_people(Arc::new(move |uid: &str| {
        let entry = there.lock().unwrap().clone();
        let entry = entry.filter(|entry| entry.uid == uid).map(listed);
        Box::pin(async move { Ok(entry) })
    }));
    (registry, directory)
}

fn invitation(renewals: u8) -> Invitation {
    Invitation {
        profile: Profile::User {
            administrator: false,
        },
        subject: Subject {
            uid: Some(UID.to_owned()),
            unit: Some("traffic".to_owned()),
            ..Subject::new("Ninth Officer")
        },
        clearance: Clearance::Confidential,
        hours: 24,
        renewals,
        names: Vec::new(),
        account: None,
    }
}

async fn invited(registry: &Registry, renewals: u8) -> Invited {
    let wanted = invitation(renewals);
    let invited = registry.invite(&wanted, an_order(), NOW);
    invited.await.unwrap()
}

async fn enrol(
    registry: &Registry,
    code: &str,
    key: &PrivateKey,
    now: OffsetDateTime,
) -> Result<Issued, EnrolError> {
    let csr = csr("whoever I like", key);
    registry.enrol_by_code(UID, code, &csr, now).await
}

/// The stable name of a refusal, which the last event has too.
fn refused<T>(world: &World, outcome: Result<T, EnrolError>) -> String {
    let error = outcome.err().expect("a refusal");
    let event = world.audit.events().pop().unwrap();
    let code = event.details.get("code").and_then(|code| code.as_str());
    assert_eq!(code, Some(error.code()), "{event:?}");
    assert_eq!(event.resource, format!("person/{UID}"));
    error.code().to_owned()
}

fn events(world: &World) -> Vec<audit::Event> {
    let events = world.audit.events().into_iter();
    let of_registry = events.map(|event| audit::Event {
        role: "registry".to_owned(),
        ..event
    });
    of_registry.collect()
}

#[tokio::test]
async fn certificate_is_as_invited_whatever_the_request_names() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let mine = key();
    let invited = invited(&registry, 0).await;
    let asked = Subject {
        uid: Some("chief-1".to_owned()),
        unit: Some("homicide".to_owned()),
        ..Subject::new("The Chief")
    };
    let csr = pki::csr::build(&mine, &asked, &[]).unwrap();
    let issued = registry.enrol_by_code(UID, invited.code.as_str(), &csr, NOW);
    let issued = issued.await.unwrap();
    let tbs = &issued.chain.leaf().tbs_certificate;
    let subject = Subject::from_name(&tbs.subject).unwrap();
    assert_eq!(subject.uid.as_deref(), Some(UID));
    assert_eq!(subject.unit.as_deref(), Some("traffic"));
    assert_eq!(subject.common_name, "Ninth Officer");
    let trust = registry.trust();
    let identity = trust.validate(issued.chain.ders(), Purpose::ClientUser, NOW);
    assert_eq!(identity.unwrap().clearance, Clearance::Confidential);
    // The answer got lost: the same key gets the same certificate, another one nothing.
    let again = enrol(&registry, invited.code.as_str(), &mine, NOW);
    assert_eq!(again.await.unwrap().serial, issued.serial);
    let replayed = enrol(&registry, invited.code.as_str(), &key(), NOW).await;
    assert_eq!(refused(&world, replayed), "code-used");
    assert_eq!(registry.list(CaKind::Users, None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn codes_that_are_wrong_void_expired_or_tried_too_often_are_refused() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let first = invited(&registry, 0).await;
    let second = invited(&registry, 0).await;
    let wrong = enrol(&registry, "guess", &key(), NOW).await;
    assert_eq!(
        wrong.as_ref().unwrap_err().to_string(),
        EnrolError::Unauthorised.to_string(),
        "strangers are told the same"
    );
    assert_eq!(refused(&world, wrong), "wrong-code");
    let void = enrol(&registry, first.code.as_str(), &key(), NOW).await;
    assert_eq!(refused(&world, void), "wrong-code");
    let good = second.code.as_str();
    let end = NOW + Duration::hours(24);
    let late = enrol(&registry, good, &key(), end).await;
    assert_eq!(refused(&world, late), "code-expired");
    // The right code is taken whatever was tried before it, until its time is over.
    for _ in 0..20 {
        assert!(enrol(&registry, "guess", &key(), NOW).await.is_err());
    }
    let last = end - Duration::SECOND;
    enrol(&registry, good, &key(), last).await.unwrap();
}

#[tokio::test]
async fn names_that_exist_and_names_that_do_not_are_answered_alike() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let registry = registry.at_address(Some("192.0.2.7".parse().unwrap()));
    let code = invited(&registry, 0).await.code;
    let device = registry.create_code(
        "camera-1",
        Clearance::Restricted,
        Duration::DAY,
        crate::fixture::registrar(),
        NOW,
    );
    let device = device.await.unwrap();
    let csr = csr("camera-1", &key());
    let mut answers = Vec::new();
    for name in [UID, "camera-1", "nobody", "camera-2"] {
        let mut of_name = Vec::new();
        for n in 0..12 {
            let e = match n % 2 {
                0 => registry.enrol_by_code(name, "guess", &csr, NOW).await.err(),
                _ => {
                    let made = registry.enrol_with_server_key(name, "guess", &csr, NOW);
                    made.await.err()
                }
            };
            let e = e.unwrap();
            let many = matches!(e, EnrolError::TooManyAttempts(_));
            of_name.push((many, e.for_peer()));
        }
        answers.push(of_name);
    }
    assert!(answers[0][10].0, "{answers:?}");
    assert!(!answers[0][9].0, "{answers:?}");
    for other in &answers[1..] {
        assert_eq!(*other, answers[0]);
    }
    // From the same address, and after all of that.
    let enrolled = registry.enrol_by_code("camera-1", device.as_str(), &csr, NOW);
    enrolled.await.unwrap();
    enrol(&registry, code.as_str(), &key(), NOW).await.unwrap();
}

#[tokio::test]
async fn strangers_who_fill_the_table_of_wrong_codes_keep_nobody_from_enrolling() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let code = invited(&registry, 0).await.code;
    let csr = csr("x", &key());
    for n in 0..10_050_u32 {
        let host = std::net::Ipv6Addr::from((0x2001_0db8_u128 << 96) | (u128::from(n) << 64));
        let stranger = registry.at_address(Some(host.into()));
        let outcome = stranger.enrol_by_code(UID, "guess", &csr, NOW).await;
        assert!(outcome.is_err());
    }
    let here = registry.at_address(Some("192.0.2.7".parse().unwrap()));
    enrol(&here, code.as_str(), &key(), NOW).await.unwrap();
}

#[tokio::test]
async fn weak_reused_and_unproven_keys_are_refused_and_do_not_use_the_code_up() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let taken = key();
    let device = registry.issue_device(
        "camera-17",
        taken.spki(),
        Clearance::Restricted,
        an_order(),
        NOW,
    );
    device.await.unwrap();
    let invited = invited(&registry, 0).await;
    let code = invited.code.as_str();
    let roca = include_bytes!("../../../pki/tests/data/roca-2048.csr");
    let weak = registry.enrol_by_code(UID, code, roca, NOW).await;
    assert_eq!(refused(&world, weak), "key-roca");
    let reused = enrol(&registry, code, &taken, NOW).await;
    assert_eq!(refused(&world, reused), "key-in-use");
    let mut unproven = csr("x", &key());
    *unproven.last_mut().unwrap() ^= 1;
    let unproven = registry.enrol_by_code(UID, code, &unproven, NOW).await;
    assert_eq!(refused(&world, unproven), "not-proven");
    let none = registry.enrol_by_code(UID, code, b"nothing", NOW).await;
    assert_eq!(refused(&world, none), "csr-refused");
    enrol(&registry, code, &key(), NOW).await.unwrap();
}

#[tokio::test]
async fn whoever_is_disabled_demoted_or_suspended_meanwhile_gets_nothing() {
    let world = world().await;
    let (registry, directory) = with_directory(&world);
    let invited = invited(&registry, 0).await;
    let code = invited.code.as_str();
    let changes: [(&str, Change); 3] = [
        ("disabled", |person| person.active = false),
        ("cleared for less", |person| {
            person.clearance = Clearance::Restricted;
        }),
        ("left the unit", |person| person.units.clear()),
    ];
    for (reason, change) in changes {
        let mut changed = person();
        change(&mut changed);
        *directory.lock().unwrap() = Some(changed);
        let outcome = enrol(&registry, code, &key(), NOW).await;
        assert!(outcome.as_ref().unwrap_err().to_string().contains(reason));
        assert_eq!(refused(&world, outcome), "person-refused");
    }
    *directory.lock().unwrap() = None;
    let gone = enrol(&registry, code, &key(), NOW).await;
    assert_eq!(refused(&world, gone), "person-refused");
    // A registry without a directory lets nobody in.
    let blind = enrol(&world.registry, code, &key(), NOW).await;
    assert_eq!(refused(&world, blind), "person-refused");
    *directory.lock().unwrap() = Some(person());
    let change = |change| registry.change_holder(CaKind::Users, UID, change, an_order(), NOW);
    change(HolderChange::Suspend).await.unwrap();
    let outcome = enrol(&registry, code, &key(), NOW).await;
    assert_eq!(refused(&world, outcome), "holder-suspended");
    change(HolderChange::Resume).await.unwrap();
    enrol(&registry, code, &key(), NOW).await.unwrap();
}

#[tokio::test]
async fn certificate_has_the_names_of_the_day_it_is_issued() {
    let world = world().await;
    let (registry, directory) = with_directory(&world);
    let code = invited(&registry, 1).await.code;
    directory.lock().unwrap().as_mut().unwrap().name = "Ninth Married".to_owned();
    let issued = enrol(&registry, code.as_str(), &key(), NOW).await.unwrap();
    let name = |issued: &Issued| {
        let tbs = &issued.chain.leaf().tbs_certificate;
        Subject::from_name(&tbs.subject).unwrap()
    };
    assert_eq!(name(&issued).common_name, "Ninth Married");
    assert_eq!(name(&issued).unit.as_deref(), Some("traffic"));
    directory.lock().unwrap().as_mut().unwrap().name = "Ninth Again".to_owned();
    let renewed = renew(&registry, &issued, &key()).await.unwrap();
    assert_eq!(name(&renewed).common_name, "Ninth Again");
}

#[tokio::test]
async fn revocation_of_a_person_voids_the_code() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let invited = invited(&registry, 0).await;
    let revoke = HolderChange::Revoke(RevocationReason::CessationOfOperation);
    for change in [revoke, HolderChange::Readmit] {
        let changed = registry.change_holder(CaKind::Users, UID, change, an_order(), NOW);
        changed.await.unwrap();
    }
    let outcome = enrol(&registry, invited.code.as_str(), &key(), NOW).await;
    assert_eq!(outcome.unwrap_err().code(), "unauthorised");
}

#[tokio::test]
async fn invitations_stay_within_their_bounds() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let base = || invitation(10);
    registry.invite(&base(), an_order(), NOW).await.unwrap();
    let hours = |hours| Invitation { hours, ..base() };
    let longest = registry.invite(&hours(720), an_order(), NOW).await;
    assert!(longest.is_ok());
    for wrong in [
        hours(0),
        hours(721),
        invitation(11),
        Invitation {
            profile: Profile::Device,
            ..base()
        },
        Invitation {
            profile: Profile::Server,
            ..base()
        },
    ] {
        assert!(registry.invite(&wrong, an_order(), NOW).await.is_err());
    }
    // Above what the authority for devices grants.
    let above = Invitation {
        profile: Profile::VpnDevice,
        subject: Subject::new("phone-1"),
        clearance: Clearance::TopSecret,
        renewals: 0,
        hours: 1,
        names: Vec::new(),
        account: None,
    };
    let outcome = registry.invite(&above, an_order(), NOW).await;
    assert!(matches!(outcome, Err(RegistryError::Issue(_))));
}

async fn renew(
    registry: &Registry,
    present: &Issued,
    key: &PrivateKey,
) -> Result<Issued, EnrolError> {
    let peer = present.chain.ders().to_vec();
    registry.reenrol(&peer, &csr("anybody", key), NOW).await
}

#[tokio::test]
async fn renewals_are_as_many_as_were_agreed_to() {
    let world = world().await;
    let (registry, directory) = with_directory(&world);
    let code = invited(&registry, 2).await.code;
    let first = enrol(&registry, code.as_str(), &key(), NOW).await.unwrap();
    let lost = renew(&registry, &first, &key()).await.unwrap();
    let second = renew(&registry, &first, &key()).await.unwrap();
    assert_ne!(
        lost.serial, second.serial,
        "an answer that got lost is no renewal"
    );
    let third = renew(&registry, &second, &key()).await.unwrap();
    let subject = |issued: &Issued| issued.chain.leaf().tbs_certificate.subject.clone();
    assert_eq!(subject(&third), subject(&first));
    let old = renew(&registry, &first, &key()).await;
    assert_eq!(old.unwrap_err().code(), "certificate-superseded");
    let fourth = renew(&registry, &third, &key()).await;
    assert_eq!(refused(&world, fourth), "no-renewals-left");
    directory.lock().unwrap().as_mut().unwrap().active = false;
    let disabled = renew(&registry, &third, &key()).await;
    assert_eq!(refused(&world, disabled), "person-refused");
    let found = unordered_gaps(&registry, &events(&world), &book(&world.folder).await);
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test]
async fn certificate_without_invitation_or_after_its_end_renews_nothing() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let subject = invitation(0).subject;
    let ordered = registry.issue_user(
        subject,
        key().spki(),
        Clearance::Confidential,
        false,
        an_order(),
        NOW,
    );
    let ordered = ordered.await.unwrap();
    let outcome = renew(&registry, &ordered, &key()).await;
    assert_eq!(refused(&world, outcome), "not-renewable");
    let code = invited(&registry, 5).await.code;
    let issued = enrol(&registry, code.as_str(), &key(), NOW).await.unwrap();
    let peer = issued.chain.ders().to_vec();
    let late = issued.not_after + Duration::DAY;
    let late = registry.reenrol(&peer, &csr("x", &key()), late).await;
    assert!(
        matches!(late, Err(EnrolError::BadCertificate(_))),
        "{late:?}"
    );
}

#[tokio::test]
async fn invitation_by_order_is_void_once_approvals_are_required() {
    let world = world().await;
    let (registry, directory) = with_directory(&world);
    let used = invited(&registry, 5).await.code;
    let issued = enrol(&registry, used.as_str(), &key(), NOW).await.unwrap();
    let code = invited(&registry, 5).await.code;
    world.registry.close(NOW).await;
    let required = registry::Config {
        registration: registry::Registration {
            approvals: registry::Approvals::Required,
            ..registry::Registration::default()
        },
        ..config()
    };
    let (audit, secret) = (world.audit.clone(), &SECRETS.issuing);
    let opened = Registry::open(world.folder.path(), required, secret, audit, NOW);
    let again = World {
        registry: opened.await.unwrap(),
        ..world
    };
    let (registry, _) = with_directory(&again);
    drop(directory);
    let outcome = enrol(&registry, code.as_str(), &key(), NOW).await;
    assert_eq!(refused(&again, outcome), "approval-required");
    let outcome = renew(&registry, &issued, &key()).await;
    assert_eq!(refused(&again, outcome), "approval-required");
}

fn wanted(renewals: u8) -> Wanted {
    Wanted {
        act: Act::Invite {
            subject: UID.to_owned(),
            profile: "user".to_owned(),
            clearance: Clearance::Confidential,
            unit: Some("traffic".to_owned()),
            hours: 24,
            renewals,
            names: Vec::new(),
            account: None,
            rights: Some(rights_of(&person())),
            distinguished_name: listed(person()).subject.distinguished_name().ok(),
        },
        csr: None,
    }
}

#[tokio::test]
async fn approved_invitation_is_complete_in_the_log_and_forgeries_are_not() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let mut staff = Staff::new(&registry).await;
    let request = staff.approved(wanted(1), &["registrar-2"]).await;
    for (other, field) in [
        (
            Invitation {
                renewals: 2,
                ..invitation(1)
            },
            "number of renewals",
        ),
        (
            Invitation {
                hours: 25,
                ..invitation(1)
            },
            "time",
        ),
        (
            Invitation {
                clearance: Clearance::Secret,
                ..invitation(1)
            },
            "clearance",
        ),
        (
            Invitation {
                subject: Subject {
                    unit: None,
                    ..invitation(1).subject
                },
                ..invitation(1)
            },
            "unit",
        ),
    ] {
        let warrant = staff.authorize(&request).await.unwrap();
        let outcome = registry.invite(&other, warrant, NOW).await;
        assert!(matches!(outcome, Err(RegistryError::NotCovered(what)) if what == field));
    }
    let warrant = staff.authorize(&request).await.unwrap();
    let invited = registry.invite(&invitation(1), warrant, NOW).await.unwrap();
    let first = enrol(&registry, invited.code.as_str(), &key(), NOW).await;
    let first = first.unwrap();
    renew(&registry, &first, &key()).await.unwrap();
    let all = events(&world);
    let gaps = |events: &[audit::Event]| unordered_gaps(&registry, events, &[]);
    assert_eq!(gaps(&all), Vec::<String>::new());
    let without = |action: &str| -> Vec<audit::Event> {
        let left = all.iter().filter(|event| event.action != action);
        left.cloned().collect()
    };
    assert!(gaps(&without("enrolment.invite"))[0].contains("no invitation before it"));
    assert!(gaps(&without("request.invite"))[0].contains("not carried out"));
    assert!(!gaps(&without("request.approve")).is_empty());
    let forge = |change: &dyn Fn(&mut audit::Event)| {
        let mut forged = all.clone();
        let last = forged
            .iter_mut()
            .rfind(|event| event.action == "certificate.issue");
        change(last.unwrap());
        gaps(&forged)
    };
    let set = |name: &'static str, value: serde_json::Value| {
        forge(&|event| {
            event.details.insert(name.to_owned(), value.clone());
        })
    };
    assert!(set("clearance", 4.into())[0].contains("another clearance"));
    assert!(set("unit", "homicide".into())[0].contains("another unit"));
    assert!(set("renews", "00".into())[0].contains("not of invitation"));
    // A second certificate by the same code.
    assert!(set("origin", "invitation".into())[0].contains("had given"));
    // One that was recorded, and interrupted before it took effect; then one that did.
    let place = all
        .iter()
        .position(|event| event.details.get("origin") == Some(&"invitation".into()));
    let mut lost = all[place.unwrap()].clone();
    lost.details.insert("serial".to_owned(), "4000".into());
    lost.details.insert("fingerprint".to_owned(), "00".into());
    let number = lost.details["transaction"].as_u64().unwrap();
    let mut said = audit::Event {
        action: "registry.open".to_owned(),
        resource: "registry".to_owned(),
        ..lost.clone()
    };
    said.details
        .insert("transaction".to_owned(), (number - 1).into());
    let with = |more: &[audit::Event]| {
        let mut events = all.clone();
        events.splice(place.unwrap()..place.unwrap(), more.iter().cloned());
        gaps(&events)
    };
    assert_eq!(with(&[lost.clone(), said]), Vec::<String>::new());
    assert!(with(&[lost])[0].contains("had given"));
}

#[tokio::test]
async fn key_made_here_is_for_tunnels_alone_and_recorded() {
    let world = world().await;
    let (registry, _) = with_directory(&world);
    let phone = Invitation {
        profile: Profile::VpnDevice,
        subject: Subject::new("phone-1"),
        clearance: Clearance::Unclassified,
        ..invitation(0)
    };
    let code = registry.invite(&phone, an_order(), NOW).await.unwrap().code;
    let csr = csr("phone-1", &key());
    let made = registry.enrol_with_server_key("phone-1", code.as_str(), &csr, NOW);
    let (issued, made) = made.await.unwrap();
    let tbs = &issued.chain.leaf().tbs_certificate;
    assert_eq!(tbs.subject_public_key_info, made.spki());
    assert!(
        world
            .audited()
            .contains(&("enrolment.server-key".into(), "ok".into()))
    );
    let again = registry.enrol_with_server_key("phone-1", code.as_str(), &csr, NOW);
    assert_eq!(again.await.err().unwrap().code(), "code-used");
    let code = invited(&registry, 0).await.code;
    let person = registry.enrol_with_server_key(UID, code.as_str(), &csr, NOW);
    assert_eq!(person.await.err().unwrap().code(), "server-key");
}
