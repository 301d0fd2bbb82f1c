//! One test per refusal, a table of grants, and random sequences against an oracle that counts for itself.

use std::collections::{BTreeMap, BTreeSet};

use access::{PersonRecord, Principal, Role};
use audit::Actor;
use pki::cert::{fingerprint_sha256, to_der};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::name::Subject;
use pki::oid::ExtensionArc;
use pki::path::{Identity, SubjectKind};
use pki::profile::Profile;
use pki::status::IssuerId;
use time::{Duration, OffsetDateTime};

use crate::{
    Act, HolderKind, HolderStep, People, Policy, Refusal, Request, RequestId, Rights, State,
    Urgency,
};

mod refusals;
mod rights;
mod sequences;

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-23 12:00 UTC);

/// A person with a key and a certificate, of which only key and fingerprint matter here.
struct Person {
    record: PersonRecord,
    /// Clearance in the certificate.
    certified: Clearance,
    key: PrivateKey,
    certificate: Vec<u8>,
    revoked: bool,
}

impl Person {
    fn new(uid: &str, clearance: Clearance, roles: &[Role]) -> Self {
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let request = CertificateRequest::new(
            Profile::Root,
            Subject::new(uid),
            key.spki(),
            Validity::starting(NOW, Duration::days(365)),
        );
        let root =
            CertificateAuthority::create_root(&request, key.clone(), ExtensionArc::default());
        Self {
            record: PersonRecord {
                uid: uid.to_owned(),
                name: format!("Example {uid}"),
                organisation: "LEA-EU".to_owned(),
                clearance,
                roles: roles.iter().copied().collect(),
                units: BTreeSet::new(),
                active: true,
            },
            certified: clearance,
            key,
            certificate: to_der(root.unwrap().certificate()).unwrap(),
            revoked: false,
        }
    }

    fn principal(&self) -> Option<Principal> {
        let identity = Identity {
            kind: SubjectKind::User,
            uid: Some(self.record.uid.clone()),
            common_name: self.record.name.clone(),
            email: None,
            organisation: None,
            clearance: self.certified,
            serial_hex: "01".to_owned(),
            fingerprint: fingerprint_sha256(&self.certificate),
            not_before: NOW,
            not_after: NOW,
            issuer_cn: "Users CA".to_owned(),
            issuer: IssuerId::of(&Subject::new("Users CA").to_name().unwrap()),
        };
        let session = Principal::by_certificate(&identity, &self.record).ok()?;
        (!self.revoked).then_some(session)
    }
}

/// Everybody, by user id.
struct Staff(BTreeMap<String, Person>);

impl Staff {
    fn new() -> Self {
        use Clearance::{Confidential, Secret, TopSecret};
        let people = [
            Person::new("applicant", Confidential, &[Role::Officer]),
            Person::new("registrar-2", Confidential, &[Role::Registrar]),
            Person::new("registrar-3", Secret, &[Role::Registrar]),
            Person::new(
                "registrar-4",
                TopSecret,
                &[Role::Registrar, Role::Administrator],
            ),
            Person::new("both-4", TopSecret, &[Role::Registrar, Role::Administrator]),
            Person::new("administrator-4", TopSecret, &[Role::Administrator]),
        ];
        let named = people.map(|person| (person.record.uid.clone(), person));
        Self(named.into())
    }

    fn get(&self, uid: &str) -> &Person {
        &self.0[uid]
    }

    fn change(&mut self, uid: &str) -> &mut Person {
        self.0.get_mut(uid).unwrap()
    }

    fn principal(&self, uid: &str) -> Principal {
        self.get(uid).principal().unwrap()
    }

    /// Lets `uid` sign the request as it is and hand the approval in.
    fn approve(&self, request: &Request, uid: &str) -> Result<Request, Refusal> {
        let signature = self.get(uid).key.sign(&request.statement()?).unwrap();
        self.approve_with(request, uid, signature)
    }

    fn approve_with(
        &self,
        request: &Request,
        uid: &str,
        signature: Vec<u8>,
    ) -> Result<Request, Refusal> {
        let person = self.get(uid);
        let principal = self.principal(uid);
        let policy = Policy::default();
        let step = request.approve(&principal, &person.certificate, signature, &policy, NOW)?;
        Ok(done(step))
    }

    fn authorize(&self, request: &Request) -> Result<crate::Authorized, Refusal> {
        request.authorize(&Policy::default(), self, Clearance::TopSecret, NOW)
    }
}

impl People for Staff {
    fn person(&self, uid: &str) -> Option<PersonRecord> {
        self.0.get(uid).map(|person| person.record.clone())
    }

    fn certificate(&self, sha256: &str) -> Option<Vec<u8>> {
        let found = |person: &&Person| fingerprint_sha256(&person.certificate) == sha256;
        let person = self.0.values().find(found)?;
        (!person.revoked).then(|| person.certificate.clone())
    }
}

fn code<T>(result: Result<T, Refusal>) -> &'static str {
    result.err().expect("a refusal").code()
}

/// Records into nothing and takes the changed request.
fn done(step: crate::Transition) -> Request {
    assert!(step.event().to_canonical().is_ok());
    step.into_parts().1
}

fn issue(subject: &str, clearance: Clearance) -> Act {
    Act::Issue {
        subject: subject.to_owned(),
        profile: "user".to_owned(),
        clearance,
        spki_sha256: "ab".repeat(32),
        account: None,
        rights: None,
        distinguished_name: None,
        by_password: false,
    }
}

fn submitted(act: Act) -> Request {
    let id = RequestId("1".to_owned());
    let draft = done(Request::draft(id, "applicant", None, act, "new officer", NOW).unwrap());
    done(draft.submit("applicant", draft.version(), NOW).unwrap())
}

#[test]
fn the_signed_statement_is_canonical_and_has_its_format() {
    let act = Act::ChangeHolder {
        subject: "camera-17".to_owned(),
        holder: HolderKind::Device,
        change: HolderStep::Revoke(RevocationReason::KeyCompromise),
        clearance: Clearance::Secret,
        urgency: Urgency::Emergency,
        rights: None,
    };
    let statement = String::from_utf8(submitted(act).statement().unwrap()).unwrap();
    let expected = concat!(
        r#"{"act":{"act":"change-holder","change":{"revoke":"key-compromise"},"clearance":3,"#,
        r#""holder":"device","subject":"camera-17","urgency":"emergency"},"#,
        r#""authors":["applicant"],"format":"cordon.approval/1","reason":"new officer","#,
        r#""request":"1","requester":"applicant"}"#
    );
    assert_eq!(statement, expected);
}
