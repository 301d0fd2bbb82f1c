//! A small world: one root, three issuing authorities, and leaves of every kind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

use pki::cert::{Certificate, CertificateChain};
use pki::clearance::Clearance;
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::name::{AltName, Subject};
use pki::oid::ExtensionArc;
use pki::path::TrustStore;
use pki::profile::{CaKind, Presence, Profile};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

/// The instant at which these tests play.
pub(crate) const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

/// One key per algorithm and number; RSA keys take seconds to make.
pub(crate) fn key(algorithm: KeyAlgorithm, number: usize) -> PrivateKey {
    static KEYS: OnceLock<Mutex<BTreeMap<(KeyAlgorithm, usize), PrivateKey>>> = OnceLock::new();
    let mut keys = KEYS.get_or_init(Mutex::default).lock().unwrap();
    keys.entry((algorithm, number))
        .or_insert_with(|| PrivateKey::generate(algorithm).unwrap())
        .clone()
}

pub(crate) fn subject(profile: Profile) -> Subject {
    let base = Subject {
        country: Some("EU".into()),
        organisation: Some("LEA-EU".into()),
        ..Subject::default()
    };
    match profile {
        Profile::Root => Subject {
            common_name: "Root CA".into(),
            ..base
        },
        Profile::IssuingCa(kind) => Subject {
            common_name: format!("CA of {kind}"),
            ..base
        },
        Profile::User { .. }
        | Profile::Named {
            authority: CaKind::Users,
            ..
        } => Subject {
            common_name: "Žofie Dvořák".into(),
            given_name: Some("Žofie".into()),
            surname: Some("Dvořák".into()),
            uid: Some("officer-4711".into()),
            email: Some("zofie.dvorak@example.org".into()),
            ..base
        },
        Profile::VpnDevice => Subject {
            common_name: "gateway-1".into(),
            ..base
        },
        Profile::CeremonySigner => Subject {
            common_name: "ceremony 0001".into(),
            ..base
        },
        Profile::TrustBundleSigner => Subject {
            common_name: "Trust Bundle".into(),
            ..base
        },
        Profile::Device => Subject {
            common_name: "camera-17".into(),
            ..base
        },
        Profile::Server | Profile::NetworkServer | Profile::Gateway => Subject {
            common_name: "portal.example.org".into(),
            ..base
        },
        Profile::ServiceSigner => Subject {
            common_name: "centre receipts".into(),
            ..base
        },
        Profile::OcspSigner(kind) => Subject {
            common_name: format!("OCSP signer of {kind}"),
            ..base
        },
        Profile::CmpSigner => Subject {
            common_name: "CMP signer".into(),
            ..base
        },
        Profile::ScepAuthority => Subject {
            common_name: "SCEP authority".into(),
            ..base
        },
        Profile::ServiceRecipient => Subject {
            common_name: "centre intake".into(),
            ..base
        },
        Profile::Named { name, .. } => Subject {
            common_name: name.as_str().into(),
            ..base
        },
    }
}

/// A request with everything the profile can carry.
pub(crate) fn request(profile: Profile, key: &PrivateKey) -> CertificateRequest {
    let lifetime = match profile {
        Profile::Root => Duration::days(7300),
        Profile::IssuingCa(_) => Duration::days(3650),
        _ => Duration::days(365),
    };
    let validity = Validity::starting(NOW, lifetime);
    let mut request = CertificateRequest::new(profile, subject(profile), key.spki(), validity);
    request.clearance = match profile {
        Profile::Root => None,
        Profile::IssuingCa(CaKind::Users) => Some(Clearance::TopSecret),
        Profile::IssuingCa(_) => Some(Clearance::Secret),
        Profile::Server
        | Profile::NetworkServer
        | Profile::Gateway
        | Profile::OcspSigner(_)
        | Profile::CmpSigner
        | Profile::ScepAuthority => None,
        _ => Some(Clearance::Secret),
    };
    if matches!(
        profile,
        Profile::Server | Profile::NetworkServer | Profile::Gateway
    ) {
        request.alt_names = vec![
            AltName::Dns("portal.example.org".into()),
            AltName::Ip("127.0.0.1".parse().unwrap()),
        ];
    }
    let definition = profile.definition().unwrap();
    if definition.names().principal != Presence::None {
        request.alt_names = vec![AltName::Upn("zofie.dvorak@example.org".into())];
    }
    if definition.names().security_identifier != Presence::None {
        request.sid = Some("S-1-5-21-1-2-3-1104".parse().unwrap());
    }
    if definition.clearance() == Presence::None {
        request.clearance = None;
    }
    if profile != Profile::Root {
        request.crl_url = Some("http://pki.example.org/crl/issuer.crl".into());
        request.freshest_crl_url = Some("http://pki.example.org/crl/issuer-delta.crl".into());
    }
    request
}

pub(crate) struct World {
    pub(crate) root: CertificateAuthority,
    pub(crate) users: CertificateAuthority,
    pub(crate) devices: CertificateAuthority,
    pub(crate) services: CertificateAuthority,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(KeyAlgorithm::EcdsaP384)
    }

    pub(crate) fn with(algorithm: KeyAlgorithm) -> Self {
        let arc = ExtensionArc::default();
        let root_key = key(algorithm, 0);
        let root =
            CertificateAuthority::create_root(&request(Profile::Root, &root_key), root_key, arc)
                .unwrap();
        let issuing = |kind, number| {
            let key = key(algorithm, number);
            let certificate = root
                .issue(&request(Profile::IssuingCa(kind), &key), NOW)
                .unwrap();
            CertificateAuthority::new(certificate, key, arc).unwrap()
        };
        let users = issuing(CaKind::Users, 1);
        let devices = issuing(CaKind::Devices, 2);
        let services = issuing(CaKind::Services, 3);
        Self {
            root,
            users,
            devices,
            services,
        }
    }

    pub(crate) fn authority(&self, profile: Profile) -> &CertificateAuthority {
        match profile.issued_by() {
            None => &self.root,
            Some(CaKind::Users) => &self.users,
            Some(CaKind::Devices) => &self.devices,
            Some(CaKind::Services) => &self.services,
        }
    }

    pub(crate) fn issue(&self, request: &CertificateRequest) -> Certificate {
        self.authority(request.profile).issue(request, NOW).unwrap()
    }

    /// A leaf with its issuing authority, as TLS peers send them.
    pub(crate) fn chain(&self, request: &CertificateRequest) -> CertificateChain {
        let issuer = self.authority(request.profile).certificate().clone();
        CertificateChain::new(vec![self.issue(request), issuer]).unwrap()
    }

    pub(crate) fn leaf(&self, profile: Profile) -> (PrivateKey, CertificateChain) {
        let key = key(KeyAlgorithm::EcdsaP256, 9);
        let chain = self.chain(&request(profile, &key));
        (key, chain)
    }

    pub(crate) fn trust(&self) -> TrustStore {
        TrustStore::new(
            &[self.root.certificate().clone()],
            &[&self.users, &self.devices, &self.services].map(|a| a.certificate().clone()),
        )
        .unwrap()
    }
}

/// Runs a tool and returns its output; panics, showing both streams, unless it succeeds.
pub(crate) fn run(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = output(program, arguments, directory);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?} failed\n{stdout}\n{stderr}"
    );
    stdout + &stderr
}

/// Runs a tool that is expected to refuse, and returns both its streams.
pub(crate) fn run_refused(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = output(program, arguments, directory);
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success(),
        "{program} {arguments:?} succeeded\n{text}"
    );
    text
}

fn output(program: &str, arguments: &[&str], directory: &Path) -> Output {
    Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap_or_else(|e| panic!("{program} is needed by this test: {e}"))
}

/// `-attime` for openssl, so that the tests do not depend on the clock.
pub(crate) fn at_now() -> String {
    NOW.unix_timestamp().to_string()
}
