//! Objects of the archive: there, of the right size, with the right bytes.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use audit::{Actor, AuditSink as _};
use error_report::Report;
use event_catalogue::evidence::{DamageKind, LossKind};
use evidence::digest::{Sha256, Sha256Digest};
use store::{ObjectId, Objects};

use super::{BYTES, DAMAGED, Scrub};
use crate::ledger::{Known, Verdict};
use crate::whole;

/// What is wrong with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    Missing,
    Size { found: u64, expected: u64 },
    Hash,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it is missing"),
            Self::Size { found, expected } => {
                write!(f, "it has {found} bytes instead of {expected}")
            }
            Self::Hash => f.write_str("its bytes do not have its hash"),
        }
    }
}

/// An object that is being hashed, over as many steps as it takes.
pub(super) struct Hashing {
    known: Known,
    file: File,
    hash: Sha256,
}

impl Scrub {
    /// Where the bytes of a block must be; nowhere once it was rejected.
    fn store(&self, known: &Known) -> Option<&Objects> {
        match known.verdict {
            Verdict::Accepted => Some(&self.parts.archive),
            Verdict::Quarantined | Verdict::Kept => Some(&self.parts.quarantine),
            Verdict::Rejected => None,
        }
    }

    /// Checks that a block is in the archive, or in quarantine, with its size.
    pub(super) async fn check_object(&self, known: &Known) {
        let Some(store) = self.store(known) else {
            self.progress().damaged.remove(&known.block);
            return;
        };
        // A decision moves the file before the log has it.
        if self.parts.intake.is_settling(&known.block) {
            return;
        }
        let path = store.path(&ObjectId(*known.block.as_bytes()));
        let look = move || path.metadata();
        let looked = match self.parts.pool.run(look).await {
            Ok(looked) => looked,
            Err(error) => Err(io::Error::other(error)),
        };
        match looked {
            Ok(found) if found.len() == known.size => {
                self.found_whole(&known.block);
                self.end_loss(&known.block).await;
            }
            Ok(found) => {
                let (found, expected) = (found.len(), known.size);
                self.found(&known.block, Damage::Size { found, expected })
                    .await;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.found(&known.block, Damage::Missing).await;
            }
            // An unreadable disk says nothing about the block.
            Err(error) => {
                tracing::warn!(block = %known.block, %error, "an object of the archive cannot be looked at");
            }
        }
    }

    /// Hashes the next bytes of the archive.
    pub(super) async fn hash_some(&self) {
        let mut left = BYTES;
        while left > 0 {
            let Some(hashing) = self.next_to_hash() else {
                return;
            };
            let block = hashing.known.block;
            let read = self.parts.pool.run(move || read_on(hashing, left)).await;
            match read.map_err(io::Error::other).flatten() {
                Ok((hashing, read)) if read == left => {
                    self.progress().hashing = Some(hashing);
                    return;
                }
                Ok((hashing, read)) => {
                    left = left.saturating_sub(read.max(1));
                    match hashing.hash.finish() == block {
                        true => self.forget(&block, Damage::Hash),
                        false => self.found(&block, Damage::Hash).await,
                    }
                }
                Err(error) => {
                    left = left.saturating_sub(1);
                    tracing::warn!(%block, error = %Report(&error), "an object of the archive cannot be read");
                }
            }
        }
    }

    /// The object under way, or the next one that is there; `None` at the end of a round.
    fn next_to_hash(&self) -> Option<Hashing> {
        let mut progress = self.progress();
        if let Some(hashing) = progress.hashing.take() {
            return Some(hashing);
        }
        loop {
            let next = self.parts.audit.ledger.after(progress.hashed, 1);
            let known = next.into_iter().next();
            progress.hashed = known.as_ref().map(|known| known.block);
            let known = known?;
            let Some(store) = self.store(&known) else {
                continue;
            };
            // One that cannot be opened is a finding of the other walk.
            if let Ok(file) = store.get(&ObjectId(*known.block.as_bytes())) {
                let hash = Sha256::new();
                return Some(Hashing { known, file, hash });
            }
        }
    }

    /// Reports damage that was not known.
    async fn found(&self, block: &Sha256Digest, damage: Damage) {
        {
            let mut progress = self.progress();
            let known = progress.damaged.contains_key(block);
            if known || progress.damaged.len() >= DAMAGED {
                return;
            }
            progress.damaged.insert(*block, damage);
        }
        let reason = damage.to_string();
        tracing::error!(%block, reason, "the file of a block is damaged");
        let name = block.to_string();
        let recorded = self.record(DamageKind::Archive, &name, &reason).await;
        if let Err(error) = recorded {
            // It is reported again.
            self.progress().damaged.remove(block);
            tracing::error!(%block, error = %Report(&error), "damage of the archive is not recorded");
        }
    }

    /// A block is there with its size; its bytes are another matter.
    fn found_whole(&self, block: &Sha256Digest) {
        let mut progress = self.progress();
        if progress
            .damaged
            .get(block)
            .is_some_and(|damage| *damage != Damage::Hash)
        {
            progress.damaged.remove(block);
        }
    }

    /// Records that a block is there again whose loss was accepted.
    async fn end_loss(&self, block: &Sha256Digest) {
        if !self.progress().accepted_losses.contains(block) {
            return;
        }
        let (actor, reason) = (Actor::service("centre"), "the archive has the block again");
        let events = whole::loss_events(LossKind::Ended, &actor, reason, &[*block]);
        let audit = Arc::clone(&self.parts.audit);
        let recorded = self.parts.pool.run(move || audit.record_all(events)).await;
        match recorded {
            Ok(Ok(_)) => {
                self.progress().accepted_losses.remove(block);
            }
            // The next round records it.
            Ok(Err(error)) => {
                tracing::error!(%block, error = %Report(&error), "the end of a loss is not recorded")
            }
            Err(error) => {
                tracing::error!(%block, error = %Report(&error), "the end of a loss is not recorded")
            }
        }
    }

    fn forget(&self, block: &Sha256Digest, damage: Damage) {
        let mut progress = self.progress();
        if progress.damaged.get(block) == Some(&damage) {
            progress.damaged.remove(block);
        }
    }
}

/// Hashes up to `most` bytes; gives how many there were.
fn read_on(mut hashing: Hashing, most: u64) -> io::Result<(Hashing, u64)> {
    let mut buffer = vec![0; 256 * 1024];
    let mut read = 0;
    while read < most {
        let want = usize::try_from(most - read)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let part = buffer.get_mut(..want).unwrap_or_default();
        let count = hashing.file.read(part)?;
        if count == 0 {
            break;
        }
        hashing.hash.update(part.get(..count).unwrap_or_default());
        read = read.saturating_add(count as u64);
    }
    Ok((hashing, read))
}
