//! Reading the part of a camera's chain around a block, from the ledger and signed manifests.

use std::io::BufReader;

use error_report::Report;
use evidence::chain::{self, ClosedChain, Link, chain_name};
use evidence::digest::Sha256Digest;
use evidence::manifest::Manifest;
use pool::Pool;
use store::{ObjectId, Objects, Sql, sqlx};

use super::error::SettleError;
use super::index::{Settled, Tx, digest, insert_dropped};
use super::neighbourhood::{DeclaredBy, Neighbourhood, Place, Placement, Unlogged, declares};
use crate::keys::Keys;
use crate::ledger::{FollowedLog, Known};
use crate::repairs::Repairs;
use crate::review::Signed;

type ChainRow = (i64, String, String, String);
type DroppedRow = (i64, String, Option<String>);

/// Whether closed chains end at the head that they had when two people closed them.
#[derive(Clone, Copy)]
pub(super) enum Ends {
    /// For blocks that devices send.
    AtHead,
    /// For a block that two people release: they may continue a closed chain.
    Lifted,
}

/// Reads what is around a block.
pub(super) struct Around<'a> {
    pub(super) sql: &'a Sql,
    pub(super) archive: &'a Objects,
    pub(super) keys: &'a Keys,
    pub(super) audit: &'a FollowedLog,
    pub(super) pool: &'a Pool,
    pub(super) unlogged: &'a Unlogged,
    pub(super) repairs: &'a Repairs,
}

impl Around<'_> {
    /// Finds the epoch and the position of a manifest; the place of `block` itself does not matter.
    pub(super) async fn place(
        &self,
        tx: &mut Tx,
        manifest: &Manifest,
        manifest_sha256: &Sha256Digest,
        block: &Sha256Digest,
        ends: Ends,
    ) -> Result<Placement, SettleError> {
        let device = &manifest.device;
        let heads = self.audit.ledger.closed_heads(device);
        let (mut closed, mut chains) = (Vec::new(), Vec::new());
        for (epoch, head) in (0..).zip(heads) {
            let chain = chain_name(device, epoch);
            let around = self.neighbourhood(tx, &chain, manifest, block).await?;
            closed.push(ClosedChain {
                head: match ends {
                    Ends::AtHead => head,
                    Ends::Lifted => u64::MAX,
                },
                state: around.state.clone(),
            });
            chains.push(around);
        }
        let open = chain_name(device, closed.len() as u64);
        let open = self.neighbourhood(tx, &open, manifest, block).await?;
        let (epoch, position) = chain::place(&closed, &open.state, manifest, manifest_sha256);
        chains.push(open);
        Ok(Placement {
            epoch: epoch as u64,
            position,
            around: chains.swap_remove(epoch),
        })
    }

    /// The numbers of a chain around that of `manifest`, without `block` itself.
    async fn neighbourhood(
        &self,
        tx: &mut Tx,
        chain: &str,
        manifest: &Manifest,
        block: &Sha256Digest,
    ) -> Result<Neighbourhood, SettleError> {
        let sequence = manifest.sequence;
        let mut found = Neighbourhood::default();
        for (number, known) in self.audit.ledger.neighbours(chain, sequence) {
            if known.block != *block {
                let link = self.link(tx, &known, number == sequence.saturating_add(1));
                found.add(number, known.block, link.await?);
            }
        }
        self.add_unlogged(tx, (chain, sequence), block, &mut found)
            .await?;
        self.add_declared(tx, (chain, sequence), &mut found).await?;
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
        (chain, number): (&str, u64),
        block: &Sha256Digest,
        found: &mut Neighbourhood,
    ) -> Result<(), SettleError> {
        let rows: Vec<ChainRow> = sqlx::query_as(
            "SELECT sequence, manifest_sha256, previous, block_sha256 FROM chain
             WHERE device = ?1 AND (sequence BETWEEN ?2 - 1 AND ?2 + 1
                OR sequence = (SELECT max(sequence) FROM chain WHERE device = ?1))",
        )
        .bind(chain)
        .bind(number.cast_signed())
        .fetch_all(&mut **tx)
        .await?;
        for (sequence, hash, previous, of) in rows {
            let (sequence, of) = (sequence.unsigned_abs(), digest(&of));
            if of == *block || found.is_at(sequence, &of) {
                continue;
            }
            let place = Place {
                chain: chain.to_owned(),
                sequence,
                link: Link {
                    manifest_sha256: digest(&hash),
                    previous: digest(&previous),
                },
            };
            let is_logged = |known: &Known| {
                known.sequence.is_none()
                    && known.chain() == chain
                    && known.manifest == Some(place.link.manifest_sha256)
            };
            let is_genuine = self.unlogged.get(&of).as_ref() == Some(&place)
                || self.audit.ledger.block(&of).as_ref().is_some_and(is_logged);
            match is_genuine && !found.has(sequence) {
                true => found.add(sequence, of, place.link),
                false => {
                    let row = format!("{chain} {sequence}");
                    self.repairs.note_foreign("chain", row);
                }
            }
        }
        Ok(())
    }

    /// Adds the numbers that notices declared lost.
    async fn add_declared(
        &self,
        tx: &mut Tx,
        (chain, number): (&str, u64),
        found: &mut Neighbourhood,
    ) -> Result<(), SettleError> {
        let rows: Vec<DroppedRow> = sqlx::query_as(
            "SELECT sequence, manifest_sha256, notice FROM dropped
             WHERE device = ?1 AND sequence BETWEEN ?2 - 1 AND ?2",
        )
        .bind(chain)
        .bind(number.cast_signed())
        .fetch_all(&mut **tx)
        .await?;
        for (sequence, hash, notice) in rows {
            let (sequence, hash) = (sequence.unsigned_abs(), digest(&hash));
            let notice = notice.and_then(|notice| notice.parse().ok());
            let is_declared = match notice {
                Some(notice) => {
                    let notice = self.notice(&notice).await?;
                    notice.is_some_and(|notice| declares(&notice, chain, sequence, &hash))
                }
                None => false,
            };
            match is_declared {
                true => {
                    let state = std::mem::take(&mut found.state);
                    found.state = state.with_explained(sequence, hash);
                }
                false => {
                    let row = format!("{chain} {sequence}");
                    self.repairs.note_foreign("dropped", row);
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
    async fn notice(&self, block: &Sha256Digest) -> Result<Option<DeclaredBy>, SettleError> {
        let known = self.audit.ledger.block(block);
        let known = known.and_then(|known| Some((known.chain(), known.manifest?)));
        let unlogged = || {
            let place = self.unlogged.get(block)?;
            Some((place.chain, place.link.manifest_sha256))
        };
        let Some((chain, hash)) = known.or_else(unlogged) else {
            return Ok(None);
        };
        let manifest = self.archived_manifest(block, Some(hash)).await?;
        Ok(manifest.map(|manifest| DeclaredBy { chain, manifest }))
    }

    /// The manifest of an archived block, if it has this hash. A block that cannot be opened is a finding of the scrub.
    async fn archived_manifest(
        &self,
        block: &Sha256Digest,
        hash: Option<Sha256Digest>,
    ) -> Result<Option<Manifest>, SettleError> {
        let (archive, keys) = (self.archive.clone(), self.keys.clone());
        let object = ObjectId(*block.as_bytes());
        let work = move || {
            match archive.get(&object) {
            Ok(file) => keys.opener().open(BufReader::new(file)).map_err(|error| {
                tracing::error!(%object, error = %Report(&error), "an archived block cannot be opened");
            }),
            Err(error) => {
                tracing::error!(%object, %error, "an archived block cannot be read");
                Err(())
            }
        }
        };
        let opened = self.pool.run(work).await?;
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
            let place = Place::of(&manifest, hash, settled.epoch);
            self.unlogged.note(settled.block, place);
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
        .fetch_all(self.sql.read())
        .await?;
        for block in notices {
            let Ok(block) = block.parse() else { continue };
            let Some(notice) = self.notice(&block).await? else {
                continue;
            };
            let mut tx = self.sql.write().await?;
            insert_dropped(&mut tx, &notice.chain, &notice.manifest, &block).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}
