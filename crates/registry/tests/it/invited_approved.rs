//! Invitations where approvals are required: what the database says of one is not believed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use access::{PersonRecord, Principal, Role};
use approval::{Act, Rights};
use pki::clearance::Clearance;
use pki::name::Subject;
use pki::path::Purpose;
use pki::profile::Profile;
use registry::{
    Approvals, EnrolError, Invitation, Invited, Issued, ListedPerson, Registration, Registry, Step,
    Wanted,
};
use rustls_pki_types::CertificateDer;
use store::sqlx;
use store::sqlx::Connection as _;
use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::fixture::{NOW, SECRETS, World, config, csr, key, world};
use crate::staff::{Member, Staff, code, rights_of};

const UID: &str = "officer-9";

type Directory = Arc<Mutex<BTreeMap<String, PersonRecord>>>;

fn officer(uid: &str, name: &str) -> PersonRecord {
    PersonRecord {
        uid: uid.to_owned(),
        name: name.to_owned(),
        organisation: "LEA-EU".to_owned(),
        clearance: Clearance::Confidential,
        roles: BTreeSet::from([Role::Officer]),
        units: BTreeSet::from(["traffic".to_owned()]),
        active: true,
    }
}

fn listed(record: &PersonRecord) -> ListedPerson {
    ListedPerson {
        record: record.clone(),
        subject: Subject {
            uid: Some(record.uid.clone()),
            ..Subject::new(&record.name)
        },
    }
}

fn name_of(uid: &str) -> &'static str {
    match uid {
        UID => "Ninth Officer",
        _ => "The Chief",
    }
}

fn wanted(uid: &str) -> Wanted {
    Wanted {
        act: Act::Invite {
            subject: uid.to_owned(),
            profile: "user".to_owned(),
            clearance: Clearance::Confidential,
            unit: Some("traffic".to_owned()),
            hours: 24,
            renewals: 1,
            names: Vec::new(),
            account: None,
            rights: Some(rights_of(&officer(uid, ""))),
            distinguished_name: listed(&officer(uid, name_of(uid)))
                .subject
                .distinguished_name()
                .ok(),
        },
        csr: None,
    }
}

fn invitation(uid: &str, name: &str) -> Invitation {
    Invitation {
        profile: Profile::User {
            administrator: false,
        },
        subject: Subject {
            uid: Some(uid.to_owned()),
            unit: Some("traffic".to_owned()),
            ..Subject::new(name)
        },
        clearance: Clearance::Confidential,
        hours: 24,
        renewals: 1,
        names: Vec::new(),
        account: None,
    }
}

/// A registry that requires approvals, an approved invitation of [`UID`], and a request for somebody else that nobody
/// approved.
struct Site {
    world: World,
    registry: Registry,
    directory: Directory,
    invited: Invited,
    request: String,
    submitted: String,
    members: BTreeMap<&'static str, Member>,
}

impl Site {
    async fn new() -> Self {
        let world = world().await;
        let members = Staff::new(&world.registry).await.members;
        world.registry.close(NOW).await;
        let required = registry::Config {
            registration: Registration {
                approvals: Approvals::Required,
                ..Registration::default()
            },
            ..config()
        };
        let (audit, secret) = (world.audit.clone(), &SECRETS.issuing);
        let opened = Registry::open(world.folder.path(), required, secret, audit, NOW);
        let mut people: BTreeMap<String, PersonRecord> = members
            .iter()
            .map(|(uid, member)| ((*uid).to_owned(), member.record.clone()))
            .collect();
        people.insert(UID.to_owned(), officer(UID, "Ninth Officer"));
        people.insert("chief-1".to_owned(), officer("chief-1", "The Chief"));
        let directory = Directory::new(Mutex::new(people));
        let there = directory.clone();
        let registry = opened.await.unwrap();
        let registry = registry.with_people(Arc::new(move |uid: &str| {
            let entry = there.lock().unwrap().get(uid).map(listed);
            Box::pin(async move { Ok(entry) })
        }));
        let mut staff = Staff::of(&registry, members);
        let request = staff.approved(wanted(UID), &["registrar-2"]).await;
        let warrant = staff.authorize(&request).await.unwrap();
        let given = invitation(UID, "Ninth Officer");
        let invited = registry.invite(&given, warrant, NOW).await.unwrap();
        let submitted = staff.submitted(wanted("chief-1")).await.id().0.clone();
        let request = request.id().0.clone();
        let members = staff.members;
        Self {
            world,
            registry,
            directory,
            invited,
            request,
            submitted,
            members,
        }
    }

    /// What whoever can write the database does to the invitation.
    async fn tamper(&self, assignment: &str, value: impl Into<Vec<u8>>) {
        let file = self.world.folder.path().join("registry.sqlite");
        let options = SqliteConnectOptions::new().filename(file);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let update = format!("UPDATE invitations SET {assignment} WHERE used_serial IS NULL");
        let value: Vec<u8> = value.into();
        let query = sqlx::query(sqlx::AssertSqlSafe(update));
        let query = match String::from_utf8(value.clone()) {
            Ok(text) if !assignment.starts_with("subject") => query.bind(text),
            _ => query.bind(value),
        };
        query.execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn enrol(&self) -> Result<Issued, EnrolError> {
        let (code, csr) = (self.invited.code.as_str(), csr("x", &key()));
        self.registry.enrol_by_code(UID, code, &csr, NOW).await
    }

    async fn refused(&self) -> &'static str {
        self.enrol().await.expect_err("a refusal").code()
    }
}

#[tokio::test]
async fn invitation_that_names_another_request_certifies_nobody() {
    let site = Site::new().await;
    for request in [site.submitted.as_str(), "000000000000"] {
        site.tamper("request = ?", request).await;
        assert_eq!(site.refused().await, "approval-gone");
        let event = site.world.audit.events().pop().unwrap();
        assert!(event.details.contains_key("why"), "{event:?}");
    }
    site.tamper("request = ?", site.request.as_str()).await;
    site.enrol().await.unwrap();
}

#[tokio::test]
async fn bounds_and_names_in_the_database_are_not_believed() {
    let site = Site::new().await;
    let other = Subject {
        uid: Some("chief-1".to_owned()),
        unit: Some("traffic".to_owned()),
        ..Subject::new("The Chief")
    };
    let no_unit = Subject {
        unit: None,
        ..invitation(UID, "Ninth Officer").subject
    };
    let own = invitation(UID, "Ninth Officer").subject.to_der().unwrap();
    let (no_unit, other) = (no_unit.to_der().unwrap(), other.to_der().unwrap());
    let cases: [(&str, &[u8], &[u8], &str); 6] = [
        ("renewals = CAST(? AS INTEGER)", b"9", b"1", "approval-gone"),
        (
            "clearance = CAST(? AS INTEGER)",
            b"4",
            b"2",
            "approval-gone",
        ),
        (
            "expires_at = expires_at + CAST(? AS INTEGER)",
            b"60",
            b"-60",
            "approval-gone",
        ),
        ("profile = ?", b"administrator", b"user", "approval-gone"),
        ("subject = ?", &no_unit, &own, "approval-gone"),
        ("subject = ?", &other, &own, "person-refused"),
    ];
    for (assignment, value, restored, code) in cases {
        site.tamper(assignment, value).await;
        let outcome = site.enrol().await.err();
        let outcome = outcome.unwrap_or_else(|| panic!("{assignment} was believed"));
        // A profile of no certificate that is issued on request cannot even be read.
        let unreadable = matches!(outcome, EnrolError::Registry(_));
        assert!(
            unreadable || outcome.code() == code,
            "{assignment}: {outcome:?}"
        );
        site.tamper(assignment, restored).await;
    }
    site.enrol().await.unwrap();
}

#[tokio::test]
async fn approvers_are_asked_again_when_the_code_is_presented() {
    let site = Site::new().await;
    let change = |active: bool| {
        let mut people = site.directory.lock().unwrap();
        people.get_mut("registrar-2").unwrap().active = active;
    };
    change(false);
    assert_eq!(site.refused().await, "approval-gone");
    change(true);
    let issued = site.enrol().await.unwrap();
    // Renewals are part of what was agreed to, and do not end with who agreed to it.
    change(false);
    let peer = issued.chain.ders().to_vec();
    let renewed = site.registry.reenrol(&peer, &csr("x", &key()), NOW).await;
    renewed.unwrap();
}

#[tokio::test]
async fn renamed_person_takes_another_approved_invitation() {
    let site = Site::new().await;
    let rename = |name: &str| {
        let mut people = site.directory.lock().unwrap();
        people.get_mut(UID).unwrap().name = name.to_owned();
    };
    rename("Ninth Married");
    assert_eq!(site.refused().await, "person-refused");
    rename("Ninth Officer");
    site.enrol().await.unwrap();
}

#[tokio::test]
async fn code_that_one_approved_is_none_of_an_approver() {
    let site = Site::new().await;
    let become_one = |role| {
        let mut people = site.directory.lock().unwrap();
        people.get_mut(UID).unwrap().roles = BTreeSet::from([role]);
    };
    for role in [Role::Registrar, Role::Administrator] {
        become_one(role);
        assert_eq!(site.refused().await, "approval-gone");
    }
    become_one(Role::Officer);
    let issued = site.enrol().await.unwrap();
    // Nor does the certificate that it gave before go on for ever.
    become_one(Role::Registrar);
    let peer = issued.chain.ders().to_vec();
    let csr = csr("x", &key());
    let renewed = site.registry.reenrol(&peer, &csr, NOW).await;
    assert_eq!(renewed.expect_err("a refusal").code(), "approval-gone");
    become_one(Role::Auditor);
    site.registry.reenrol(&peer, &csr, NOW).await.unwrap();
}

/// Whoever got a certificate of somebody by one approval does not approve as that person later.
#[tokio::test]
async fn certificate_that_one_approved_approves_nothing() {
    let site = Site::new().await;
    let own = key();
    let (secret, request) = (site.invited.code.as_str(), csr("x", &own));
    let issued = site
        .registry
        .enrol_by_code(UID, secret, &request, NOW)
        .await;
    let certificate = issued.unwrap().chain.ders()[0].to_vec();
    let record = {
        let mut people = site.directory.lock().unwrap();
        let entry = people.get_mut(UID).unwrap();
        entry.roles = BTreeSet::from([Role::Registrar]);
        entry.clone()
    };
    let chain = [CertificateDer::from(certificate.clone())];
    let admitted = site.registry.admit(&chain, Purpose::ClientUser, NOW).await;
    let principal = Principal::by_certificate(admitted.unwrap().identity(), &record).unwrap();
    let request = site
        .registry
        .request(&site.submitted)
        .await
        .unwrap()
        .request;
    let step = Step::Approve {
        certificate,
        signature: own.sign(&request.statement().unwrap()).unwrap(),
    };
    let (id, version) = (&site.submitted, request.version());
    let refused = site
        .registry
        .step_request(id, version, step, &principal, NOW);
    assert_eq!(code(refused.await), "approvers-certificate");
}

#[tokio::test]
async fn acts_say_what_their_people_may_do_by_the_directory() {
    let with = |rights: Option<Rights>| {
        let mut wanted = wanted("chief-1");
        if let Act::Invite { rights: said, .. } = &mut wanted.act {
            *said = rights;
        }
        wanted
    };
    let true_ones = rights_of(&officer("chief-1", ""));
    let lower = Rights {
        clearance: Clearance::Unclassified,
        ..true_ones.clone()
    };
    let other_role = Rights {
        roles: BTreeSet::from([Role::Auditor]),
        ..true_ones.clone()
    };
    let Site {
        registry,
        directory,
        members,
        world: _world,
        ..
    } = Site::new().await;
    let mut staff = Staff::of(&registry, members);
    let by = staff.principal("applicant").clone();
    for said in [None, Some(lower), Some(other_role)] {
        let draft = registry.draft_request(with(said), &by, "why", NOW);
        assert_eq!(code(draft.await), "other-rights");
    }
    // What was signed for an officer is not carried out for a registrar.
    let request = staff
        .approved(with(Some(true_ones)), &["registrar-2"])
        .await;
    let promote = |role| {
        let mut people = directory.lock().unwrap();
        people.get_mut("chief-1").unwrap().roles = BTreeSet::from([role]);
    };
    promote(Role::Registrar);
    assert_eq!(code(staff.authorize(&request).await), "other-rights");
    promote(Role::Officer);
    assert!(staff.authorize(&request).await.is_ok());
}
