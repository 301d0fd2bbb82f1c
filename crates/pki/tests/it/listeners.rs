//! Every check of certificates at the site's listeners and on its signatures, against every wrong chain.

use pki::path::{PathError, Purpose, RevocationPolicy, TrustStore};
use pki::profile::{CaKind, Profile};
use pki::tls;
use rustls_pki_types::{ServerName, UnixTime};

use crate::fixture::NOW;
use crate::wrong_chains::{self, Case, NAME};

/// A listener, or a signature: what its holder is, and how it is checked.
struct Check {
    name: &'static str,
    kind: CaKind,
    profile: Profile,
    accepts: fn(&TrustStore, &Case) -> bool,
    /// Whether OCSP is one of its sources. The others know the site's own revocations, pushed and by lists.
    has_ocsp: bool,
}

fn unix_time() -> UnixTime {
    let seconds = u64::try_from(NOW.unix_timestamp()).unwrap();
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
}

/// The handshake, and what each request asks anew.
fn client(trust: &TrustStore, case: &Case, purpose: Purpose) -> bool {
    let verifier = tls::client_verifier(trust.clone(), purpose, true, false);
    let (leaf, rest) = case.chain.split_first().unwrap();
    verifier.verify_client_cert(leaf, rest, unix_time()).is_ok()
        && trust.validate(&case.chain, purpose, NOW).is_ok()
}

fn user(trust: &TrustStore, case: &Case) -> bool {
    client(trust, case, Purpose::ClientUser)
}

fn device(trust: &TrustStore, case: &Case) -> bool {
    client(trust, case, Purpose::ClientDevice)
}

fn server(trust: &TrustStore, case: &Case) -> bool {
    let verifier = tls::server_verifier(trust.clone());
    let (leaf, rest) = case.chain.split_first().unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    let staple = case.responses.first().map_or(&[][..], Vec::as_slice);
    let outcome = verifier.verify_server_cert(leaf, rest, &name, staple, unix_time());
    outcome.is_ok()
}

fn block_signer(trust: &TrustStore, case: &Case) -> bool {
    let purpose = Purpose::DeviceSigner;
    trust
        .validate_signer(&case.chain, purpose, NOW, NOW, NOW)
        .is_ok()
}

fn receipt_signer(trust: &TrustStore, case: &Case) -> bool {
    let purpose = Purpose::ServiceSigner;
    let outcome = trust
        .validate_ignoring_revocation(&case.chain, purpose, NOW)
        .and_then(|signer| trust.check_revoked(&signer, NOW));
    outcome.is_ok()
}

const USER: Profile = Profile::User {
    administrator: false,
};

fn checks() -> Vec<Check> {
    let check = |name, kind, profile, accepts| Check {
        name,
        kind,
        profile,
        accepts,
        has_ocsp: false,
    };
    vec![
        check(
            "portal",
            CaKind::Users,
            USER,
            user as fn(&TrustStore, &Case) -> bool,
        ),
        check(
            "intake and enrolment",
            CaKind::Devices,
            Profile::Device,
            device,
        ),
        Check {
            has_ocsp: true,
            ..check(
                "the site's server at a camera",
                CaKind::Services,
                Profile::Server,
                server,
            )
        },
        check(
            "signer of a block",
            CaKind::Devices,
            Profile::Device,
            block_signer,
        ),
        check(
            "signer of a receipt",
            CaKind::Services,
            Profile::ServiceSigner,
            receipt_signer,
        ),
    ]
}

/// Trusts the root of a case, and takes what it has of revocation.
fn trust(case: &Case) -> TrustStore {
    let trust = TrustStore::new(std::slice::from_ref(&case.root), &[]).unwrap();
    let trust = trust.with_policy(RevocationPolicy::RequireCrl);
    for list in &case.lists {
        // Those of authorities that are wrong themselves are refused.
        let _ = trust.accept_crl_of(list, &case.chain[1..], NOW);
    }
    trust
}

#[test]
fn every_wrong_chain_is_refused_by_every_check() {
    let mut wrong = Vec::new();
    for check in checks() {
        let good = wrong_chains::good(check.kind, check.profile, NOW);
        assert!(
            (check.accepts)(&trust(&good), &good),
            "{}: nothing is wrong",
            check.name
        );
        let cases = wrong_chains::all(check.kind, check.profile, NOW);
        assert_eq!(cases.len(), 17);
        for case in cases {
            let is_deaf = case.name == "revoked by OCSP" && !check.has_ocsp;
            if (check.accepts)(&trust(&case), &case) != is_deaf {
                wrong.push(format!("{}: {}", check.name, case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each is refused for what is wrong with it, so that none is for another reason.
#[test]
fn wrong_chain_is_refused_for_its_reason() {
    let code = |name: &str| match name {
        "wrong purpose" => "certificate-wrong-purpose",
        "unknown critical extension" => "certificate-unknown-critical-extension",
        "expired" | "authority expired" => "certificate-expired",
        "SHA-1" => "certificate-signature-algorithm",
        "RSA of 1024 bits" => "certificate-key-size",
        "not in DER" => "certificate-malformed",
        "revoked by a list" | "authority revoked by a list" | "revoked by OCSP" => {
            "certificate-revoked"
        }
        "an end entity as authority" | "not an authority" | "authority without keyCertSign" => {
            "certificate-not-an-authority"
        }
        "path length" => "certificate-path-length",
        "name constraint" => "certificate-name-constraint",
        "wrong kind of authority" => "certificate-wrong-kind",
        "clearance above its authority" => "certificate-clearance-above-authority",
        other => panic!("{other}"),
    };
    for case in wrong_chains::all(CaKind::Devices, Profile::Device, NOW) {
        let trust = trust(&case);
        let policy = trust.policy(Purpose::ClientDevice);
        let crl = policy.crl;
        let policy = policy.with_revocation(crl, pki::path::OcspPolicy::Required);
        let refused = trust.accept(&case.chain, &policy, &case.responses, NOW);
        let refused: PathError = refused.unwrap_err();
        assert_eq!(refused.code(), code(case.name), "{}: {refused}", case.name);
    }
}
