//! Certificates for tests: a root that issues leaves, written without any code of the product.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use der::asn1::{BitString, OctetString};
use der::{Decode, Encode};
use pki::cert::{Certificate, CertificateChain};
use pki::key::{KeyAlgorithm, PrivateKey};
use time::OffsetDateTime;
use time::macros::datetime;
use x509_cert::TbsCertificate;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{BasicConstraints, SubjectKeyIdentifier};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::time::{Time, Validity};

static SERIAL: AtomicU64 = AtomicU64::new(1_000);

/// The time at which tests seal.
pub(crate) const NOW: OffsetDateTime = datetime!(2026-11-21 10:00:00 UTC);

pub(crate) struct Identity {
    pub(crate) key: PrivateKey,
    pub(crate) certificate: Certificate,
    pub(crate) chain: CertificateChain,
}

pub(crate) struct Root {
    key: PrivateKey,
    pub(crate) certificate: Certificate,
}

fn time_at(at: OffsetDateTime) -> Time {
    let since = Duration::from_secs(at.unix_timestamp().try_into().unwrap());
    Time::try_from(SystemTime::UNIX_EPOCH + since).unwrap()
}

fn extension<T: Encode>(oid: &str, critical: bool, value: &T) -> Extension {
    Extension {
        extn_id: oid.parse().unwrap(),
        critical,
        extn_value: OctetString::new(value.to_der().unwrap()).unwrap(),
    }
}

fn issue(
    signer: &PrivateKey,
    issuer: &Name,
    subject: &Name,
    subject_key: &PrivateKey,
    ca: bool,
) -> Certificate {
    let key_id = digest::digest(&digest::SHA256, subject_key.public_spki_der());
    let key_id = SubjectKeyIdentifier(OctetString::new(&key_id.as_ref()[..20]).unwrap());
    let mut extensions = vec![extension("2.5.29.14", false, &key_id)];
    if ca {
        let constraints = BasicConstraints {
            ca: true,
            path_len_constraint: None,
        };
        extensions.push(extension("2.5.29.19", true, &constraints));
    }
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let tbs = TbsCertificate {
        version: x509_cert::Version::V3,
        serial_number: SerialNumber::from(serial),
        signature: signer.signature_algorithm(),
        issuer: issuer.clone(),
        validity: Validity {
            not_before: time_at(datetime!(2026-01-01 00:00:00 UTC)),
            not_after: time_at(datetime!(2036-01-01 00:00:00 UTC)),
        },
        subject: subject.clone(),
        subject_public_key_info: subject_key.spki(),
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: Some(extensions),
    };
    let signature = signer.sign(&tbs.to_der().unwrap()).unwrap();
    Certificate {
        signature_algorithm: tbs.signature.clone(),
        tbs_certificate: tbs,
        signature: BitString::from_bytes(&signature).unwrap(),
    }
}

impl Root {
    pub(crate) fn new() -> Self {
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let name = Name::from_str("CN=Test Root,O=LEA-EU,C=PL").unwrap();
        let certificate = issue(&key, &name, &name, &key, true);
        Self { key, certificate }
    }

    pub(crate) fn identity(&self, common_name: &str, algorithm: KeyAlgorithm) -> Identity {
        // RSA generation is slow in unoptimised builds; one key per size serves all tests.
        let key = match algorithm {
            KeyAlgorithm::Rsa2048 => rsa_key(),
            other => PrivateKey::generate(other).unwrap(),
        };
        let subject = Name::from_str(&format!("CN={common_name},O=LEA-EU,C=PL")).unwrap();
        let issuer = &self.certificate.tbs_certificate.subject;
        let certificate = issue(&self.key, issuer, &subject, &key, false);
        let certificate = Certificate::from_der(&certificate.to_der().unwrap()).unwrap();
        let chain =
            CertificateChain::new(vec![certificate.clone(), self.certificate.clone()]).unwrap();
        Identity {
            key,
            certificate,
            chain,
        }
    }
}

fn rsa_key() -> PrivateKey {
    static KEY: std::sync::OnceLock<PrivateKey> = std::sync::OnceLock::new();
    KEY.get_or_init(|| PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap())
        .clone()
}
