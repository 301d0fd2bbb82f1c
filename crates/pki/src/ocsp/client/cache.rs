//! Good answers of OCSP responders, until they say that there is a newer one.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

/// Bytes of all entries at most; those that end first make room. Several thousand answers of usual size.
const BYTES: usize = 4 * 1024 * 1024;
/// What an entry takes besides its contents, roughly.
const ENTRY: usize = 256;

/// Answers (DER) by what was asked, which names issuer and serial number.
#[derive(Default)]
pub(super) struct Cache {
    entries: BTreeMap<Vec<u8>, (OffsetDateTime, Vec<u8>)>,
    ends: BTreeSet<(OffsetDateTime, Vec<u8>)>,
    bytes: usize,
}

fn size(asked: &[u8], answer: &[u8]) -> usize {
    2 * asked.len() + answer.len() + ENTRY
}

impl Cache {
    /// The answer, unless its time is over.
    pub(super) fn get(&self, asked: &[u8], now: OffsetDateTime) -> Option<&[u8]> {
        let (until, answer) = self.entries.get(asked)?;
        (now <= *until).then_some(answer)
    }

    /// Remembers an answer instead of an earlier one.
    pub(super) fn insert(
        &mut self,
        asked: Vec<u8>,
        answer: Vec<u8>,
        until: OffsetDateTime,
        now: OffsetDateTime,
    ) {
        self.remove(&asked);
        self.bytes += size(&asked, &answer);
        self.ends.insert((until, asked.clone()));
        self.entries.insert(asked, (until, answer));
        while let Some((end, asked)) = self.ends.first() {
            if *end >= now && self.bytes <= BYTES {
                break;
            }
            let asked = asked.clone();
            self.remove(&asked);
        }
    }

    fn remove(&mut self, asked: &[u8]) {
        if let Some((until, answer)) = self.entries.remove(asked) {
            self.bytes -= size(asked, &answer);
            self.ends.remove(&(until, asked.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    #[test]
    fn answers_last_until_their_end_and_not_longer() {
        let mut cache = Cache::default();
        let end = NOW + Duration::HOUR;
        cache.insert(b"a".to_vec(), b"1".to_vec(), end, NOW);
        assert_eq!(cache.get(b"a", end), Some(b"1".as_slice()));
        assert_eq!(cache.get(b"a", end + Duration::SECOND), None);
        assert_eq!(cache.get(b"b", NOW), None);
        // A newer one takes its place, with another end.
        cache.insert(b"a".to_vec(), b"22".to_vec(), end + Duration::HOUR, NOW);
        assert_eq!(
            cache.get(b"a", end + Duration::HOUR),
            Some(b"22".as_slice())
        );
        assert_eq!((cache.entries.len(), cache.ends.len()), (1, 1));
        assert_eq!(cache.bytes, size(b"a", b"22"));
        // What is over goes with the next one.
        let later = end + 2 * Duration::HOUR;
        cache.insert(b"b".to_vec(), b"3".to_vec(), later, later);
        assert_eq!(cache.entries.len(), 1);
        assert_eq!(cache.bytes, size(b"b", b"3"));
    }

    #[test]
    fn what_ends_first_makes_room() {
        let mut cache = Cache::default();
        let answer = vec![0; super::super::MAX_RESPONSE_LEN];
        let each = size(&[0; 4], &answer);
        let room = u32::try_from(BYTES / each).unwrap();
        let minute = |number: u32| NOW + Duration::MINUTE * number;
        // The last ones to end come first.
        for number in (0..room).rev() {
            let asked = number.to_be_bytes().to_vec();
            cache.insert(asked, answer.clone(), minute(number), NOW);
        }
        let has = |cache: &Cache, number: u32| cache.get(&number.to_be_bytes(), NOW).is_some();
        assert!((0..room).all(|number| has(&cache, number)));
        let asked = room.to_be_bytes().to_vec();
        cache.insert(asked, answer, minute(room), NOW);
        assert!(!has(&cache, 0));
        assert!((1..=room).all(|number| has(&cache, number)));
        assert!(cache.bytes <= BYTES);
        assert_eq!(cache.entries.len(), cache.ends.len());
    }
}
