//! Sequence numbers of manual keys, on disk before they are used.
//!
//! A key that is read from a file again has sequence numbers that were used before, which are nonces
//! ([`ipsec::reserve`]). For each outbound key one small file says up to where its numbers may have been
//! used; it is written before they are, and an association begins behind it. The file's name is a digest of
//! the key: whichever configuration has the key, the numbers are the same.
//!
//! The distance from what is used to what is reserved follows the traffic: it doubles where it lasted less
//! than a second and halves where it lasted longer, so that a restart skips about a second's numbers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use durable::FileLock;
use ipsec::reserve::Reserved;
use ipsec::sa::Spi;

use crate::config::KeyConfig;

/// Numbers that are reserved at once: at least, so that slow tunnels hardly write, and at most.
const LEAST: u64 = 1 << 14;
const MOST: u64 = 1 << 24;
/// Duration of a reservation.
const LASTS: Duration = Duration::from_secs(1);
/// Pause before a reservation that could not be written is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// First line of the files.
const VERSION: &str = "cordon sequence numbers 1";

/// Why an outbound key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReservationError {
    /// What was used of it is not known.
    #[error("what was used of the key of SPI {spi} cannot be read from {path}: {source}")]
    Unreadable {
        spi: Spi,
        path: PathBuf,
        source: io::Error,
    },
    /// Nothing can be reserved.
    #[error("sequence numbers of SPI {spi} cannot be reserved in {path}: {source}")]
    Unwritable {
        spi: Spi,
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// Two processes would use the same numbers.
    #[error("the key of SPI {spi} is in use by another process")]
    InUse { spi: Spi },
    /// All of its numbers may have been used.
    #[error("the key of SPI {spi} is used up: new keys are needed")]
    UsedUp { spi: Spi },
}

/// The folder with the files, and the thread that writes them.
#[derive(Debug)]
pub struct ReservationStore {
    folder: PathBuf,
    kept: Arc<Mutex<Vec<Kept>>>,
    wake: Sender<()>,
}

#[derive(Debug)]
struct Kept {
    path: PathBuf,
    reserved: Weak<Reserved>,
    largest: u64,
    amount: u64,
    since: Instant,
    /// Locked for as long as the key is in use.
    _lock: FileLock,
}

impl ReservationStore {
    /// A store in `folder`, which is made where it is missing.
    ///
    /// # Errors
    /// Those of making the folder and of starting a thread.
    pub fn open(folder: &Path) -> io::Result<Self> {
        durable::create_dir_all(folder)?;
        let kept = Arc::default();
        let (wake, woken) = mpsc::channel();
        let own = Arc::downgrade(&kept);
        std::thread::Builder::new()
            .name("vpn-sequence".into())
            .spawn(move || keep(&woken, &own))?;
        Ok(Self {
            folder: folder.to_owned(),
            kept,
            wake,
        })
    }

    /// Reserves the first numbers of a key; `largest` is the last that its associations can have.
    ///
    /// # Errors
    /// [`ReservationError`]; the key must not be used then.
    pub fn reserve(
        &self,
        key: &KeyConfig,
        largest: u64,
    ) -> Result<Arc<Reserved>, ReservationError> {
        // The lock first: what another process has used since would not be in what was read.
        let (path, lock, first) = self.claim(key)?;
        // Numbers are nonces, so those below are gone, whether they were used or not.
        let left = largest.saturating_sub(first);
        if left == 0 {
            return Err(ReservationError::UsedUp { spi: key.spi });
        }
        let ceiling = first + left.min(LEAST);
        write(&path, ceiling).map_err(|source| ReservationError::Unwritable {
            spi: key.spi,
            path: path.clone(),
            source,
        })?;
        let wake = self.wake.clone();
        let ask = move || {
            // The thread ends only with the store.
            let _ = wake.send(());
        };
        let reserved = Arc::new(Reserved::new(first, ceiling, Box::new(ask)));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Associations that are gone give up their lock here.
        kept.retain(|other| other.reserved.strong_count() > 0);
        kept.push(Kept {
            path,
            reserved: Arc::downgrade(&reserved),
            largest,
            amount: LEAST,
            since: Instant::now(),
            _lock: lock,
        });
        Ok(reserved)
    }

    /// Uses a key up, for whoever counts its numbers without telling: it can be used once.
    ///
    /// # Errors
    /// [`ReservationError`]; the key must not be used then.
    pub fn use_up(&self, key: &KeyConfig) -> Result<(), ReservationError> {
        let (path, _lock, first) = self.claim(key)?;
        if first > 0 {
            return Err(ReservationError::UsedUp { spi: key.spi });
        }
        let spi = key.spi;
        write(&path, u64::MAX).map_err(|source| ReservationError::Unwritable { spi, path, source })
    }

    /// Locks a key's file and reads up to where its numbers may have been used.
    fn claim(&self, key: &KeyConfig) -> Result<(PathBuf, FileLock, u64), ReservationError> {
        let spi = key.spi;
        let path = self.folder.join(name(key));
        let lock = path.with_extension("lock");
        let unwritable = |source| ReservationError::Unwritable {
            spi,
            path: lock.clone(),
            source,
        };
        let held = FileLock::take(&lock, 0o644).map_err(unwritable)?;
        let held = held.ok_or(ReservationError::InUse { spi })?;
        let first = read(&path).map_err(|source| ReservationError::Unreadable {
            spi,
            path: path.clone(),
            source,
        })?;
        Ok((path, held, first))
    }
}

/// The name of a key's file: a digest that tells nothing of the key.
fn name(key: &KeyConfig) -> String {
    let mut digest = Context::new(&SHA256);
    // A prefix, so that the digest is of no use where keys are digested for something else.
    digest.update(b"cordon sequence numbers");
    for bytes in [&key.encryption_key, &key.integrity_key] {
        // Lengths keep two keys apart from one that is their concatenation.
        digest.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(bytes);
    }
    let digest = digest.finish();
    hex::encode(digest.as_ref().get(..16).unwrap_or_default())
}

/// Up to where numbers may have been used; zero for a key that was never used.
fn read(path: &Path) -> io::Result<u64> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        text => text?,
    };
    let number = text
        .strip_prefix(VERSION)
        .and_then(|rest| rest.strip_prefix('\n'));
    let number = number.and_then(|rest| rest.strip_suffix('\n'));
    let number = number.and_then(|number| number.parse().ok());
    // A damaged file is not a key that was never used: beginning anew would repeat nonces.
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is damaged"))
}

fn write(path: &Path, ceiling: u64) -> io::Result<()> {
    durable::write_atomic(path, format!("{VERSION}\n{ceiling}\n").as_bytes(), 0o600)
}

/// Raises what is asked for, until the store and all its reservations are gone.
fn keep(woken: &Receiver<()>, kept: &Weak<Mutex<Vec<Kept>>>) {
    let mut again = false;
    loop {
        let next = match again {
            true => woken.recv_timeout(PAUSE),
            false => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if next == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // Held weakly, so that the thread does not keep the store alive.
        let Some(kept) = kept.upgrade() else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| one.reserved.strong_count() > 0);
        again = false;
        for one in kept.iter_mut() {
            if let Err(error) = one.raise(Instant::now()) {
                tracing::error!(path = %one.path.display(), %error,
                    "no sequence numbers can be reserved: sending stops until it works");
                again = true;
            }
        }
    }
}

impl Kept {
    /// Reserves more where less than half is left.
    fn raise(&mut self, now: Instant) -> io::Result<()> {
        let Some(reserved) = self.reserved.upgrade() else {
            return Ok(());
        };
        let (used, ceiling) = (reserved.used(), reserved.ceiling());
        // Half in advance: a disk that is slow for a moment does not stop the traffic.
        if ceiling.saturating_sub(used) > self.amount / 2 || ceiling >= self.largest {
            return Ok(());
        }
        let lasted = now.saturating_duration_since(self.since);
        let amount = match lasted < LASTS {
            true => (self.amount * 2).min(MOST),
            false => (self.amount / 2).max(LEAST),
        };
        let raised = used.saturating_add(amount).min(self.largest);
        // On disk before anybody may use them.
        write(&self.path, raised.max(ceiling))?;
        // Only now: after a failure, the next attempt must find that as little is left as this one did.
        (self.amount, self.since) = (amount, now);
        reserved.raise(raised);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
