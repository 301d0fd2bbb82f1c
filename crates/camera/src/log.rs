//! The centre's audit log as a camera sees it: checkpoints that it was given, and whether they fit together.
//!
//! Every receipt carries a checkpoint of the log that has its event. The camera keeps the newest, and asks
//! on contact for proof that the log of now continues what it had seen (RFC 9162, section 2.1.4). A
//! log that went back or was replaced is reported, with both signed checkpoints kept as evidence, in
//! `spool/log`, until a person has seen it.
//!
//! Receipts count meanwhile: the block is in the archive, which the log does not hold, and were it
//! otherwise, one lost log would fill the spools of all cameras. A receipt whose checkpoint is not the
//! log's, or does not have the receipt's event, is refused.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use audit::log::merkle::verify_consistency;
use audit::{Checkpoint, Hash, NoteError, VerifierKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evidence::receipt::Receipt;
use http::{Method, Request, StatusCode};
use pki::file;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::register::{self, Register};
use crate::transport::{Connection, TransportError, body};

/// Path of the site's checkpoint and proofs.
const PATH: &str = "/intake/v1/log";
const SCHEMA: &str = "cordon.log-proof/1";
const KEY: &str = "key";
const PROVED: &str = "proved";
const NEWEST: &str = "newest";
const CONTRADICTION: &str = "contradiction-";
const ACCEPTED: &str = "accepted";
/// Most contradictions kept: the first are the evidence, and a hostile site must not fill the disk.
const MAX_CONTRADICTIONS: usize = 64;
/// Longest proof: two hashes for each level of a log of 2^63 entries.
const MAX_PROOF: usize = 128;

/// Two statements of the centre about its log that cannot both be true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contradiction {
    /// When it was noticed, by the camera's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub problem: String,
    /// The camera's value: a signed note, or a key.
    pub known: String,
    pub found: String,
}

/// Why a receipt is refused for its checkpoint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointRefused {
    #[error("checkpoint in the receipt is not of the centre's log")]
    Note(#[from] NoteError),
    #[error("checkpoint of {size} entries does not have the receipt's event {index}")]
    WithoutEvent { size: u64, index: u64 },
}

/// Why the log could not be compared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error("cannot ask for the state of the audit log")]
    Transport(#[from] TransportError),
    #[error("centre gives no state of its audit log: {0}")]
    Answer(StatusCode),
    #[error("centre's proof of its audit log is unusable: {0}")]
    Malformed(&'static str),
    #[error("centre's checkpoint is not of its log")]
    Note(#[from] NoteError),
}

#[derive(Deserialize)]
struct Proof {
    schema: String,
    checkpoint: String,
    proofs: Vec<Vec<String>>,
}

#[derive(Clone)]
struct Seen {
    note: String,
    checkpoint: Checkpoint,
}

struct Memory {
    /// File of `newest`: each receipt writes it.
    register: Register,
    key: Option<VerifierKey>,
    /// Of which it was proved that it continues everything before.
    proved: Option<Seen>,
    /// Of the receipts and answers so far.
    newest: Option<Seen>,
}

impl Memory {
    /// Keeps it over restarts, too; if that fails, what is in memory still counts.
    fn set_newest(&mut self, seen: Seen) {
        if let Err(error) = self.register.write(seen.note.as_bytes()) {
            tracing::warn!(%error, "newest checkpoint of the centre's log not kept");
        }
        self.newest = Some(seen);
    }
}

/// One camera's memory of the log.
pub(crate) struct LogMemory {
    folder: PathBuf,
    memory: Mutex<Memory>,
}

impl LogMemory {
    /// Reads what an earlier run kept in `folder`.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut memory = Memory {
            register: Register::new(folder.join(NEWEST)),
            key: None,
            proved: None,
            newest: None,
        };
        if let Some(text) = read(&folder.join(KEY))? {
            let key: VerifierKey = text.parse().map_err(io::Error::other)?;
            let seen = |name: &str| -> io::Result<Option<Seen>> {
                let Some(note) = record(&folder.join(name))? else {
                    return Ok(None);
                };
                // A camera that does not start loses pictures; one that has forgotten a checkpoint gets the next one with
                // its next receipt.
                Ok(match key.open(note.as_bytes()) {
                    Ok(checkpoint) => Some(Seen { note, checkpoint }),
                    Err(error) => {
                        tracing::error!(name, %error, "what was known of the centre's log is damaged");
                        None
                    }
                })
            };
            memory.proved = seen(PROVED)?;
            memory.newest = seen(NEWEST)?;
            memory.key = Some(key);
        }
        Ok(Self {
            folder: folder.to_owned(),
            memory: Mutex::new(memory),
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the log's key of a trust bundle. Gives a contradiction if there was another key; then
    /// everything begins anew with this one.
    pub(crate) fn use_key(&self, text: &str, now: OffsetDateTime) -> Option<Contradiction> {
        let key: VerifierKey = text.parse().ok()?;
        let mut memory = self.memory();
        let known = memory.key.as_ref().map(ToString::to_string);
        if known.as_deref() == Some(text) {
            return None;
        }
        memory.key = Some(key);
        (memory.proved, memory.newest) = (None, None);
        memory.register.remove();
        let _ = fs::remove_file(self.folder.join(PROVED));
        self.keep(KEY, text);
        known.map(|known| Contradiction {
            at: now,
            problem: "the audit log has another key".to_owned(),
            known,
            found: text.to_owned(),
        })
    }

    /// Checks a receipt's checkpoint and remembers it, if it is newer. A receipt without one, or of a
    /// log whose key is not known yet, is as good as it was before there were any.
    pub(crate) fn receipt(
        &self,
        receipt: &Receipt,
        now: OffsetDateTime,
    ) -> Result<Option<Contradiction>, CheckpointRefused> {
        let mut memory = self.memory();
        let (Some(note), Some(key)) = (&receipt.checkpoint, &memory.key) else {
            return Ok(None);
        };
        let checkpoint = key.open(note.as_bytes())?;
        if checkpoint.size <= receipt.log_index {
            return Err(CheckpointRefused::WithoutEvent {
                size: checkpoint.size,
                index: receipt.log_index,
            });
        }
        let seen = Seen {
            note: note.clone(),
            checkpoint,
        };
        if let Some(known) = &memory.newest {
            let (known_size, size) = (known.checkpoint.size, seen.checkpoint.size);
            if size == known_size && seen.checkpoint.root != known.checkpoint.root {
                let problem = "two checkpoints of the same size have different roots";
                return Ok(Some(contradiction(problem, known, &seen, now)));
            }
            // Receipts come in any order, and stored ones again.
            if size <= known_size {
                return Ok(None);
            }
        }
        memory.set_newest(seen);
        Ok(None)
    }

    /// Asks the site for its log, and holds it against what was seen.
    pub(crate) async fn follow(
        &self,
        connection: &mut Connection,
        now: OffsetDateTime,
    ) -> Result<Vec<Contradiction>, LogError> {
        let (proved, known): (Option<Checkpoint>, Vec<Seen>) = {
            let memory = self.memory();
            if memory.key.is_none() {
                return Ok(Vec::new());
            }
            let known = [&memory.proved, &memory.newest];
            let proved = memory.proved.as_ref().map(|seen| seen.checkpoint.clone());
            (proved, known.into_iter().flatten().cloned().collect())
        };
        let sizes: Vec<String> = known
            .iter()
            .map(|s| s.checkpoint.size.to_string())
            .collect();
        let request = Request::builder()
            .method(Method::GET)
            .uri(format!("{PATH}?from={}", sizes.join(",")))
            .body(body::empty())
            .map_err(|_| LogError::Malformed("request"))?;
        let answer = connection.request(request, 0).await?;
        match answer.status() {
            StatusCode::OK => self.compare(proved.as_ref(), &known, answer.body(), now),
            // A site of an earlier version.
            StatusCode::NOT_FOUND => Ok(Vec::new()),
            status => Err(LogError::Answer(status)),
        }
    }

    fn compare(
        &self,
        proved: Option<&Checkpoint>,
        known: &[Seen],
        answer: &[u8],
        now: OffsetDateTime,
    ) -> Result<Vec<Contradiction>, LogError> {
        let proof: Proof =
            serde_json::from_slice(answer).map_err(|_| LogError::Malformed("not of the schema"))?;
        if proof.schema != SCHEMA || proof.proofs.len() != known.len() {
            return Err(LogError::Malformed("other schema, or number of proofs"));
        }
        let mut memory = self.memory();
        // The answer on another connection was quicker, and has told of what it contradicts; the next contact goes on from there.
        if memory.proved.as_ref().map(|seen| &seen.checkpoint) != proved {
            return Ok(Vec::new());
        }
        let key = memory.key.as_ref().ok_or(LogError::Malformed("no key"))?;
        let found = Seen {
            checkpoint: key.open(proof.checkpoint.as_bytes())?,
            note: proof.checkpoint,
        };
        let mut contradictions = Vec::new();
        for (seen, hashes) in known.iter().zip(&proof.proofs) {
            let hashes = decoded(hashes)?;
            let (old, new) = (&seen.checkpoint, &found.checkpoint);
            if new.size < old.size {
                let problem = "the audit log is shorter than it was: it was put back";
                contradictions.push(contradiction(problem, seen, &found, now));
            } else if !verify_consistency(old.size, &old.root, new.size, &new.root, &hashes) {
                let problem = "the audit log does not continue what it was: it was replaced";
                contradictions.push(contradiction(problem, seen, &found, now));
            }
        }
        // Also after a contradiction, which is then on the disk: each is reported once.
        self.keep(PROVED, &found.note);
        let size = found.checkpoint.size;
        memory.proved = Some(found.clone());
        // A receipt that came meanwhile may have a newer one, which the next answer proves.
        let newer = memory
            .newest
            .as_ref()
            .is_some_and(|n| n.checkpoint.size > size);
        if !newer || !contradictions.is_empty() {
            memory.set_newest(found);
        }
        Ok(contradictions)
    }

    /// Keeps the evidence of a contradiction.
    pub(crate) fn record(&self, contradiction: &Contradiction) {
        let number = contradictions(&self.folder).map_or(MAX_CONTRADICTIONS, |all| all.len());
        if number >= MAX_CONTRADICTIONS {
            return;
        }
        let text = serde_json::to_string_pretty(contradiction).unwrap_or_default();
        self.keep(&format!("{CONTRADICTION}{number:02}.json"), &text);
    }

    /// Writes a file durably. A full disk must not keep receipts from making room on it: what is in
    /// memory still counts then.
    fn keep(&self, name: &str, text: &str) {
        if let Err(error) = file::write_atomic(&self.folder.join(name), text.as_bytes(), 0o600) {
            tracing::warn!(%error, name, "state of the centre's log not kept");
        }
    }
}

/// Folder of what a camera remembers of the log.
pub(crate) fn folder(spool: &Path) -> PathBuf {
    spool.join("log")
}

/// The contradictions that no person has accepted, oldest first.
///
/// # Errors
/// Those of reading the folder.
pub(crate) fn contradictions(folder: &Path) -> io::Result<Vec<Contradiction>> {
    let mut names = Vec::new();
    match fs::read_dir(folder) {
        Ok(items) => {
            for item in items {
                names.push(item?.file_name());
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    names.retain(|name| name.to_string_lossy().starts_with(CONTRADICTION));
    names.sort();
    names
        .iter()
        .map(|name| {
            let bytes = fs::read(folder.join(name))?;
            serde_json::from_slice(&bytes).map_err(io::Error::other)
        })
        .collect()
}

/// Moves the contradictions out of the way, as a person says who has seen them; gives their number.
pub(crate) fn accept(folder: &Path) -> io::Result<usize> {
    let count = contradictions(folder)?.len();
    let accepted = folder.join(ACCEPTED);
    fs::create_dir_all(&accepted)?;
    let stamp = OffsetDateTime::now_utc().unix_timestamp();
    for item in fs::read_dir(folder)? {
        let item = item?;
        let name = item.file_name();
        if name.to_string_lossy().starts_with(CONTRADICTION) {
            let target = accepted.join(format!("{stamp}-{}", name.to_string_lossy()));
            fs::rename(item.path(), target)?;
        }
    }
    Ok(count)
}

/// Entries of the log by the newest checkpoint, for people.
pub(crate) fn newest_size(folder: &Path) -> io::Result<Option<u64>> {
    let note = record(&folder.join(NEWEST))?;
    Ok(note.and_then(|note| note.lines().nth(1)?.parse().ok()))
}

fn contradiction(problem: &str, known: &Seen, found: &Seen, now: OffsetDateTime) -> Contradiction {
    Contradiction {
        at: now,
        problem: problem.to_owned(),
        known: known.note.clone(),
        found: found.note.clone(),
    }
}

fn decoded(hashes: &[String]) -> Result<Vec<Hash>, LogError> {
    if hashes.len() > MAX_PROOF {
        return Err(LogError::Malformed("proof is too long"));
    }
    let hash = |text: &String| STANDARD.decode(text).ok()?.try_into().ok();
    let hashes: Option<Vec<Hash>> = hashes.iter().map(hash).collect();
    hashes.ok_or(LogError::Malformed("a hash is none"))
}

/// The newest record of a register, or the content of a file that is none.
fn record(path: &Path) -> io::Result<Option<String>> {
    let record = register::read(path)?;
    Ok(record.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
