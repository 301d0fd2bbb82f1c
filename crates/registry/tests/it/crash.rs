//! kill -9 while devices enrol: what was acknowledged is there, and no code serves two keys.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use audit::MemorySink;
use pki::profile::CaKind;
use pki::spki::spki_sha256;
use registry::EnrolError;

use crate::fixture::{NOW, csr, key, open, world};

/// Devices invited at the start.
const DEVICES: usize = 40;
const FOLDER: &str = "CORDON_TEST_CRASH_FOLDER";
const NAME: &str = "crash::acknowledged_enrolments_survive_kill_and_codes_serve_one_key";

/// Work of the process that gets killed: enrols one device after the other, printing each
/// acknowledged serial number.
async fn enrol_for_ever(folder: &std::path::Path) {
    let codes = std::fs::read_to_string(folder.join("codes")).unwrap();
    let registry = open(folder, Arc::new(MemorySink::default())).await;
    for line in codes.lines() {
        let (device, code) = line.split_once(' ').unwrap();
        match registry
            .enrol(device, code, &csr(device, &key()), NOW)
            .await
        {
            Ok(issued) => eprintln!("enrolled {device} {}", issued.serial),
            // Used up by an earlier run of this process.
            Err(EnrolError::Unauthorised) => {}
            Err(e) => panic!("{device}: {e}"),
        }
    }
    eprintln!("done");
    std::thread::sleep(StdDuration::from_secs(60));
}

#[tokio::test]
async fn acknowledged_enrolments_survive_kill_and_codes_serve_one_key() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return enrol_for_ever(folder.as_ref()).await;
    }
    let world = world().await;
    let mut codes = String::new();
    for n in 0..DEVICES {
        let device = format!("camera-{n}");
        let code = world.code(&device).await;
        codes.push_str(&format!("{device} {}\n", code.as_str()));
    }
    std::fs::write(world.folder.path().join("codes"), &codes).unwrap();
    world.registry.close(NOW).await;

    let mut acknowledged = BTreeMap::new();
    let mut rounds = 0;
    loop {
        rounds += 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(FOLDER, world.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // Killed right after an acknowledgement, or some way into the next enrolment.
        let mut finished = false;
        for _ in 0..=rounds % 4 {
            let line = lines
                .next()
                .expect("the child ended before it was killed")
                .unwrap();
            finished = line == "done";
            if finished {
                break;
            }
            let [_, device, serial] = line
                .split(' ')
                .collect::<Vec<_>>()
                .try_into()
                .unwrap_or_else(|_| panic!("{line}"));
            let before = acknowledged.insert(device.to_owned(), serial.to_owned());
            assert_eq!(before, None, "{device} was certified twice");
        }
        std::thread::sleep(StdDuration::from_millis(rounds % 7));
        child.kill().unwrap();
        child.wait().unwrap();
        if finished {
            break;
        }
        assert!(rounds < 500, "no progress");
    }
    assert!(rounds > 5, "killed only {rounds} times");

    let registry = open(world.folder.path(), Arc::new(MemorySink::default())).await;
    let mut keys = BTreeMap::new();
    for record in registry.list(CaKind::Devices, None).await.unwrap() {
        let certificate = pki::cert::from_der(&record.certificate).unwrap();
        let spki = spki_sha256(&certificate.tbs_certificate.subject_public_key_info).unwrap();
        assert_eq!(
            keys.insert(record.holder.clone(), spki),
            None,
            "{} twice",
            record.holder
        );
        if let Some(serial) = acknowledged.get(&record.holder) {
            assert_eq!(*serial, record.serial);
        }
    }
    assert_eq!(keys.len(), DEVICES);
    assert!(acknowledged.keys().all(|device| keys.contains_key(device)));
    for line in codes.lines() {
        let (device, code) = line.split_once(' ').unwrap();
        let outcome = registry
            .enrol(device, code, &csr(device, &key()), NOW)
            .await;
        assert!(matches!(outcome, Err(EnrolError::Unauthorised)), "{device}");
    }
}
