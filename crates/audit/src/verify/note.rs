//! Keys and signed checkpoints as C2SP signed-note and tlog-checkpoint describe them.

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::prelude::{BASE64_STANDARD, Engine};

use super::finding::{Finding, FindingKind};

/// A log's public key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    name: String,
    id: Vec<u8>,
    public: Vec<u8>,
}

/// A checkpoint whose signature was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) origin: String,
    pub(super) size: u64,
    pub(super) root: [u8; 32],
}

impl Key {
    /// Reads `<name>+<hex key id>+<base64 of type byte and key>`.
    pub(super) fn parse(text: &str) -> Result<Self, Finding> {
        let bad = |detail: &str| Finding::new(FindingKind::Key, detail);
        let mut fields = text.trim().splitn(3, '+');
        let name = fields.next().unwrap_or_default();
        let id = fields.next().and_then(|id| hex::decode(id).ok());
        let key = fields.next().and_then(|k| BASE64_STANDARD.decode(k).ok());
        let (Some(id), Some(key)) = (id, key) else {
            return Err(bad("not of the form name+id+base64"));
        };
        let Some((1, public)) = key.split_first().map(|(t, public)| (*t, public)) else {
            return Err(bad("not an Ed25519 key"));
        };
        let mut hashed = name.as_bytes().to_vec();
        hashed.push(b'\n');
        hashed.extend_from_slice(&key);
        let digest = digest::digest(&digest::SHA256, &hashed);
        if name.is_empty() || public.len() != 32 || digest.as_ref().get(..4) != Some(&id[..]) {
            return Err(bad("name, id and key do not belong together"));
        }
        Ok(Self {
            name: name.to_owned(),
            public: public.to_vec(),
            id,
        })
    }

    /// Checks the signature on `note` and reads it.
    pub(super) fn open(&self, note: &[u8]) -> Result<Checkpoint, Finding> {
        let bad =
            |detail: &str| Finding::new(FindingKind::Checkpoint, detail).in_file("checkpoint");
        let note = std::str::from_utf8(note).map_err(|_| bad("not UTF-8"))?;
        // The signatures follow the last blank line; the text includes its own last newline.
        let blank = note.rfind("\n\n").ok_or_else(|| bad("no signatures"))?;
        let (text, signatures) = note.split_at(blank + 1);
        if !self.signed(text, signatures.trim_start_matches('\n'))? {
            return Err(bad("not signed by the log's key"));
        }
        let mut lines = text.lines();
        let origin = lines.next().unwrap_or_default();
        if origin != self.name {
            return Err(bad("of another log"));
        }
        let size = lines
            .next()
            .filter(|size| *size == "0" || !size.starts_with(['0', '+']))
            .and_then(|size| size.parse().ok())
            .ok_or_else(|| bad("no size"))?;
        let root = lines
            .next()
            .and_then(|root| BASE64_STANDARD.decode(root).ok())
            .and_then(|root| root.try_into().ok())
            .ok_or_else(|| bad("no root hash"))?;
        Ok(Checkpoint {
            origin: origin.to_owned(),
            size,
            root,
        })
    }

    /// Whether one of the signature lines is ours and right; lines of others are not judged.
    fn signed(&self, text: &str, signatures: &str) -> Result<bool, Finding> {
        let bad =
            |detail: &str| Finding::new(FindingKind::Checkpoint, detail).in_file("checkpoint");
        if !signatures.ends_with('\n') {
            return Err(bad("cut short"));
        }
        let mut ours = false;
        for line in signatures.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let ["\u{2014}", name, encoded] = fields[..] else {
                return Err(bad("malformed signature line"));
            };
            let bytes = BASE64_STANDARD
                .decode(encoded)
                .map_err(|_| bad("malformed signature"))?;
            let Some((id, signature)) = bytes.split_at_checked(4) else {
                return Err(bad("malformed signature"));
            };
            if name == self.name && id == self.id {
                UnparsedPublicKey::new(&ED25519, &self.public)
                    .verify(text.as_bytes(), signature)
                    .map_err(|_| bad("wrong signature"))?;
                ours = true;
            }
        }
        Ok(ours)
    }
}
