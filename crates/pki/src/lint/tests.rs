use const_oid::db::rfc5280::ANY_EXTENDED_KEY_USAGE;
use der::asn1::{BitString, Ia5String, OctetString, SetOfVec};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use x509_cert::ext::pkix::KeyUsages;
use x509_cert::name::{Name, RdnSequence};
use x509_cert::serial_number::SerialNumber;

use super::*;
use crate::extension::{extension, to_x509_time};
use crate::issue::{CertificateAuthority, CertificateRequest, IssueError, Validity};
use crate::key::KeyAlgorithm;
use crate::key::PrivateKey;
use crate::name::{AltName, Subject, WindowsAccount};
use crate::oid::eku;
use crate::profile::{Profile, built_in};

const NOW: OffsetDateTime = datetime!(2030-01-01 12:00 UTC);

fn key() -> PrivateKey {
    PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()
}

fn authority() -> CertificateAuthority {
    let (root_key, own) = (key(), key());
    let arc = ExtensionArc::default();
    let request = |profile, name: &str, key: &PrivateKey, days| {
        let validity = Validity::starting(NOW, Duration::days(days));
        CertificateRequest::new(profile, Subject::new(name), key.spki(), validity)
    };
    let root = request(Profile::Root, "Root", &root_key, 900);
    let root = CertificateAuthority::create_root(&root, root_key, arc).unwrap();
    let mut users = request(Profile::IssuingCa(CaKind::Users), "Users", &own, 800);
    users.clearance = Some(Clearance::Secret);
    let certificate = root.issue(&users, NOW).unwrap();
    CertificateAuthority::new(certificate, own, arc).unwrap()
}

/// A person's certificate with all that a profile may want.
fn request(profile: Profile) -> CertificateRequest {
    let subject = Subject {
        country: Some("EU".into()),
        organisation: Some("LEA-EU".into()),
        uid: Some("officer-9".into()),
        email: Some("ana@police.example".into()),
        ..Subject::new("Ana")
    };
    let validity = Validity::starting(NOW, Duration::days(300));
    let mut request = CertificateRequest::new(profile, subject, key().spki(), validity);
    request.clearance = Some(Clearance::Secret);
    request.crl_url = Some("http://pki.example/users.crl".into());
    request.freshest_crl_url = Some("http://pki.example/users-delta.crl".into());
    request.ocsp_url = Some("http://pki.example/ocsp".into());
    request.issuer_url = Some("http://pki.example/ca/users.cer".into());
    request
}

const USER: Profile = Profile::User {
    administrator: false,
};

fn named(name: &str) -> Profile {
    let mut all = built_in();
    let (definition, _) = all.find(|(one, _)| one.name() == name).unwrap();
    definition.profile().unwrap()
}

struct World {
    authority: CertificateAuthority,
    tbs: TbsCertificate,
    profile: Profile,
}

impl World {
    fn new(profile: Profile, change: impl FnOnce(&mut CertificateRequest)) -> Self {
        let authority = authority();
        let mut request = request(profile);
        change(&mut request);
        let certificate = authority.issue(&request, NOW).unwrap();
        Self {
            authority,
            tbs: certificate.tbs_certificate,
            profile,
        }
    }

    /// Names of the rules that the certificate breaks after a change.
    fn broken(&self, change: impl FnOnce(&mut TbsCertificate)) -> BTreeSet<&'static str> {
        let mut tbs = self.tbs.clone();
        change(&mut tbs);
        let rules = Rules {
            definition: self.profile.definition().unwrap(),
            kind: None,
            issuer: Some(self.authority.certificate()),
            highest_clearance: self.authority.max_clearance(),
            arc: &ExtensionArc::default(),
        };
        let findings = rules.check(&tbs.to_der().unwrap());
        findings.0.iter().map(|finding| finding.rule).collect()
    }

    fn breaks(&self, rule: &'static str, change: impl FnOnce(&mut TbsCertificate)) {
        let broken = self.broken(change);
        assert!(broken.contains(rule), "{rule}: {broken:?}");
    }
}

fn all(tbs: &mut TbsCertificate) -> &mut Vec<Extension> {
    tbs.extensions.as_mut().unwrap()
}

fn at(tbs: &mut TbsCertificate, oid: ObjectIdentifier) -> &mut Extension {
    all(tbs).iter_mut().find(|one| one.extn_id == oid).unwrap()
}

fn remove(tbs: &mut TbsCertificate, oid: ObjectIdentifier) {
    all(tbs).retain(|one| one.extn_id != oid);
}

fn set<T: Encode>(tbs: &mut TbsCertificate, oid: ObjectIdentifier, critical: bool, value: &T) {
    remove(tbs, oid);
    all(tbs).push(extension(oid, critical, value).unwrap());
}

#[test]
fn what_is_issued_breaks_no_rule_and_each_change_breaks_its_own() {
    let world = World::new(USER, |_| {});
    assert!(world.broken(|_| {}).is_empty());
    let arc = ExtensionArc::default();
    world.breaks("version", |tbs| tbs.version = Version::V2);
    for serial in [&[0][..], &[0x80], &[1; 21]] {
        let serial = SerialNumber::new(serial);
        if let Ok(serial) = serial {
            let zero = serial.as_bytes().iter().all(|byte| *byte == 0);
            if zero {
                world.breaks("serial", |tbs| tbs.serial_number = serial);
            }
        }
    }
    world.breaks("unique-identifiers", |tbs| {
        tbs.subject_unique_id = Some(BitString::from_bytes(&[1]).unwrap());
    });
    world.breaks("issuer-name", |tbs| tbs.issuer = tbs.subject.clone());
    world.breaks("dates", |tbs| {
        std::mem::swap(&mut tbs.validity.not_before, &mut tbs.validity.not_after);
    });
    world.breaks("outlives-issuer", |tbs| {
        tbs.validity.not_after = to_x509_time(NOW + Duration::days(801)).unwrap();
    });
    world.breaks("date-form", |tbs| {
        let since_epoch = std::time::Duration::from_secs(1_900_000_000);
        let time = der::asn1::GeneralizedTime::from_unix_duration(since_epoch).unwrap();
        tbs.validity.not_after = Time::GeneralTime(time);
    });
    // Extensions: twice, unknown, missing, with other values, with the other criticality.
    world.breaks("extension-twice", |tbs| {
        let again = all(tbs)[0].clone();
        all(tbs).push(again);
    });
    let private = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.4711.1");
    world.breaks("extension", |tbs| set(tbs, private, false, &1_u8));
    world.breaks("extension", |tbs| set(tbs, NTDS_CA_SECURITY, false, &1_u8));
    world.breaks("extension", |tbs| {
        set(tbs, ID_PKIX_OCSP_NOCHECK, false, &der::asn1::Null)
    });
    world.breaks("ocsp-no-check", |tbs| {
        set(tbs, ID_PKIX_OCSP_NOCHECK, false, &der::asn1::Null)
    });
    world.breaks("extension", |tbs| {
        set(tbs, arc.ca_kind, false, &"users".to_owned())
    });
    let ca = BasicConstraints {
        ca: true,
        path_len_constraint: None,
    };
    world.breaks("basic-constraints", |tbs| {
        set(tbs, ID_CE_BASIC_CONSTRAINTS, true, &ca)
    });
    for (oid, rule) in [
        (ID_CE_KEY_USAGE, "key-usage"),
        (ID_CE_EXT_KEY_USAGE, "purposes"),
        (ID_CE_SUBJECT_KEY_IDENTIFIER, "key-identifier"),
        (ID_CE_AUTHORITY_KEY_IDENTIFIER, "key-identifier"),
        (ID_CE_SUBJECT_ALT_NAME, "alternative-names"),
        (arc.user_id, "user-id"),
        (arc.level, "clearance"),
        (ID_CE_SUBJECT_DIRECTORY_ATTRIBUTES, "clearance"),
    ] {
        world.breaks(rule, |tbs| remove(tbs, oid));
        world.breaks(rule, |tbs| at(tbs, oid).critical ^= true);
        world.breaks(rule, |tbs| {
            at(tbs, oid).extn_value = OctetString::new([0x05, 0x00]).unwrap();
        });
    }
    for oid in [
        ID_CE_CRL_DISTRIBUTION_POINTS,
        ID_CE_FRESHEST_CRL,
        ID_PE_AUTHORITY_INFO_ACCESS,
    ] {
        world.breaks("addresses", |tbs| at(tbs, oid).critical = true);
        world.breaks("addresses", |tbs| {
            at(tbs, oid).extn_value = OctetString::new([0x30, 0x00]).unwrap();
        });
    }
    for url in [
        "file:///etc/passwd",
        "http://",
        "http:///x",
        "pki.example/x",
    ] {
        for access_method in [ID_AD_OCSP, ID_AD_CA_ISSUERS] {
            world.breaks("addresses", |tbs| {
                let url = Ia5String::new(url).unwrap();
                let access = x509_cert::ext::pkix::AccessDescription {
                    access_method,
                    access_location: GeneralName::UniformResourceIdentifier(url),
                };
                let access = AuthorityInfoAccessSyntax(vec![access]);
                set(tbs, ID_PE_AUTHORITY_INFO_ACCESS, false, &access);
            });
        }
    }
    world.breaks("addresses", |tbs| {
        let access = x509_cert::ext::pkix::AccessDescription {
            access_method: ID_PE_AUTHORITY_INFO_ACCESS,
            access_location: GeneralName::UniformResourceIdentifier(
                Ia5String::new("http://pki.example/ca/users.cer").unwrap(),
            ),
        };
        let access = AuthorityInfoAccessSyntax(vec![access]);
        set(tbs, ID_PE_AUTHORITY_INFO_ACCESS, false, &access);
    });
    for usages in [
        KeyUsages::KeyCertSign.into(),
        KeyUsages::DigitalSignature | KeyUsages::KeyCertSign,
        KeyUsages::DigitalSignature.into(),
    ] {
        world.breaks("key-usage", |tbs| {
            set(tbs, ID_CE_KEY_USAGE, true, &KeyUsage(usages))
        });
    }
    for purposes in [
        vec![ANY_EXTENDED_KEY_USAGE],
        vec![eku::CLIENT_AUTH],
        vec![eku::SERVER_AUTH],
        Vec::new(),
    ] {
        world.breaks("purposes", |tbs| {
            set(tbs, ID_CE_EXT_KEY_USAGE, true, &ExtendedKeyUsage(purposes));
        });
    }
    // The published profile has time stamping in it.
    world.breaks("time-stamping", |tbs| {
        at(tbs, ID_CE_EXT_KEY_USAGE).critical = false;
        at(tbs, ID_CE_KEY_USAGE).critical = true;
        at(tbs, ID_CE_EXT_KEY_USAGE).extn_value =
            OctetString::new(ExtendedKeyUsage(vec![TIME_STAMPING, ANY]).to_der().unwrap()).unwrap();
    });
    world.breaks("user-id", |tbs| {
        set(tbs, arc.user_id, false, &"officer-1".to_owned())
    });
    world.breaks("clearance", |tbs| set(tbs, arc.level, false, &4_u8));
    world.breaks("clearance", |tbs| set(tbs, arc.level, false, &5_u8));
    world.breaks("key", |tbs| {
        tbs.subject_public_key_info.algorithm.oid = private;
    });
    world.breaks("key-identifier", |tbs| {
        tbs.subject_public_key_info = key().spki();
    });
    for names in [
        Vec::new(),
        vec![AltName::Email("other@police.example".into())],
        vec![AltName::Dns("portal.example".into())],
        vec![
            AltName::Email("ana@police.example".into()),
            AltName::Ip("192.0.2.1".parse().unwrap()),
        ],
        vec![
            AltName::Email("ana@police.example".into()),
            AltName::Upn("no account".into()),
        ],
        vec![
            AltName::Email("ana@police.example".into()),
            AltName::Upn("ana@police.example".into()),
            AltName::Upn("eva@police.example".into()),
        ],
    ] {
        world.breaks("alternative-names", |tbs| {
            let names = names.iter().map(|name| name.to_general_name().unwrap());
            let names = SubjectAltName(names.collect());
            set(tbs, ID_CE_SUBJECT_ALT_NAME, false, &names);
        });
    }
    // Without a subject the alternative names count, and are critical.
    world.breaks("alternative-names", |tbs| {
        tbs.subject = RdnSequence::default()
    });
    world.breaks("subject", |tbs| {
        let again = tbs.subject.0[0].clone();
        tbs.subject.0.push(again);
    });
    world.breaks("subject", |tbs| {
        let (first, second) = (tbs.subject.0[0].clone(), tbs.subject.0[1].clone());
        let both = [
            first.0.get(0).unwrap().clone(),
            second.0.get(0).unwrap().clone(),
        ];
        tbs.subject.0[0].0 = SetOfVec::try_from(both.to_vec()).unwrap();
    });
    for (index, name) in [
        (0, "eu"),
        (0, "EUR"),
        (2, ""),
        (2, " Ana"),
        (2, "A\u{202e}na"),
    ] {
        world.breaks("subject", |tbs| {
            tbs.subject = renamed(&tbs.subject, index, name)
        });
    }
    world.breaks("subject", |tbs| {
        tbs.subject = renamed(&tbs.subject, 2, &"x".repeat(65));
    });
    assert_eq!(
        Rules {
            definition: USER.definition().unwrap(),
            kind: None,
            issuer: None,
            highest_clearance: None,
            arc: &arc,
        }
        .check(b"no certificate")
        .0[0]
            .rule,
        "der"
    );
}

/// The name with another text in one of its attributes, of the same form.
fn renamed(name: &Name, index: usize, text: &str) -> Name {
    let mut name = name.clone();
    let mut attribute = name.0[index].0.get(0).unwrap().clone();
    use der::Tagged as _;
    attribute.value = der::asn1::Any::new(attribute.value.tag(), text.as_bytes()).unwrap();
    name.0[index].0 = SetOfVec::try_from(vec![attribute]).unwrap();
    name
}

#[test]
fn logon_certificates_name_the_account_twice() {
    let account = WindowsAccount::new("ana@police.example", "S-1-5-21-1-2-3-1104").unwrap();
    let with_account = |request: &mut CertificateRequest| {
        request.clearance = None;
        request.alt_names = vec![AltName::Upn(account.principal.clone())];
        request.sid = Some(account.sid.clone());
    };
    let world = World::new(named("smart-card-logon"), with_account);
    assert!(world.broken(|_| {}).is_empty());
    world.breaks("security-identifier", |tbs| remove(tbs, NTDS_CA_SECURITY));
    world.breaks("security-identifier", |tbs| {
        at(tbs, NTDS_CA_SECURITY).critical = true
    });
    world.breaks("security-identifier", |tbs| {
        let system = OctetString::new(*b"S-1-5-18").unwrap();
        let name = x509_cert::ext::pkix::name::OtherName {
            type_id: crate::oid::NTDS_OBJECT_SID,
            value: der::asn1::Any::encode_from(&system).unwrap(),
        };
        let value = SubjectAltName(vec![GeneralName::OtherName(name)]);
        set(tbs, NTDS_CA_SECURITY, false, &value);
    });
    world.breaks("alternative-names", |tbs| {
        let email = AltName::Email("ana@police.example".into());
        let names = SubjectAltName(vec![email.to_general_name().unwrap()]);
        set(tbs, ID_CE_SUBJECT_ALT_NAME, false, &names);
    });
    // Its profile keeps the clearance out of what strangers see.
    world.breaks("extension", |tbs| {
        set(tbs, ExtensionArc::default().level, false, &1_u8)
    });
}

#[test]
fn certificate_that_breaks_a_rule_is_not_signed() {
    let authority = authority();
    let refused = |change: &dyn Fn(&mut CertificateRequest), profile| {
        let mut request = request(profile);
        change(&mut request);
        match authority.issue(&request, NOW) {
            Err(IssueError::Lint(findings)) => findings.0[0].rule,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        refused(&|request| request.subject.uid = None, USER),
        "user-id"
    );
    let host = |request: &mut CertificateRequest| {
        request.alt_names = vec![AltName::Dns("portal.example".into())];
    };
    assert_eq!(refused(&host, USER), "alternative-names");
    let nobody = |request: &mut CertificateRequest| {
        request.clearance = None;
        request.subject.email = None;
    };
    assert_eq!(refused(&nobody, named("mail-signing")), "alternative-names");
    assert_eq!(refused(&|_| {}, named("mail-signing")), "extension");
    let unnamed = |request: &mut CertificateRequest| request.clearance = None;
    assert_eq!(
        refused(&unnamed, named("smart-card-logon")),
        "alternative-names"
    );
    let text = "name = \"short\"\nissuer = \"users\"\ndays = 300\nclearance = \"required\"\nhighest_clearance = 2
[names]\nuid = \"required\"\nemail = \"optional\"\n[key_usage]\necdsa = [\"digitalSignature\"]
[extended_key_usage]\npurposes = [\"clientAuth\"]\n";
    let definition = std::sync::Arc::new(Definition::parse(text).unwrap());
    let short = |clearance, days| {
        let definition = definition.clone();
        move |request: &mut CertificateRequest| {
            request.definition = Some(definition.clone());
            request.clearance = clearance;
            request.validity = Validity::starting(NOW, Duration::days(days));
        }
    };
    let profile = definition.profile().unwrap();
    let mut good = request(profile);
    short(Some(Clearance::Confidential), 300)(&mut good);
    authority.issue(&good, NOW).unwrap();
    assert_eq!(
        refused(&short(Some(Clearance::Secret), 300), profile),
        "clearance"
    );
    assert_eq!(refused(&short(None, 300), profile), "clearance");
    assert_eq!(
        refused(&short(Some(Clearance::Confidential), 301), profile),
        "lifetime"
    );
    let mut unknown = request(profile);
    unknown.definition = None;
    let unknown = authority.issue(&unknown, NOW);
    assert!(matches!(unknown, Err(IssueError::UnknownProfile(_))));
}

/// `cargo test --release --workspace --lib -- --ignored --nocapture cost_of_linting`
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn cost_of_linting() {
    const ROUNDS: u32 = 2000;
    let world = World::new(USER, |_| {});
    let tbs = world.tbs.to_der().unwrap();
    let arc = ExtensionArc::default();
    let rules = Rules {
        definition: USER.definition().unwrap(),
        kind: None,
        issuer: Some(world.authority.certificate()),
        highest_clearance: world.authority.max_clearance(),
        arc: &arc,
    };
    let request = request(USER);
    let measured = |what: &mut dyn FnMut()| {
        let begin = std::time::Instant::now();
        for _ in 0..ROUNDS {
            what();
        }
        begin.elapsed() / ROUNDS
    };
    let lint = measured(&mut || assert!(rules.check(&tbs).is_empty()));
    let issue = measured(&mut || drop(world.authority.issue(&request, NOW).unwrap()));
    eprintln!("linting {lint:?}, making and signing with it {issue:?}");
}
