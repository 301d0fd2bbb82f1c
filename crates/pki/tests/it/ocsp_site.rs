//! An authority that answers OCSP requests about its devices. Tests of other crates include this file.
#![allow(dead_code, reason = "each crate uses a part")]

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use const_oid::db::rfc5912::ID_SHA_1;
use const_oid::db::rfc6960::ID_PKIX_OCSP_BASIC;
use der::Encode as _;
use der::asn1::{BitString, GeneralizedTime, Null, OctetString};
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::name::Subject;
use pki::ocsp::Query;
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Profile};
use pki::status::StatusCache;
use pki::{Certificate, KeyAlgorithm, PrivateKey};
use spki::AlgorithmIdentifierOwned;
use time::OffsetDateTime;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus as WireStatus, OcspGeneralizedTime, OcspResponse,
    OcspResponseStatus, ResponderId, ResponseBytes, ResponseData, RevokedInfo, SingleResponse,
    Version,
};

pub(crate) struct Site {
    now: OffsetDateTime,
    pub(crate) key: PrivateKey,
    pub(crate) root: CertificateAuthority,
    pub(crate) devices: CertificateAuthority,
    pub(crate) devices_key: PrivateKey,
    pub(crate) camera: Certificate,
}

pub(crate) fn certified(
    profile: Profile,
    name: &str,
    key: &PrivateKey,
    now: OffsetDateTime,
) -> CertificateRequest {
    let validity = Validity::starting(now, time::Duration::days(30));
    CertificateRequest::new(profile, Subject::new(name), key.spki(), validity)
}

pub(crate) fn key() -> PrivateKey {
    PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()
}

impl Site {
    /// With everything valid from `now` on.
    pub(crate) fn new(now: OffsetDateTime) -> Self {
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
    pub(crate) fn device(&self, name: &str) -> Certificate {
        let asked = certified(Profile::Device, name, &key(), self.now);
        self.devices.issue(&asked, self.now).unwrap()
    }

    /// What its responder says of a device.
    pub(crate) fn says(&self, device: &Certificate, status: WireStatus) -> Vec<u8> {
        let mut data = response(self);
        let serial = device.tbs_certificate.serial_number.clone();
        data.responses[0].cert_id.serial_number = serial;
        data.responses[0].cert_status = status;
        signed(data, &self.devices_key, &[])
    }

    /// The same: it is good.
    pub(crate) fn good(&self, device: &Certificate) -> Vec<u8> {
        self.says(device, WireStatus::Good(Null))
    }

    /// The same: it was revoked an hour ago.
    pub(crate) fn revoked(&self, device: &Certificate) -> Vec<u8> {
        let status = WireStatus::Revoked(RevokedInfo {
            revocation_time: time_of(self.now - time::Duration::HOUR),
            revocation_reason: None,
        });
        self.says(device, status)
    }

    /// The same: it is not known.
    pub(crate) fn unknown(&self, device: &Certificate) -> Vec<u8> {
        self.says(device, WireStatus::Unknown(Null))
    }

    /// A query about a device.
    pub(crate) fn query(&self, device: &Certificate) -> Query {
        Query::new(device, &[self.devices.certificate()], &StatusCache::new()).unwrap()
    }
}

pub(crate) fn time_of(at: OffsetDateTime) -> OcspGeneralizedTime {
    let seconds = u64::try_from(at.unix_timestamp()).unwrap();
    let at = GeneralizedTime::from_unix_duration(Duration::from_secs(seconds));
    OcspGeneralizedTime(at.unwrap())
}

/// A response about the camera, as the issuer would give it.
pub(crate) fn response(site: &Site) -> ResponseData {
    let good = WireStatus::Good(Null);
    response_about(site.devices.certificate(), &site.camera, good, site.now)
}

/// A response signed by the issuer itself.
pub(crate) fn response_by(
    issuer: &Certificate,
    key: &PrivateKey,
    certificate: &Certificate,
    status: WireStatus,
    now: OffsetDateTime,
) -> Vec<u8> {
    signed(response_about(issuer, certificate, status, now), key, &[])
}

fn response_about(
    issuer: &Certificate,
    certificate: &Certificate,
    cert_status: WireStatus,
    now: OffsetDateTime,
) -> ResponseData {
    let issuer = &issuer.tbs_certificate;
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
        produced_at: time_of(now),
        responses: vec![SingleResponse {
            cert_id: CertId {
                hash_algorithm: AlgorithmIdentifierOwned {
                    oid: ID_SHA_1,
                    parameters: None,
                },
                issuer_name_hash: hash(&issuer.subject.to_der().unwrap()),
                issuer_key_hash: hash(key),
                serial_number: certificate.tbs_certificate.serial_number.clone(),
            },
            cert_status,
            this_update: time_of(now),
            next_update: Some(time_of(now + time::Duration::HOUR)),
            single_extensions: None,
        }],
        response_extensions: None,
    }
}

pub(crate) fn signed(data: ResponseData, key: &PrivateKey, certs: &[&Certificate]) -> Vec<u8> {
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
