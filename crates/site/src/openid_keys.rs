//! The keys that sign tokens, with rollover.
//!
//! `keys/openid-N.key` are the keys, encrypted as all others, and `keys/openid.json` says which signs. The next key is published
//! before it signs, and the one before it stays published for a day: applications that keep the published keys find each
//! signature's key among them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use oidc::jose::{JoseError, SigningKey};
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::failure::{Failure, OrHint as _, Outcome};
use commandline::is_there;

/// Seconds for which a key signs. Our choice: a quarter, as the key is in memory of a process that people reach.
const SIGNS: i64 = 90 * 24 * 3600;
/// Seconds for which the key before stays published: an ID token is good for five minutes, and copies of the set for a day.
const STAYS: i64 = 24 * 3600;
const HINT: &str = "check the folder keys and the passphrase";

/// Which key signs. Version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    v: u32,
    current: u32,
    /// Since when, in seconds since the Unix epoch.
    since: i64,
}

struct Held {
    state: State,
    /// The key before, the one that signs, and the next one.
    before: Option<SigningKey>,
    current: Arc<SigningKey>,
    next: SigningKey,
}

/// The keys of the provider.
pub struct OpenIdKeys {
    folder: PathBuf,
    secret: Passphrase,
    /// None before they are opened: commands need no keys.
    held: RwLock<Option<Held>>,
}

impl OpenIdKeys {
    /// The keys in `folder`, which are opened later.
    pub fn new(folder: &Path, secret: &Passphrase) -> Self {
        Self {
            folder: folder.to_owned(),
            secret: secret.clone(),
            held: RwLock::new(None),
        }
    }

    /// Reads the keys, or makes them.
    ///
    /// # Errors
    /// A key that is missing or does not open, or a state of a later version: no other key takes its place.
    pub fn open(&self, now: OffsetDateTime) -> Outcome {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            let state = known(&self.folder, &self.secret, now)?;
            *held = Some(read(&self.folder, &self.secret, state)?);
        }
        Ok(())
    }

    /// The key that signs.
    pub fn current(&self) -> Option<Arc<SigningKey>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&held.as_ref()?.current))
    }

    /// The published keys.
    ///
    /// # Errors
    /// [`JoseError::Key`] if the keys are not open.
    pub fn published(&self, now: OffsetDateTime) -> Result<Value, JoseError> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let held = held.as_ref().ok_or(JoseError::Key)?;
        let stays = now.unix_timestamp().saturating_sub(held.state.since) < STAYS;
        let before = held.before.as_ref().filter(|_| stays);
        let keys = before.into_iter().chain([&*held.current, &held.next]);
        let keys: Result<Vec<Value>, _> = keys.map(SigningKey::jwk).collect();
        Ok(json!({ "keys": keys? }))
    }

    /// Has the next key sign from now on. Gives the identifier of the key.
    ///
    /// # Errors
    /// A file that cannot be read or written; the present key signs then.
    pub fn roll(&self, now: OffsetDateTime) -> Outcome<String> {
        self.open(now)?;
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let present = held.as_ref().map_or(0, |held| held.state.current);
        let state = State {
            v: 1,
            current: present.saturating_add(1),
            since: now.unix_timestamp(),
        };
        let next = state.current.saturating_add(1);
        if !is_there(&path(&self.folder, next))? {
            make(&self.folder, next, &self.secret)?;
        }
        let new = read(&self.folder, &self.secret, state)?;
        write(&self.folder, state)?;
        let id = new.current.id().to_owned();
        *held = Some(new);
        Ok(id)
    }

    /// Rolls over when the key has signed long enough.
    pub fn roll_when_due(&self, now: OffsetDateTime) {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let since = held.as_ref().map(|held| held.state.since);
        drop(held);
        let Some(since) = since else { return };
        if now.unix_timestamp().saturating_sub(since) < SIGNS {
            return;
        }
        match self.roll(now) {
            Ok(id) => tracing::info!(key = %id, "another key signs tokens of OpenID Connect"),
            Err(error) => {
                tracing::warn!(error = %error.message(), "cannot roll over the key of OpenID Connect");
            }
        }
    }
}

/// Which key signs; the first keys are made where there are none.
fn known(folder: &Path, secret: &Passphrase, now: OffsetDateTime) -> Outcome<State> {
    let file = folder.join("openid.json");
    if !is_there(&file)? {
        let state = State {
            v: 1,
            current: 1,
            since: now.unix_timestamp(),
        };
        make(folder, 1, secret)?;
        make(folder, 2, secret)?;
        write(folder, state)?;
        return Ok(state);
    }
    let text = std::fs::read(&file).or_hint(format!("cannot read {}", file.display()), HINT)?;
    let state: State =
        serde_json::from_slice(&text).or_hint(format!("{} is damaged", file.display()), HINT)?;
    if state.v != 1 {
        let error = anyhow::anyhow!("{} has version {}", file.display(), state.v);
        return Err(Failure::new(error, "use a newer version of cordon"));
    }
    Ok(state)
}

fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("openid-{number}.key"))
}

fn make(folder: &Path, number: u32, secret: &Passphrase) -> Outcome {
    let file = path(folder, number);
    if is_there(&file)? {
        // A start that was cut: the key has signed nothing yet.
        return Ok(());
    }
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).or_hint("cannot make a key", HINT)?;
    let pem = key
        .to_encrypted_pem(secret)
        .or_hint("cannot encrypt a key", HINT)?;
    durable::write_new(&file, pem.as_bytes(), 0o600)
        .or_hint(format!("cannot write {}", file.display()), HINT)
}

fn write(folder: &Path, state: State) -> Outcome {
    let file = folder.join("openid.json");
    let text = serde_json::to_vec(&state).or_hint("cannot encode a state", "report this")?;
    durable::write_atomic(&file, &text, 0o600)
        .or_hint(format!("cannot write {}", file.display()), HINT)
}

fn load(folder: &Path, number: u32, secret: &Passphrase) -> Outcome<SigningKey> {
    let file = path(folder, number);
    let what = || format!("cannot use {}", file.display());
    let pem = Zeroizing::new(std::fs::read_to_string(&file).or_hint(what(), HINT)?);
    let key = PrivateKey::from_encrypted_pem(&pem, secret).or_hint(what(), HINT)?;
    SigningKey::from_pkcs8(&key.to_pkcs8_der()).or_hint(what(), HINT)
}

fn read(folder: &Path, secret: &Passphrase, state: State) -> Outcome<Held> {
    let before = match state.current.checked_sub(1).filter(|number| *number > 0) {
        Some(number) => match load(folder, number, secret) {
            Ok(key) => Some(key),
            Err(error) => {
                // It signs nothing any more.
                tracing::warn!(error = %error.message(), "the former key of OpenID Connect is not published");
                None
            }
        },
        None => None,
    };
    Ok(Held {
        state,
        before,
        current: Arc::new(load(folder, state.current, secret)?),
        next: load(folder, state.current.saturating_add(1), secret)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(keys: &OpenIdKeys, now: OffsetDateTime) -> Vec<String> {
        let published = keys.published(now).unwrap();
        let all = published["keys"].as_array().unwrap().iter();
        all.map(|key| key["kid"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn next_key_is_published_before_it_signs_and_the_former_one_stays_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Passphrase::from("secret");
        let now = OffsetDateTime::UNIX_EPOCH;
        let keys = OpenIdKeys::new(folder.path(), &secret);
        assert!(keys.current().is_none() && keys.published(now).is_err());
        keys.open(now).unwrap();
        let first = ids(&keys, now);
        assert_eq!(first.len(), 2);
        assert_eq!(keys.current().unwrap().id(), first[0]);
        keys.roll_when_due(now + time::Duration::days(89));
        assert_eq!(ids(&keys, now), first);
        let later = now + time::Duration::days(90);
        keys.roll_when_due(later);
        assert_eq!(keys.current().unwrap().id(), first[1]);
        let second = ids(&keys, later);
        assert_eq!((second.len(), &second[..2]), (3, &first[..]));
        assert_eq!(ids(&keys, later + time::Duration::days(1)), second[1..]);
        // A restart finds the same.
        let again = OpenIdKeys::new(folder.path(), &secret);
        again.open(later).unwrap();
        assert_eq!(ids(&again, later), second);
    }

    #[test]
    fn key_that_is_missing_or_does_not_open_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::UNIX_EPOCH;
        let open =
            |secret: &str| OpenIdKeys::new(folder.path(), &Passphrase::from(secret)).open(now);
        open("secret").unwrap();
        assert!(open("other").is_err());
        std::fs::remove_file(path(folder.path(), 1)).unwrap();
        assert!(open("secret").is_err());
        assert!(!path(folder.path(), 1).exists());
    }
}
