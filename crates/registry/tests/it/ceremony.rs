//! A crash at every step of a ceremony, and of installing what it made.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use audit::MemorySink;
use durable::SharedDisk;
use durable::testing::{FailingDisk, Fault, RecordingDisk, Tree};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::key::KeyAlgorithm;
use pki::oid::ExtensionArc;
use pki::profile::CaKind;
use registry::ceremony::perform::{Attendance, Performed, Setting, perform};
use registry::ceremony::script::{Act, Participant, Script};
use registry::ceremony::transcript::Program;
use registry::ceremony::{CeremonyError, check};
use registry::{Config, Delivery, Registry, Standings};
use time::{Duration, OffsetDateTime};

use crate::fixture::{NOW, SECRETS, config, open, registrar};
use crate::steps::quick_folder;

/// One participant, who agrees to everything at a fixed time.
struct Room(OffsetDateTime);

impl Attendance for Room {
    fn confirm(
        &mut self,
        _: usize,
        _: &str,
        participants: &[Participant],
    ) -> Result<Vec<String>, CeremonyError> {
        Ok(participants.iter().map(|one| one.name.clone()).collect())
    }

    fn now(&self) -> OffsetDateTime {
        self.0
    }
}

fn script(acts: Vec<Act>) -> Script {
    Script {
        title: "Test".into(),
        organisation: "LEA-EU".into(),
        country: Some("EU".into()),
        crl_base_url: None,
        list_days: 400,
        participants: vec![Participant {
            name: "A. Example".into(),
            duty: "witness".into(),
        }],
        acts,
    }
}

fn first() -> Script {
    let root = Act::CreateRoot {
        algorithm: KeyAlgorithm::EcdsaP256,
        years: 20,
    };
    let certify = |kind: CaKind| Act::CertifyAuthority {
        generation: std::num::NonZeroU16::MIN,
        kind,
        request: format!("{kind}.csr"),
        highest_clearance: Clearance::Secret,
        years: 10,
    };
    let authorities = CaKind::ALL.map(certify);
    script([vec![root], authorities.into()].concat())
}

fn hold(
    script: &Script,
    folder: &Path,
    inputs: &Path,
    now: OffsetDateTime,
    disk: SharedDisk,
) -> Result<Performed, CeremonyError> {
    let setting = Setting {
        folder,
        script,
        script_text: b"as agreed",
        inputs,
        passphrase: &SECRETS.root,
        program: Program {
            version: "0".into(),
            digest: String::new(),
        },
        arc: ExtensionArc::default(),
        disk,
    };
    perform(&setting, &mut Room(now))
}

/// Requests of a site in `folder`, for scripts in the same.
fn request(folder: &Path) {
    let standings = Standings::default();
    let requests =
        Registry::request_authorities(folder, &config(), &SECRETS.issuing, &standings, NOW);
    for (kind, pem) in requests.unwrap() {
        std::fs::write(folder.join(format!("{kind}.csr")), pem).unwrap();
    }
}

fn different(disk: &RecordingDisk, folder: &Path, there: &Tree) -> Vec<durable::testing::Crash> {
    let mut seen = HashSet::new();
    let mut crashes = disk.crashes(folder, there);
    crashes.retain(|crash| seen.insert(crash.tree.fingerprint()));
    assert!(crashes.len() > 20, "{}", crashes.len());
    crashes
}

#[test]
fn ceremony_that_crashes_anywhere_is_whole_or_none_and_has_its_key() {
    let inputs = quick_folder();
    request(inputs.path());
    let folder = quick_folder();
    let there = Tree::read_settled(folder.path()).unwrap();
    let disk = Arc::new(RecordingDisk::default());
    hold(&first(), folder.path(), inputs.path(), NOW, disk.clone()).unwrap();
    let (mut whole, mut none) = (0, 0);
    for crash in different(&disk, folder.path(), &there) {
        let what = &crash.what;
        let after = quick_folder();
        crash.tree.write(after.path()).unwrap();
        match check::all(after.path()) {
            Err(CeremonyError::Unfinished(left)) => {
                none += 1;
                std::fs::remove_dir_all(left).unwrap();
                // The key may be there without its certificate: that is said, and nothing is made over it.
                let again = hold(&first(), after.path(), inputs.path(), NOW, durable::real());
                match again {
                    Err(CeremonyError::Unfinished(key)) => assert!(key.ends_with("root.key")),
                    other => drop(other.unwrap_or_else(|error| panic!("{what}: {error}"))),
                }
            }
            Ok(held) if held.is_empty() => none += 1,
            Ok(held) => {
                whole += 1;
                assert_eq!(held.len(), 1, "{what}");
                let next = script(vec![Act::IssueList {}]);
                let again = hold(&next, after.path(), inputs.path(), NOW, durable::real());
                again.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert!(whole > 0 && none > 0, "{whole} {none}");
}

#[tokio::test]
async fn installing_that_crashes_anywhere_leaves_a_site_that_opens_or_installs_again() {
    let folder = quick_folder();
    request(folder.path());
    let root = quick_folder();
    let held = hold(&first(), root.path(), folder.path(), NOW, durable::real()).unwrap();
    let there = Tree::read_settled(folder.path()).unwrap();
    let disk = Arc::new(RecordingDisk::default());
    let install = |folder: &Path, disk: SharedDisk| {
        let config = Config { disk, ..config() };
        let delivery = Delivery {
            folder: &held.folder,
            root: Some(&held.transcript.root),
        };
        let sink = MemorySink::default();
        let record = (&sink as &dyn audit::AuditSink, registrar());
        let delivery = (&delivery, &Standings::default());
        Registry::install_authorities(folder, &config, &SECRETS.issuing, delivery, record, NOW)
    };
    install(folder.path(), disk.clone()).unwrap();
    let mut opened = 0;
    for crash in different(&disk, folder.path(), &there) {
        let after = quick_folder();
        crash.tree.write(after.path()).unwrap();
        if !Registry::is_initialised(after.path()).unwrap() {
            install(after.path(), durable::real())
                .unwrap_or_else(|e| panic!("{}: {e}", crash.what));
        }
        opened += 1;
        // A tenth of them, as each opens a database.
        if opened % 10 == 0 {
            open(after.path(), Arc::new(MemorySink::default()))
                .await
                .close(NOW)
                .await;
        }
    }
}

#[test]
fn clock_that_went_back_holds_no_ceremony() {
    let (inputs, folder) = (quick_folder(), quick_folder());
    request(inputs.path());
    let hold = |script, now| hold(&script, folder.path(), inputs.path(), now, durable::real());
    hold(first(), NOW).unwrap();
    let list = || script(vec![Act::IssueList {}]);
    let early = hold(list(), NOW - Duration::HOUR);
    assert!(matches!(early, Err(CeremonyError::Clock(_))), "{early:?}");
    hold(list(), NOW).unwrap();
}

#[test]
fn what_else_is_in_a_file_does_not_become_public() {
    let (inputs, folder) = (quick_folder(), quick_folder());
    request(inputs.path());
    let held = hold(&first(), folder.path(), inputs.path(), NOW, durable::real()).unwrap();
    let secret = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    let certificate = std::fs::read_to_string(held.folder.join("devices-ca.pem")).unwrap();
    std::fs::write(inputs.path().join("both.pem"), certificate + secret).unwrap();
    let revoke = script(vec![Act::RevokeAuthority {
        certificate: "both.pem".into(),
        reason: RevocationReason::CaCompromise,
    }]);
    let held = hold(&revoke, folder.path(), inputs.path(), NOW, durable::real()).unwrap();
    let kept = std::fs::read_to_string(held.folder.join("both.pem")).unwrap();
    assert!(kept.contains("BEGIN CERTIFICATE") && !kept.contains("PRIVATE"));
}

#[test]
fn disk_that_fails_when_a_ceremony_gets_its_name_leaves_no_root_without_its_key() {
    let inputs = quick_folder();
    request(inputs.path());
    let hold =
        |script: &Script, folder: &Path, disk| hold(script, folder, inputs.path(), NOW, disk);
    let failing = |after, times| {
        let disk = Arc::new(FailingDisk::default());
        let errno = 5;
        disk.fail(Fault {
            after,
            times,
            errno,
        });
        disk
    };
    const ALL: u32 = 100_000;
    let counting = failing(ALL, 1);
    let folder = quick_folder();
    hold(&first(), folder.path(), counting.clone()).unwrap();
    let operations = ALL - counting.fault().unwrap().after;
    assert!(operations > 20, "{operations}");
    // From the key's file to the end, and beyond what is done then to take it back.
    for (after, times) in (operations - 6..operations).flat_map(|after| [(after, 1), (after, 2)]) {
        let folder = quick_folder();
        let held = hold(&first(), folder.path(), failing(after, times));
        let key = folder.path().join("root.key");
        match check::all(folder.path()) {
            Ok(all) if all.is_empty() => {
                assert!(held.is_err());
                if !key.exists() {
                    hold(&first(), folder.path(), durable::real()).unwrap();
                }
            }
            Ok(_) => {
                let next = script(vec![Act::IssueList {}]);
                let next = hold(&next, folder.path(), durable::real());
                next.unwrap_or_else(|error| panic!("{after} {times}: {error:?}"));
            }
            Err(CeremonyError::Unfinished(_)) => assert!(held.is_err()),
            Err(error) => panic!("{after} {times}: {error:?}"),
        }
    }
}

#[test]
fn ceremonies_of_two_copies_of_a_root_are_not_installed_over_one_another() {
    let site = quick_folder();
    request(site.path());
    let root = quick_folder();
    let hold = |script: &Script, root: &Path| hold(script, root, site.path(), NOW, durable::real());
    let held = hold(&first(), root.path()).unwrap();
    let install = |folder: &Path| {
        let delivery = Delivery {
            folder,
            root: Some(&held.transcript.root),
        };
        let sink = MemorySink::default();
        let record = (&sink as &dyn audit::AuditSink, registrar());
        Registry::install_authorities(
            site.path(),
            &config(),
            &SECRETS.issuing,
            (&delivery, &Standings::default()),
            record,
            NOW,
        )
    };
    let copy = quick_folder();
    let there = Tree::read_settled(root.path()).unwrap();
    there.write(copy.path()).unwrap();
    install(&held.folder).unwrap();
    let certificate = held.folder.join("devices-ca.pem");
    std::fs::copy(certificate, site.path().join("devices-ca.pem")).unwrap();
    let revoke = script(vec![Act::RevokeAuthority {
        certificate: "devices-ca.pem".into(),
        reason: RevocationReason::CaCompromise,
    }]);
    let revoked = hold(&revoke, root.path()).unwrap();
    let other = hold(&script(vec![Act::IssueList {}]), copy.path()).unwrap();
    install(&revoked.folder).unwrap();
    let refused = install(&other.folder).unwrap_err();
    assert!(
        refused.to_string().contains("of the same number"),
        "{refused}"
    );
    // The same once more changes nothing.
    install(&revoked.folder).unwrap();
}

/// Notes what is shown.
struct Shown(Vec<String>);

impl Attendance for Shown {
    fn confirm(
        &mut self,
        step: usize,
        act: &str,
        _: &[Participant],
    ) -> Result<Vec<String>, CeremonyError> {
        self.0.push(format!("{step} {act}"));
        Ok(Vec::new())
    }

    fn now(&self) -> OffsetDateTime {
        NOW
    }
}

#[test]
fn people_see_everything_that_a_script_has_signed() {
    let (inputs, folder) = (quick_folder(), quick_folder());
    request(inputs.path());
    let script = Script {
        crl_base_url: Some("http://elsewhere.example".into()),
        list_days: 3650,
        ..first()
    };
    let mut shown = Shown(Vec::new());
    let setting = Setting {
        folder: folder.path(),
        script: &script,
        script_text: b"as agreed",
        inputs: inputs.path(),
        passphrase: &SECRETS.root,
        program: Program {
            version: "0".into(),
            digest: String::new(),
        },
        arc: ExtensionArc::default(),
        disk: durable::real(),
    };
    perform(&setting, &mut shown).unwrap();
    assert_eq!(shown.0.len(), 5);
    let expected = [
        ["0 ", "Test", "LEA-EU", "EU"],
        [
            "http://elsewhere.example",
            "3650 days",
            "this clock says",
            "2026-11-21T12:00:00Z",
        ],
    ];
    for word in expected.concat() {
        assert!(shown.0[0].contains(word), "{word}: {}", shown.0[0]);
    }
    assert!(
        shown.0[1].contains("until       2046-11-16T12:00:00Z"),
        "{}",
        shown.0[1]
    );
    assert!(
        shown.0[2].contains("until       2036-11-18T12:00:00Z"),
        "{}",
        shown.0[2]
    );
}

#[test]
fn script_that_puts_an_authority_on_hold_is_refused() {
    let revoke = |reason| {
        script(vec![Act::RevokeAuthority {
            certificate: "devices-ca.pem".into(),
            reason,
        }])
    };
    for reason in RevocationReason::ALL {
        let checked = revoke(reason).check();
        match reason {
            RevocationReason::CertificateHold => {
                let error = checked.unwrap_err().to_string();
                assert!(error.starts_with("act 1: certificate-hold"), "{error}");
            }
            _ => checked.unwrap(),
        }
    }
}
