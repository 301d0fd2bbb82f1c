//! Bounds of the intake.

use std::time::Duration;

use super::quota::Quota;

/// Bounds of the intake; all of them are refusals with a reason, never silent.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest block, in bytes.
    pub max_block: u64,
    /// Unfinished uploads of one device.
    pub max_open_per_device: u32,
    /// Lifetime of an unfinished upload.
    pub upload_lifetime: Duration,
    /// Bytes in quarantine, of which one device has a quarter at most. What has no room there waits as
    /// an upload without a receipt, and its camera keeps it.
    pub max_quarantine: u64,
    /// Quota of one device.
    pub quota: Quota,
}

/// Of the quarantine's bytes one device has this part.
const DEVICE_SHARE: u64 = 4;

impl Limits {
    /// Bytes that one device may have in quarantine.
    #[must_use]
    pub const fn quarantine_share(&self) -> u64 {
        self.max_quarantine / DEVICE_SHARE
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A long 4K video; the disk is the real limit and answers for itself.
            max_block: 64 << 30,
            // The camera opens a handful; more means that something leaks uploads.
            max_open_per_device: 64,
            upload_lifetime: Duration::from_secs(7 * 24 * 3600),
            // Some ten thousand pictures; a person looks long before.
            max_quarantine: 32 << 30,
            quota: Quota::default(),
        }
    }
}
