//! The configuration file of `cordon run`: one section for each role.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use audit::VerifierKey;
use audit_host::SourceSettings;
use peering::PeerId;
use serde::Deserialize;

use crate::failure::{Failure, OrHint as _, Outcome};

/// Bytes of a configuration file at most; our choice.
const MAX_TEXT: u64 = 1 << 20;
/// Seconds of silence before an alarm: a batch comes every five seconds, and after a failure within eight more.
const SILENCE: std::ops::RangeInclusive<u32> = 15..=86_400;
const FIX: &str = "correct the file; docs/audit-host.md explains each setting";

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    pub audit: AuditSection,
}

/// `[audit]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSection {
    /// Folder of the host's data.
    pub data: PathBuf,
    /// Origin of the host's own log, a name without scheme that no other log has.
    pub origin: String,
    /// Where sources reach it.
    pub listen: SocketAddr,
    /// Prometheus metrics, without TLS: keep it on loopback or a management network.
    pub metrics: SocketAddr,
    /// Seconds without a word of a source before an alarm.
    #[serde(default = "silent_after")]
    pub silent_after_seconds: u32,
    /// Bytes of the disk that mirrors leave to the host's own log; at most a twentieth of it.
    #[serde(default = "reserved_bytes")]
    pub reserved_bytes: u64,
    #[serde(default)]
    pub sources: Vec<SourceSection>,
}

/// `[[audit.sources]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSection {
    name: String,
    /// The line in `audit/log.vkey` of the source.
    log_key: String,
    /// What `cordon peer show` prints at the source.
    peer: PeerId,
}

fn reserved_bytes() -> u64 {
    1 << 30
}

fn silent_after() -> u32 {
    30
}

impl RunConfig {
    pub fn load(path: &Path) -> Outcome<Self> {
        let bytes = crate::read::read_regular(path, MAX_TEXT, "name an existing file")?;
        let text = std::str::from_utf8(&bytes);
        let text = text.or_hint(format!("{} is not UTF-8", path.display()), FIX)?;
        let config: Self = toml::from_str(text).map_err(|error| {
            let place = commandline::place(text, &error);
            let message = error.message().replace('\n', " ");
            Failure::usage(format!("{}:{place}: {message}", path.display()), FIX)
        })?;
        let seconds = config.audit.silent_after_seconds;
        if !SILENCE.contains(&seconds) {
            let (least, most) = (SILENCE.start(), SILENCE.end());
            return Err(Failure::usage(
                format!(
                    "{}: audit.silent_after_seconds is {seconds}, not {least} to {most}",
                    path.display()
                ),
                FIX,
            ));
        }
        Ok(config)
    }
}

impl AuditSection {
    pub fn sources(&self) -> Outcome<Vec<SourceSettings>> {
        let settings = |source: &SourceSection| {
            let key: Result<VerifierKey, _> = source.log_key.trim().parse();
            let what = format!("audit.sources: log_key of {}", source.name);
            Ok(SourceSettings {
                name: source.name.clone(),
                log_key: key.or_hint(what, "copy the line of audit/log.vkey at the source")?,
                peer: source.peer,
            })
        };
        self.sources.iter().map(settings).collect()
    }
}
