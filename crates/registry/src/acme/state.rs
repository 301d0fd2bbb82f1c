//! What the protocol needs beside the registry.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use audit::Repeats;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac::HMAC_SHA256;
use pki::acme::to_base64url;
use pki::key::Passphrase;
use zeroize::Zeroizing;

use super::bounds::REQUESTS;
use super::nonces::Nonces;
use crate::sealing::{SealedFor, SealingKey};
use crate::{Config, RegistryError};

/// Bytes of the secret of a binding: what RFC 7518, section 3.2 wants for HS256.
const BINDING: usize = 32;

/// State of the protocol beside the registry's; nothing where it is off.
#[derive(Default)]
pub(crate) struct Acme(Option<On>);

pub(super) struct On {
    sealing: SealingKey,
    nonces: Mutex<Nonces>,
    /// Requests of accounts.
    requests: Mutex<Repeats>,
}

impl Acme {
    /// Reads the key for invitations' codes, or makes it.
    pub(crate) fn open(
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
    ) -> Result<Self, RegistryError> {
        Ok(Self(Some(On {
            sealing: SealingKey::open(SealedFor::Acme, directory, config, passphrase)?,
            nonces: Mutex::new(Nonces::new(Instant::now())?),
            requests: Mutex::new(Repeats::new(REQUESTS)),
        })))
    }

    pub(crate) fn sealing(&self) -> Option<&SealingKey> {
        Some(&self.0.as_ref()?.sealing)
    }

    pub(super) fn on(&self) -> Result<&On, RegistryError> {
        self.0.as_ref().ok_or(RegistryError::AcmeOff)
    }
}

impl On {
    pub(super) fn nonces(&self) -> MutexGuard<'_, Nonces> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn requests(&self) -> MutexGuard<'_, Repeats> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn sealing(&self) -> &SealingKey {
        &self.sealing
    }
}

/// The secret of a binding, in base64url, which follows from the code of an invitation: clients take it as a key for HS256,
/// which has more bits than a code has letters.
///
/// # Errors
/// [`RegistryError::Sealed`] if it cannot be derived.
pub fn binding_key(code: &str) -> Result<Zeroizing<String>, RegistryError> {
    let secret = Salt::new(HKDF_SHA256, b"cordon").extract(code.as_bytes());
    let purpose: [&[u8]; 1] = [b"binding of an ACME account"];
    let mut bytes = Zeroizing::new([0; BINDING]);
    let derived = secret.expand(&purpose, HMAC_SHA256);
    let derived = derived.and_then(|key| key.fill(bytes.as_mut_slice()));
    derived.map_err(|_| RegistryError::Sealed)?;
    Ok(Zeroizing::new(to_base64url(bytes.as_slice())))
}
