//! Bytes from outside never panic, whatever they are.

use std::sync::OnceLock;

use pki::cert::{CertError, CertificateChain};
use pki::key::KeyAlgorithm;
use pki::path::{Purpose, TrustStore};
use pki::profile::Profile;
use proptest::prelude::*;
use time::Duration;

use crate::fixture::{NOW, World, key, subject};

struct Samples {
    trust: TrustStore,
    documents: Vec<Vec<u8>>,
}

/// One valid document of each kind, to be damaged.
fn samples() -> &'static Samples {
    static SAMPLES: OnceLock<Samples> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let world = World::new();
        let (_, chain) = world.leaf(Profile::User {
            administrator: false,
        });
        let entry = pki::crl::RevokedEntry {
            serial: vec![7],
            revocation: pki::status::Revocation {
                at: NOW,
                reason: pki::crl::RevocationReason::Superseded,
            },
        };
        let key = key(KeyAlgorithm::EcdsaP256, 9);
        Samples {
            trust: world.trust(),
            documents: vec![
                chain.ders()[0].to_vec(),
                world.users.certificate_der(),
                world
                    .users
                    .crl(1, &[entry], NOW, NOW + Duration::DAY)
                    .unwrap(),
                pki::csr::build(&key, &subject(Profile::Device), &[]).unwrap(),
                pki::pkcs7::encode_certs_only(chain.certificates()).unwrap(),
                key.to_pkcs8_der().to_vec(),
            ],
        }
    })
}

fn feed(bytes: &[u8]) {
    let trust = &samples().trust;
    let _ = pki::cert::from_der(bytes);
    let _ = pki::csr::parse_and_verify(bytes);
    let _ = pki::csr::claims(bytes);
    let _ = pki::scep::Message::parse(bytes);
    let _ = pki::crl::parse(bytes);
    let _ = trust.accept_crl(bytes, NOW);
    let _ = pki::pkcs7::parse_certs_only(bytes);
    let _ = pki::PrivateKey::from_pkcs8_der(bytes);
    let _ = trust.validate(&[bytes.to_vec().into()], Purpose::Client, NOW);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = CertificateChain::from_pem(text);
        let _ = pki::csr::from_pem(text);
    }
}

proptest! {
    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        feed(&bytes);
    }

    #[test]
    fn random_pem(body in "[A-Za-z0-9+/=\n -]{0,200}") {
        feed(format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n").as_bytes());
        feed(body.as_bytes());
    }

    #[test]
    fn damaged_documents(which in 0_usize..6, edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>()) {
        let mut document = samples().documents[which].clone();
        for (at, value) in edits {
            let at = at.index(document.len());
            document[at] = value;
        }
        feed(&document);
        document.truncate(cut.index(document.len()));
        feed(&document);
    }
}

#[test]
fn empty_and_oversized_inputs_have_their_own_errors() {
    feed(&[]);
    assert!(matches!(
        CertificateChain::from_pem(""),
        Err(CertError::Empty)
    ));
    assert!(matches!(
        CertificateChain::new(Vec::new()),
        Err(CertError::Empty)
    ));
    assert!(matches!(
        pki::cert::from_der(&vec![0; 70_000]),
        Err(CertError::TooLong)
    ));
    assert!(matches!(
        pki::csr::parse_and_verify(&vec![0; 20_000]),
        Err(pki::csr::CsrError::TooLong)
    ));
    assert!(matches!(
        pki::csr::claims(&vec![0; 20_000]),
        Err(pki::csr::CsrError::TooLong)
    ));
    assert!(matches!(
        pki::scep::Message::parse(&vec![0; 30_000]),
        Err(pki::scep::MessageError::TooLong)
    ));
    assert!(matches!(
        pki::pkcs7::parse_certs_only(&vec![0; 300_000]),
        Err(pki::pkcs7::Pkcs7Error::TooLong)
    ));
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    let pem = chain.to_pem().unwrap();
    assert_eq!(CertificateChain::from_pem(&pem).unwrap(), chain);
    let crlf = format!("# camera\r\n{}", pem.replace('\n', "\r\n"));
    assert_eq!(CertificateChain::from_pem(&crlf).unwrap(), chain);
    assert!(matches!(
        CertificateChain::from_pem(&pem.repeat(9)),
        Err(CertError::TooMany)
    ));
}

/// A request as programs and people hand it over.
fn layouts(der: &[u8]) -> Vec<String> {
    let pem = pki::csr::to_pem(der).unwrap();
    let lines: Vec<&str> = pem.lines().collect();
    let body = lines[1..lines.len() - 1].concat();
    let wrapped = |width: usize| -> String {
        let letters: Vec<char> = body.chars().collect();
        let lines = letters
            .chunks(width)
            .map(|line| line.iter().collect::<String>());
        lines.collect::<Vec<_>>().join("\r\n")
    };
    let framed = |label: &str, body: &str| {
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    };
    vec![
        framed("CERTIFICATE REQUEST", &body),
        framed("NEW CERTIFICATE REQUEST", &wrapped(76)),
        framed("CERTIFICATE REQUEST", &wrapped(1)),
        format!("\u{feff}{}", pem.replace('\n', "\r\n")),
        format!("Subject: please certify\n\n{pem}\n-- \nOfficer 9"),
        format!("    {}", pem.replace('\n', "\n    ")),
        body.clone(),
        format!("\u{feff}{}\r\n", wrapped(64)),
    ]
}

#[test]
fn pasted_request_is_taken_in_every_layout() {
    let der = &samples().documents[3];
    for text in layouts(der) {
        assert_eq!(&pki::csr::from_pem(&text).unwrap(), der, "{text}");
    }
}

#[test]
fn pasted_text_without_exactly_one_request_is_refused() {
    use pki::csr::{CsrError, MAX_CSR_TEXT_LEN, from_pem};
    let der = &samples().documents[3];
    let pem = pki::csr::to_pem(der).unwrap();
    let several = from_pem(&pem.repeat(2)).unwrap_err();
    assert!(matches!(several, CsrError::Several), "{several:?}");
    let long = from_pem(&format!("{pem}{}", " ".repeat(MAX_CSR_TEXT_LEN))).unwrap_err();
    assert!(matches!(long, CsrError::TooLong), "{long:?}");
    let cut = &pem[..pem.len() / 2];
    let certificate = CertificateChain::from_ders(vec![samples().documents[0].clone()]);
    let certificate = certificate.unwrap().to_pem().unwrap();
    for other in ["", "a request", cut, &certificate] {
        let refused = from_pem(other).unwrap_err();
        assert!(matches!(refused, CsrError::Malformed), "{other}");
    }
}

#[test]
fn certificates_in_one_line_or_behind_a_mark_are_read() {
    let chain = CertificateChain::from_ders(vec![samples().documents[0].clone()]).unwrap();
    let pem = chain.to_pem().unwrap();
    let joined = pem.replace('\n', "");
    for text in [
        &joined,
        &format!("\u{feff}{joined}"),
        &pem.replace('\n', " \r\n\t"),
    ] {
        assert_eq!(&CertificateChain::from_pem(text).unwrap(), &chain, "{text}");
    }
    for bad in [&pem[..pem.len() - 4], &pem[4..]] {
        assert!(CertificateChain::from_pem(bad).is_err(), "{bad}");
    }
}
