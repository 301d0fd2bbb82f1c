//! Keys of the issuing authorities on tokens, by the process that has the private keys.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use der::{Decode as _, Encode as _};
use keyhost::{KeyHost, KeyHostError, SignatureScheme};
use pki::key::{AuthorityKey, KeyAlgorithm, KeyError, Signer};
use pki::profile::CaKind;
use pki::spki::SubjectPublicKeyInfoOwned;
use registry::AuthorityKeys;

use crate::config::Keys;
use crate::key_process;

/// Where the settings say that keys are; they are reached when they are asked for.
pub(crate) struct TokenKeys {
    names: BTreeMap<CaKind, PathBuf>,
    pin: PathBuf,
    host: Arc<Host>,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.names).finish()
    }
}

impl TokenKeys {
    pub(crate) fn new(settings: &Keys) -> Self {
        let names = CaKind::ALL.into_iter().filter_map(|kind| {
            let name = settings.token_of(kind)?;
            Some((kind, PathBuf::from(name)))
        });
        Self {
            names: names.collect(),
            pin: settings.pin_file.clone(),
            host: Arc::new(Host::default()),
        }
    }
}

impl AuthorityKeys for TokenKeys {
    fn key(&self, kind: CaKind) -> Result<Option<AuthorityKey>, KeyError> {
        let Some(name) = self.names.get(&kind) else {
            return Ok(None);
        };
        let public = self.host.with(|host| host.public_key(name))?;
        let spki = SubjectPublicKeyInfoOwned::from_der(&public).map_err(|_| KeyError::Malformed)?;
        let key = TokenKey {
            algorithm: KeyAlgorithm::of_spki(&spki)?,
            spki,
            name: name.clone(),
            pin: self.pin.clone(),
            host: self.host.clone(),
            loaded: Mutex::new(None),
        };
        // Now rather than when the first certificate is wanted: the PIN may be wrong.
        let loaded = key.load()?;
        *key.lock() = Some(loaded);
        Ok(Some(key.into()))
    }
}

/// The process with the private keys, started when it is needed, and once more when it is gone.
#[derive(Default)]
struct Host {
    running: Mutex<Option<KeyHost>>,
}

impl Host {
    fn with<T>(&self, ask: impl Fn(&KeyHost) -> Result<T, KeyHostError>) -> Result<T, KeyError> {
        if let Ok(done) = ask(&self.get()?) {
            return Ok(done);
        }
        // It is gone, or its library still sees the tokens of when it was loaded: once more with another.
        *self.lock() = None;
        ask(&self.get()?).map_err(elsewhere)
    }

    fn lock(&self) -> MutexGuard<'_, Option<KeyHost>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> Result<KeyHost, KeyError> {
        let mut running = self.lock();
        if let Some(host) = &*running {
            return Ok(host.clone());
        }
        let host = key_process::start().map_err(|_| elsewhere("its process does not start"))?;
        Ok(running.insert(host).clone())
    }
}

fn elsewhere(reason: impl fmt::Display) -> KeyError {
    KeyError::Elsewhere {
        reason: reason.to_string(),
    }
}

/// A key on a token.
struct TokenKey {
    algorithm: KeyAlgorithm,
    spki: SubjectPublicKeyInfoOwned,
    name: PathBuf,
    pin: PathBuf,
    host: Arc<Host>,
    loaded: Mutex<Option<keyhost::Key>>,
}

impl TokenKey {
    fn lock(&self) -> MutexGuard<'_, Option<keyhost::Key>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) -> Result<keyhost::Key, KeyError> {
        let public = self.spki.to_der().map_err(|_| KeyError::Malformed)?;
        let pin: &Path = &self.pin;
        self.host
            .with(|host| host.load(&self.name, Some(pin), &public))
    }
}

impl Signer for TokenKey {
    fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    fn spki(&self) -> SubjectPublicKeyInfoOwned {
        self.spki.clone()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let scheme = match self.algorithm {
            KeyAlgorithm::EcdsaP256 => SignatureScheme::EcdsaP256,
            KeyAlgorithm::EcdsaP384 => SignatureScheme::EcdsaP384,
            KeyAlgorithm::Ed25519 => SignatureScheme::Ed25519,
            KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => {
                SignatureScheme::RsaPkcs1Sha256
            }
        };
        let mut loaded = self.lock();
        if let Some(key) = &*loaded
            && let Ok(signature) = key.sign(scheme, message)
        {
            return Ok(signature);
        }
        // The process that had it is gone, or the token was away.
        *loaded = None;
        let key = loaded.insert(self.load()?);
        key.sign(scheme, message).map_err(elsewhere)
    }
}
