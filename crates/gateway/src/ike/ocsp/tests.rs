use std::slice::from_ref;

use der::asn1::{BitString, GeneralizedTime, Null, OctetString};
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::name::Subject;
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Profile};
use pki::{KeyAlgorithm, PrivateKey};
use spki::AlgorithmIdentifierOwned;
use time::macros::datetime;
use x509_ocsp::{
    OcspGeneralizedTime, ResponderId, ResponseBytes, ResponseData, RevokedInfo, SingleResponse,
    Version,
};

use super::*;

const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

pub(in crate::ike) struct Site {
    now: OffsetDateTime,
    key: PrivateKey,
    root: CertificateAuthority,
    pub(in crate::ike) devices: CertificateAuthority,
    pub(in crate::ike) devices_key: PrivateKey,
    pub(in crate::ike) camera: Certificate,
}

fn certified(
    profile: Profile,
    name: &str,
    key: &PrivateKey,
    now: OffsetDateTime,
) -> CertificateRequest {
    let validity = Validity::starting(now, time::Duration::days(30));
    CertificateRequest::new(profile, Subject::new(name), key.spki(), validity)
}

fn request(profile: Profile, name: &str, key: &PrivateKey) -> CertificateRequest {
    certified(profile, name, key, NOW)
}

fn key() -> PrivateKey {
    PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()
}

fn site() -> Site {
    Site::new(NOW)
}

impl Site {
    /// With everything valid from `now` on.
    pub(in crate::ike) fn new(now: OffsetDateTime) -> Self {
        // Certificates have whole seconds.
        let now = now.replace_nanosecond(0).unwrap();
        let arc = ExtensionArc::default();
        let (own, devices_key) = (key(), key());
        let root = certified(Profile::Root, "Root", &own, now);
        let root = CertificateAuthority::create_root(&root, own.clone(), arc).unwrap();
        let kind = Profile::IssuingCa(CaKind::Devices);
        let asked = certified(kind, "Devices CA", &devices_key, now);
        let devices = root.issue(&asked, now).unwrap();
        let devices = CertificateAuthority::new(devices, devices_key.clone(), arc).unwrap();
        let asked = certified(Profile::Device, "camera-17", &key(), now);
        let camera = devices.issue(&asked, now).unwrap();
        Self {
            now,
            key: own,
            root,
            devices,
            devices_key,
            camera,
        }
    }

    /// A further device of the same authority.
    pub(in crate::ike) fn device(&self, name: &str) -> Certificate {
        let asked = certified(Profile::Device, name, &key(), self.now);
        self.devices.issue(&asked, self.now).unwrap()
    }

    /// What its responder says of a device.
    pub(in crate::ike) fn says(&self, device: &Certificate, status: CertStatus) -> Vec<u8> {
        let mut data = response(self);
        let serial = device.tbs_certificate.serial_number.clone();
        data.responses[0].cert_id.serial_number = serial;
        data.responses[0].cert_status = status;
        signed(data, &self.devices_key, &[])
    }

    /// The same: it is good.
    pub(in crate::ike) fn good(&self, device: &Certificate) -> Vec<u8> {
        self.says(device, CertStatus::Good(Null))
    }

    /// The same: it was revoked an hour ago.
    pub(in crate::ike) fn revoked(&self, device: &Certificate) -> Vec<u8> {
        let status = CertStatus::Revoked(RevokedInfo {
            revocation_time: time_of(self.now - time::Duration::HOUR),
            revocation_reason: None,
        });
        self.says(device, status)
    }

    /// The same: it is not known.
    pub(in crate::ike) fn unknown(&self, device: &Certificate) -> Vec<u8> {
        self.says(device, CertStatus::Unknown(Null))
    }

    /// A device as something to ask about.
    pub(in crate::ike) fn about(&self, device: &Certificate) -> About {
        About::new(device, &[self.devices.certificate()]).unwrap()
    }
}

fn time_of(at: OffsetDateTime) -> OcspGeneralizedTime {
    let seconds = u64::try_from(at.unix_timestamp()).unwrap();
    let at = GeneralizedTime::from_unix_duration(Duration::from_secs(seconds));
    OcspGeneralizedTime(at.unwrap())
}

/// A response about the camera, as the issuer would give it.
fn response(site: &Site) -> ResponseData {
    let issuer = &site.devices.certificate().tbs_certificate;
    let hash = |data: &[u8]| {
        let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, data);
        OctetString::new(sum.as_ref()).unwrap()
    };
    let key = issuer
        .subject_public_key_info
        .subject_public_key
        .raw_bytes();
    ResponseData {
        version: Version::V1,
        responder_id: ResponderId::ByKey(hash(key)),
        produced_at: time_of(site.now),
        responses: vec![SingleResponse {
            cert_id: CertId {
                hash_algorithm: AlgorithmIdentifierOwned {
                    oid: ID_SHA_1,
                    parameters: None,
                },
                issuer_name_hash: hash(&issuer.subject.to_der().unwrap()),
                issuer_key_hash: hash(key),
                serial_number: site.camera.tbs_certificate.serial_number.clone(),
            },
            cert_status: CertStatus::Good(Null),
            this_update: time_of(site.now),
            next_update: Some(time_of(site.now + time::Duration::HOUR)),
            single_extensions: None,
        }],
        response_extensions: None,
    }
}

fn signed(data: ResponseData, key: &PrivateKey, certs: &[&Certificate]) -> Vec<u8> {
    let signature = key.sign(&data.to_der().unwrap()).unwrap();
    let certs: Vec<Certificate> = certs.iter().copied().cloned().collect();
    let basic = BasicOcspResponse {
        tbs_response_data: data,
        signature_algorithm: key.signature_algorithm(),
        signature: BitString::from_bytes(&signature).unwrap(),
        certs: (!certs.is_empty()).then_some(certs),
    };
    let response = OcspResponse {
        response_status: OcspResponseStatus::Successful,
        response_bytes: Some(ResponseBytes {
            response_type: ID_PKIX_OCSP_BASIC,
            response: OctetString::new(basic.to_der().unwrap()).unwrap(),
        }),
    };
    response.to_der().unwrap()
}

fn asked(site: &Site, responses: &[Vec<u8>], now: OffsetDateTime) -> Option<Said> {
    let issuers = [site.devices.certificate()];
    look_up(responses, &site.camera, &issuers, now)
}

#[test]
fn the_issuer_says_good_or_revoked() {
    let site = site();
    let good = signed(response(&site), &site.devices_key, &[]);
    assert_eq!(asked(&site, from_ref(&good), NOW), Some(Said::Good));
    let mut bad = response(&site);
    let at = NOW - time::Duration::DAY;
    bad.responses[0].cert_status = CertStatus::Revoked(RevokedInfo {
        revocation_time: time_of(at),
        revocation_reason: None,
    });
    let bad = signed(bad, &site.devices_key, &[]);
    assert_eq!(asked(&site, from_ref(&bad), NOW), Some(Said::Revoked(at)));
    // Whatever else came with it.
    assert_eq!(
        asked(&site, &[good.clone(), bad], NOW),
        Some(Said::Revoked(at))
    );
    let mut unknown = response(&site);
    unknown.responses[0].cert_status = CertStatus::Unknown(Null);
    let unknown = signed(unknown, &site.devices_key, &[]);
    assert_eq!(asked(&site, &[unknown], NOW), None);
    // Neither another authority nor another certificate has said anything.
    let root = [site.root.certificate()];
    assert_eq!(look_up(from_ref(&good), &site.camera, &root, NOW), None);
    let other = request(Profile::Device, "camera-18", &key());
    let other = site.devices.issue(&other, NOW).unwrap();
    let issuers = [site.devices.certificate()];
    assert_eq!(look_up(&[good], &other, &issuers, NOW), None);
}

#[test]
fn only_current_responses_count() {
    let site = site();
    let good = signed(response(&site), &site.devices_key, &[]);
    let second = time::Duration::SECOND;
    for (at, counts) in [
        (NOW + time::Duration::HOUR, true),
        (NOW + time::Duration::HOUR + second, false),
        (NOW - AHEAD, true),
        (NOW - AHEAD - second, false),
    ] {
        assert_eq!(asked(&site, from_ref(&good), at).is_some(), counts, "{at}");
    }
    let mut open = response(&site);
    open.responses[0].next_update = None;
    let open = signed(open, &site.devices_key, &[]);
    let last = NOW + UNLIMITED;
    assert_eq!(asked(&site, from_ref(&open), last), Some(Said::Good));
    assert_eq!(asked(&site, &[open], last + second), None);
}

#[test]
fn times_at_the_end_of_the_calendar_are_no_trouble() {
    let site = site();
    let last = time_of(datetime!(9999-12-31 23:59:59 UTC));
    let mut open = response(&site);
    open.responses[0].this_update = last;
    open.responses[0].next_update = None;
    let open = signed(open, &site.devices_key, &[]);
    assert_eq!(asked(&site, &[open], NOW), None);
    let mut long = response(&site);
    long.responses[0].next_update = Some(last);
    let long = signed(long, &site.devices_key, &[]);
    assert_eq!(asked(&site, &[long], NOW), Some(Said::Good));
}

#[test]
fn what_is_wrong_with_an_answer_is_said() {
    let site = site();
    let about = site.about(&site.camera);
    let wrong = |answer: &[u8], now| about.says(answer, now).unwrap_err();
    let good = site.good(&site.camera);
    let until = NOW + time::Duration::HOUR;
    assert_eq!(about.says(&good, NOW), Ok((Said::Good, until)));
    let revoked = about.says(&site.revoked(&site.camera), NOW);
    let at = NOW - time::Duration::HOUR;
    assert_eq!(revoked, Ok((Said::Revoked(at), until)));
    assert_eq!(wrong(b"garbage", NOW), Useless::Unreadable);
    // SEQUENCE { ENUMERATED 3 }: tryLater.
    let later = wrong(&[0x30, 3, 0x0a, 1, 3], NOW);
    assert_eq!(later.to_string(), "it answers \"tryLater\"");
    // "Successful" without anything.
    assert_eq!(wrong(&[0x30, 3, 0x0a, 1, 0], NOW), Useless::Unreadable);
    let other = site.device("camera-18");
    assert_eq!(wrong(&site.good(&other), NOW), Useless::Another);
    let after = until + time::Duration::SECOND;
    assert_eq!(wrong(&good, after), Useless::NotCurrent);
    let forged = signed(response(&site), &key(), &[]);
    assert_eq!(wrong(&forged, NOW), Useless::Unsigned);
    let unknown = site.unknown(&site.camera);
    assert_eq!(wrong(&unknown, NOW), Useless::Unknown);
    // Somebody else's certificate is no question for this authority.
    assert!(About::new(&site.camera, &[site.root.certificate()]).is_none());
}

#[test]
fn whoever_signs_must_be_entitled() {
    let site = site();
    let data = || response(&site);
    // The root is not the issuer, and a device is nobody's responder though the issuer certified it.
    let root = signed(data(), &site.key, &[site.root.certificate()]);
    assert_eq!(asked(&site, &[root], NOW), None);
    let own = key();
    let device = request(Profile::Device, "camera-18", &own);
    let device = site.devices.issue(&device, NOW).unwrap();
    let by_device = signed(data(), &own, &[&device]);
    assert_eq!(asked(&site, &[by_device], NOW), None);
    // A changed bit anywhere is no response, and no trouble.
    let good = signed(data(), &site.devices_key, &[]);
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1;
        assert_ne!(
            asked(&site, &[changed], NOW + time::Duration::MINUTE),
            Some(Said::Good),
            "{at}"
        );
    }
}

/// What OpenSSL's responder makes, with a delegate of its own.
#[test]
fn a_delegate_of_the_issuer_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let mut command = std::process::Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(&folder);
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{arguments}: {said}");
    };
    let ext = folder.path().join("ext");
    std::fs::write(&ext, "extendedKeyUsage=OCSPSigning\n").unwrap();
    std::fs::write(folder.path().join("none"), "").unwrap();
    std::fs::write(folder.path().join("index.attr"), "").unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc";
    openssl(&format!(
        "req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=CA"
    ));
    for (name, ext) in [("camera", "none"), ("responder", "ext"), ("other", "none")] {
        openssl(&format!(
            "req {new} -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile {ext} -out {name}.pem"
        ));
    }
    let read = |name: &str| {
        let chain = pki::file::load_chain(&folder.path().join(name)).unwrap();
        chain.leaf().clone()
    };
    let (camera, ca) = (read("camera.pem"), read("ca.pem"));
    // We ask as OpenSSL does.
    openssl("ocsp -issuer ca.pem -cert camera.pem -no_nonce -reqout asked");
    let asked = std::fs::read(folder.path().join("asked")).unwrap();
    assert_eq!(About::new(&camera, &[&ca]).unwrap().request(), asked);
    let serial = pki::cert::serial_hex(&camera).to_uppercase();
    let now = OffsetDateTime::now_utc();
    for (line, signer, expected) in [
        (
            format!("V\t301231235959Z\t\t{serial}\tunknown\t/CN=camera\n"),
            "responder",
            true,
        ),
        (
            format!("V\t301231235959Z\t\t{serial}\tunknown\t/CN=camera\n"),
            "other",
            false,
        ),
        (
            format!("V\t301231235959Z\t\t{serial}\tunknown\t/CN=camera\n"),
            "ca",
            true,
        ),
        (
            format!("R\t301231235959Z\t260101000000Z\t{serial}\tunknown\t/CN=camera\n"),
            "responder",
            false,
        ),
    ] {
        std::fs::write(folder.path().join("index"), &line).unwrap();
        openssl("ocsp -issuer ca.pem -cert camera.pem -reqout request");
        openssl(&format!(
            "ocsp -index index -rsigner {signer}.pem -rkey {signer}.key -CA ca.pem -reqin request \
             -respout response -ndays 1"
        ));
        let response = std::fs::read(folder.path().join("response")).unwrap();
        let said = look_up(&[response], &camera, &[&ca], now);
        assert_eq!(
            said == Some(Said::Good),
            expected,
            "{line} {signer}: {said:?}"
        );
        let revoked = line.starts_with('R');
        assert_eq!(matches!(said, Some(Said::Revoked(_))), revoked);
    }
}
