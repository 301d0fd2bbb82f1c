//! What one camera may take of the site, and what nobody may take.
//!
//! A certificate says who sends; this says how much. Whatever is refused here is refused before the
//! first byte, with a reason and a time to come back, and stays with the camera: nothing is dropped
//! to make room.

use std::path::Path;
use std::time::Duration;

use audit::RepeatBounds;
use store::sqlx::{self, Sqlite, Transaction};

use super::limits::Limits;
use super::upload::{Upload, UploadError};
use crate::clock::millis;

/// Quota of one device.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Bytes announced in 24 hours (by full hours); an upload begun anew counts again.
    pub bytes_per_day: u64,
    /// Uploads begun in one hour: some of them are on disk each, and so is their row.
    pub uploads_per_hour: u32,
    /// Blocks in quarantine. A device that has as many, or its share of the quarantine's bytes
    /// ([`Limits::quarantine_share`]), sends nothing more until a person has looked: were its blocks
    /// thrown away instead, so would be what is evidence and only was refused by mistake.
    pub quarantined_blocks: u64,
    /// Bytes of the file system that uploads leave free: receipts, index and audit log are
    /// written while cameras wait. On a small file system a twentieth of it.
    pub reserved_bytes: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            // Ten pictures of 640 kB a second are half of it.
            bytes_per_day: 1 << 40,
            uploads_per_hour: 36_000,
            quarantined_blocks: 1000,
            reserved_bytes: 2 << 30,
        }
    }
}

/// Refusals of one device for one reason that are recorded; the rest is counted.
pub(super) const REFUSALS: RepeatBounds = RepeatBounds {
    recorded: 1,
    interval: Duration::from_secs(600),
    causes: 10_000,
};
const HOUR_MILLIS: i64 = 3_600_000;

/// A device's use of its shares.
pub(super) struct Use {
    /// Unfinished uploads.
    pub(super) open: i64,
    quarantined: i64,
    quarantined_bytes: i64,
    /// Bytes of the last day.
    bytes: i64,
    /// Uploads of this hour.
    uploads: i64,
}

/// Reads what a device uses at `now`.
pub(super) async fn read(
    tx: &mut Transaction<'static, Sqlite>,
    device: &str,
    now: i64,
) -> Result<Use, UploadError> {
    // Hours after this one are of a clock that was ahead, and count as well: else putting it back
    // would give everything anew.
    let (open, quarantined, quarantined_bytes, bytes, uploads) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM uploads WHERE device = ?1),
            coalesce((SELECT quarantined FROM cameras WHERE device = ?1), 0),
            coalesce((SELECT quarantined_bytes FROM cameras WHERE device = ?1), 0),
            coalesce(sum(bytes), 0),
            coalesce(sum(uploads) FILTER (WHERE hour = ?2), 0)
         FROM intake_use WHERE device = ?1 AND hour > ?2 - 24 AND hour < ?2 + 24",
    )
    .bind(device)
    .bind(now.div_euclid(HOUR_MILLIS))
    .fetch_one(&mut **tx)
    .await?;
    Ok(Use {
        open,
        quarantined,
        quarantined_bytes,
        bytes,
        uploads,
    })
}

impl Use {
    /// Whether the shares have room for one upload more of `size` bytes; if not, says which is used up.
    pub(super) fn check(&self, limits: &Limits, size: u64, now: i64) -> Result<(), UploadError> {
        let quota = &limits.quota;
        let left = HOUR_MILLIS.saturating_sub(now.rem_euclid(HOUR_MILLIS)) / 1000;
        let retry_after = left.unsigned_abs().saturating_add(1);
        if self.quarantined.unsigned_abs() >= quota.quarantined_blocks
            || self.quarantined_bytes.unsigned_abs() >= limits.quarantine_share()
        {
            return Err(UploadError::QuarantineFull);
        }
        if self.uploads.unsigned_abs() >= u64::from(quota.uploads_per_hour) {
            return Err(UploadError::TooFast { retry_after });
        }
        if self.bytes.unsigned_abs().saturating_add(size) > quota.bytes_per_day {
            return Err(UploadError::DayFull { retry_after });
        }
        Ok(())
    }
}

/// Writes down `upload`, and takes it out of its device's shares.
pub(super) async fn insert(
    tx: &mut Transaction<'static, Sqlite>,
    upload: &Upload,
    now: i64,
) -> Result<(), UploadError> {
    // What is older than two days is of no more use, and bounded by that.
    let insert = sqlx::query(
        "INSERT INTO intake_use (device, hour, bytes, uploads) VALUES ($1, $2, $3, 1)
         ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes, uploads = uploads + 1;
         DELETE FROM intake_use WHERE device = $1 AND hour < $2 - 48;
         INSERT INTO uploads (id, device, size, block_sha256, metadata, created_at, expires_at, address)
         VALUES ($4, $1, $3, $5, $6, $7, $8, $9)",
    );
    insert
        .bind(&upload.device)
        .bind(now.div_euclid(HOUR_MILLIS))
        .bind(upload.size.cast_signed())
        .bind(&upload.id)
        .bind(&upload.block_sha256)
        .bind(&upload.metadata)
        .bind(now)
        .bind(millis(upload.expires_at))
        .bind(&upload.address)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Refuses what would leave less than the reserve free in `folder`, and anything, of whatever `size`, when no more than that
/// is free: uploads that were announced while there was room go on no longer.
pub(super) fn check_space(folder: &Path, quota: &Quota, size: u64) -> Result<(), UploadError> {
    match DiskRoom::of(folder, quota.reserved_bytes)?.fits(size) {
        true => Ok(()),
        false => Err(UploadError::NoSpace),
    }
}

/// Space of the file system that a folder is on, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// What uploads may take: what is free beyond the reserve for index and log.
    pub for_uploads: u64,
    /// What they leave.
    pub reserve: u64,
}

impl DiskRoom {
    /// Tells whether uploads may take `size` bytes more; with nothing left for them, not even those that are under way.
    const fn fits(&self, size: u64) -> bool {
        self.for_uploads != 0 && self.for_uploads >= size
    }

    /// Asks the file system of `folder`; the reserve is `reserved` bytes, at most a twentieth of it.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn of(folder: &Path, reserved: u64) -> std::io::Result<Self> {
        let file_system = rustix::fs::statvfs(folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(file_system.f_frsize);
        let total = bytes(file_system.f_blocks);
        let free = bytes(file_system.f_bavail);
        let reserve = reserved.min(total / 20);
        Ok(Self {
            for_uploads: free.saturating_sub(reserve),
            reserve,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_fits_into_what_is_reserved_however_little_it_is() {
        let room = |for_uploads| DiskRoom {
            for_uploads,
            reserve: 1000,
        };
        assert!(room(5).fits(5) && room(5).fits(0) && !room(5).fits(6));
        assert!(!room(0).fits(0) && !room(0).fits(1));
    }
}
