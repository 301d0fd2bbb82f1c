//! Chains each of which is wrong in one way, and everything that makes them look right otherwise. Tests of
//! other crates include this file.
#![allow(dead_code, reason = "each crate uses a part")]

use std::process::Command;

use const_oid::ObjectIdentifier;
use der::asn1::{BitString, OctetString};
use der::{Decode as _, Encode as _};
use pki::crl::{RevocationReason, RevokedEntry};
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::name::{AltName, Subject};
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Presence, Profile};
use pki::status::Revocation;
use pki::{Certificate, Clearance, KeyAlgorithm, PrivateKey};
use rustls_pki_types::CertificateDer;
use spki::SubjectPublicKeyInfoOwned;
use time::{Duration, OffsetDateTime};
use x509_cert::ext::Extension;

use super::ocsp_site;

/// Name of every leaf, in subject and subjectAltName.
pub(crate) const NAME: &str = "leaf.example.org";
/// Public key of 1024 bits, made by `openssl genrsa`; nobody has the private one any more.
const RSA_1024: &[u8] = include_bytes!("wrong_chains/rsa-1024.der");

/// A chain, and what else a validator is given.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) root: Certificate,
    /// Current lists (DER) of all authorities of the chain.
    pub(crate) lists: Vec<Vec<u8>>,
    /// OCSP responses (DER).
    pub(crate) responses: Vec<Vec<u8>>,
}

/// Authorities whose keys sign what no honest authority would.
struct World {
    now: OffsetDateTime,
    kind: CaKind,
    profile: Profile,
    root_key: PrivateKey,
    root: CertificateAuthority,
    key: PrivateKey,
    issuing: CertificateAuthority,
    leaf_key: PrivateKey,
}

fn key() -> PrivateKey {
    PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()
}

fn resign(mut certificate: Certificate, key: &PrivateKey) -> Certificate {
    certificate.tbs_certificate.signature = key.signature_algorithm();
    certificate.signature_algorithm = key.signature_algorithm();
    let message = certificate.tbs_certificate.to_der().unwrap();
    certificate.signature = BitString::from_bytes(&key.sign(&message).unwrap()).unwrap();
    certificate
}

fn set(certificate: &mut Certificate, oid: &str, critical: bool, value: &[u8]) {
    let extn_id = ObjectIdentifier::new_unwrap(oid);
    let extensions = certificate.tbs_certificate.extensions.as_mut().unwrap();
    extensions.retain(|one| one.extn_id != extn_id);
    extensions.push(Extension {
        extn_id,
        critical,
        extn_value: OctetString::new(value).unwrap(),
    });
}

/// Tag, length and contents.
fn tlv(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(contents.len()) {
        Ok(short @ 0..=127) => out.push(short),
        Ok(long) => out.extend([0x81, long]),
        Err(_) => {
            let length = u16::try_from(contents.len()).unwrap();
            out.push(0x82);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend(contents);
    out
}

fn der(certificate: &Certificate) -> CertificateDer<'static> {
    CertificateDer::from(certificate.to_der().unwrap())
}

impl World {
    fn new(kind: CaKind, profile: Profile, now: OffsetDateTime) -> Self {
        let arc = ExtensionArc::default();
        let (root_key, own, leaf_key) = (key(), key(), key());
        let start = now - Duration::days(400);
        let asked = |profile, name: &str, key: &PrivateKey, days| {
            let validity = Validity::starting(start, Duration::days(days));
            CertificateRequest::new(profile, Subject::new(name), key.spki(), validity)
        };
        let root = asked(Profile::Root, "Table root", &root_key, 7300);
        let root = CertificateAuthority::create_root(&root, root_key.clone(), arc).unwrap();
        let issuing = asked(Profile::IssuingCa(kind), "Table CA", &own, 3650);
        let issuing = root.issue(&issuing, start).unwrap();
        let issuing = CertificateAuthority::new(issuing, own.clone(), arc).unwrap();
        Self {
            now,
            kind,
            profile,
            root_key,
            root,
            key: own,
            issuing,
            leaf_key,
        }
    }

    fn request(&self, profile: Profile, days: i64) -> CertificateRequest {
        let validity = Validity::starting(self.now - Duration::days(30), Duration::days(days));
        let names = profile.definition().unwrap().names();
        let mut subject = Subject::new(NAME);
        if names.uid == Presence::Required {
            subject.uid = Some(NAME.to_owned());
        }
        let mut request = CertificateRequest::new(profile, subject, self.leaf_key.spki(), validity);
        if names.host != Presence::None {
            request.alt_names = vec![AltName::Dns(NAME.into())];
        }
        request
    }

    fn leaf(&self) -> Certificate {
        let request = self.request(self.profile, 365);
        self.issuing.issue(&request, self.now).unwrap()
    }

    /// The leaf, changed and signed again.
    fn changed(&self, change: impl FnOnce(&mut Certificate)) -> Certificate {
        let mut leaf = self.leaf();
        change(&mut leaf);
        resign(leaf, &self.key)
    }

    /// The issuing authority with another certificate for its key.
    fn authority(&self, change: impl FnOnce(&mut Certificate)) -> Certificate {
        let mut authority = self.issuing.certificate().clone();
        change(&mut authority);
        resign(authority, &self.root_key)
    }

    fn list(&self, of: &CertificateAuthority, revoked: &[&Certificate]) -> Vec<u8> {
        let entry = |one: &&Certificate| RevokedEntry {
            serial: one.tbs_certificate.serial_number.as_bytes().to_vec(),
            revocation: Revocation {
                at: self.now - Duration::HOUR,
                reason: RevocationReason::KeyCompromise,
            },
        };
        let revoked: Vec<_> = revoked.iter().map(entry).collect();
        let next = self.now + Duration::DAY;
        of.crl(1, &revoked, self.now - Duration::MINUTE, next)
            .unwrap()
    }

    fn case(&self, name: &'static str, chain: &[&Certificate]) -> Case {
        Case {
            name,
            chain: chain.iter().map(|one| der(one)).collect(),
            root: self.root.certificate().clone(),
            lists: vec![self.list(&self.root, &[]), self.list(&self.issuing, &[])],
            responses: Vec::new(),
        }
    }

    /// The leaf with `critical FALSE` written out, which DER forbids, signed as it stands.
    fn not_canonical(&self) -> CertificateDer<'static> {
        let leaf = self.leaf();
        let tbs = &leaf.tbs_certificate;
        let mut extensions = Vec::new();
        for (index, one) in tbs.extensions.iter().flatten().enumerate() {
            let mut body = one.extn_id.to_der().unwrap();
            if one.critical {
                body.extend([1, 1, 0xff]);
            } else if index > 0 {
                body.extend([1, 1, 0]);
            }
            body.extend(one.extn_value.to_der().unwrap());
            extensions.extend(tlv(0x30, &body));
        }
        let mut body = tlv(0xa0, &[2, 1, 2]);
        body.extend(tbs.serial_number.to_der().unwrap());
        body.extend(tbs.signature.to_der().unwrap());
        body.extend(tbs.issuer.to_der().unwrap());
        body.extend(tbs.validity.to_der().unwrap());
        body.extend(tbs.subject.to_der().unwrap());
        body.extend(tbs.subject_public_key_info.to_der().unwrap());
        body.extend(tlv(0xa3, &tlv(0x30, &extensions)));
        let tbs_der = tlv(0x30, &body);
        let signature = self.key.sign(&tbs_der).unwrap();
        let mut whole = tbs_der;
        whole.extend(leaf.signature_algorithm.to_der().unwrap());
        whole.extend(BitString::from_bytes(&signature).unwrap().to_der().unwrap());
        CertificateDer::from(tlv(0x30, &whole))
    }

    /// The leaf with a good signature over its SHA-1, which our library does not make.
    fn sha1(&self) -> Certificate {
        let mut leaf = self.leaf();
        let algorithm = spki::AlgorithmIdentifierOwned {
            oid: ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"),
            parameters: None,
        };
        leaf.tbs_certificate.signature = algorithm.clone();
        leaf.signature_algorithm = algorithm;
        let folder = tempfile::tempdir().unwrap();
        let (key, message) = (folder.path().join("key"), folder.path().join("message"));
        std::fs::write(&key, &*self.key.to_pkcs8_der()).unwrap();
        std::fs::write(&message, leaf.tbs_certificate.to_der().unwrap()).unwrap();
        let signed = Command::new("openssl")
            .args(["dgst", "-sha1", "-keyform", "DER", "-sign"])
            .args([&key, &message])
            .output()
            .expect("openssl is needed by this test");
        assert!(
            signed.status.success(),
            "{}",
            String::from_utf8_lossy(&signed.stderr)
        );
        leaf.signature = BitString::from_bytes(&signed.stdout).unwrap();
        leaf
    }
}

/// A chain of `kind` with nothing wrong, for a check that refuses for no other reason.
pub(crate) fn good(kind: CaKind, profile: Profile, now: OffsetDateTime) -> Case {
    let world = World::new(kind, profile, now);
    world.case("nothing", &[&world.leaf(), world.issuing.certificate()])
}

/// A chain for each way of being wrong.
pub(crate) fn all(kind: CaKind, profile: Profile, now: OffsetDateTime) -> Vec<Case> {
    let world = World::new(kind, profile, now);
    let (w, leaf, ca) = (&world, world.leaf(), world.issuing.certificate());
    let simple = |name, leaf: &Certificate| w.case(name, &[leaf, ca]);
    let with = |name, ca: &Certificate| w.case(name, &[&w.leaf(), ca]);
    let mut cases = authorities(w, &with);
    cases.extend([
        simple(
            "wrong purpose",
            &w.changed(|leaf| {
                // SEQUENCE { id-kp-timeStamping }.
                set(
                    leaf,
                    "2.5.29.37",
                    false,
                    &[0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 8],
                );
            }),
        ),
        simple(
            "unknown critical extension",
            &w.changed(|leaf| {
                set(leaf, "1.3.6.1.4.1.99999.77", true, &[5, 0]);
            }),
        ),
        simple(
            "expired",
            &w.issuing.issue(&w.request(profile, 20), now).unwrap(),
        ),
        simple("SHA-1", &w.sha1()),
        simple(
            "RSA of 1024 bits",
            &w.changed(|leaf| {
                let weak = SubjectPublicKeyInfoOwned::from_der(RSA_1024).unwrap();
                leaf.tbs_certificate.subject_public_key_info = weak;
            }),
        ),
        Case {
            chain: vec![w.not_canonical(), der(ca)],
            ..simple("not in DER", &leaf)
        },
        Case {
            lists: vec![w.list(&w.root, &[]), w.list(&w.issuing, &[&leaf])],
            ..simple("revoked by a list", &leaf)
        },
        Case {
            lists: vec![w.list(&w.root, &[ca]), w.list(&w.issuing, &[])],
            ..simple("authority revoked by a list", &leaf)
        },
        Case {
            responses: vec![revoked_response(w, &leaf)],
            ..simple("revoked by OCSP", &leaf)
        },
    ]);
    cases
}

fn authorities(w: &World, with: &dyn Fn(&'static str, &Certificate) -> Case) -> Vec<Case> {
    // A leaf signs for another.
    let mut below = w.leaf();
    below.tbs_certificate.issuer = w.leaf().tbs_certificate.subject.clone();
    let below = resign(below, &w.leaf_key);
    let arc = ExtensionArc::default();
    // An authority below one that may have none below.
    let own = key();
    let validity = Validity::starting(w.now - Duration::DAY, Duration::days(400));
    let asked = Profile::IssuingCa(w.kind);
    let asked = CertificateRequest::new(asked, Subject::new("Table sub CA"), own.spki(), validity);
    let mut sub = w.root.issue(&asked, w.now).unwrap();
    sub.tbs_certificate.issuer = w.issuing.certificate().tbs_certificate.subject.clone();
    let sub = resign(sub, &w.key);
    let sub = CertificateAuthority::new(sub, own, arc).unwrap();
    let by_sub = sub.issue(&w.request(w.profile, 365), w.now).unwrap();
    let mut too_long = w.case(
        "path length",
        &[&by_sub, sub.certificate(), w.issuing.certificate()],
    );
    too_long.lists.push(w.list(&sub, &[]));
    let other = match w.kind {
        CaKind::Users => CaKind::Devices,
        _ => CaKind::Users,
    };
    vec![
        w.case(
            "an end entity as authority",
            &[&below, &w.leaf(), w.issuing.certificate()],
        ),
        with(
            "not an authority",
            &w.authority(|ca| set(ca, "2.5.29.19", true, &[0x30, 0])),
        ),
        with(
            "authority without keyCertSign",
            &w.authority(|ca| set(ca, "2.5.29.15", true, &[3, 2, 1, 2])),
        ),
        too_long,
        with(
            "name constraint",
            &w.authority(|ca| {
                // permitted: the directory name O=Elsewhere.
                let name: x509_cert::name::Name = "O=Elsewhere".parse().unwrap();
                let base = tlv(0xa4, &name.to_der().unwrap());
                let permitted = tlv(0xa0, &tlv(0x30, &base));
                set(ca, "2.5.29.30", true, &tlv(0x30, &permitted));
            }),
        ),
        with(
            "authority expired",
            &w.authority(|ca| {
                let validity = Validity::starting(w.now - Duration::days(399), Duration::days(300));
                let asked = CertificateRequest::new(
                    Profile::IssuingCa(w.kind),
                    Subject::new("Table CA"),
                    w.key.spki(),
                    validity,
                );
                ca.tbs_certificate.validity = w
                    .root
                    .issue(&asked, w.now)
                    .unwrap()
                    .tbs_certificate
                    .validity;
            }),
        ),
        with(
            "wrong kind of authority",
            &w.authority(|ca| {
                let kind = other.name().to_owned().to_der().unwrap();
                set(ca, &arc.ca_kind.to_string(), false, &kind);
            }),
        ),
        clearance(w, &arc),
    ]
}

/// The leaf is cleared for more than its authority may grant.
fn clearance(w: &World, arc: &ExtensionArc) -> Case {
    let issued = |profile, kind, clearance, name: &str| {
        let own = key();
        let validity = Validity::starting(w.now - Duration::DAY, Duration::days(400));
        let mut asked = CertificateRequest::new(
            Profile::IssuingCa(kind),
            Subject::new(name),
            own.spki(),
            validity,
        );
        asked.clearance = Some(clearance);
        let ca = w.root.issue(&asked, w.now).unwrap();
        let authority = CertificateAuthority::new(ca.clone(), own, *arc).unwrap();
        let mut asked = w.request(profile, 365);
        asked.clearance = Some(clearance);
        (authority.issue(&asked, w.now).unwrap(), ca)
    };
    let take = |from: &Certificate, to: &mut Certificate, oid: &str| {
        let mut all = from.tbs_certificate.extensions.iter().flatten();
        let found = all.find(|one| one.extn_id.to_string() == oid).unwrap();
        set(to, oid, found.critical, found.extn_value.as_bytes());
    };
    let device = Profile::Device;
    let (high, _) = issued(device, CaKind::Devices, Clearance::Secret, "Generous CA");
    let (_, low) = issued(device, CaKind::Devices, Clearance::Restricted, "Strict CA");
    let leaf = w.changed(|leaf| {
        take(&high, leaf, "2.5.29.9");
        take(&high, leaf, &arc.level.to_string());
    });
    let ca = w.authority(|ca| take(&low, ca, "1.3.6.1.5.5.7.1.21"));
    w.case("clearance above its authority", &[&leaf, &ca])
}

fn revoked_response(w: &World, leaf: &Certificate) -> Vec<u8> {
    let at = w.now - Duration::HOUR;
    let status = x509_ocsp::CertStatus::Revoked(x509_ocsp::RevokedInfo {
        revocation_time: ocsp_site::time_of(at),
        revocation_reason: None,
    });
    ocsp_site::response_by(w.issuing.certificate(), &w.key, leaf, status, w.now)
}
