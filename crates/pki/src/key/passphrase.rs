//! Passphrases, and the encryption keys derived from them.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA256};
use aws_lc_rs::rand;
use zeroize::Zeroizing;

use super::error::KeyError;

/// Octets of a salt (RFC 8018, section 4.1, wants at least 8).
const SALT: usize = 16;
/// Most derived keys that are kept: files of other makers have a salt each.
const MAX_DERIVED: usize = 16;

/// Passphrase of key files. A handle: clones share the secret and what was derived from it; dropping the last one
/// wipes both. It has no `Debug`.
///
/// All keys that are written under one passphrase share a salt, so that a site or a test with a dozen key
/// files derives one encryption key for all of them. An attacker with the files gains nothing: whoever finds the passphrase by one
/// file opens them all, whatever their salts. The salt is one drawn here, or that of a file that opened: one of a planted file, which
/// an attacker may have prepared tables for, never is.
#[derive(Clone)]
pub struct Passphrase {
    inner: Arc<Inner>,
}

struct Inner {
    secret: Zeroizing<Vec<u8>>,
    derived: Mutex<Vec<Arc<Derived>>>,
    /// The one that encrypts what is written.
    writing: Mutex<Option<Arc<Derived>>>,
}

/// An AES-256 key with the parameters of PBKDF2-HMAC-SHA-256 that gave it.
pub(super) struct Derived {
    pub(super) salt: Vec<u8>,
    pub(super) rounds: u32,
    pub(super) key: Zeroizing<[u8; 32]>,
}

impl Passphrase {
    /// Takes a passphrase over.
    #[must_use]
    pub fn new(secret: Zeroizing<Vec<u8>>) -> Self {
        Self {
            inner: Arc::new(Inner {
                secret,
                derived: Mutex::default(),
                writing: Mutex::default(),
            }),
        }
    }

    /// The passphrase itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.inner.secret
    }

    /// Gives a key for writing, derived with so many rounds: that of an [opened](Self::opened) file, else one with
    /// a new random salt.
    pub(super) fn key_for_writing(&self, rounds: u32) -> Result<Arc<Derived>, KeyError> {
        // Under the lock: a caller that comes meanwhile waits for this key instead of deriving another.
        let mut writing = lock(&self.inner.writing);
        if let Some(known) = writing.as_ref().filter(|one| one.rounds == rounds) {
            return Ok(Arc::clone(known));
        }
        let mut salt = [0; SALT];
        rand::fill(&mut salt).map_err(|_| KeyError::Malformed)?;
        let new = self.key(&salt, rounds)?;
        *writing = Some(Arc::clone(&new));
        Ok(new)
    }

    /// Notes that a file opened with this key, so its writer knew the passphrase.
    pub(super) fn opened(&self, derived: &Arc<Derived>) {
        let mut writing = lock(&self.inner.writing);
        if writing.is_none() && derived.salt.len() == SALT {
            *writing = Some(Arc::clone(derived));
        }
    }

    /// Gives the key of a file.
    pub(super) fn key(&self, salt: &[u8], rounds: u32) -> Result<Arc<Derived>, KeyError> {
        let mut derived = lock(&self.inner.derived);
        let fits = |one: &&Arc<Derived>| one.rounds == rounds && one.salt == salt;
        if let Some(known) = derived.iter().find(fits) {
            return Ok(Arc::clone(known));
        }
        self.derive(&mut derived, salt, rounds)
    }

    fn derive(
        &self,
        derived: &mut Vec<Arc<Derived>>,
        salt: &[u8],
        rounds: u32,
    ) -> Result<Arc<Derived>, KeyError> {
        let counted = NonZeroU32::new(rounds).ok_or(KeyError::NotEncryptedPkcs8)?;
        let mut key = Zeroizing::new([0; 32]);
        let secret = &self.inner.secret;
        pbkdf2::derive(PBKDF2_HMAC_SHA256, counted, salt, secret, key.as_mut());
        let new = Arc::new(Derived {
            salt: salt.to_vec(),
            rounds,
            key,
        });
        if derived.len() >= MAX_DERIVED {
            derived.remove(0);
        }
        derived.push(Arc::clone(&new));
        Ok(new)
    }
}

/// Locks it, even if a thread panicked that held it: a key is entered only when it is complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<&[u8]> for Passphrase {
    fn from(secret: &[u8]) -> Self {
        Self::new(Zeroizing::new(secret.to_vec()))
    }
}

impl From<&str> for Passphrase {
    fn from(secret: &str) -> Self {
        Self::from(secret.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_for_writing_share_one_derivation_and_a_clone_knows_it() {
        let passphrase = Passphrase::from("correct horse");
        let first = passphrase.key_for_writing(2).unwrap();
        let second = passphrase.clone().key_for_writing(2).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(
            &first,
            &passphrase.key(&first.salt, 2).unwrap()
        ));
    }

    #[test]
    fn other_rounds_salts_and_passphrases_give_other_keys() {
        let passphrase = Passphrase::from("correct horse");
        let one = passphrase.key_for_writing(2).unwrap();
        let others = [
            passphrase.key(&one.salt, 3).unwrap(),
            passphrase.key(b"another salt", 2).unwrap(),
            Passphrase::from("battery staple")
                .key(&one.salt, 2)
                .unwrap(),
        ];
        assert!(others.iter().all(|other| *other.key != *one.key));
        let salts = Passphrase::from("correct horse")
            .key_for_writing(2)
            .unwrap();
        assert_ne!(salts.salt, one.salt);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let passphrase = Passphrase::from("correct horse");
        for salt in 0..40_u8 {
            passphrase.key(&[salt; 8], 1).unwrap();
        }
        assert_eq!(lock(&passphrase.inner.derived).len(), MAX_DERIVED);
    }

    #[test]
    fn salt_of_a_file_is_used_for_writing_only_once_the_file_has_opened() {
        let passphrase = Passphrase::from("correct horse");
        let planted = passphrase.key(&[7; SALT], 2).unwrap();
        let opened = passphrase.key(&[8; SALT], 2).unwrap();
        passphrase.opened(&opened);
        assert_eq!(passphrase.key_for_writing(2).unwrap().salt, opened.salt);
        let fresh = Passphrase::from("correct horse");
        fresh.key(&planted.salt, 2).unwrap();
        assert_ne!(fresh.key_for_writing(2).unwrap().salt, planted.salt);
        // Fewer rounds than we write with are read, and nothing more.
        let weak = Passphrase::from("correct horse");
        weak.opened(&weak.key(&[9; SALT], 1).unwrap());
        assert_ne!(weak.key_for_writing(2).unwrap().salt, [9; SALT]);
    }
}
