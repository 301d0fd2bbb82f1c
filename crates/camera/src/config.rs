//! Settings of the agent, as read from its configuration file.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use accelerator::AcceleratorConfig;
use evidence::spool::{self, Spool, SpoolConfig, SpoolError};
use pki::clearance::Clearance;
use pki::key::KeyAlgorithm;
use serde::{Deserialize, Serialize};

use crate::ingest::local_time;

/// Largest PATCH of an upload, in bytes: over a fast link to a far centre, all of it is sent in the time of some hundred round trips,
/// of which its answer costs one.
pub const MAX_CHUNK_LEN: u32 = 64 * 1024 * 1024;
/// Most uploads at a time; the centre's own limit per camera is higher.
const MAX_PARALLEL: usize = 16;
/// Smallest useful monthly budget: a handshake and a picture.
const MIN_BUDGET: u64 = 256 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Folder of new pictures.
    pub watch: Watch,
    /// Store of sealed blocks.
    pub spool: SpoolSettings,
    /// The camera's key and certificate.
    pub identity: IdentitySettings,
    /// Whom the camera trusts and seals for.
    pub trust: Trust,
    pub centre: Centre,
    #[serde(default)]
    pub uplink: Uplink,
    /// Ways to the centre, at least one.
    #[serde(default = "any_bearer")]
    pub bearers: Vec<Bearer>,
    /// Enrolment and renewal of the certificate; without it, the identity must exist.
    #[serde(default)]
    pub enrolment: Option<Enrolment>,
    /// Crypto device by which media are encrypted; software unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorConfig>,
}

/// Folder of new pictures, and assumptions about them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Folder that is watched, not its subfolders.
    pub folder: PathBuf,
    /// Folder for what cannot be sealed, each with a file that says why.
    pub rejected: PathBuf,
    /// Folder that sources are moved to once sealed; without it they are deleted.
    #[serde(default)]
    pub keep_sealed: Option<PathBuf>,
    /// Seconds that a complete picture waits for its metadata file, or the other way round.
    #[serde(default = "pair_wait_secs")]
    pub pair_wait_secs: u64,
    /// Seconds without change, by the monotonic clock, after which a file found at start and without writers is complete.
    #[serde(default = "settle_secs")]
    pub settle_secs: u64,
    /// Classification when the metadata does not give one.
    #[serde(default = "classification")]
    pub classification: Clearance,
    /// Violation type when there is only EXIF.
    #[serde(default = "violation_type")]
    pub violation_type: String,
    /// Place name when EXIF has no description.
    #[serde(default = "place_name")]
    pub place_name: String,
    /// Zone of the clock of cameras whose EXIF has neither offset nor GPS time, as `Europe/Warsaw`. Without it such
    /// pictures are set aside: any guess would misdate them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// Bounds of the spool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpoolSettings {
    /// Its folder.
    pub folder: PathBuf,
    /// Most bytes of blocks.
    pub max_bytes: u64,
    /// Treatment of new pictures when they do not suffice.
    #[serde(default)]
    pub when_full: WhenFull,
    /// Has no effect: age deletes nothing, for only a clock would say what is old. Files of earlier
    /// versions may still name it.
    #[serde(default, skip_serializing)]
    pub max_age_hours: Option<u32>,
    /// Receipts kept for the operator.
    #[serde(default = "max_receipts")]
    pub max_receipts: usize,
    /// Seconds between dropping blocks and telling the centre; several are told at once.
    #[serde(default = "notice_delay_secs")]
    pub notice_delay_secs: u64,
}

/// Treatment of a new picture when the spool has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// It stays in the watched folder, and nothing that waits is given up.
    #[default]
    Keep,
    /// The oldest blocks of the lowest class go, and the centre is told which.
    DropOldest,
}

/// The camera's key and certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentitySettings {
    /// Device name, the common name of its certificate.
    pub device: String,
    /// File with the encrypted key and the certificate chain, in PEM.
    pub file: PathBuf,
    /// Key type of new keys.
    #[serde(default = "key_algorithm")]
    pub key_algorithm: String,
}

/// Whom the camera trusts and seals for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// PEM file with the root certificates; written at enrolment if a fingerprint is given there.
    pub roots: PathBuf,
    /// PEM file with issuing authorities that peers need not send.
    #[serde(default)]
    pub authorities: Option<PathBuf>,
    /// PEM file with the certificates blocks are encrypted to.
    pub recipients: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Centre {
    /// Host name or address.
    pub host: String,
    pub port: u16,
    /// Name in the centre's certificate; the host if not given.
    #[serde(default)]
    pub server_name: Option<String>,
    /// Path of the upload collection.
    #[serde(default = "intake_path")]
    pub path: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Uplink {
    /// Uploads at a time.
    pub parallel: usize,
    /// Bytes in one request, at most [`MAX_CHUNK_LEN`].
    pub chunk_bytes: u32,
    /// Seconds that one request may take; on a slow link a chunk needs some.
    pub request_timeout_secs: u64,
    /// Seconds that a connection may take to be made.
    pub connect_timeout_secs: u64,
    /// First pause after a failure, in milliseconds; doubles with each.
    pub backoff_min_ms: u64,
    /// Longest pause after a failure, in milliseconds.
    pub backoff_max_ms: u64,
}

/// One way to the centre.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bearer {
    /// Name in logs and metrics, and of its counter file.
    pub name: String,
    /// Local address to send from.
    #[serde(default)]
    pub source: Option<IpAddr>,
    /// Network interface to send through (needs the capability `CAP_NET_RAW`).
    #[serde(default)]
    pub interface: Option<String>,
    #[serde(default)]
    pub priority: u32,
    /// Bytes per calendar month (UTC), both directions; unlimited if not given.
    #[serde(default)]
    pub monthly_byte_budget: Option<u64>,
    /// Added in percent to what crosses, for what the operator counts besides: headers of TCP and IP
    /// and segments sent again are counted as they are, a tunnel around them is not.
    #[serde(default = "overhead_percent")]
    pub overhead_percent: u8,
}

/// Enrolment and renewal of the certificate: EST (RFC 7030).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolment {
    /// Host name or address.
    pub host: String,
    pub port: u16,
    /// Name in the server's certificate; the host if not given.
    #[serde(default)]
    pub server_name: Option<String>,
    /// File with the one-time code; deleted once used.
    #[serde(default)]
    pub code_file: Option<PathBuf>,
    /// SHA-256 of the root certificate, in hexadecimal, when there is no root file yet.
    #[serde(default)]
    pub root_fingerprint: Option<String>,
}

fn any_bearer() -> Vec<Bearer> {
    vec![Bearer {
        name: "default".to_owned(),
        source: None,
        interface: None,
        priority: 0,
        monthly_byte_budget: None,
        overhead_percent: overhead_percent(),
    }]
}

const fn pair_wait_secs() -> u64 {
    30
}

const fn settle_secs() -> u64 {
    2
}

const fn classification() -> Clearance {
    Clearance::Restricted
}

fn violation_type() -> String {
    "unspecified".to_owned()
}

fn place_name() -> String {
    "unknown".to_owned()
}

const fn max_receipts() -> usize {
    10_000
}

const fn notice_delay_secs() -> u64 {
    60
}

fn key_algorithm() -> String {
    KeyAlgorithm::EcdsaP256.name().to_owned()
}

fn intake_path() -> String {
    "/intake/v1/files".to_owned()
}

const fn overhead_percent() -> u8 {
    0
}

impl Default for Uplink {
    fn default() -> Self {
        Self {
            parallel: 4,
            chunk_bytes: MAX_CHUNK_LEN,
            request_timeout_secs: 120,
            connect_timeout_secs: 20,
            backoff_min_ms: 1_000,
            backoff_max_ms: 300_000,
        }
    }
}

impl Uplink {
    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout_secs)
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_secs(self.connect_timeout_secs)
    }
}

/// A setting that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting {setting}: {problem}")]
pub struct ConfigError {
    pub setting: &'static str,
    pub problem: &'static str,
}

impl Config {
    /// Checks what types do not express.
    ///
    /// # Errors
    /// [`ConfigError`] with the first setting that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |setting, problem| Err(ConfigError { setting, problem });
        if self.identity.device.is_empty() || self.identity.device.len() > 64 {
            return refuse("identity.device", "must have 1 to 64 bytes");
        }
        let zone = self.watch.time_zone.as_deref();
        if zone.is_some_and(|name| local_time::zone(name).is_none()) {
            return refuse(
                "watch.time_zone",
                "is no zone of the IANA database, as Europe/Warsaw",
            );
        }
        if self.identity.key_algorithm.parse::<KeyAlgorithm>().is_err() {
            return refuse("identity.key_algorithm", "is not a known algorithm");
        }
        if self.watch.folder == self.watch.rejected
            || self.watch.keep_sealed.as_ref() == Some(&self.watch.folder)
        {
            return refuse("watch.rejected", "must be another folder than watch.folder");
        }
        if self.spool.max_bytes == 0 {
            return refuse("spool.max_bytes", "must not be 0");
        }
        if self.centre.host.is_empty() || self.centre.port == 0 {
            return refuse("centre.host", "and centre.port must be given");
        }
        if !self.centre.path.starts_with('/') || self.centre.path.ends_with('/') {
            return refuse("centre.path", "must begin, and not end, with a slash");
        }
        self.check_uplink()?;
        self.check_bearers()
    }

    /// Opens the camera's spool; only one process can.
    ///
    /// # Errors
    /// Those of [`Spool::open`].
    pub fn open_spool(&self) -> Result<Spool, SpoolError> {
        let settings = &self.spool;
        if settings.max_age_hours.is_some() {
            tracing::warn!("spool.max_age_hours has no effect: no block is deleted for its age");
        }
        let (spool, recovery) = Spool::open(
            &settings.folder,
            &self.identity.device,
            SpoolConfig {
                max_bytes: settings.max_bytes,
                when_full: match settings.when_full {
                    WhenFull::Keep => spool::WhenFull::Keep,
                    WhenFull::DropOldest => spool::WhenFull::Evict,
                },
                max_receipts: settings.max_receipts,
            },
        )?;
        if recovery.unfinished > 0 || !recovery.foreign.is_empty() {
            tracing::warn!(
                unfinished = recovery.unfinished,
                foreign = ?recovery.foreign,
                "spool repaired"
            );
        }
        Ok(spool)
    }

    fn check_uplink(&self) -> Result<(), ConfigError> {
        let refuse = |setting, problem| Err(ConfigError { setting, problem });
        let uplink = &self.uplink;
        if uplink.parallel == 0 || uplink.parallel > MAX_PARALLEL {
            return refuse("uplink.parallel", "must be 1 to 16");
        }
        if uplink.chunk_bytes == 0 || uplink.chunk_bytes > MAX_CHUNK_LEN {
            return refuse("uplink.chunk_bytes", "must be 1 to 67108864");
        }
        if uplink.request_timeout_secs == 0 || uplink.connect_timeout_secs == 0 {
            return refuse("uplink.request_timeout_secs", "must not be 0");
        }
        if uplink.backoff_min_ms == 0 || uplink.backoff_max_ms < uplink.backoff_min_ms {
            return refuse("uplink.backoff_min_ms", "must be 1 to backoff_max_ms");
        }
        Ok(())
    }

    fn check_bearers(&self) -> Result<(), ConfigError> {
        let refuse = |setting, problem| Err(ConfigError { setting, problem });
        if self.bearers.is_empty() {
            return refuse("bearers", "must name at least one");
        }
        let mut names = BTreeSet::new();
        for bearer in &self.bearers {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            if bearer.name.is_empty() || bearer.name.len() > 64 || !bearer.name.bytes().all(plain) {
                return refuse(
                    "bearers.name",
                    "must be letters, digits, dash and underscore",
                );
            }
            if !names.insert(&bearer.name) {
                return refuse("bearers.name", "is used twice");
            }
            if bearer.source.is_some() && bearer.interface.is_some() {
                return refuse("bearers.source", "excludes bearers.interface");
            }
            if bearer.monthly_byte_budget.is_some_and(|b| b < MIN_BUDGET) {
                return refuse("bearers.monthly_byte_budget", "must be at least 262144");
            }
            if bearer.overhead_percent > 100 {
                return refuse("bearers.overhead_percent", "must be at most 100");
            }
        }
        Ok(())
    }
}
