//! How a camera stands, read from its files: also while the agent runs, and when it cannot.

use std::io;
use std::path::Path;

use evidence::spool::list_damaged;
use pki::cert::CertificateChain;
use serde::Serialize;
use time::OffsetDateTime;

use crate::config::Config;
use crate::engines;
use crate::ingest;
use crate::journal::{self, Stall};
use crate::log::{self, Contradiction};
use crate::set_aside;
use crate::trust;

/// State of a camera.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub device: String,
    /// Last instant of its certificate; none before it is enrolled.
    #[serde(with = "time::serde::rfc3339::option")]
    pub certificate_until: Option<OffsetDateTime>,
    /// Blocks that wait for a receipt.
    pub waiting_blocks: usize,
    /// Blocks that were set aside.
    pub damaged_blocks: usize,
    /// Sources that could not be sealed, in short.
    pub set_aside: set_aside::Summary,
    /// Files of the watched folder that the agent does not take, for their names.
    pub not_taken: Vec<String>,
    /// Number of the trust bundle in force; 0 while there is none.
    pub trust_bundle: u64,
    /// Entries of the centre's audit log, by the newest checkpoint.
    pub log_size: Option<u64>,
    /// Contradictions of the centre's audit log that no person has accepted.
    pub contradictions: Vec<Contradiction>,
    /// Since when contacts move nothing of the camera's journal, and why.
    pub journal_stalled: Option<Stall>,
    /// The crypto device, as the agent last knew it; none where the configuration names none.
    pub accelerator: Option<accelerator::Status>,
}

impl Status {
    /// Reads the files of `config`.
    ///
    /// # Errors
    /// Those of reading; a file that is not there yet is none.
    pub fn read(config: &Config) -> io::Result<Self> {
        let spool = &config.spool.folder;
        let log = log::folder(spool);
        Ok(Self {
            device: config.identity.device.clone(),
            certificate_until: certificate_end(&config.identity.file)?,
            waiting_blocks: blocks(&spool.join("blocks"))?,
            damaged_blocks: list_damaged(spool).map_err(io::Error::other)?.len(),
            set_aside: set_aside::Summary::of(&set_aside::list(&config.watch.rejected)?),
            not_taken: set_aside::not_taken(&config.watch.folder, ingest::is_source_name)?,
            trust_bundle: trust::known_version(&trust::folder(spool))?,
            log_size: log::newest_size(&log)?,
            contradictions: log::contradictions(&log)?,
            journal_stalled: journal::stall(spool)?,
            accelerator: engines::last_known(config)?,
        })
    }

    /// Whether a person has to look.
    #[must_use]
    pub fn needs_attention(&self, now: OffsetDateTime) -> bool {
        !self.contradictions.is_empty()
            || self.damaged_blocks > 0
            || self.journal_stalled.is_some()
            || self.set_aside.count > 0
            || !self.not_taken.is_empty()
            || self.certificate_until.is_some_and(|end| end < now)
    }

    /// Marks the contradictions of the log as seen by a person; gives their number.
    ///
    /// # Errors
    /// Those of the files, which stay then as they are.
    pub fn accept_log(config: &Config) -> io::Result<usize> {
        log::accept(&log::folder(&config.spool.folder))
    }
}

/// The certificates stand behind the encrypted key, which nobody needs for this.
fn certificate_end(path: &Path) -> io::Result<Option<OffsetDateTime>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let start = text.find("-----BEGIN CERTIFICATE-----");
    let chain = start
        .and_then(|start| text.get(start..))
        .unwrap_or_default();
    let chain = CertificateChain::from_pem(chain).map_err(io::Error::other)?;
    let end = chain.leaf().tbs_certificate.validity.not_after;
    Ok(Some(end.to_system_time().into()))
}

fn blocks(folder: &Path) -> io::Result<usize> {
    match std::fs::read_dir(folder) {
        Ok(items) => Ok(items
            .flatten()
            .filter(|item| item.path().extension().is_some_and(|e| e == "block"))
            .count()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}
