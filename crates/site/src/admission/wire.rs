//! Questions and answers between hosts, as JSON.

use std::net::IpAddr;

use access::PersonRecord;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pki::tls::PeerCertificates;
use portal::Refused;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// Path of all questions.
pub(super) const PATH: &str = "/site/v1/admission";
/// Bytes of a question at most: a chain of certificates, which TLS has taken before.
pub(super) const LONGEST_QUESTION: usize = 128 << 10;
/// Bytes of an answer at most: the names of 100 000 refused devices.
pub(super) const LONGEST_ANSWER: usize = 8 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Question {
    Person {
        chain: Chain,
        from: Option<IpAddr>,
    },
    Device {
        chain: Chain,
        from: Option<IpAddr>,
    },
    Password {
        uid: String,
        password: String,
        from: Option<IpAddr>,
    },
    Session {
        uid: String,
        epoch: [i64; 2],
    },
    Epoch {
        uid: String,
    },
    Record {
        uid: String,
    },
    RefusedDevices,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Person(PersonRecord),
    Device(String),
    Login(PersonRecord, [i64; 2]),
    Epoch([i64; 2]),
    Devices(Vec<String>),
    Refused {
        code: String,
        message: String,
        temporary: bool,
    },
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        Self::Refused {
            code: refused.code,
            message: refused.message,
            temporary: refused.temporary,
        }
    }
}

/// Certificates in base64, the holder's first.
#[derive(Serialize, Deserialize)]
pub(super) struct Chain(Vec<String>);

impl Chain {
    pub(super) fn of(peer: &PeerCertificates) -> Self {
        Self(peer.0.iter().map(|der| STANDARD.encode(der)).collect())
    }

    /// None for what is not base64.
    pub(super) fn certificates(&self) -> Option<PeerCertificates> {
        let decoded = self.0.iter().map(|text| STANDARD.decode(text));
        let decoded: Result<Vec<_>, _> = decoded.collect();
        let certificates = decoded.ok()?.into_iter().map(CertificateDer::from);
        Some(PeerCertificates(std::sync::Arc::new(
            certificates.collect(),
        )))
    }
}
