//! Cases of x509-limbo, with the data in `tests/x509-limbo`.

use std::collections::BTreeMap;

use pki::cert::CertificateChain;
use pki::path::{AuthorityKinds, OcspPolicy, PathPolicy, Purpose, RevocationPolicy, TrustStore};
use rustls_pki_types::ServerName;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::datetime;

const CASES: &str = include_str!("../x509-limbo/cases.jsonl");
/// Cases with another outcome than the suite wants: name, then the reason.
const EXCEPTIONS: &str = include_str!("../x509-limbo/exceptions.txt");

#[derive(Deserialize)]
struct Case {
    id: String,
    validation_kind: String,
    trusted_certs: Vec<String>,
    #[serde(default)]
    untrusted_intermediates: Vec<String>,
    peer_certificate: String,
    validation_time: Option<String>,
    expected_result: String,
    expected_peer_name: Option<PeerName>,
    max_chain_depth: Option<u8>,
    #[serde(default)]
    crls: Vec<String>,
}

#[derive(Deserialize)]
struct PeerName {
    value: String,
}

impl Case {
    fn run(&self) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let now = match &self.validation_time {
            Some(at) => OffsetDateTime::parse(at, &Rfc3339).unwrap(),
            None => datetime!(2024-01-01 0:00 UTC),
        };
        let read = |pem: &String| CertificateChain::from_pem(pem).map_err(|e| text(&e));
        let mut roots = Vec::new();
        for pem in &self.trusted_certs {
            roots.push(read(pem)?.leaf().clone());
        }
        let trust = TrustStore::new(&roots, &[]).map_err(|e| text(&e))?;
        let mut chain = read(&self.peer_certificate)?.ders().to_vec();
        for pem in &self.untrusted_intermediates {
            chain.extend(read(pem)?.ders().iter().cloned());
        }
        for pem in &self.crls {
            let (_, der) = der::pem::decode_vec(pem.as_bytes()).unwrap();
            let _ = trust.accept_crl_of(&der, &chain[1..], now);
        }
        let purpose = match self.validation_kind.as_str() {
            "SERVER" => Purpose::Server,
            "CLIENT" => Purpose::Client,
            other => panic!("{other}"),
        };
        let crl = match self.crls.is_empty() {
            true => RevocationPolicy::Known,
            false => RevocationPolicy::RequireCrl,
        };
        let mut policy = PathPolicy::new(purpose)
            .with_authority(AuthorityKinds::Any)
            .with_revocation(crl, OcspPolicy::Off);
        policy.max_intermediates = self.max_chain_depth;
        if let Some(name) = &self.expected_peer_name {
            let name = ServerName::try_from(name.value.clone()).map_err(|e| text(&e))?;
            policy = policy.with_name(name);
        }
        let accepted = trust.verify(&chain, &policy, now).map_err(|e| text(&e))?;
        let checked = trust.recheck_path(accepted.record(), crl, now);
        checked.map_err(|e| text(&e))
    }
}

#[test]
fn limbo_cases_are_accepted_and_refused_as_the_suite_expects() {
    let exceptions: BTreeMap<&str, &str> = EXCEPTIONS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let (mut wrong, mut met) = (Vec::new(), 0);
    for line in CASES.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let outcome = case.run();
        let is_exception = exceptions.contains_key(case.id.as_str());
        met += usize::from(is_exception);
        let expected = case.expected_result == "SUCCESS";
        if (outcome.is_ok() == expected) == is_exception {
            wrong.push(format!("{} {}: {outcome:?}", case.id, case.expected_result));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(
        met,
        exceptions.len(),
        "exceptions for cases that do not exist"
    );
    assert_eq!(CASES.lines().count(), 194);
}
