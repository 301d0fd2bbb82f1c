use std::collections::BTreeSet;

use zeroize::Zeroizing;

use super::*;

fn key(byte: u8) -> KeyConfig {
    KeyConfig {
        spi: Spi::new(0x1001).unwrap(),
        encryption_key: Zeroizing::new(vec![byte; 20]),
        integrity_key: Zeroizing::default(),
    }
}

const LARGEST: u64 = u64::MAX;

#[test]
fn reused_key_begins_behind_its_reservation() {
    let folder = tempfile::tempdir().unwrap();
    let mut begun = BTreeSet::new();
    for run in 0..5 {
        let store = ReservationStore::open(folder.path()).unwrap();
        let reserved = store.reserve(&key(1), LARGEST).unwrap();
        assert_eq!(reserved.first(), run * LEAST);
        assert_eq!(reserved.ceiling(), (run + 1) * LEAST);
        assert!(begun.insert(reserved.first()));
        // Another key has its own numbers.
        let other = store
            .reserve(&key(2 + u8::try_from(run).unwrap()), LARGEST)
            .unwrap();
        assert_eq!(other.first(), 0);
    }
}

#[test]
fn key_in_use_is_refused_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = ReservationStore::open(folder.path()).unwrap();
    let reserved = store.reserve(&key(1), LARGEST).unwrap();
    let second = ReservationStore::open(folder.path()).unwrap();
    let refused = second.reserve(&key(1), LARGEST);
    assert!(
        matches!(refused, Err(ReservationError::InUse { .. })),
        "{refused:?}"
    );
    drop((reserved, store));
}

#[test]
fn damaged_or_unreadable_reservation_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name(&key(1)));
    let damaged = [
        "",
        "5",
        "cordon sequence numbers 1\n",
        "cordon sequence numbers 1\n-4\n",
        "cordon sequence numbers 2\n4\n",
    ];
    for text in damaged {
        std::fs::write(&path, text).unwrap();
        let store = ReservationStore::open(folder.path()).unwrap();
        let refused = store.reserve(&key(1), LARGEST);
        assert!(
            matches!(refused, Err(ReservationError::Unreadable { .. })),
            "{text:?}: {refused:?}"
        );
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            text,
            "it is not touched"
        );
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let store = ReservationStore::open(folder.path()).unwrap();
    assert!(matches!(
        store.reserve(&key(1), LARGEST),
        Err(ReservationError::Unreadable { .. })
    ));
}

#[test]
fn short_sequence_numbers_end_at_32_bits() {
    let folder = tempfile::tempdir().unwrap();
    let largest = LEAST + 10;
    for (first, ceiling) in [(0, LEAST), (LEAST, largest)] {
        let store = ReservationStore::open(folder.path()).unwrap();
        let reserved = store.reserve(&key(1), largest).unwrap();
        assert_eq!((reserved.first(), reserved.ceiling()), (first, ceiling));
    }
    let store = ReservationStore::open(folder.path()).unwrap();
    let refused = store.reserve(&key(1), largest);
    assert!(
        matches!(refused, Err(ReservationError::UsedUp { .. })),
        "{refused:?}"
    );
}

#[test]
fn key_used_up_at_once_is_refused_the_second_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = ReservationStore::open(folder.path()).unwrap();
    store.use_up(&key(1)).unwrap();
    for refused in [
        store.use_up(&key(1)).err(),
        store.reserve(&key(1), LARGEST).err(),
    ] {
        assert!(
            matches!(refused, Some(ReservationError::UsedUp { .. })),
            "{refused:?}"
        );
    }
    let _ = store.reserve(&key(2), LARGEST).unwrap();
    let store = ReservationStore::open(folder.path()).unwrap();
    assert!(store.use_up(&key(2)).is_err(), "it was used before");
}

#[test]
fn reservation_is_raised_early_and_written_first() {
    let folder = tempfile::tempdir().unwrap();
    let store = ReservationStore::open(folder.path()).unwrap();
    let reserved = store.reserve(&key(1), LARGEST).unwrap();
    let path = folder.path().join(name(&key(1)));
    let mut kept = store.kept.lock().unwrap();
    let one = kept.first_mut().unwrap();
    one.raise(one.since).unwrap();
    assert_eq!(reserved.ceiling(), LEAST, "more than half is left");
    let mut ceiling = LEAST;
    for _ in 0..20 {
        reserved.note(ceiling);
        one.raise(one.since).unwrap();
        assert!(reserved.ceiling() > ceiling);
        ceiling = reserved.ceiling();
        assert_eq!(read(&path).unwrap(), ceiling);
    }
    assert_eq!(one.amount, MOST);
    one.raise(one.since + LASTS).unwrap();
}

#[test]
fn failed_reservation_raises_nothing_until_a_retry() {
    let folder = tempfile::tempdir().unwrap();
    let store = ReservationStore::open(folder.path()).unwrap();
    let reserved = store.reserve(&key(1), LARGEST).unwrap();
    let path = folder.path().join(name(&key(1)));
    let mut kept = store.kept.lock().unwrap();
    let one = kept.first_mut().unwrap();
    reserved.note(LEAST);
    one.raise(one.since).unwrap();
    let ceiling = reserved.ceiling();
    // Half of a larger amount is left, and it lasted long: the next amount is smaller.
    reserved.note(ceiling - LEAST);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let later = one.since + LASTS;
    assert!(one.raise(later).is_err(), "a folder is in the way");
    assert_eq!(reserved.ceiling(), ceiling);
    std::fs::remove_dir(&path).unwrap();
    one.raise(later).unwrap();
    assert_eq!(read(&path).unwrap(), ceiling, "the attempt is made again");
    // The smaller amount ends where the larger one did; what is asked for next goes beyond.
    reserved.note(ceiling - LEAST / 2);
    one.raise(later).unwrap();
    assert!(reserved.ceiling() > ceiling);
    assert_eq!(read(&path).unwrap(), reserved.ceiling());
}
