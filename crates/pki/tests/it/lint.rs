//! Every profile with every key algorithm, and CRLs, judged by pkilint and zlint (rules of RFCs).
//!
//! The directory of pkilint's programs is taken from `CORDON_PKILINT`, else `.venv/bin` at the root of
//! the workspace: `python3 -m venv .venv && .venv/bin/pip install pkilint`. zlint is `CORDON_ZLINT`, else
//! `target/peers/zlint`: `GOBIN=$PWD/target/peers go install github.com/zmap/zlint/v3/cmd/zlint@v3.7.3`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use pki::crl::{CrlForm, CrlRequest, RevocationReason, RevokedEntry};
use pki::key::KeyAlgorithm;
use pki::profile::Profile;
use pki::status::Revocation;
use time::Duration;

use crate::fixture::{NOW, World, key, request};

fn python() -> PathBuf {
    let directory = std::env::var_os("CORDON_PKILINT").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.venv/bin")),
        PathBuf::from,
    );
    directory.join("python3")
}

/// Lints all files in one process, because starting the linter takes longer than linting.
fn lint(module: &str, options: &[&str], files: &[PathBuf]) {
    const SCRIPT: &str = "
import importlib, sys
module, count = sys.argv[1], int(sys.argv[2])
options, files = sys.argv[3:3 + count], sys.argv[3 + count:]
main = importlib.import_module('pkilint.bin.' + module).main
bad = 0
for file in files:
    print(file, flush=True)
    bad += main(['lint', *options, '-s', 'ERROR', file])
print('linted', len(files))
sys.exit(1 if bad else 0)
";
    let output = Command::new(python())
        .args(["-c", SCRIPT, module, &options.len().to_string()])
        .args(options)
        .args(files)
        .output()
        .unwrap_or_else(|e| {
            panic!(
                "pkilint is needed by this test ({}): {e}",
                python().display()
            )
        });
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "findings of pkilint:\n{text}");
    assert!(text.contains(&format!("linted {}", files.len())), "{text}");
}

/// Findings of zlint that are meant so: beginning of the file's name, and rule.
const MEANT: &[(&str, &str)] = &[
    // A client in TLS and IKE only signs; answers of SCEP are encrypted to the RSA key of whoever asks (RFC 8894, section 3.1).
    (
        "vpn-device-rsa",
        "e_key_usage_and_extended_key_usage_inconsistent",
    ),
];

/// Findings of zlint for each file, but for those that are [meant so](MEANT); by the rules of RFCs, as those of the
/// CA/Browser Forum are for public authorities.
fn zlint(files: &[PathBuf]) -> Vec<String> {
    let program = std::env::var_os("CORDON_ZLINT").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../target/peers/zlint"
            ))
        },
        PathBuf::from,
    );
    let mut findings = Vec::new();
    for file in files {
        let output = Command::new(&program)
            .args([
                "-format",
                "der",
                "-includeSources",
                "RFC3279,RFC5280,RFC5480,RFC5891,RFC8813",
            ])
            .arg(file)
            .output()
            .unwrap_or_else(|e| {
                panic!("zlint is needed by this test ({}): {e}", program.display())
            });
        let results: BTreeMap<String, Finding> = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
        assert!(results.len() > 100, "{} rules", results.len());
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        for (rule, Finding { result }) in results {
            let is_meant = MEANT
                .iter()
                .any(|(of, meant)| name.starts_with(of) && *meant == rule);
            if !matches!(result.as_str(), "pass" | "NA" | "NE") && !is_meant {
                findings.push(format!("{name}: {rule} {result}"));
            }
        }
    }
    findings
}

#[derive(serde::Deserialize)]
struct Finding {
    result: String,
}

#[test]
fn no_profile_has_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for signer in KeyAlgorithm::ALL {
        let world = World::with(signer);
        let path = dir.path().join(format!("root-{signer}.der"));
        std::fs::write(&path, pki::cert::to_der(world.root.certificate()).unwrap()).unwrap();
        files.push(path);
        // All subject keys under the default authority, the default subject key under all others.
        let subjects: &[KeyAlgorithm] = if signer == KeyAlgorithm::EcdsaP384 {
            &KeyAlgorithm::ALL
        } else {
            &[KeyAlgorithm::EcdsaP256]
        };
        for algorithm in subjects {
            let named = pki::profile::built_in().filter_map(|(one, _)| one.profile());
            let named = named.filter(|one| matches!(one, Profile::Named { .. }));
            for profile in Profile::ALL.into_iter().chain(named) {
                let definition = profile.definition().unwrap();
                if profile == Profile::Root || definition.key_usage(*algorithm).is_none() {
                    continue;
                }
                let certificate = world.issue(&request(profile, &key(*algorithm, 9)));
                let name = format!("{profile}-{algorithm}-by-{signer}.der").replace(' ', "-");
                let path = dir.path().join(name);
                std::fs::write(&path, pki::cert::to_der(&certificate).unwrap()).unwrap();
                files.push(path);
            }
        }
    }
    // Ed25519 keys encrypt nothing, cards have none of them, and SCEP has RSA only; seven are known by name.
    assert_eq!(files.len(), 6 + (6 * 19 - 4) + 5 * 18 + (6 * 7 - 2) + 5 * 7);
    lint("lint_pkix_cert", &[], &files);
    let findings = zlint(&files);
    assert!(
        findings.is_empty(),
        "findings of zlint:\n{}",
        findings.join("\n")
    );
}

#[test]
fn no_crl_has_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    let entries: Vec<_> = RevocationReason::ALL
        .into_iter()
        .zip(1..)
        .map(|(reason, serial)| RevokedEntry {
            serial: vec![serial],
            revocation: Revocation { at: NOW, reason },
        })
        .collect();
    for signer in KeyAlgorithm::ALL {
        let world = World::with(signer);
        for (name, entries) in [("empty", &[][..]), ("full", &entries)] {
            let crl = world
                .users
                .crl(7, entries, NOW, NOW + Duration::days(1))
                .unwrap();
            let path = dir.path().join(format!("{name}-{signer}.crl"));
            std::fs::write(&path, crl).unwrap();
            files.push(path);
        }
        let points = ["http://pki.example.org/crl/users-007.crl".to_owned()];
        let complete = CrlForm::Complete {
            freshest_url: Some("http://pki.example.org/crl/users-007-delta.crl"),
        };
        let released = [vec![99]];
        let delta = CrlForm::Delta {
            base: 5,
            released: &released,
        };
        for (name, form) in [("shard", complete), ("delta", delta)] {
            let request = CrlRequest {
                number: 7,
                revoked: &entries,
                this_update: NOW,
                next_update: NOW + Duration::days(1),
                points: &points,
                form,
            };
            let path = dir.path().join(format!("{name}-{signer}.crl"));
            std::fs::write(&path, world.users.sign_crl(&request).unwrap()).unwrap();
            files.push(path);
        }
    }
    lint("lint_crl", &["-t", "CRL", "-p", "PKIX"], &files);
}
