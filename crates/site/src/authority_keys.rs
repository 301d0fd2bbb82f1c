//! Keys of the issuing authorities on tokens, by the process that has the private keys.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use der::{Decode as _, Encode as _};
use keyhost::{KeyHost, KeyHostError, SignatureScheme};
use pki::key::{AuthorityKey, KeyAlgorithm, KeyError, Signer};
use pki::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use registry::{AuthorityId, AuthorityKeys};

use crate::config::Keys;

/// Time for which a token that did not answer is not asked again. Meanwhile requests for signatures are refused at once;
/// otherwise all would wait for it one after the other.
const PAUSE: Duration = Duration::from_secs(10);

/// Where the settings say that keys are; they are reached when they are asked for.
pub(crate) struct TokenKeys {
    keys: BTreeMap<AuthorityId, (PathBuf, Arc<Host>)>,
    pin: PathBuf,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.keys.iter().map(|(id, (name, _))| (id, name));
        f.debug_map().entries(names).finish()
    }
}

impl TokenKeys {
    pub(crate) fn new(settings: &Keys) -> Self {
        // A process for each: one that waits for its token keeps no other authority waiting.
        let keys = settings.on_tokens();
        let keys = keys.map(|(id, name)| (id, (PathBuf::from(name), Arc::default())));
        Self {
            keys: keys.collect(),
            pin: settings.pin_file.clone(),
        }
    }
}

impl AuthorityKeys for TokenKeys {
    fn key(&self, id: AuthorityId) -> Result<Option<AuthorityKey>, KeyError> {
        let Some((name, host)) = self.keys.get(&id) else {
            return Ok(None);
        };
        let public = host.with(|host| host.public_key(name))?;
        let spki = SubjectPublicKeyInfoOwned::from_der(&public).map_err(|_| KeyError::Malformed)?;
        let key = TokenKey {
            algorithm: KeyAlgorithm::of_spki(&spki)?,
            spki,
            name: name.clone(),
            pin: self.pin.clone(),
            host: host.clone(),
            loaded: Mutex::new(None),
        };
        // Now rather than when the first certificate is wanted: the PIN may be wrong.
        let loaded = key.load()?;
        *key.lock() = Some(loaded);
        Ok(Some(key.into()))
    }
}

/// The process with a private key, started when it is needed, and once more when it is gone.
#[derive(Default)]
struct Host {
    running: Mutex<Option<KeyHost>>,
    /// When the token did not answer.
    silent_at: Mutex<Option<Instant>>,
}

impl Host {
    fn with<T>(&self, ask: impl Fn(&KeyHost) -> Result<T, KeyHostError>) -> Result<T, KeyError> {
        self.check_pause()?;
        match ask(&self.get()?) {
            Ok(done) => return Ok(done),
            Err(KeyHostError::Silent) => return Err(self.failed(KeyHostError::Silent)),
            Err(_) => {}
        }
        // It is gone, or its library still sees the tokens of when it was loaded: once more with another.
        *lock(&self.running) = None;
        ask(&self.get()?).map_err(|error| self.failed(error))
    }

    /// Refuses while the token is not asked.
    fn check_pause(&self) -> Result<(), KeyError> {
        match *lock(&self.silent_at) {
            Some(at) if at.elapsed() < PAUSE => Err(elsewhere(KeyHostError::Silent)),
            _ => Ok(()),
        }
    }

    fn failed(&self, error: KeyHostError) -> KeyError {
        if error == KeyHostError::Silent {
            *lock(&self.silent_at) = Some(Instant::now());
            *lock(&self.running) = None;
        }
        elsewhere(error)
    }

    fn get(&self) -> Result<KeyHost, KeyError> {
        let mut running = lock(&self.running);
        if let Some(host) = &*running {
            return Ok(host.clone());
        }
        let host = tunnel_tools::start_key_process()
            .map_err(|_| elsewhere("its process does not start"))?;
        Ok(running.insert(host).clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        lock(&self.loaded)
    }

    fn load(&self) -> Result<keyhost::Key, KeyError> {
        let public = self.spki.to_der().map_err(|_| KeyError::Malformed)?;
        let pin: &Path = &self.pin;
        self.host
            .with(|host| host.load(&self.name, Some(pin), &public))
    }
}

impl Signer for TokenKey {
    fn signature_algorithm(&self) -> AlgorithmIdentifierOwned {
        self.algorithm.signature_algorithm()
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
        // The turn before may have waited for a token that does not answer.
        self.host.check_pause()?;
        match loaded.as_ref().map(|key| key.sign(scheme, message)) {
            Some(Ok(signature)) => return Ok(signature),
            Some(Err(KeyHostError::Silent)) => {
                *loaded = None;
                return Err(self.host.failed(KeyHostError::Silent));
            }
            // The process that had it is gone, or the token was away.
            _ => *loaded = None,
        }
        let key = loaded.insert(self.load()?);
        let signed = key.sign(scheme, message);
        signed.map_err(|error| self.host.failed(error))
    }
}
