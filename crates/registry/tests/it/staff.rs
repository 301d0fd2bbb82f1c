//! People with certificates who ask, approve and carry out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use access::{PersonRecord, Principal, Role};
use approval::{Act, People, Request, Rights};
use audit::Actor;
use pki::clearance::Clearance;
use pki::key::PrivateKey;
use pki::name::Subject;
use pki::path::Purpose;
use pki::profile::Profile;
use pki::spki::spki_sha256;
use registry::{
    Invitation, Issued, ListedPerson, Order, PersonLookup, Registry, RequestError, Step, Wanted,
    Warrant,
};
use time::OffsetDateTime;

use crate::fixture::{NOW, World, an_order, csr, key};

/// A person with a certificate of the site.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) record: PersonRecord,
    pub(crate) key: PrivateKey,
    pub(crate) certificate: Vec<u8>,
    principal: Principal,
}

/// The directory of these tests.
pub(crate) struct Staff<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) members: BTreeMap<&'static str, Member>,
    /// Certificates that count now, by fingerprint.
    pub(crate) certificates: BTreeMap<String, Vec<u8>>,
}

impl People for Staff<'_> {
    fn person(&self, uid: &str) -> Option<PersonRecord> {
        Some(self.members.get(uid)?.record.clone())
    }

    fn certificate(&self, sha256: &str) -> Option<Vec<u8>> {
        self.certificates.get(sha256).cloned()
    }
}

/// Everybody whom the registry's directory knows, with clearance and role.
const PEOPLE: [(&str, Clearance, Role); 7] = [
    ("applicant", Clearance::Confidential, Role::Officer),
    ("registrar-2", Clearance::Confidential, Role::Registrar),
    ("registrar-3", Clearance::Secret, Role::Registrar),
    ("registrar-4", Clearance::TopSecret, Role::Registrar),
    ("administrator-3", Clearance::Secret, Role::Administrator),
    ("administrator-4", Clearance::TopSecret, Role::Administrator),
    ("officer-9", Clearance::Confidential, Role::Officer),
];

fn record(uid: &str, clearance: Clearance, role: Role) -> PersonRecord {
    PersonRecord {
        uid: uid.to_owned(),
        name: format!("Example {uid}"),
        organisation: "LEA-EU".to_owned(),
        clearance,
        roles: BTreeSet::from([role]),
        units: BTreeSet::new(),
        active: true,
    }
}

fn known(uid: &str) -> Option<PersonRecord> {
    let found = PEOPLE.into_iter().find(|(known, ..)| *known == uid);
    found.map(|(uid, clearance, role)| record(uid, clearance, role))
}

/// The directory of [`PEOPLE`].
pub(crate) fn directory() -> PersonLookup {
    Arc::new(|uid: &str| {
        let entry = known(uid).map(|record| ListedPerson {
            subject: subject(&record.uid),
            record,
        });
        Box::pin(async move { Ok(entry) })
    })
}

/// The names that a person's certificate gets.
pub(crate) fn subject(uid: &str) -> Subject {
    Subject {
        uid: Some(uid.to_owned()),
        ..Subject::new(format!("Example {uid}"))
    }
}

pub(crate) fn names(uid: &str) -> Option<String> {
    subject(uid).distinguished_name().ok()
}

/// What the directory says that a person may do.
pub(crate) fn rights(uid: &str) -> Option<Rights> {
    known(uid).as_ref().map(rights_of)
}

pub(crate) fn rights_of(record: &PersonRecord) -> Rights {
    Rights {
        clearance: record.clearance,
        roles: record.roles.clone(),
        units: record.units.clone(),
    }
}

impl<'a> Staff<'a> {
    pub(crate) async fn new(registry: &'a Registry) -> Self {
        let mut members = BTreeMap::new();
        for (uid, clearance, role) in PEOPLE {
            members.insert(uid, member(registry, uid, clearance, role).await);
        }
        Self::of(registry, members)
    }

    /// The same people at another opening of the registry.
    pub(crate) fn of(registry: &'a Registry, members: BTreeMap<&'static str, Member>) -> Self {
        Self {
            registry,
            members,
            certificates: BTreeMap::new(),
        }
    }

    pub(crate) fn principal(&self, uid: &str) -> &Principal {
        &self.members[uid].principal
    }

    /// Has somebody use another certificate from here on.
    pub(crate) async fn replace(&mut self, uid: &'static str, key: PrivateKey, issued: &Issued) {
        let admitted = self
            .registry
            .admit(issued.chain.ders(), Purpose::ClientUser, NOW);
        let admitted = admitted.await.unwrap();
        let member = self.members.get_mut(uid).unwrap();
        member.principal = Principal::by_certificate(admitted.identity(), &member.record).unwrap();
        member.certificate = issued.chain.ders()[0].to_vec();
        member.key = key;
    }

    pub(crate) async fn submitted(&self, wanted: Wanted) -> Request {
        self.submitted_at(wanted, NOW).await
    }

    async fn submitted_at(&self, wanted: Wanted, now: OffsetDateTime) -> Request {
        let by = self.principal("applicant");
        let draft = self.registry.draft_request(wanted, by, "needed", now).await;
        let draft = draft.unwrap();
        let step = self.step_at(&draft, Step::Submit, "applicant", now).await;
        step.unwrap()
    }

    pub(crate) async fn step(
        &self,
        request: &Request,
        step: Step,
        uid: &str,
    ) -> Result<Request, RequestError> {
        self.step_at(request, step, uid, NOW).await
    }

    async fn step_at(
        &self,
        request: &Request,
        step: Step,
        uid: &str,
        now: OffsetDateTime,
    ) -> Result<Request, RequestError> {
        let (id, by) = (&request.id().0, self.principal(uid));
        self.registry
            .step_request(id, request.version(), step, by, now)
            .await
    }

    pub(crate) async fn approve(
        &self,
        request: &Request,
        uid: &str,
    ) -> Result<Request, RequestError> {
        self.approve_at(request, uid, NOW).await
    }

    pub(crate) async fn approve_at(
        &self,
        request: &Request,
        uid: &str,
        now: OffsetDateTime,
    ) -> Result<Request, RequestError> {
        let member = &self.members[uid];
        let step = Step::Approve {
            certificate: member.certificate.clone(),
            signature: member.key.sign(&request.statement().unwrap()).unwrap(),
        };
        self.step_at(request, step, uid, now).await
    }

    /// Looks at the certificates as they are now, then asks for the warrant.
    pub(crate) async fn authorize(&mut self, request: &Request) -> Result<Warrant, RequestError> {
        self.certificates.clear();
        let id = &request.id().0;
        for approval in request.state().approvals() {
            let sha256 = approval.certificate_sha256();
            let found = self.registry.approver_certificate(id, sha256, NOW).await?;
            if let Some(der) = found {
                self.certificates.insert(sha256.to_owned(), der);
            }
        }
        let by = self.principal("applicant");
        self.registry
            .authorize_request(id, request.version(), self, by, carrier(), NOW)
            .await
    }

    pub(crate) async fn approved(&self, wanted: Wanted, approvers: &[&str]) -> Request {
        self.approved_at(wanted, approvers, NOW).await
    }

    pub(crate) async fn approved_at(
        &self,
        wanted: Wanted,
        approvers: &[&str],
        now: OffsetDateTime,
    ) -> Request {
        let mut request = self.submitted_at(wanted, now).await;
        for uid in approvers {
            request = self.approve_at(&request, uid, now).await.unwrap();
        }
        request
    }
}

pub(crate) fn carrier() -> Actor {
    Actor::user("applicant", "Example applicant")
}

async fn member(registry: &Registry, uid: &str, clearance: Clearance, role: Role) -> Member {
    let key = key();
    let invitation = Invitation {
        profile: Profile::User {
            administrator: false,
        },
        subject: subject(uid),
        clearance,
        hours: 24,
        renewals: 0,
        names: Vec::new(),
        account: None,
    };
    let invited = registry.invite(&invitation, an_order(), NOW).await.unwrap();
    let csr = csr(uid, &key);
    let with_people = registry.with_people(directory());
    let issued = with_people.enrol_by_code(uid, invited.code.as_str(), &csr, NOW);
    let issued = issued.await.unwrap();
    let record = record(uid, clearance, role);
    let admitted = registry.admit(issued.chain.ders(), Purpose::ClientUser, NOW);
    let admitted = admitted.await.unwrap();
    Member {
        principal: Principal::by_certificate(admitted.identity(), &record).unwrap(),
        certificate: issued.chain.ders()[0].to_vec(),
        record,
        key,
    }
}

pub(crate) fn issue(device: &str, key: &PrivateKey, clearance: Clearance) -> Wanted {
    Wanted {
        act: Act::Issue {
            subject: device.to_owned(),
            profile: "device".to_owned(),
            clearance,
            spki_sha256: spki_sha256(&key.spki()).unwrap(),
            account: None,
            rights: None,
            distinguished_name: None,
            by_password: false,
        },
        csr: Some(csr(device, key)),
    }
}

pub(crate) fn order(device: &str, key: &PrivateKey, clearance: Clearance) -> Order {
    Order::new(Profile::Device, Subject::new(device), key.spki()).with_clearance(clearance)
}

pub(crate) fn code<T>(result: Result<T, RequestError>) -> &'static str {
    result.err().expect("a refusal").code()
}

/// The last event with this action.
pub(crate) fn event(world: &World, action: &str) -> audit::Event {
    let mut events = world.audit.events();
    events.retain(|event| event.action == action);
    events.pop().expect(action)
}
