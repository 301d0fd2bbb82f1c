//! The custody package, checked by the commands of its own README, with a real audit log.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use access::Role;
use audit::{LogKey, SharedLog};
use centre::{Decision, ExportContext, ReviewError};
use evidence::export::{CustodyEvent, LogProof};
use pki::cert;
use pki::clearance::Clearance;
use time::Duration;

use crate::site::{ORIGIN, Options, Site};
use crate::world::{CAMERA, Shot, now};

fn proofs(log: &SharedLog, indices: &[u64]) -> LogProof {
    let view = log.view().unwrap();
    let events = indices.iter().map(|&index| CustodyEvent {
        entry: view.entry(index).unwrap(),
        index,
        proof: view.inclusion_proof(index).unwrap(),
    });
    LogProof {
        events: events.collect(),
        checkpoint: view.note().to_owned(),
        origin: ORIGIN.into(),
        public_key: *log.verifier().public_key(),
    }
}

fn context(site: &Site, log: &SharedLog) -> ExportContext {
    let world = &site.world;
    let crl = |authority: &pki::issue::CertificateAuthority| {
        let der = authority
            .crl(1, &[], now(), now() + Duration::days(7))
            .unwrap();
        let pem = openssl_crl(&der);
        String::from_utf8(pem).unwrap()
    };
    let log = log.clone();
    ExportContext {
        root_pem: cert::to_pem(world.root.certificate()).unwrap(),
        crls_pem: [&world.root, &world.devices, &world.services]
            .map(crl)
            .into(),
        prove: Box::new(move |indices| Ok(proofs(&log, indices))),
    }
}

fn openssl_crl(der: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crl.der");
    std::fs::write(&file, der).unwrap();
    let output = Command::new("openssl")
        .args(["crl", "-inform", "DER", "-in"])
        .arg(&file)
        .output();
    let output = output.expect("openssl must be installed");
    assert!(output.status.success());
    output.stdout
}

/// Runs the README's commands as the README says.
fn check(folder: &Path) -> (bool, String) {
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let line = readme
        .lines()
        .find(|l| l.trim_start().starts_with("awk "))
        .unwrap();
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", line])
        .current_dir(folder)
        .output();
    let output = output.expect("bash must be installed");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[tokio::test]
async fn a_package_verifies_with_the_commands_of_its_readme() {
    let folder = tempfile::tempdir().unwrap();
    let log = SharedLog::open(folder.path(), LogKey::generate(ORIGIN).unwrap()).unwrap();
    let audit = Arc::new(log.role("centre").unwrap());
    let site = Site::with(Options {
        audit: Some(audit),
        ..Options::default()
    })
    .await;
    let camera = site.world.camera(CAMERA);
    let block = camera.seal(&Shot::first());
    site.deliver(CAMERA, &block).await;
    site.deliver(CAMERA, &camera.seal(&Shot::after(&block)))
        .await;
    let (who, id) = (site.world.reviewer(Clearance::Secret), block.violation());
    let review = site.centre.review();
    review.medium(&who, &id, 0).await.unwrap();
    review
        .decide(&who, &id, Decision::Accepted, "legible")
        .await
        .unwrap();

    let into = folder.path().join("package");
    review
        .export(&who, &id, into.clone(), context(&site, &log))
        .await
        .unwrap();
    let (good, text) = check(&into);
    assert!(good, "{text}");
    assert_eq!(
        std::fs::read(into.join("block.cordon")).unwrap(),
        block.bytes
    );
    let picture = std::fs::read(into.join("media/01-front.jpg")).unwrap();
    assert_eq!(picture, Shot::first().media[0].2);
    let events = std::fs::read_to_string(into.join("events.jsonl")).unwrap();
    for action in [
        "evidence.receive",
        "evidence.open-medium",
        "evidence.decide",
        "evidence.export",
    ] {
        assert!(events.contains(action), "{action}");
    }
    // One event changed afterwards does not pass.
    std::fs::write(
        into.join("events.jsonl"),
        events.replace("legible", "illegal"),
    )
    .unwrap();
    assert!(!check(&into).0);

    let again = review.export(&who, &id, into, context(&site, &log)).await;
    assert!(matches!(again, Err(ReviewError::Export(_))), "{again:?}");
    let officer = site
        .world
        .person(Clearance::Secret, &[Role::Officer], &["traffic"]);
    let other = folder.path().join("other");
    let refused = review
        .export(&officer, &id, other.clone(), context(&site, &log))
        .await;
    assert!(matches!(refused, Err(ReviewError::Denied { .. })));
    assert!(!other.exists());
}
