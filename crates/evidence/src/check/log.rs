//! The audit log's part: a checkpoint under the pinned key, and events that are in its tree.
//!
//! C2SP tlog-checkpoint and signed-note for the former, RFC 6962 for the latter.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::error::{CheckError, malformed};
use super::folder::Folder;
use super::trust::TrustFile;
use crate::digest::Sha256Digest;
use crate::package::{EPOCH, EpochFile, MAX_EVENTS, ed25519_pem};
use crate::receipt::Receipt;

/// Signature type byte of Ed25519 (C2SP signed-note).
const ED25519_TYPE: u8 = 1;
const KEY_ID_LEN: usize = 4;
/// Most hashes in a proof: the height of a tree of 2^64 leaves.
const MAX_PROOF: usize = 64;

/// Events that are in the log.
pub(super) struct Log {
    /// Leaves of the tree.
    pub(super) size: u64,
    pub(super) root: Sha256Digest,
    /// In the order of the log.
    pub(super) events: Vec<Event>,
    /// The event that began the epoch of the camera's chain.
    pub(super) epoch: Option<Event>,
}

/// An event with its index.
pub(super) struct Event {
    pub(super) index: u64,
    pub(super) leaf: Leaf,
}

/// The fields of a leaf that a custody record needs; unknown ones do not matter here, for the
/// leaf's exact bytes are in the tree.
#[derive(Deserialize)]
pub(super) struct Leaf {
    pub(super) role: String,
    pub(super) event: EventBody,
}

#[derive(Deserialize)]
pub(super) struct EventBody {
    #[serde(with = "time::serde::rfc3339")]
    pub(super) at: time::OffsetDateTime,
    pub(super) actor: Actor,
    pub(super) action: String,
    pub(super) resource: String,
    pub(super) outcome: String,
    #[serde(default)]
    pub(super) details: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
pub(super) struct Actor {
    pub(super) kind: String,
    pub(super) id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proofs {
    origin: String,
    receipt_index: u64,
    events: Vec<Proof>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proof {
    index: u64,
    hashes: Vec<Sha256Digest>,
}

impl Log {
    pub(super) fn read(folder: &Folder, trust: &TrustFile) -> Result<Self, CheckError> {
        let key = trust.log_key()?;
        if folder.read("log.pem")? != ed25519_pem(&key).as_bytes() {
            return Err(CheckError::Checkpoint("log.pem is not the pinned key"));
        }
        let (size, root) = checkpoint(&folder.read("checkpoint")?, &trust.log.origin, &key)?;
        let proofs: Proofs = serde_json::from_slice(&folder.read("proofs.json")?)
            .map_err(|e| malformed("proofs.json", e))?;
        if proofs.origin != trust.log.origin {
            return Err(CheckError::Checkpoint("proofs are of another log"));
        }
        let bytes = folder.read("events.jsonl")?;
        let lines = bytes
            .strip_suffix(b"\n")
            .ok_or_else(|| malformed("events.jsonl", "no line"))?;
        let lines: Vec<&[u8]> = lines.split(|b| *b == b'\n').collect();
        if lines.len() != proofs.events.len() || lines.len() > MAX_EVENTS {
            return Err(malformed("proofs.json", "number of proofs"));
        }
        let mut events: Vec<Event> = Vec::with_capacity(lines.len());
        let read = |file, line: &[u8], index, hashes: &[Sha256Digest]| {
            let leaf = hash(&[&[0], line]);
            if root_of(leaf, index, size, hashes) != Some(root) {
                return Err(CheckError::NotInLog { index });
            }
            let leaf = serde_json::from_slice(line).map_err(|e| malformed(file, e))?;
            Ok(Event { index, leaf })
        };
        for (line, proof) in lines.into_iter().zip(&proofs.events) {
            let index = proof.index;
            if events.last().is_some_and(|before| before.index >= index) {
                return Err(malformed("proofs.json", "indices do not ascend"));
            }
            events.push(read("events.jsonl", line, index, &proof.hashes)?);
        }
        let mut epoch = None;
        if folder.has(EPOCH) {
            let file: EpochFile =
                serde_json::from_slice(&folder.read(EPOCH)?).map_err(|e| malformed(EPOCH, e))?;
            epoch = Some(read(
                EPOCH,
                file.entry.as_bytes(),
                file.index,
                &file.hashes,
            )?);
        }
        if events.first().map(|e| e.index) != Some(proofs.receipt_index) {
            return Err(malformed("proofs.json", "receipt_index is not the first"));
        }
        Ok(Self {
            size,
            root,
            events,
            epoch,
        })
    }

    /// Holds a receipt's own checkpoint against the package's: of the same key, with the receipt's event,
    /// and no newer than the log that the package shows.
    pub(super) fn check_receipt(
        &self,
        receipt: &Receipt,
        trust: &TrustFile,
    ) -> Result<(), CheckError> {
        let Some(note) = &receipt.checkpoint else {
            return Ok(());
        };
        let bad = |problem| Err(CheckError::Checkpoint(problem));
        let (size, root) = checkpoint(note.as_bytes(), &trust.log.origin, &trust.log_key()?)?;
        if size <= receipt.log_index {
            return bad("of the receipt does not have the receipt's event");
        }
        if size > self.size {
            return bad("of the package is older than the receipt's: the log went back");
        }
        if size == self.size && root != self.root {
            return bad("of the receipt has another root at the same size: the log was replaced");
        }
        Ok(())
    }
}

fn hash(parts: &[&[u8]]) -> Sha256Digest {
    Sha256Digest::of(&parts.concat())
}

/// Size and root of a checkpoint that the pinned key signed.
fn checkpoint(
    note: &[u8],
    origin: &str,
    key: &[u8; 32],
) -> Result<(u64, Sha256Digest), CheckError> {
    let bad = CheckError::Checkpoint;
    let text = std::str::from_utf8(note).map_err(|_| bad("not UTF-8"))?;
    let (body, signatures) = text.split_once("\n\n").ok_or(bad("no signatures"))?;
    let mut lines = body.split('\n');
    if lines.next() != Some(origin) {
        return Err(bad("of another log"));
    }
    let size = lines.next().and_then(|line| line.parse().ok());
    let size: u64 = size.ok_or(bad("no size"))?;
    let root = lines.next().and_then(|line| STANDARD.decode(line).ok());
    let root: Option<[u8; 32]> = root.and_then(|root| root.try_into().ok());
    let root = Sha256Digest::from(root.ok_or(bad("no root"))?);
    // C2SP signed-note: the key id is the beginning of a hash over name, type and key.
    let id = hash(&[origin.as_bytes(), b"\n", &[ED25519_TYPE], key]);
    let id = id.as_bytes().get(..KEY_ID_LEN).unwrap_or_default();
    let signed = format!("{body}\n");
    let prefix = format!("\u{2014} {origin} ");
    let signature = signatures
        .split('\n')
        .filter_map(|line| STANDARD.decode(line.strip_prefix(prefix.as_str())?).ok())
        .find_map(|value| value.strip_prefix(id).map(<[u8]>::to_vec))
        .ok_or(bad("no signature of the pinned key"))?;
    UnparsedPublicKey::new(&ED25519, key)
        .verify(signed.as_bytes(), &signature)
        .map_err(|_| bad("signature of the pinned key is wrong"))?;
    Ok((size, root))
}

/// RFC 9162 section 2.1.3.2: the root that a proof leads to.
fn root_of(
    leaf: Sha256Digest,
    index: u64,
    size: u64,
    proof: &[Sha256Digest],
) -> Option<Sha256Digest> {
    if index >= size || proof.len() > MAX_PROOF {
        return None;
    }
    let (mut node, mut last, mut hash_) = (index, size.checked_sub(1)?, leaf);
    for sibling in proof {
        if last == 0 {
            return None;
        }
        if node & 1 == 1 || node == last {
            hash_ = hash(&[&[1], sibling.as_bytes(), hash_.as_bytes()]);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash_ = hash(&[&[1], hash_.as_bytes(), sibling.as_bytes()]);
        }
        node >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash_)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::{SCHEMA_2, Verdict};
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use time::OffsetDateTime;

    const ORIGIN: &str = "log.example.org";

    fn note(pair: &Ed25519KeyPair, size: u64, root: Sha256Digest) -> String {
        let key: [u8; 32] = pair.public_key().as_ref().try_into().unwrap();
        let text = format!("{ORIGIN}\n{size}\n{}\n", STANDARD.encode(root.as_bytes()));
        let id = hash(&[ORIGIN.as_bytes(), b"\n", &[ED25519_TYPE], &key]);
        let mut mark = id.as_bytes().get(..KEY_ID_LEN).unwrap().to_vec();
        mark.extend_from_slice(pair.sign(text.as_bytes()).as_ref());
        format!("{text}\n\u{2014} {ORIGIN} {}\n", STANDARD.encode(mark))
    }

    fn receipt(checkpoint: String) -> Receipt {
        Receipt {
            schema: SCHEMA_2.into(),
            block_sha256: Sha256Digest::ZERO,
            size: 1,
            device: "camera-17".into(),
            sequence: Some(1),
            manifest_sha256: Some(Sha256Digest::ZERO),
            verdict: Verdict::Accepted,
            reason: None,
            received_at: OffsetDateTime::UNIX_EPOCH,
            log_origin: ORIGIN.into(),
            log_index: 7,
            checkpoint: Some(checkpoint),
        }
    }

    #[test]
    fn checkpoint_of_a_receipt_is_held_against_the_log_of_the_package() {
        let pair = |seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        let (own, other) = (pair(1), pair(2));
        let key: [u8; 32] = own.public_key().as_ref().try_into().unwrap();
        let trust = TrustFile::new(Sha256Digest::ZERO, "1.2.3".into(), ORIGIN.into(), &key);
        let root = Sha256Digest::of(b"root");
        let log = Log {
            size: 10,
            root,
            events: Vec::new(),
            epoch: None,
        };
        let check = |note: String| log.check_receipt(&receipt(note), &trust);
        let elsewhere = Sha256Digest::of(b"elsewhere");
        // The event has index 7: eight entries hold it.
        check(note(&own, 8, elsewhere)).unwrap();
        check(note(&own, 10, root)).unwrap();
        for refused in [
            note(&own, 7, elsewhere),
            note(&own, 10, elsewhere),
            note(&own, 11, root),
            note(&other, 10, root),
            "no note".to_owned(),
        ] {
            assert!(matches!(check(refused), Err(CheckError::Checkpoint(_))));
        }
        let mut before = receipt(String::new());
        before.checkpoint = None;
        log.check_receipt(&before, &trust).unwrap();
    }
}
