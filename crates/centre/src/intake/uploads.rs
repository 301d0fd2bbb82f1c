//! Uploads in progress: a row in the intake journal and a file that only grows.
//!
//! The file's length *is* the offset. Every acknowledged byte is synced first, and the length
//! is read back after a restart, so the two cannot disagree.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use durable::SharedDisk;
use evidence::digest::Sha256Digest;
use store::{Sql, sqlx};
use time::OffsetDateTime;

use super::append::{Append, Busy, Claim, Growing, Held, OnCut};
use super::index::Tx;
use super::limits::Limits;
use super::prefix_hash::PrefixHashes;
use super::quota;
use super::upload::{Upload, UploadError};
use crate::clock::{from_millis, millis};

/// A request that brings bytes and has been silent for this long ends for the next one. On a slow
/// bearer a lost packet alone keeps it silent for some seconds; a camera needs as long to come back.
const SILENT: Duration = Duration::from_secs(5);
/// Blocks are ciphertext; the folder says who may read them.
const FILE_MODE: u32 = 0o666;
/// Number of looks for its end, and the pause between them: the disk may have to be synced.
const ENDING: u32 = 100;
const ENDING_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(crate) struct Uploads {
    disk: SharedDisk,
    sql: Sql,
    folder: PathBuf,
    limits: Limits,
    busy: Busy,
    hashes: PrefixHashes,
}

type Row = (
    String,
    String,
    i64,
    Option<String>,
    String,
    i64,
    Option<String>,
);

impl Uploads {
    /// Opens the intake folder.
    ///
    /// # Errors
    /// Any error of creating the folder.
    pub(crate) fn open(
        disk: SharedDisk,
        sql: Sql,
        folder: PathBuf,
        limits: Limits,
    ) -> io::Result<Self> {
        disk.create_dir_all(&folder)?;
        Ok(Self {
            disk,
            sql,
            folder,
            limits,
            busy: Arc::default(),
            hashes: PrefixHashes::default(),
        })
    }

    /// Path of the bytes of upload `id`.
    pub(crate) fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.part"))
    }

    /// Makes the bytes of upload `id` durable, whoever wrote them.
    pub(super) fn sync_file(&self, id: &str) -> io::Result<()> {
        self.disk.sync(&self.disk.open_append(&self.path(id))?)
    }

    /// Removes the bytes of upload `id`; no error if they are gone.
    pub(super) fn remove_file(&self, id: &str) -> io::Result<()> {
        self.hashes.forget(id);
        self.disk.remove_file(&self.path(id))
    }

    /// An upload that `device` announces, by a new name.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn announced(
        &self,
        device: &str,
        size: u64,
        block_sha256: Option<String>,
        metadata: String,
        address: Option<String>,
        now: OffsetDateTime,
    ) -> io::Result<Upload> {
        Ok(Upload {
            id: random_id()?,
            device: device.to_owned(),
            size,
            block_sha256,
            metadata,
            expires_at: now + self.limits.upload_lifetime,
            address,
        })
    }

    /// # Errors
    /// [`UploadError::TooLarge`], [`UploadError::NoSpace`].
    pub(super) fn check_size(&self, size: u64) -> Result<(), UploadError> {
        let limit = self.limits.max_block.min(i64::MAX.unsigned_abs());
        if size > limit {
            return Err(UploadError::TooLarge { size, limit });
        }
        quota::check_space(&self.folder, &self.limits.quota, size)
    }

    /// Makes the empty file of upload `id`, durably.
    pub(super) fn create_file(&self, id: &str) -> io::Result<()> {
        self.disk.create(&self.path(id), FILE_MODE)?;
        self.disk.sync_dir(&self.folder)
    }

    /// Writes `upload` down, if the shares of its device have room. Others may have made room for it: their claims are
    /// returned, to be held until the files are gone.
    ///
    /// # Errors
    /// The inner one if nothing has been changed.
    pub(super) async fn admit(
        &self,
        tx: &mut Tx,
        upload: &Upload,
        now: OffsetDateTime,
    ) -> Result<Result<Vec<Claim>, UploadError>, UploadError> {
        let most = i64::from(self.limits.max_open_per_device);
        let used = quota::read(tx, &upload.device, millis(now)).await?;
        let mut forgotten = Vec::new();
        if used.open >= most {
            forgotten = self
                .give_way(tx, &upload.device, upload.block_sha256.as_deref())
                .await?;
        }
        let gone = i64::try_from(forgotten.len()).unwrap_or(i64::MAX);
        let room = match used.open.saturating_sub(gone) >= most {
            true => Err(UploadError::TooMany(self.limits.max_open_per_device)),
            false => used.check(&self.limits, upload.size, millis(now)),
        };
        match room {
            Ok(()) => quota::insert(tx, upload, millis(now)).await?,
            Err(error) if forgotten.is_empty() => return Ok(Err(error)),
            Err(error) => return Err(error),
        }
        Ok(Ok(forgotten))
    }

    /// Deletes the rows of uploads whose address a crash made the sender forget: of the same block, or of one that has
    /// arrived. One to which somebody writes stays: what it acknowledges must count. Their claims are returned, to be held
    /// until the files are gone.
    async fn give_way(
        &self,
        tx: &mut sqlx::SqliteConnection,
        device: &str,
        block_sha256: Option<&str>,
    ) -> Result<Vec<Claim>, UploadError> {
        let forgotten: Vec<String> = sqlx::query_scalar(
            "SELECT id FROM uploads WHERE device = ?1 AND (block_sha256 = ?2 OR EXISTS (
                 SELECT 1 FROM blocks b WHERE b.block_sha256 = uploads.block_sha256
                 AND b.verdict = 'accepted'))",
        )
        .bind(device)
        .bind(block_sha256)
        .fetch_all(&mut *tx)
        .await?;
        let claims = forgotten
            .iter()
            .filter_map(|id| Claim::take(&self.busy, id));
        let claims: Vec<Claim> = claims.collect();
        for claim in &claims {
            sqlx::query("DELETE FROM uploads WHERE id = ?")
                .bind(&claim.id)
                .execute(&mut *tx)
                .await?;
        }
        Ok(claims)
    }

    /// The upload `id` of `device` and the number of bytes that are safely here.
    ///
    /// # Errors
    /// [`UploadError::Unknown`] also for another device's upload.
    pub(crate) async fn find(&self, id: &str, device: &str) -> Result<(Upload, u64), UploadError> {
        let row: Option<Row> = sqlx::query_as(
            "SELECT id, device, size, block_sha256, metadata, expires_at, address FROM uploads
             WHERE id = ? AND device = ?",
        )
        .bind(id)
        .bind(device)
        .fetch_optional(self.sql.read())
        .await?;
        let upload = row.map(from_row).ok_or(UploadError::Unknown)?;
        // The lock is held over the look at the file: a part that is being written does not count,
        // and one that was just taken back must not be seen.
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let length = match fs::metadata(self.path(&upload.id)) {
            Ok(file) => file.len(),
            // Without its file an upload is of no use to anybody: the sender may start over.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(UploadError::Unknown),
            Err(e) => return Err(e.into()),
        };
        let offset = busy
            .get(&upload.id)
            .map_or(length, |held| length.min(held.counted));
        Ok((upload, offset))
    }

    /// All uploads whose bytes are complete: what a restart has to take up again.
    ///
    /// # Errors
    /// Failures of the journal. An upload whose file is gone is left to expire.
    pub(crate) async fn complete(&self) -> Result<Vec<Upload>, UploadError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, device, size, block_sha256, metadata, expires_at, address FROM uploads",
        )
        .fetch_all(self.sql.read())
        .await?;
        let whole = |u: &Upload| fs::metadata(self.path(&u.id)).is_ok_and(|m| m.len() == u.size);
        Ok(rows.into_iter().map(from_row).filter(whole).collect())
    }

    /// Ends a request that brings bytes of this upload and has been silent for [`SILENT`], so that
    /// what it brought counts; waits a moment for that. Whoever asks for the offset has lost the
    /// connection, or else the bytes still come.
    pub(crate) async fn end_silent(&self, id: &str) {
        for _ in 0..ENDING {
            {
                let held = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(Held {
                    append: Some((last, end)),
                    ..
                }) = held.get(id)
                else {
                    return;
                };
                if last.elapsed() < SILENT {
                    return;
                }
                end.cancel();
            }
            tokio::time::sleep(ENDING_PAUSE).await;
        }
    }

    /// Claims `upload` for one writer at `offset`; `on_cut` says what becomes of the bytes when
    /// the connection breaks before [`Append::commit`].
    ///
    /// # Errors
    /// [`UploadError::Busy`], [`UploadError::WrongOffset`], or a failure of the disk.
    pub(crate) fn append(
        &self,
        upload: &Upload,
        offset: u64,
        on_cut: OnCut,
    ) -> Result<Append, UploadError> {
        let claim = self.claim(upload)?;
        let file = self.disk.open_append(&self.path(&upload.id))?;
        let length = file.file().metadata()?.len();
        if length != offset {
            return Err(UploadError::WrongOffset(length));
        }
        quota::check_space(&self.folder, &self.limits.quota, 0)?;
        let (folder, quota) = (self.folder.clone(), self.limits.quota.clone());
        let hashes = self.hashes.clone();
        let file = Growing {
            disk: self.disk.clone(),
            file,
        };
        Ok(Append::new(
            claim, file, folder, quota, upload, offset, on_cut, hashes,
        ))
    }

    /// The hash of a complete upload, if it was made while the bytes came; once.
    pub(crate) fn hash(&self, upload: &Upload) -> Option<Sha256Digest> {
        self.hashes.finish(&upload.id, upload.size)
    }

    /// The exclusive right to an upload: nobody else writes to it or removes it meanwhile.
    ///
    /// # Errors
    /// [`UploadError::Busy`].
    pub(crate) fn claim(&self, upload: &Upload) -> Result<Claim, UploadError> {
        Claim::take(&self.busy, &upload.id).ok_or(UploadError::Busy)
    }

    /// Forgets an upload and its bytes.
    ///
    /// # Errors
    /// [`UploadError::Busy`] while somebody writes to it, [`UploadError::Unknown`].
    pub(crate) async fn remove(&self, id: &str, device: &str) -> Result<(), UploadError> {
        let _claim = Claim::take(&self.busy, id).ok_or(UploadError::Busy)?;
        let mut tx = self.sql.write().await?;
        let gone = sqlx::query("DELETE FROM uploads WHERE id = ? AND device = ?")
            .bind(id)
            .bind(device)
            .execute(&mut *tx)
            .await?;
        if gone.rows_affected() == 0 {
            return Err(UploadError::Unknown);
        }
        tx.commit().await?;
        // A file without its row is swept at the next start, should this be cut short.
        self.remove_file(id)?;
        Ok(())
    }

    /// Removes expired uploads that are not complete, and files without a row; returns how many.
    ///
    /// # Errors
    /// Failures of the journal or of the folder.
    pub(crate) async fn sweep(&self, now: OffsetDateTime) -> Result<usize, UploadError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, device, size, block_sha256, metadata, expires_at, address FROM uploads",
        )
        .fetch_all(self.sql.read())
        .await?;
        let mut swept = 0;
        let mut known: std::collections::HashSet<String> = std::collections::HashSet::new();
        for upload in rows.into_iter().map(from_row) {
            let length = fs::metadata(self.path(&upload.id)).map(|m| m.len());
            let complete = length.is_ok_and(|l| l == upload.size);
            if upload.expires_at <= now && !complete {
                match self.remove(&upload.id, &upload.device).await {
                    Ok(()) => swept += 1,
                    Err(UploadError::Busy | UploadError::Unknown) => {}
                    Err(e) => return Err(e),
                }
            }
            known.insert(upload.id);
        }
        let started = now - Duration::from_secs(60);
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let path = entry.path();
            let stem = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            // An upload being created has its file before its row: spare young files.
            let old = entry.metadata()?.modified()? < started;
            if old && !known.contains(&stem) && path.extension().is_some_and(|e| e == "part") {
                self.disk.remove_file(&path)?;
                swept += 1;
            }
        }
        Ok(swept)
    }
}

fn from_row(row: Row) -> Upload {
    let (id, device, size, block_sha256, metadata, expires_at, address) = row;
    Upload {
        id,
        device,
        size: size.unsigned_abs(),
        block_sha256,
        metadata,
        expires_at: from_millis(expires_at),
        address,
    }
}

fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("no randomness"))?;
    Ok(hex::encode(bytes))
}
