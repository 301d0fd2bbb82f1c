//! How clients take sessions up again: with tickets that hold the session, or with numbers of sessions that the server keeps.
//!
//! Both hold the client's chain, so the application of a resumed session has it as after a full handshake. Both let a ticket be
//! used again: whoever opens several connections at once with one ticket resumes all of them. Nothing can be
//! repeated to the server with it, as there is no early data, and TLS 1.3 exchanges new keys each time (RFC 8446, section 2.2).
//! In TLS 1.2 a session has one secret for all its connections; it, and the keys of tickets, are nowhere but in memory.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::UnixTime;
use rustls::server::{ProducesTickets, StoresServerSessions};

/// Longest session, in octets: two certificates for P-256 make 1.4 KiB, three for RSA with 4096 bits 6 KiB. With it a ClientHello
/// that brings the ticket back fits one record. Clients may send chains of 64 KiB, which shall neither come back with each
/// ticket nor fill the server's memory.
const MAX_SESSION: usize = 8 << 10;

/// Octets of a generation of [`KeptSessions`], with the table's own: some 9000 sessions of devices with keys for P-256.
const GENERATION: usize = 12 << 20;
/// What a session costs in the table beside itself.
const ENTRY: usize = 128;

/// Tickets that hold the session, sealed with keys that are only in this process's memory, so that no number of clients
/// displaces anybody's session.
///
/// rustls makes a new key every six hours and opens with the one before, so a ticket is good for six to twelve hours: a shift.
/// It does so when there is a ticket to make or to open. Where nobody came for a month, it would open one of a month ago: each
/// says when it was made.
#[derive(Debug)]
pub(super) struct SealedSessions(Arc<dyn ProducesTickets>);

/// Age in seconds beyond which no ticket is good.
const MAX_AGE: u64 = 12 * 3600;
/// Octets of a ticket's time.
const TIME: usize = 8;

impl SealedSessions {
    pub(super) fn new() -> Result<Self, rustls::Error> {
        Ok(Self(Ticketer::new()?))
    }

    fn encrypt_at(&self, plain: &[u8], now: UnixTime) -> Option<Vec<u8>> {
        if plain.len() > MAX_SESSION {
            return None;
        }
        let made = now.as_secs().to_be_bytes();
        self.0.encrypt(&[&made, plain].concat())
    }

    /// A clock that was set back makes none older than it is; one from the future is not taken.
    fn decrypt_at(&self, cipher: &[u8], now: UnixTime) -> Option<Vec<u8>> {
        let plain = self.0.decrypt(cipher)?;
        let (made, session) = plain.split_first_chunk::<TIME>()?;
        let age = now.as_secs().checked_sub(u64::from_be_bytes(*made))?;
        (age <= MAX_AGE).then(|| session.to_vec())
    }
}

impl ProducesTickets for SealedSessions {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, UnixTime::now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(cipher, UnixTime::now())
    }
}

/// Sessions that the server keeps, in two generations: when the younger is full it takes the place of the elder.
#[derive(Default)]
pub(super) struct KeptSessions(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<Vec<u8>, Vec<u8>>,
    old: HashMap<Vec<u8>, Vec<u8>>,
    /// Octets of the young ones.
    size: usize,
}

impl StoresServerSessions for KeptSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        if value.len() > MAX_SESSION {
            return false;
        }
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let size = ENTRY + value.len();
        if sessions.size + size > GENERATION {
            sessions.old = mem::take(&mut sessions.young);
            sessions.size = 0;
        }
        sessions.size += size;
        sessions.young.insert(key, value);
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = sessions.young.get(key).or_else(|| sessions.old.get(key));
        found.cloned()
    }

    /// Leaves it there for the client's other connections.
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for KeptSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptSessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn session_at_the_bound_gets_a_ticket_and_a_longer_one_does_not() {
        let (sealed, kept) = (SealedSessions::new().unwrap(), KeptSessions::default());
        let session = vec![7; MAX_SESSION];
        let ticket = sealed.encrypt(&session).unwrap();
        assert!(ticket.len() <= MAX_SESSION + 80, "{}", ticket.len());
        assert_eq!(sealed.decrypt(&ticket), Some(session.clone()));
        assert!(kept.put(vec![1], session));
        let longer = vec![7; MAX_SESSION + 1];
        assert_eq!(sealed.encrypt(&longer), None);
        assert!(!kept.put(vec![2], longer));
    }

    #[test]
    fn ticket_is_good_for_twelve_hours_and_not_before_it_was_made() {
        let sealed = SealedSessions::new().unwrap();
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let ticket = sealed.encrypt_at(b"session", at(1_000_000)).unwrap();
        let opened = |seconds| sealed.decrypt_at(&ticket, at(seconds));
        assert_eq!(opened(1_000_000).as_deref(), Some(&b"session"[..]));
        assert_eq!(opened(1_043_200).as_deref(), Some(&b"session"[..]));
        for other in [999_999, 1_043_201, 1_000_000 + 35 * 86_400] {
            assert_eq!(opened(other), None, "{other}");
        }
    }

    #[test]
    fn changed_ticket_and_that_of_another_server_are_not_opened() {
        let (sealed, other) = (
            SealedSessions::new().unwrap(),
            SealedSessions::new().unwrap(),
        );
        let ticket = sealed.encrypt(b"session").unwrap();
        other.encrypt(b"session").unwrap();
        assert_eq!(other.decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            // The name of the key chooses nothing: each key in use is tried, and the code covers the name.
            assert_eq!(sealed.decrypt(&changed), None, "octet {at}");
        }
    }

    #[test]
    fn kept_sessions_stay_for_a_generation_and_take_no_more_room_than_two() {
        let kept = KeptSessions::default();
        let per_generation = GENERATION / (ENTRY + MAX_SESSION);
        let name = |number: usize| number.to_be_bytes().to_vec();
        for number in 0..2 * per_generation {
            assert!(kept.put(name(number), vec![7; MAX_SESSION]));
        }
        assert!(kept.take(&name(0)).is_some() && kept.take(&name(0)).is_some());
        assert!(kept.put(name(2 * per_generation), vec![7; MAX_SESSION]));
        assert_eq!(kept.take(&name(0)), None);
        assert!(kept.take(&name(per_generation)).is_some());
        let sessions = kept.0.lock().unwrap();
        assert_eq!(
            sessions.young.len() + sessions.old.len(),
            per_generation + 1
        );
    }
}
