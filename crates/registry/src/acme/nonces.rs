//! Nonces (RFC 8555, section 6.5): made without memory, and remembered once they were used.
//!
//! A nonce says when it was made and has an authentication code by a key of this process, so that whoever asks for many
//! takes nothing. Those that were used are remembered until their time is over.

use std::collections::BTreeSet;
use std::time::Instant;

use aws_lc_rs::hmac;
use pki::acme::{from_base64url, to_base64url};

use super::bounds::{MOST_USED, NONCE_LIFETIME};
use crate::RegistryError;

/// Seconds since the start of the process (4 bytes, the most significant first) and random bytes: in the order of making.
type Token = [u8; TOKEN];
const TOKEN: usize = 16;
const SECONDS: usize = 4;
/// Bytes of the authentication code that are kept; forging one takes 2^128 requests.
const TAG: usize = 16;

/// Who uses a nonce. Strangers fill a memory of their own, and make no account's nonce invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    Account,
    Stranger,
}

/// Those that were used.
#[derive(Default)]
struct Used {
    tokens: BTreeSet<Token>,
    /// Nothing that was made up to here is taken any more.
    floor: Option<Token>,
}

impl Used {
    fn take(&mut self, token: Token, oldest: u32) -> bool {
        // What is over is refused by its time.
        let mut first = [0; TOKEN];
        first[..SECONDS].copy_from_slice(&oldest.to_be_bytes());
        self.tokens = self.tokens.split_off(&first);
        if self.floor.is_some_and(|floor| token <= floor) || !self.tokens.insert(token) {
            return false;
        }
        if self.tokens.len() > MOST_USED {
            let middle = self.tokens.iter().nth(MOST_USED / 2).copied();
            if let Some(middle) = middle {
                self.tokens = self.tokens.split_off(&middle);
                self.floor = Some(middle);
            }
        }
        true
    }
}

pub(super) struct Nonces {
    key: hmac::Key,
    started: Instant,
    accounts: Used,
    strangers: Used,
}

impl Nonces {
    /// Begins with a key of its own: no nonce outlives the process.
    pub(super) fn new(started: Instant) -> Result<Self, RegistryError> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        Ok(Self {
            key: key.map_err(|_| RegistryError::Random)?,
            started,
            accounts: Used::default(),
            strangers: Used::default(),
        })
    }

    /// Makes a nonce.
    pub(super) fn make(&self, now: Instant) -> Result<String, RegistryError> {
        let mut token: Token = [0; TOKEN];
        aws_lc_rs::rand::fill(&mut token).map_err(|_| RegistryError::Random)?;
        token[..SECONDS].copy_from_slice(&self.seconds(now).to_be_bytes());
        let tag = hmac::sign(&self.key, &token);
        let tag = tag.as_ref().get(..TAG).unwrap_or_default();
        Ok(to_base64url(&[&token, tag].concat()))
    }

    /// Uses a nonce up; `false` if it is none of ours, over, or was used before.
    pub(super) fn take(&mut self, text: &str, user: User, now: Instant) -> bool {
        let Some(token) = self.read(text) else {
            return false;
        };
        let now = self.seconds(now);
        let lifetime = u32::try_from(NONCE_LIFETIME.as_secs()).unwrap_or(u32::MAX);
        let oldest = now.saturating_sub(lifetime);
        let made = token.first_chunk().copied().map_or(0, u32::from_be_bytes);
        if made < oldest || made > now {
            return false;
        }
        match user {
            User::Account => self.accounts.take(token, oldest),
            User::Stranger => self.strangers.take(token, oldest),
        }
    }

    fn read(&self, text: &str) -> Option<Token> {
        let bytes = from_base64url(text)?;
        let (token, tag) = bytes.split_first_chunk::<TOKEN>()?;
        let wanted = hmac::sign(&self.key, token);
        let wanted = wanted.as_ref().get(..TAG)?;
        let right: bool = subtle::ConstantTimeEq::ct_eq(wanted, tag).into();
        right.then_some(*token)
    }

    fn seconds(&self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.started);
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nonce_is_good_once_in_its_time_and_in_its_process() {
        let start = Instant::now();
        let mut nonces = Nonces::new(start).unwrap();
        let one = nonces.make(start).unwrap();
        assert!(nonces.take(&one, User::Account, start));
        assert!(!nonces.take(&one, User::Account, start));
        let late = nonces.make(start).unwrap();
        let second = Duration::from_secs(1);
        assert!(!nonces.take(&late, User::Account, start + NONCE_LIFETIME + second));
        assert!(nonces.take(&late, User::Account, start + NONCE_LIFETIME));
        let other = Nonces::new(start).unwrap().make(start).unwrap();
        assert!(!nonces.take(&other, User::Account, start));
        for text in ["", "AAAA", "=", &one[1..], &format!("{one}A")] {
            assert!(!nonces.take(text, User::Account, start), "{text}");
        }
        let good = nonces.make(start).unwrap();
        for at in 0..good.len() {
            let mut letters = good.clone().into_bytes();
            letters[at] = if letters[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(letters).unwrap();
            assert!(!nonces.take(&changed, User::Account, start), "{at}");
        }
        assert!(nonces.take(&good, User::Account, start));
    }

    #[test]
    fn flood_of_strangers_is_bounded_replays_nothing_and_leaves_accounts_alone() {
        let start = Instant::now();
        let mut nonces = Nonces::new(start).unwrap();
        let of_account = nonces.make(start).unwrap();
        let mut first = None;
        for n in 0..2 * MOST_USED {
            let now = start + Duration::from_millis(u64::try_from(n).unwrap());
            let one = nonces.make(now).unwrap();
            assert!(nonces.take(&one, User::Stranger, now));
            first.get_or_insert(one);
        }
        let now = start + Duration::from_secs(80);
        assert!(nonces.strangers.tokens.len() <= MOST_USED);
        assert!(!nonces.take(&first.unwrap(), User::Stranger, now));
        assert!(nonces.take(&of_account, User::Account, now));
        let later = now + NONCE_LIFETIME * 2;
        let one = nonces.make(later).unwrap();
        assert!(nonces.take(&one, User::Stranger, later));
        assert_eq!(nonces.strangers.tokens.len(), 1);
    }
}
