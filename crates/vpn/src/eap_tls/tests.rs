use std::sync::RwLock;

use pki::ocsp::OcspPolicy;
use pki::profile::{CaKind, Profile};
use rustls::client::danger::ServerCertVerifier;

use super::super::trust::{Authorities, Trust};
use super::super::wrong_chains::{self, Case};
use super::*;

/// The verifier of a client that logs in at the server of a case, which shows its chain.
fn accepts(case: &Case, now: OffsetDateTime) -> bool {
    let roots = std::slice::from_ref(&case.root);
    let issuing = pki::cert::from_der(&case.chain[1]).unwrap();
    let knows_issuer = matches!(case.name, "nothing" | "revoked by a list");
    let known = if knows_issuer {
        vec![issuing]
    } else {
        Vec::new()
    };
    let trust = Trust::new(roots, &known, false).unwrap();
    for list in &case.lists[..=known.len()] {
        trust.accept_crl(list, now).unwrap();
    }
    let trust = trust.with_ocsp(OcspPolicy::IfGiven, &[]);
    let shared: SharedTrust = Arc::new(RwLock::new(Authorities::new(Some(trust))));
    let (keys, _none) = mpsc::sync_channel(1);
    let key_handle = KeyHandle::default();
    key_handle.open(keys, shared);
    let server = KnownServer {
        connection: "office".to_owned(),
        key_handle,
        server: Identification::fqdn(wrong_chains::NAME),
        requirement: Arc::new(Requirement {
            kind: Some(CaKind::Services),
            ..Requirement::default()
        }),
    };
    let verifier = Verifier::new(server, &aws_lc_rs::default_provider());
    let (leaf, rest) = case.chain.split_first().unwrap();
    let staple = case.responses.first().map_or(&[][..], Vec::as_slice);
    // The name of TLS is not looked at: the connection's is.
    let name = ServerName::try_from("other.example.org").unwrap();
    let outcome = verifier.verify_server_cert(leaf, rest, &name, staple, UnixTime::now());
    outcome.is_ok()
}

#[test]
fn every_wrong_chain_is_refused_by_clients_of_eap_tls() {
    let now = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap();
    let good = wrong_chains::good(CaKind::Services, Profile::Server, now);
    assert!(accepts(&good, now));
    for case in wrong_chains::all(CaKind::Services, Profile::Server, now) {
        assert!(!accepts(&case, now), "{}", case.name);
    }
}
