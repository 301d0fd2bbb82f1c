//! The spool under `kill -9`: a child process works on it and is killed at random moments.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use evidence::digest::Sha256Digest;
use evidence::manifest::{Kind, Manifest, Notice, SCHEMA};
use evidence::receipt::{self, Receipt, Verdict, VerifiedReceipt};
use evidence::seal::Sealed;
use evidence::spool::{Entry, Spool, SpoolConfig, SpoolError, WhenFull};
use pki::clearance::Clearance;
use pki::key::KeyAlgorithm;

use crate::block::violation;
use crate::identity::{Identity, NOW, Root};

const DEVICE: &str = "camera-17";
const FOLDER: &str = "SPOOL_KILL_FOLDER";
const ROUNDS: u64 = 25;
/// Notices that a child stores at most, so that a fast disk does not fill the spool with them.
const PER_ROUND: usize = 500;

fn open(folder: &Path) -> Spool {
    let config = SpoolConfig {
        max_bytes: 400_000,
        when_full: WhenFull::Evict,
        max_receipts: 10,
    };
    // Another test's thread may just be starting a program, which holds every open file, the
    // lock too, until that program runs.
    for _ in 0..200 {
        match Spool::open(folder, DEVICE, config.clone()) {
            Err(SpoolError::Locked) => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap().0,
        }
    }
    panic!("the spool stays locked");
}

/// Stands for sealing: the "block" of a notice is its manifest, so that the parent can read it.
fn put(spool: &mut Spool, notice: Option<Notice>) -> u64 {
    let at = spool.chain();
    let violation = notice.is_none().then(violation);
    let manifest = Manifest {
        schema: SCHEMA.into(),
        kind: if notice.is_some() {
            Kind::Notice
        } else {
            Kind::Violation
        },
        device: DEVICE.into(),
        sequence: at.sequence,
        previous: at.previous,
        captured_at: NOW,
        sealed_at: NOW,
        classification: Clearance::Restricted,
        violation,
        media: vec![],
        notice,
    };
    let canonical = manifest.to_canonical().unwrap();
    let block = match manifest.kind {
        Kind::Notice => canonical.clone(),
        Kind::Violation => vec![0x5a; 30_000],
    };
    let mut writer = spool.writer().unwrap();
    writer.write_all(&block).unwrap();
    let sealed = Sealed {
        block_sha256: Sha256Digest::of(&block),
        block_size: block.len() as u64,
        manifest_sha256: Sha256Digest::of(&canonical),
        manifest,
    };
    let block = writer.finish().unwrap();
    spool.commit(block, &sealed).unwrap().entry.sequence
}

/// Work of the child until it is killed, telling each acknowledged number.
#[test]
#[ignore = "run, and killed, by the test below"]
fn child() {
    let folder = std::env::var(FOLDER).expect("started by the parent only");
    let mut spool = open(Path::new(&folder));
    let mut out = std::io::stdout();
    for _ in 0..PER_ROUND {
        let pending = spool.pending_dropped();
        let notice = (pending.len() >= 8).then(|| Notice {
            dropped: pending.to_vec(),
            text: None,
        });
        let sequence = put(&mut spool, notice);
        writeln!(out, "acked {sequence}").unwrap();
        out.flush().unwrap();
    }
    loop {
        std::thread::park();
    }
}

/// Numbers that are there, or that the spool or a stored notice accounts for.
fn explained(spool: &Spool) -> BTreeSet<u64> {
    let mut known: BTreeSet<u64> = spool.pending_dropped().iter().map(|d| d.sequence).collect();
    for entry in spool.entries() {
        known.insert(entry.sequence);
        let bytes = std::fs::read(spool.block_path(entry)).unwrap();
        assert_eq!(Sha256Digest::of(&bytes), entry.block_sha256);
        if entry.kind == Kind::Notice {
            let manifest = Manifest::parse_canonical(&bytes).unwrap();
            known.extend(manifest.notice.unwrap().dropped.iter().map(|d| d.sequence));
        }
    }
    known
}

fn receipt(centre: &Identity, entry: &Entry) -> VerifiedReceipt {
    let receipt = Receipt {
        schema: receipt::SCHEMA.into(),
        block_sha256: entry.block_sha256,
        size: entry.size,
        device: DEVICE.into(),
        sequence: Some(entry.sequence),
        manifest_sha256: Some(entry.manifest_sha256),
        verdict: Verdict::Accepted,
        reason: None,
        received_at: NOW,
        log_origin: "log.example.org".into(),
        log_index: 0,
        checkpoint: None,
    };
    let der = receipt.sign(&centre.key, &centre.chain).unwrap();
    receipt::verify(&der, |_, _| Ok::<_, std::io::Error>(())).unwrap()
}

/// The centre takes the notices, which the spool itself never drops; gives the numbers that they
/// account for, and their own.
fn deliver_notices(centre: &Identity, spool: &mut Spool) -> BTreeSet<u64> {
    let mut known = BTreeSet::new();
    let notices = spool.entries().filter(|e| e.kind == Kind::Notice);
    for entry in notices.cloned().collect::<Vec<_>>() {
        let bytes = std::fs::read(spool.block_path(&entry)).unwrap();
        let notice = Manifest::parse_canonical(&bytes).unwrap().notice.unwrap();
        known.extend(notice.dropped.iter().map(|d| d.sequence));
        known.insert(entry.sequence);
        spool
            .confirm(entry.sequence, &receipt(centre, &entry))
            .unwrap();
    }
    known
}

#[test]
fn killing_at_any_moment_repeats_no_number_and_leaves_no_gap() {
    let folder = tempfile::tempdir().unwrap();
    let centre = Root::new().identity("centre", KeyAlgorithm::EcdsaP256);
    let mut delivered = BTreeSet::new();
    let mut told: u64 = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["spool_kill::child", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // The test harness may write its own text on the first line.
            let numbers = lines.filter_map(|l| l.split_once("acked ")?.1.parse::<u64>().ok());
            numbers.collect::<Vec<u64>>()
        });
        std::thread::sleep(Duration::from_millis(60 + round * 37 % 100));
        child.kill().unwrap(); // SIGKILL
        let ended = child.wait_with_output().unwrap();
        assert_eq!(
            ended.status.signal(),
            Some(9),
            "round {round}: the child failed: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
        let acked = reader.join().unwrap();
        for number in &acked {
            assert!(*number > told, "round {round}: {number} after {told}");
            told = *number;
        }
        let mut spool = open(folder.path());
        let next = spool.chain().sequence;
        assert!(next > told, "round {round}: {next} would be used twice");
        assert!(next <= told + 2, "round {round}: {next} after {told}");
        let known: BTreeSet<u64> = explained(&spool).union(&delivered).copied().collect();
        assert_eq!(known, (1..next).collect(), "round {round}");
        if let Some(newest) = spool.entry(next - 1) {
            assert_eq!(spool.chain().previous, newest.manifest_sha256);
        }
        // The one in flight, if it was stored, counts as told from here on.
        told = next - 1;
        delivered.extend(deliver_notices(&centre, &mut spool));
    }
    assert!(told > ROUNDS, "the children hardly worked: {told}");
}
