//! Spool: bounds, eviction, receipts, and a crash before every single file operation.

#[path = "../../tests/it/identity.rs"]
#[allow(
    dead_code,
    reason = "shared with the integration tests, which use the rest"
)]
mod identity;

mod faults;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;

use durable::testing::{FailingDisk, Fault};
use pki::cert::CertificateChain;
use pki::clearance::Clearance;
use pki::key::KeyAlgorithm;
use tempfile::TempDir;

use super::*;
use crate::manifest::{Kind, Manifest, Notice, Place, SCHEMA, Violation};
use crate::receipt::{self, Verdict};
use identity::{Identity, NOW, Root};

const DEVICE: &str = "camera-17";

fn config(max_bytes: u64) -> SpoolConfig {
    SpoolConfig {
        max_bytes,
        when_full: WhenFull::Evict,
        max_receipts: 100,
    }
}

/// A folder in memory where the system has one: thousands of synchronised files take minutes on a
/// disk.
fn quick_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn open(folder: &TempDir, max_bytes: u64) -> Spool {
    Spool::open(folder.path(), DEVICE, config(max_bytes))
        .unwrap()
        .0
}

/// A manifest and made-up block bytes that stand for a sealed block.
fn sealed(at: ChainPosition, class: Clearance, notice: Option<Notice>, bytes: &[u8]) -> Sealed {
    let violation = notice.is_none().then(|| Violation {
        violation_type: "speeding".into(),
        place: Place {
            name: "A4".into(),
            latitude_microdeg: 0,
            longitude_microdeg: 0,
        },
        speed_kmh: None,
        limit_kmh: None,
        plate: None,
        lane: None,
        device_serial: None,
    });
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
        classification: class,
        violation,
        media: vec![],
        notice,
    };
    Sealed {
        block_sha256: Sha256Digest::of(bytes),
        block_size: bytes.len() as u64,
        manifest_sha256: Sha256Digest::of(&manifest.to_canonical().unwrap()),
        manifest,
    }
}

fn put_bytes(
    spool: &mut Spool,
    class: Clearance,
    notice: Option<Notice>,
    bytes: &[u8],
) -> Result<Committed, SpoolError> {
    let sealed = sealed(spool.chain(), class, notice, bytes);
    let mut writer = spool.writer()?;
    writer.write_all(bytes).map_err(SpoolError::from_io)?;
    spool.commit(writer.finish()?, &sealed)
}

fn put(spool: &mut Spool, class: Clearance, len: usize) -> Result<Committed, SpoolError> {
    let fill = u8::try_from(spool.chain().sequence % 251).unwrap();
    put_bytes(spool, class, None, &vec![fill; len])
}

struct Centre {
    identity: Identity,
}

impl Centre {
    fn new() -> Self {
        Self {
            identity: Root::new().identity("centre", KeyAlgorithm::EcdsaP256),
        }
    }

    fn receipt(&self, entry: &Entry, change: impl Fn(&mut Receipt)) -> VerifiedReceipt {
        let mut receipt = Receipt {
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
        change(&mut receipt);
        let der = receipt
            .sign(&self.identity.key, &self.identity.chain)
            .unwrap();
        let trust = |_: &CertificateChain, _| Ok::<_, io::Error>(());
        receipt::verify(&der, trust).unwrap()
    }
}

#[test]
fn position_survives_reopening_and_emptying() {
    let folder = tempfile::tempdir().unwrap();
    let centre = Centre::new();
    let mut spool = open(&folder, 1_000);
    let start = spool.chain();
    assert_eq!((start.sequence, start.previous), (1, Sha256Digest::ZERO));
    let first = put(&mut spool, Clearance::Restricted, 10).unwrap().entry;
    let second = put(&mut spool, Clearance::Restricted, 10).unwrap().entry;
    drop(spool);

    let (mut spool, recovery) = Spool::open(folder.path(), DEVICE, config(1_000)).unwrap();
    assert!(recovery.advanced);
    assert_eq!(spool.chain().sequence, 3);
    assert_eq!(spool.chain().previous, second.manifest_sha256);
    assert_eq!(spool.bytes(), 20);
    for entry in [&first, &second] {
        spool
            .confirm(entry.sequence, &centre.receipt(entry, |_| ()))
            .unwrap();
        assert!(spool.receipt_path(entry.sequence).exists());
    }
    assert_eq!(spool.entries().count(), 0);
    let after = spool.chain();
    drop(spool);
    assert_eq!(open(&folder, 1_000).chain(), after);
    assert_eq!(after.sequence, 3);
}

#[test]
fn only_the_matching_receipt_removes_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let centre = Centre::new();
    let mut spool = open(&folder, 1_000);
    let entry = put(&mut spool, Clearance::Restricted, 10).unwrap().entry;
    type Change = fn(&mut Receipt);
    let wrong: [(Change, &str); 5] = [
        (|r| r.block_sha256 = Sha256Digest::of(b"x"), "block_sha256"),
        (|r| r.size += 1, "size"),
        (|r| r.device = "camera-18".into(), "device"),
        (|r| r.sequence = Some(2), "sequence"),
        (
            |r| r.manifest_sha256 = Some(Sha256Digest::ZERO),
            "manifest_sha256",
        ),
    ];
    for (change, expected) in wrong {
        match spool.confirm(1, &centre.receipt(&entry, change)) {
            Err(SpoolError::ReceiptMismatch { field }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert_eq!(spool.entries().count(), 1);
    let good = centre.receipt(&entry, |_| ());
    spool.confirm(1, &good).unwrap();
    spool.confirm(1, &good).unwrap(); // repeated after a lost answer
    assert!(matches!(
        spool.confirm(2, &centre.receipt(&entry, |r| r.sequence = Some(2))),
        Err(SpoolError::NotFound { sequence: 2 })
    ));
    assert_eq!(fs::read(spool.receipt_path(1)).unwrap(), good.der());
}

#[test]
fn eviction_takes_the_oldest_of_the_lowest_class_and_tells() {
    use Clearance::{Confidential, Restricted, Secret, Unclassified};
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(&folder, 40);
    for class in [Confidential, Restricted, Secret, Restricted] {
        assert!(put(&mut spool, class, 10).unwrap().evicted.is_empty());
    }
    let dropped: Vec<u64> = put(&mut spool, Confidential, 15)
        .unwrap()
        .evicted
        .iter()
        .map(|d| d.sequence)
        .collect();
    assert_eq!(dropped, [2, 4]);
    // Lower than everything left: refused whole, nothing lost, number not used.
    let before = spool.chain();
    match put(&mut spool, Unclassified, 10) {
        Err(SpoolError::Full { needed, available }) => assert_eq!((needed, available), (10, 5)),
        other => panic!("{other:?}"),
    }
    assert_eq!(spool.chain(), before);
    assert!(matches!(
        put(&mut spool, Secret, 41),
        Err(SpoolError::Full { .. })
    ));
    let left: Vec<u64> = spool.entries().map(|e| e.sequence).collect();
    assert_eq!(left, [1, 3, 5]);
    drop(spool);
    let spool = open(&folder, 40);
    let pending: Vec<u64> = spool.pending_dropped().iter().map(|d| d.sequence).collect();
    assert_eq!(pending, [2, 4]);
}

#[test]
fn a_notice_clears_what_it_names_and_is_never_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(&folder, 20);
    for _ in 0..4 {
        put(&mut spool, Clearance::Secret, 10).unwrap();
    }
    assert_eq!(spool.pending_dropped().len(), 2);
    let notice = Notice {
        dropped: spool.pending_dropped()[..1].to_vec(),
        text: None,
    };
    // Making room for the notice gives up one more, whatever its class.
    let done = put_bytes(
        &mut spool,
        Clearance::Unclassified,
        Some(notice),
        b"notice!!!!",
    )
    .unwrap();
    assert_eq!(done.evicted.len(), 1);
    let pending: Vec<u64> = spool.pending_dropped().iter().map(|d| d.sequence).collect();
    assert_eq!(pending, [2, 3]);
    put(&mut spool, Clearance::TopSecret, 10).unwrap();
    assert!(spool.entry(5).is_some());
    assert!(matches!(
        put(&mut spool, Clearance::TopSecret, 11),
        Err(SpoolError::Full { .. })
    ));
}

#[test]
fn a_late_receipt_takes_a_dropped_block_off_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let centre = Centre::new();
    let mut spool = open(&folder, 10);
    let entry = put(&mut spool, Clearance::Restricted, 10).unwrap().entry;
    put(&mut spool, Clearance::Restricted, 10).unwrap();
    assert_eq!(spool.pending_dropped().len(), 1);
    let other = centre.receipt(&entry, |r| r.manifest_sha256 = Some(Sha256Digest::ZERO));
    assert!(spool.confirm(1, &other).is_err());
    spool.confirm(1, &centre.receipt(&entry, |_| ())).unwrap();
    assert!(spool.pending_dropped().is_empty());
}

#[test]
fn full_spool_that_keeps_refuses_the_new_block_and_gives_up_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeping = config(20);
    keeping.when_full = WhenFull::default();
    let (mut spool, _) = Spool::open(folder.path(), DEVICE, keeping).unwrap();
    put(&mut spool, Clearance::Unclassified, 10).unwrap();
    put(&mut spool, Clearance::Unclassified, 10).unwrap();
    match put(&mut spool, Clearance::TopSecret, 1) {
        Err(SpoolError::Full { needed, available }) => assert_eq!((needed, available), (1, 0)),
        other => panic!("{other:?}"),
    }
    assert_eq!(spool.entries().count(), 2);
    assert!(spool.pending_dropped().is_empty());
}

#[test]
fn damaged_block_is_set_aside_listed_and_restored_when_sound() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(&folder, 1_000);
    let entry = put(&mut spool, Clearance::Restricted, 10).unwrap().entry;
    let sound = fs::read(spool.block_path(&entry)).unwrap();
    assert_eq!(spool.check_block(1).unwrap(), Checked::Sound);
    fs::write(spool.block_path(&entry), b"0123456789").unwrap();
    match spool.check_block(1).unwrap() {
        Checked::SetAside(dropped) => assert_eq!(dropped.reason, DropReason::Damaged),
        Checked::Sound => panic!("a changed block counts as sound"),
    }
    assert!(matches!(
        spool.check_block(1),
        Err(SpoolError::NotFound { .. })
    ));
    // What is kept aside takes room, so that it is bounded too.
    assert_eq!(spool.bytes(), 10);
    let aside = folder.path().join(damaged::FOLDER).join(entry.file_name());
    assert_eq!(fs::read(&aside).unwrap(), b"0123456789");
    assert_eq!(
        list_damaged(folder.path()).unwrap(),
        std::slice::from_ref(&entry)
    );
    let next = spool.chain();
    drop(spool);

    let mut spool = open(&folder, 1_000);
    assert_eq!(spool.chain(), next);
    assert_eq!(spool.damaged().count(), 1);
    assert!(matches!(
        spool.restore_damaged(1),
        Err(SpoolError::StillDamaged { sequence: 1 })
    ));
    fs::write(&aside, sound).unwrap();
    spool.restore_damaged(1).unwrap();
    assert_eq!(spool.entry(1), Some(&entry));
    assert!(spool.pending_dropped().is_empty());
    drop(spool);
    let mut spool = open(&folder, 1_000);
    assert_eq!(spool.check_block(1).unwrap(), Checked::Sound);
    fs::write(spool.block_path(&entry), b"0123456789").unwrap();
    spool.check_block(1).unwrap();
    spool.remove_damaged(1).unwrap();
    assert_eq!((spool.bytes(), spool.damaged().count()), (0, 0));
    drop(spool);
    assert_eq!(open(&folder, 1_000).chain(), next);
}

#[test]
fn missing_state_beside_blocks_or_receipts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let centre = Centre::new();
    let mut spool = open(&folder, 1_000);
    let entry = put(&mut spool, Clearance::Restricted, 10).unwrap().entry;
    spool.confirm(1, &centre.receipt(&entry, |_| ())).unwrap();
    drop(spool);
    fs::remove_file(folder.path().join(state::FILE)).unwrap();
    // Number 1 would be used twice, and the old receipt would delete the new block.
    let again = Spool::open(folder.path(), DEVICE, config(1_000));
    assert!(matches!(again, Err(SpoolError::StateInvalid { .. })));
}

#[test]
fn stored_receipt_for_another_block_of_the_number_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let centre = Centre::new();
    let mut spool = open(&folder, 1_000);
    let entry = put(&mut spool, Clearance::Restricted, 10).unwrap().entry;
    let other = centre.receipt(&entry, |r| r.block_sha256 = Sha256Digest::of(b"other"));
    for content in [other.der(), b"", b"no receipt"] {
        fs::write(spool.receipt_path(1), content).unwrap();
        drop(spool);
        spool = open(&folder, 1_000);
        assert!(spool.entry(1).is_some());
    }
}

#[test]
fn wrong_blocks_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(&folder, 1_000);
    let skipped = ChainPosition {
        sequence: 2,
        previous: Sha256Digest::of(b"1"),
    };
    let future = sealed(skipped, Clearance::Restricted, None, b"x");
    let mut writer = spool.writer().unwrap();
    writer.write_all(b"x").unwrap();
    assert!(matches!(
        spool.commit(writer.finish().unwrap(), &future),
        Err(SpoolError::OutOfSequence {
            found: 2,
            expected: 1
        })
    ));
    let good = sealed(spool.chain(), Clearance::Restricted, None, b"xy");
    let mut writer = spool.writer().unwrap();
    writer.write_all(b"x").unwrap();
    assert!(matches!(
        spool.commit(writer.finish().unwrap(), &good),
        Err(SpoolError::SizeMismatch {
            expected: 2,
            written: 1
        })
    ));
    drop(spool.writer().unwrap());
    assert_eq!(fs::read_dir(folder.path().join(BLOCKS)).unwrap().count(), 0);
}

#[test]
fn spools_are_locked_and_belong_to_one_camera() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(&folder, 1_000);
    let again = Spool::open(folder.path(), DEVICE, config(1_000));
    assert!(matches!(again, Err(SpoolError::Locked)));
    drop(spool);
    let other = Spool::open(folder.path(), "camera-18", config(1_000));
    assert!(matches!(other, Err(SpoolError::OtherDevice { .. })));
    fs::write(folder.path().join(state::FILE), b"{}").unwrap();
    let broken = Spool::open(folder.path(), DEVICE, config(1_000));
    assert!(matches!(broken, Err(SpoolError::StateInvalid { .. })));
}

#[test]
fn leftovers_are_removed_and_strangers_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder, 1_000));
    let blocks = folder.path().join(BLOCKS);
    fs::write(blocks.join("99-1.tmp"), b"half").unwrap();
    fs::write(blocks.join("readme.txt"), b"?").unwrap();
    let (_, recovery) = Spool::open(folder.path(), DEVICE, config(1_000)).unwrap();
    assert_eq!(recovery.unfinished, 1);
    assert_eq!(recovery.foreign, ["readme.txt"]);
    assert!(blocks.join("readme.txt").exists());
}

#[test]
fn receipts_are_pruned_oldest_first() {
    let folder = tempfile::tempdir().unwrap();
    let centre = Centre::new();
    let mut small = config(1_000);
    small.max_receipts = 2;
    let (mut spool, _) = Spool::open(folder.path(), DEVICE, small).unwrap();
    for sequence in 1..=4 {
        let entry = put(&mut spool, Clearance::Restricted, 1).unwrap().entry;
        spool
            .confirm(sequence, &centre.receipt(&entry, |_| ()))
            .unwrap();
    }
    assert_eq!(spool.prune_receipts().unwrap(), 2);
    let left: Vec<bool> = (1..=4).map(|s| spool.receipt_path(s).exists()).collect();
    assert_eq!(left, [false, false, true, true]);
}

/// Everything the spool does, as far as it gets; the result is what was acknowledged.
#[derive(Default)]
struct Story {
    committed: u64,
    confirmed: BTreeSet<u64>,
}

fn tell(spool: &mut Spool, centre: &Centre, story: &mut Story) -> Result<(), SpoolError> {
    for class in [
        Clearance::Secret,
        Clearance::Restricted,
        Clearance::Restricted,
    ] {
        put(spool, class, 10)?;
        story.committed += 1;
    }
    let newest = spool.entry(3).cloned().unwrap();
    spool.confirm(3, &centre.receipt(&newest, |_| ()))?;
    story.confirmed.insert(3);
    put(spool, Clearance::Confidential, 20)?; // evicts 2
    story.committed += 1;
    let notice = Notice {
        dropped: spool.pending_dropped().to_vec(),
        text: None,
    };
    put_bytes(spool, Clearance::Unclassified, Some(notice), b"n")?;
    story.committed += 1;
    fs::write(spool.block_path(spool.entry(4).unwrap()), b"changed").unwrap();
    spool.check_block(4)?;
    put(spool, Clearance::Restricted, 10)?;
    story.committed += 1;
    Ok(())
}

/// Numbers that are present, receipted, listed as dropped, or named by a stored notice.
fn explained(spool: &Spool) -> BTreeSet<u64> {
    let mut known: BTreeSet<u64> = spool.entries().map(|e| e.sequence).collect();
    known.extend(spool.pending_dropped().iter().map(|d| d.sequence));
    known.extend(spool.damaged().map(|e| e.sequence));
    known.extend((1..10).filter(|s| spool.receipt_path(*s).exists()));
    if spool.entries().any(|e| e.kind == Kind::Notice) {
        known.insert(2); // the one the story's notice names
    }
    known
}

#[test]
fn a_crash_before_any_file_operation_loses_and_repeats_nothing() {
    let centre = Centre::new();
    let mut completed = false;
    for steps in 0..1_000 {
        let folder = quick_folder();
        let disk = Arc::new(FailingDisk::default());
        disk.fail(Fault {
            after: steps,
            times: u32::MAX,
            errno: 5,
        });
        let mut story = Story::default();
        let outcome = Spool::open_on(folder.path(), DEVICE, config(41), disk)
            .and_then(|(mut spool, _)| tell(&mut spool, &centre, &mut story));
        completed = outcome.is_ok();

        let mut spool = open(&folder, 41);
        let next = spool.chain().sequence;
        // A commit in flight may have happened or not, but none that was acknowledged is undone.
        assert!(
            next == story.committed + 1 || next == story.committed + 2,
            "step {steps}: next {next} after {} commits",
            story.committed
        );
        let everything: BTreeSet<u64> = (1..next).collect();
        assert_eq!(explained(&spool), everything, "step {steps}: {outcome:?}");
        for sequence in &story.confirmed {
            assert!(spool.entry(*sequence).is_none(), "step {steps}");
        }
        for entry in spool.entries() {
            let bytes = fs::read(spool.block_path(entry)).unwrap();
            // The story damages block 4; a crash may come before that is noticed.
            assert!(Sha256Digest::of(&bytes) == entry.block_sha256 || entry.sequence == 4);
            assert!(
                spool
                    .pending_dropped()
                    .iter()
                    .all(|d| d.sequence != entry.sequence)
            );
        }
        if let Some(newest) = spool.entry(next - 1) {
            assert_eq!(spool.chain().previous, newest.manifest_sha256);
        }
        let leftovers = |part: &str| {
            let items = fs::read_dir(folder.path().join(part)).unwrap();
            items
                .filter(|i| {
                    i.as_ref()
                        .unwrap()
                        .path()
                        .extension()
                        .is_some_and(|e| e == "tmp")
                })
                .count()
        };
        assert_eq!(leftovers(BLOCKS) + leftovers(RECEIPTS) + leftovers("."), 0);
        put(&mut spool, Clearance::TopSecret, 5).unwrap();
        assert_eq!(spool.chain().sequence, next + 1);
        if completed {
            assert!(steps > 40, "the story has only {steps} steps");
            break;
        }
    }
    assert!(completed);
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing_half_written() {
    // /dev/full answers every write with ENOSPC; the error must come out as NoSpace.
    let error = File::options()
        .write(true)
        .open("/dev/full")
        .and_then(|mut f| f.write_all(b"x"))
        .unwrap_err();
    assert!(matches!(SpoolError::from_io(error), SpoolError::NoSpace(_)));

    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(&folder, 1_000);
    let before = spool.chain();
    let writer = spool.writer().unwrap();
    drop(writer); // what a sealer does when writing fails
    assert_eq!(fs::read_dir(folder.path().join(BLOCKS)).unwrap().count(), 0);
    assert_eq!(spool.chain(), before);
}
