//! Films that people have open. A player fetches a film in dozens of parts and seeks in it: all of that is one look, and
//! one event. The first request of an opening writes it; later ones for parts of the same medium, by the same person from
//! the same address, belong to it until it ends. The access rules decide about each of them.

use std::collections::HashMap;
use std::fs::Metadata;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::Principal;

/// Time without a request after which an opening ends: a player that pauses keeps what it has.
const IDLE: Duration = Duration::from_secs(10 * 60);
/// Longest opening: who watches for longer has looked twice.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// Openings kept, some 200 bytes each. Beyond it the one that is longest idle ends, which costs one more event.
const MAX_OPENINGS: usize = 4096;
/// Openings kept of one person, who has no more films before their eyes: others keep theirs.
const MAX_OF_PERSON: usize = 64;

/// Who has what open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    uid: String,
    address: Option<IpAddr>,
    violation: String,
    medium: usize,
}

impl Key {
    pub(super) fn new(who: &Principal, violation: &str, medium: usize) -> Self {
        Self {
            uid: who.uid().to_owned(),
            address: who.address(),
            violation: violation.to_owned(),
            medium,
        }
    }
}

/// A file as it was when its medium was verified. Whoever writes into the file or exchanges it changes one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp([i64; 5]);

impl Stamp {
    pub(super) fn of(file: &Metadata) -> Self {
        let (device, inode) = (file.dev().cast_signed(), file.ino().cast_signed());
        let size = file.size().cast_signed();
        Self([device, inode, size, file.ctime(), file.ctime_nsec()])
    }
}

#[derive(Debug)]
struct Opening {
    since: Instant,
    last: Instant,
    /// `None`: the medium is not verified yet.
    verified: Option<Stamp>,
}

impl Opening {
    fn lasts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < IDLE
            && now.saturating_duration_since(self.since) < LONGEST
    }
}

/// The openings of everybody.
#[derive(Debug, Default)]
pub(super) struct Openings(Mutex<HashMap<Key, Opening>>);

impl Openings {
    /// Whether a request belongs to an opening, which it prolongs.
    pub(super) fn continues(&self, key: &Key, now: Instant) -> bool {
        let mut all = self.all();
        let opening = all.get_mut(key).filter(|opening| opening.lasts(now));
        opening.map(|opening| opening.last = now).is_some()
    }

    /// Begins an opening, whose event is in the log.
    pub(super) fn begin(&self, key: Key, now: Instant) {
        let mut all = self.all();
        if all.len() >= MAX_OPENINGS {
            all.retain(|_, opening| opening.lasts(now));
        }
        if !all.contains_key(&key) {
            let of_person = |of: &Key| of.uid == key.uid;
            let own = all.keys().filter(|of| of_person(of)).count();
            let of_any = all.len() >= MAX_OPENINGS;
            if own >= MAX_OF_PERSON || of_any {
                // The place of the own opening that is longest idle, if there is one.
                let place = all.iter().filter(|(of, _)| own == 0 || of_person(of));
                let idle = place.min_by_key(|(_, opening)| opening.last);
                if let Some(idle) = idle.map(|(key, _)| key.clone()) {
                    all.remove(&idle);
                }
            }
        }
        let opening = Opening {
            since: now,
            last: now,
            verified: None,
        };
        all.insert(key, opening);
    }

    /// Whether the medium was verified in this opening, in the file as it is now.
    pub(super) fn is_verified(&self, key: &Key, stamp: Stamp) -> bool {
        let all = self.all();
        all.get(key)
            .is_some_and(|opening| opening.verified == Some(stamp))
    }

    pub(super) fn verified(&self, key: &Key, stamp: Stamp) {
        if let Some(opening) = self.all().get_mut(key) {
            opening.verified = Some(stamp);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Opening>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uid: &str, medium: usize) -> Key {
        Key {
            uid: uid.into(),
            address: None,
            violation: "v-1".into(),
            medium,
        }
    }

    #[test]
    fn opening_ends_after_its_idle_time_and_its_longest() {
        let (openings, start) = (Openings::default(), Instant::now());
        assert!(!openings.continues(&key("a", 0), start));
        openings.begin(key("a", 0), start);
        assert!(!openings.continues(&key("b", 0), start));
        assert!(!openings.continues(&key("a", 1), start));
        let step = IDLE - Duration::from_secs(1);
        let mut now = start;
        while now + step < start + LONGEST {
            now += step;
            assert!(openings.continues(&key("a", 0), now));
        }
        assert!(!openings.continues(&key("a", 0), start + LONGEST));
        openings.begin(key("a", 0), now);
        assert!(!openings.continues(&key("a", 0), now + IDLE));
    }

    #[test]
    fn full_table_ends_the_opening_that_is_longest_idle() {
        let (openings, start) = (Openings::default(), Instant::now());
        let uid = |number: usize| format!("officer-{number}");
        for number in 0..=MAX_OPENINGS {
            let at = start + Duration::from_millis(number as u64);
            openings.begin(key(&uid(number), 0), at);
        }
        let now = start + Duration::from_secs(6);
        assert!(!openings.continues(&key(&uid(0), 0), now));
        assert!(openings.continues(&key(&uid(1), 0), now));
        assert!(openings.continues(&key(&uid(MAX_OPENINGS), 0), now));
        assert_eq!(openings.all().len(), MAX_OPENINGS);
    }

    #[test]
    fn person_with_many_openings_ends_their_own() {
        let (openings, start) = (Openings::default(), Instant::now());
        openings.begin(key("b", 0), start);
        for medium in 0..=MAX_OF_PERSON {
            let at = start + Duration::from_millis(1 + medium as u64);
            openings.begin(key("a", medium), at);
        }
        let now = start + Duration::from_secs(1);
        assert!(!openings.continues(&key("a", 0), now));
        assert!(openings.continues(&key("a", 1), now));
        assert!(openings.continues(&key("a", MAX_OF_PERSON), now));
        assert!(openings.continues(&key("b", 0), now));
        // The same film again takes no other place.
        openings.begin(key("a", 1), now);
        assert!(openings.continues(&key("a", 2), now));
    }

    #[test]
    fn new_opening_and_changed_file_are_not_verified() {
        let (openings, now) = (Openings::default(), Instant::now());
        let file = tempfile::NamedTempFile::new().unwrap();
        let stamp = Stamp::of(&file.as_file().metadata().unwrap());
        openings.verified(&key("a", 0), stamp);
        assert!(!openings.is_verified(&key("a", 0), stamp));
        openings.begin(key("a", 0), now);
        assert!(!openings.is_verified(&key("a", 0), stamp));
        openings.verified(&key("a", 0), stamp);
        assert!(openings.is_verified(&key("a", 0), stamp));
        std::fs::write(file.path(), "x").unwrap();
        let changed = Stamp::of(&file.as_file().metadata().unwrap());
        assert!(!openings.is_verified(&key("a", 0), changed));
        openings.begin(key("a", 0), now);
        assert!(!openings.is_verified(&key("a", 0), stamp));
    }
}
