//! The part of a camera's chain that a block can contradict, by the log and signed manifests.
//!
//! The index says only where to look: an attacker who writes to it could have a genuine block refused as a fork, or hide one.
//! A number counts if the log has an accepted block with it. Blocks that this process wrote down and that are not in the log yet
//! count by [`Unlogged`]; a number that a notice declared lost counts if that notice, in the archive, says so.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use error_report::Report;
use evidence::chain::{ChainState, Link};
use evidence::digest::Sha256Digest;
use evidence::manifest::Manifest;
use store::ObjectId;
use store::sqlx;

use super::Intake;
use super::error::SettleError;
use super::index::{Settled, Tx, digest};
use crate::ledger::Known;
use crate::review::Signed;

/// Place of a block in its camera's chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: String,
    pub(super) sequence: u64,
    pub(super) link: Link,
}

impl Place {
    pub(super) fn of(manifest: &Manifest, manifest_sha256: Sha256Digest) -> Self {
        Self {
            device: manifest.device.clone(),
            sequence: manifest.sequence,
            link: Link {
                manifest_sha256,
                previous: manifest.previous,
            },
        }
    }
}

/// Accepted blocks that were written down and whose event is not in the log yet, as many as are being settled. A place counts
/// only together with its row, which a transaction that fails takes back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unlogged(Arc<Mutex<BTreeMap<Sha256Digest, Place>>>);

impl Unlogged {
    fn places(&self) -> MutexGuard<'_, BTreeMap<Sha256Digest, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, block: Sha256Digest, place: Place) {
        self.places().insert(block, place);
    }

    pub(super) fn remove(&self, block: &Sha256Digest) {
        self.places().remove(block);
    }

    fn get(&self, block: &Sha256Digest) -> Option<Place> {
        self.places().get(block).cloned()
    }
}

/// Numbers around a block's.
#[derive(Default)]
pub(super) struct Neighbourhood {
    pub(super) state: ChainState,
    blocks: BTreeMap<u64, Sha256Digest>,
}

impl Neighbourhood {
    fn add(&mut self, sequence: u64, block: Sha256Digest, link: Link) {
        self.state = std::mem::take(&mut self.state).with_link(sequence, link);
        self.blocks.insert(sequence, block);
    }

    /// The block of this number, or else the neighbour that does not fit; none for a number that was declared lost.
    pub(super) fn first(&self, sequence: u64) -> Option<Sha256Digest> {
        let near = sequence.saturating_sub(1)..=sequence.saturating_add(1);
        let near = self.blocks.range(near);
        near.min_by_key(|(number, _)| number.abs_diff(sequence))
            .map(|(_, block)| *block)
    }
}

type ChainRow = (i64, String, String, String);
type DroppedRow = (i64, String, Option<String>);

impl Intake {
    /// The numbers around that of `manifest`, without `block` itself.
    pub(super) async fn neighbourhood(
        &self,
        tx: &mut Tx,
        manifest: &Manifest,
        block: &Sha256Digest,
    ) -> Result<Neighbourhood, SettleError> {
        let (device, sequence) = (manifest.device.as_str(), manifest.sequence);
        let mut found = Neighbourhood::default();
        for (number, known) in self.inner.audit.ledger.neighbours(device, sequence) {
            if known.block != *block {
                let link = self.link(tx, &known, number == sequence.saturating_add(1));
                found.add(number, known.block, link.await?);
            }
        }
        self.add_unlogged(tx, manifest, block, &mut found).await?;
        self.add_declared(tx, manifest, &mut found).await?;
        Ok(found)
    }

    /// The link of a block that the log has. Its predecessor only matters where a new block comes before it.
    async fn link(&self, tx: &mut Tx, known: &Known, is_next: bool) -> Result<Link, SettleError> {
        let manifest_sha256 = known.manifest.unwrap_or_default();
        let mut link = Link {
            manifest_sha256,
            previous: Sha256Digest::ZERO,
        };
        if is_next && let Some(manifest) = self.signed_manifest(tx, known).await? {
            link.previous = manifest.previous;
        }
        Ok(link)
    }

    /// Adds rows of blocks that the log does not have yet, or whose number an event of an earlier version leaves out.
    async fn add_unlogged(
        &self,
        tx: &mut Tx,
        manifest: &Manifest,
        block: &Sha256Digest,
        found: &mut Neighbourhood,
    ) -> Result<(), SettleError> {
        let rows: Vec<ChainRow> = sqlx::query_as(
            "SELECT sequence, manifest_sha256, previous, block_sha256 FROM chain
             WHERE device = ?1 AND (sequence BETWEEN ?2 - 1 AND ?2 + 1
                OR sequence = (SELECT max(sequence) FROM chain WHERE device = ?1))",
        )
        .bind(&manifest.device)
        .bind(manifest.sequence.cast_signed())
        .fetch_all(&mut **tx)
        .await?;
        for (sequence, hash, previous, of) in rows {
            let (sequence, of) = (sequence.unsigned_abs(), digest(&of));
            if of == *block || found.blocks.get(&sequence) == Some(&of) {
                continue;
            }
            let place = Place {
                device: manifest.device.clone(),
                sequence,
                link: Link {
                    manifest_sha256: digest(&hash),
                    previous: digest(&previous),
                },
            };
            let is_logged = |known: &Known| {
                known.sequence.is_none()
                    && *known.device == *manifest.device
                    && known.manifest == Some(place.link.manifest_sha256)
            };
            let is_genuine = self.inner.unlogged.get(&of).as_ref() == Some(&place)
                || self
                    .inner
                    .audit
                    .ledger
                    .block(&of)
                    .as_ref()
                    .is_some_and(is_logged);
            match is_genuine && !found.blocks.contains_key(&sequence) {
                true => found.add(sequence, of, place.link),
                false => {
                    let row = format!("{} {sequence}", manifest.device);
                    self.inner.repairs.note_foreign("chain", row);
                }
            }
        }
        Ok(())
    }

    /// Adds the numbers that notices declared lost.
    async fn add_declared(
        &self,
        tx: &mut Tx,
        manifest: &Manifest,
        found: &mut Neighbourhood,
    ) -> Result<(), SettleError> {
        let rows: Vec<DroppedRow> = sqlx::query_as(
            "SELECT sequence, manifest_sha256, notice FROM dropped
             WHERE device = ?1 AND sequence BETWEEN ?2 - 1 AND ?2",
        )
        .bind(&manifest.device)
        .bind(manifest.sequence.cast_signed())
        .fetch_all(&mut **tx)
        .await?;
        for (sequence, hash, notice) in rows {
            let (sequence, hash) = (sequence.unsigned_abs(), digest(&hash));
            let notice = notice.and_then(|notice| notice.parse().ok());
            let is_declared = match notice {
                Some(notice) => {
                    let notice = self.notice(&notice).await?;
                    notice
                        .is_some_and(|notice| declares(&notice, &manifest.device, sequence, &hash))
                }
                None => false,
            };
            match is_declared {
                true => {
                    let state = std::mem::take(&mut found.state);
                    found.state = state.with_explained(sequence, hash);
                }
                false => {
                    let row = format!("{} {sequence}", manifest.device);
                    self.inner.repairs.note_foreign("dropped", row);
                }
            }
        }
        Ok(())
    }

    /// The signed manifest of a block that the log has: the row's if it has the hash, else the archive's.
    async fn signed_manifest(
        &self,
        tx: &mut Tx,
        known: &Known,
    ) -> Result<Option<Manifest>, SettleError> {
        let stored: Option<Vec<u8>> = sqlx::query_scalar(
            "SELECT CAST(manifest AS BLOB) FROM violations WHERE block_sha256 = ?",
        )
        .bind(known.block.to_string())
        .fetch_optional(&mut **tx)
        .await?;
        match stored.and_then(|bytes| Signed::new(known.clone(), bytes)) {
            Some(signed) => Ok(Some(signed.manifest)),
            None => self.archived_manifest(&known.block, known.manifest).await,
        }
    }

    /// The manifest of a notice that the log has, or that this process wrote down.
    pub(super) async fn notice(
        &self,
        block: &Sha256Digest,
    ) -> Result<Option<Manifest>, SettleError> {
        let known = self.inner.audit.ledger.block(block);
        let hash = match known.and_then(|known| known.manifest) {
            Some(hash) => hash,
            None => match self.inner.unlogged.get(block) {
                Some(place) => place.link.manifest_sha256,
                None => return Ok(None),
            },
        };
        self.archived_manifest(block, Some(hash)).await
    }

    /// The manifest of an archived block, if it has this hash. A block that cannot be opened is a finding of the scrub.
    async fn archived_manifest(
        &self,
        block: &Sha256Digest,
        hash: Option<Sha256Digest>,
    ) -> Result<Option<Manifest>, SettleError> {
        let inner = Arc::clone(&self.inner);
        let object = ObjectId(*block.as_bytes());
        let work = move || {
            match inner.archive.get(&object) {
            Ok(file) => inner.keys.opener().open(BufReader::new(file)).map_err(|error| {
                tracing::error!(%object, error = %Report(&error), "an archived block cannot be opened");
            }),
            Err(error) => {
                tracing::error!(%object, %error, "an archived block cannot be read");
                Err(())
            }
        }
        };
        let opened = self.inner.pool.run(work).await?;
        let opened = opened
            .ok()
            .filter(|opened| hash == Some(opened.manifest_sha256));
        Ok(opened.map(|opened| opened.manifest))
    }

    /// Notes the place of a block that a crash left without its event, if the archive has its manifest.
    pub(super) async fn note_unlogged(&self, settled: &Settled) -> Result<(), SettleError> {
        let Some(hash) = settled
            .manifest_sha256
            .filter(|_| settled.reason.is_empty())
        else {
            return Ok(());
        };
        let manifest = self.archived_manifest(&settled.block, Some(hash)).await?;
        if let Some(manifest) = manifest.filter(|manifest| manifest.device == settled.device) {
            let place = Place::of(&manifest, hash);
            self.inner.unlogged.note(settled.block, place);
        }
        Ok(())
    }

    /// Writes down which notice declared each number lost, where an earlier version left that out.
    pub(super) async fn adopt_notices(&self) -> Result<(), SettleError> {
        let notices: Vec<String> = sqlx::query_scalar(
            "SELECT c.block_sha256 FROM chain c LEFT JOIN violations v USING (block_sha256)
             WHERE v.id IS NULL
                AND c.device IN (SELECT device FROM dropped WHERE notice IS NULL)
             ORDER BY c.device, c.sequence",
        )
        .fetch_all(self.inner.sql.read())
        .await?;
        for block in notices {
            let Ok(block) = block.parse() else { continue };
            let Some(manifest) = self.notice(&block).await? else {
                continue;
            };
            let mut tx = self.inner.sql.write().await?;
            super::index::insert_dropped(&mut tx, &manifest, &block).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}

/// Tells if a notice of `device` declares this number lost, with this manifest.
pub(crate) fn declares(
    notice: &Manifest,
    device: &str,
    sequence: u64,
    manifest_sha256: &Sha256Digest,
) -> bool {
    let mut dropped = notice.notice.iter().flat_map(|notice| &notice.dropped);
    notice.device == device
        && dropped.any(|one| one.sequence == sequence && one.manifest_sha256 == *manifest_sha256)
}
