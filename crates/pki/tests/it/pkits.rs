//! The certificate path test suite of NIST (PKITS), with the data and inputs in `tests/pkits`.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use const_oid::ObjectIdentifier;
use pki::cert;
use pki::path::{
    AuthorityKinds, OcspPolicy, PathError, PathPolicy, PolicyDemand, Purpose, RevocationPolicy,
    TrustStore,
};
use rustls_pki_types::CertificateDer;

use crate::fixture::NOW;

const DATA: &str = include_str!("../pkits/data.txt");
const TESTS: &str = include_str!("../pkits/tests.txt");
/// Valid paths that are refused on purpose: number, then the reason.
const REFUSED: &str = include_str!("../pkits/refused.txt");

/// Certificates and lists by `kind name`.
fn data() -> BTreeMap<String, Vec<u8>> {
    let entry = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), STANDARD.decode(value).unwrap())
    };
    DATA.lines().map(entry).collect()
}

struct Test<'a> {
    number: &'a str,
    name: &'a str,
    is_valid: bool,
    demand: PolicyDemand,
    chain: Vec<&'a str>,
    lists: Vec<&'a str>,
}

fn list(field: &str) -> Vec<&str> {
    field.split(',').filter(|one| *one != "-").collect()
}

impl<'a> Test<'a> {
    fn parse(line: &'a str) -> Self {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [number, name, expected, policies, flags, leaf, others, lists] = fields[..] else {
            panic!("{line}");
        };
        let policy = |number: &str| -> ObjectIdentifier {
            format!("2.16.840.1.101.3.2.1.48.{number}").parse().unwrap()
        };
        let acceptable = match policies {
            "any" => BTreeSet::new(),
            some => some.split(',').map(policy).collect(),
        };
        Self {
            number,
            name,
            is_valid: match expected {
                "valid" => true,
                "invalid" => false,
                other => panic!("{other}"),
            },
            demand: PolicyDemand {
                acceptable,
                require_explicit: flags.contains("explicit"),
                inhibit_mapping: flags.contains("no-mapping"),
                inhibit_any: flags.contains("no-any"),
            },
            chain: std::iter::once(leaf).chain(list(others)).collect(),
            lists: list(lists),
        }
    }

    fn chain<'d>(&self, data: &'d BTreeMap<String, Vec<u8>>) -> Vec<CertificateDer<'d>> {
        let der = |name| CertificateDer::from(data[&format!("cert {name}")].as_slice());
        self.chain.iter().map(der).collect()
    }

    fn run(&self, data: &BTreeMap<String, Vec<u8>>) -> Result<(), PathError> {
        let root = cert::from_der(&data["cert TrustAnchorRootCertificate"]).unwrap();
        let trust = TrustStore::new(&[root], &[]).unwrap();
        let chain = self.chain(data);
        // Twice: a delta list counts only after its base.
        for _ in 0..2 {
            for name in &self.lists {
                let _ = trust.accept_crl_of(&data[&format!("crl {name}")], &chain[1..], NOW);
            }
        }
        let policy = PathPolicy::new(Purpose::Ike)
            .with_authority(AuthorityKinds::Any)
            .with_certificate_policies(self.demand.clone())
            .with_revocation(RevocationPolicy::RequireCrl, OcspPolicy::Off);
        let accepted = trust.verify(&chain, &policy, NOW)?;
        trust.recheck_path(accepted.record(), policy.crl, NOW)
    }
}

#[test]
fn pkits_paths_are_accepted_and_refused_as_the_suite_expects() {
    let data = data();
    let refused: BTreeMap<&str, &str> = REFUSED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let mut wrong = Vec::new();
    let mut count = [0, 0];
    let mut met = BTreeSet::new();
    for test in TESTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(Test::parse)
    {
        let outcome = test.run(&data);
        let listed = refused.contains_key(test.number);
        if listed {
            met.insert(test.number);
        }
        let expected = test.is_valid && !listed;
        count[usize::from(expected)] += 1;
        if outcome.is_ok() != expected {
            wrong.push(format!("{} {}: {outcome:?}", test.number, test.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(
        met.len(),
        refused.len(),
        "exceptions for tests that do not exist"
    );
    // Of 247 tests with their inputs.
    assert_eq!(count.iter().sum::<i32>(), 247);
}

/// Certificates with every kind of constraint, each damaged in many places: nothing panics, and no damage
/// goes unnoticed.
#[test]
fn damaged_certificates_of_pkits_are_refused() {
    let data = data();
    let root = cert::from_der(&data["cert TrustAnchorRootCertificate"]).unwrap();
    let trust = TrustStore::new(&[root], &[]).unwrap();
    let chosen = [
        "4.8.14.1", "4.10.5.1", "4.12.7", "4.13.11", "4.13.21", "4.13.30", "4.13.34", "4.14.7",
    ];
    let tests = TESTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(Test::parse);
    let mut count = 0;
    for test in tests.filter(|test| chosen.contains(&test.number)) {
        let policy = PathPolicy::new(Purpose::Ike)
            .with_authority(AuthorityKinds::Any)
            .with_certificate_policies(test.demand.clone());
        let whole = test.chain(&data);
        trust.verify(&whole, &policy, NOW).unwrap();
        for damaged in 0..whole.len() {
            for at in (count % 7..whole[damaged].len()).step_by(7) {
                let mut chain = whole.clone();
                let mut der = chain[damaged].to_vec();
                der[at] ^= 1 << (at % 8);
                chain[damaged] = CertificateDer::from(der);
                let outcome = trust.verify(&chain, &policy, NOW);
                assert!(outcome.is_err(), "{} {damaged} {at}", test.number);
            }
        }
        count += 1;
    }
    assert_eq!(count, chosen.len());
}
