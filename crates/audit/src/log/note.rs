//! Signed notes and checkpoints (C2SP signed-note, tlog-checkpoint), the writer's side.
//!
//! ```text
//! audit.example.org/log            <- origin, also the key's name
//! 1027                             <- number of leaves
//! 5s8Qp…=                          <- root hash, base64
//!
//! — audit.example.org/log WsD4…=   <- key id (4 bytes) and Ed25519 signature over the lines above
//! ```

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use crate::authenticator::{self, Authenticator};
use crate::hash::{Hash, sha256};

/// Signature type byte of Ed25519 (C2SP signed-note, "Signature types").
const ED25519_TYPE: u8 = 0x01;
/// Bytes of an Ed25519 seed and of an Ed25519 public key.
const KEY_BYTES: usize = 32;
/// Largest checkpoint read, in bytes; room for dozens of witness signatures.
pub(crate) const MAX_CHECKPOINT_BYTES: usize = 16 * 1024;

/// Faults of a key or a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Not a key in its text form.
    #[error("malformed key: {0}")]
    MalformedKey(&'static str),
    /// A name that a note cannot carry.
    #[error("key name {0:?} is empty, too long, or holds white space or a plus sign")]
    UnsuitableName(String),
    #[error("malformed checkpoint: {0}")]
    MalformedCheckpoint(&'static str),
    /// No signature of the given key.
    #[error("checkpoint carries no signature of {0:?}")]
    NotSigned(String),
    /// The signature of the given key does not fit.
    #[error("signature of {0:?} on the checkpoint is wrong")]
    WrongSignature(String),
    /// The checkpoint belongs to another log.
    #[error("checkpoint is of log {found:?}, not {expected:?}")]
    WrongOrigin { expected: String, found: String },
    /// The key could not be made or used.
    #[error("Ed25519 operation failed")]
    Crypto,
}

/// The log's signing key. Its name is the log's origin.
pub struct LogKey {
    name: String,
    seed: Zeroizing<[u8; KEY_BYTES]>,
    pair: Ed25519KeyPair,
    authenticating: hmac::Key,
}

/// The public half of a [`LogKey`]; its text form is `name+id+base64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    id: [u8; 4],
    public: [u8; KEY_BYTES],
}

/// A checkpoint's statement about the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's unique name.
    pub origin: String,
    pub size: u64,
    /// RFC 6962 root hash over them.
    pub root: Hash,
}

impl LogKey {
    /// The key with the secret `seed` for the log called `name`, such as `audit.example.org/log`.
    ///
    /// # Errors
    /// [`NoteError::UnsuitableName`].
    pub fn from_seed(name: &str, seed: &[u8; KEY_BYTES]) -> Result<Self, NoteError> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            seed: Zeroizing::new(*seed),
            pair: Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| NoteError::Crypto)?,
            authenticating: authenticator::derive(seed, name)?,
        })
    }

    /// A new key from the system's random source.
    ///
    /// # Errors
    /// [`NoteError::UnsuitableName`]; [`NoteError::Crypto`] when there is no randomness.
    pub fn generate(name: &str) -> Result<Self, NoteError> {
        let mut seed = Zeroizing::new([0; KEY_BYTES]);
        aws_lc_rs::rand::fill(&mut *seed).map_err(|_| NoteError::Crypto)?;
        Self::from_seed(name, &seed)
    }

    /// Reads the secret text form `PRIVATE+KEY+name+id+base64`.
    ///
    /// # Errors
    /// [`NoteError::MalformedKey`] or [`NoteError::UnsuitableName`].
    pub fn from_text(text: &str) -> Result<Self, NoteError> {
        let rest = text
            .trim_end()
            .strip_prefix("PRIVATE+KEY+")
            .ok_or(NoteError::MalformedKey("no PRIVATE+KEY prefix"))?;
        let (name, id, seed) = split_key(rest)?;
        let key = Self::from_seed(name, &seed)?;
        if key.verifier().id != id {
            return Err(NoteError::MalformedKey("key id does not fit the key"));
        }
        Ok(key)
    }

    /// The secret text form, to be kept encrypted or unreadable for others.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(vec![ED25519_TYPE]);
        bytes.extend_from_slice(&*self.seed);
        let encoded = Zeroizing::new(BASE64.encode(&*bytes));
        let id = hex::encode(self.verifier().id);
        Zeroizing::new(format!("PRIVATE+KEY+{}+{id}+{}", self.name, *encoded))
    }

    #[must_use]
    pub fn verifier(&self) -> VerifierKey {
        let mut public = [0; KEY_BYTES];
        public.copy_from_slice(self.pair.public_key().as_ref());
        VerifierKey::new(&self.name, public)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes and checks authenticators for `purpose`, such as `journal/centre`, under a key derived from this one.
    #[must_use]
    pub fn authenticator(&self, purpose: &str) -> Authenticator {
        Authenticator::new(self.authenticating.clone(), purpose)
    }

    /// The signed checkpoint over a tree of `size` leaves with `root`.
    pub(crate) fn checkpoint(&self, size: u64, root: &Hash) -> String {
        let text = format!("{}\n{size}\n{}\n", self.name, BASE64.encode(root));
        let mut signature = self.verifier().id.to_vec();
        signature.extend_from_slice(self.pair.sign(text.as_bytes()).as_ref());
        format!("{text}\n— {} {}\n", self.name, BASE64.encode(signature))
    }
}

impl VerifierKey {
    fn new(name: &str, public: [u8; KEY_BYTES]) -> Self {
        // Key id: SHA-256(name || 0x0A || type || public key)[:4].
        let digest = sha256(&[name.as_bytes(), b"\n", &[ED25519_TYPE], &public]);
        let [a, b, c, d, ..] = digest;
        Self {
            name: name.to_owned(),
            id: [a, b, c, d],
            public,
        }
    }

    /// The raw Ed25519 key.
    #[must_use]
    pub fn public_key(&self) -> &[u8; KEY_BYTES] {
        &self.public
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks the signature on a checkpoint and that it is of this key's log.
    ///
    /// # Errors
    /// A variant of [`NoteError`].
    pub fn open(&self, note: &[u8]) -> Result<Checkpoint, NoteError> {
        let bad = NoteError::MalformedCheckpoint;
        if note.len() > MAX_CHECKPOINT_BYTES {
            return Err(bad("too long"));
        }
        let note = std::str::from_utf8(note).map_err(|_| bad("not UTF-8"))?;
        let (body, signatures) = note.rsplit_once("\n\n").ok_or(bad("no blank line"))?;
        let signed = note
            .get(..=body.len())
            .ok_or(bad("no line end before the blank line"))?;
        self.check_signatures(signed, signatures)?;
        let checkpoint = parse_checkpoint(body)?;
        if checkpoint.origin != self.name {
            return Err(NoteError::WrongOrigin {
                expected: self.name.clone(),
                found: checkpoint.origin,
            });
        }
        Ok(checkpoint)
    }

    fn check_signatures(&self, signed: &str, signatures: &str) -> Result<(), NoteError> {
        let bad = NoteError::MalformedCheckpoint;
        let lines = signatures
            .strip_suffix('\n')
            .ok_or(bad("no final line end"))?;
        for line in lines.split('\n') {
            let (name, encoded) = line
                .strip_prefix("— ")
                .and_then(|rest| rest.split_once(' '))
                .ok_or(bad("signature line"))?;
            let bytes = BASE64
                .decode(encoded)
                .map_err(|_| bad("signature base64"))?;
            let (id, signature) = bytes
                .split_first_chunk::<4>()
                .ok_or(bad("short signature"))?;
            if name == self.name && *id == self.id {
                return UnparsedPublicKey::new(&ED25519, self.public)
                    .verify(signed.as_bytes(), signature)
                    .map_err(|_| NoteError::WrongSignature(self.name.clone()));
            }
        }
        Err(NoteError::NotSigned(self.name.clone()))
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![ED25519_TYPE];
        bytes.extend_from_slice(&self.public);
        let id = hex::encode(self.id);
        write!(f, "{}+{id}+{}", self.name, BASE64.encode(bytes))
    }
}

impl FromStr for VerifierKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let (name, id, public) = split_key(text.trim_end())?;
        let key = Self::new(name, *public);
        if key.id != id {
            return Err(NoteError::MalformedKey("key id does not fit the key"));
        }
        Ok(key)
    }
}

type KeyParts<'a> = (&'a str, [u8; 4], Zeroizing<[u8; KEY_BYTES]>);

fn split_key(text: &str) -> Result<KeyParts<'_>, NoteError> {
    let bad = NoteError::MalformedKey;
    // Base64 may hold plus signs, the name may not: the first two separate.
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id_text), Some(encoded)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(bad("not name+id+key"));
    };
    check_name(name)?;
    let mut id = [0; 4];
    hex::decode_to_slice(id_text, &mut id).map_err(|_| bad("key id is not 8 hex digits"))?;
    let bytes = Zeroizing::new(BASE64.decode(encoded).map_err(|_| bad("not base64"))?);
    let Some((&ED25519_TYPE, key)) = bytes.split_first() else {
        return Err(bad("not an Ed25519 key"));
    };
    let key: [u8; KEY_BYTES] = key.try_into().map_err(|_| bad("not 32 bytes"))?;
    Ok((name, id, Zeroizing::new(key)))
}

fn check_name(name: &str) -> Result<(), NoteError> {
    let unsuitable = |c: char| c.is_whitespace() || c.is_control() || c == '+';
    if name.is_empty() || name.len() > 255 || name.contains(unsuitable) {
        return Err(NoteError::UnsuitableName(name.to_owned()));
    }
    Ok(())
}

fn parse_checkpoint(body: &str) -> Result<Checkpoint, NoteError> {
    let bad = NoteError::MalformedCheckpoint;
    let mut lines = body.split('\n');
    let origin = lines.next().filter(|o| !o.is_empty());
    let origin = origin.ok_or(bad("no origin"))?.to_owned();
    let size_text = lines.next().ok_or(bad("no size"))?;
    let size: u64 = size_text.parse().map_err(|_| bad("size"))?;
    if size.to_string() != size_text {
        return Err(bad("size has a sign or leading zeros"));
    }
    let root = lines.next().ok_or(bad("no root hash"))?;
    let root = BASE64.decode(root).map_err(|_| bad("root hash base64"))?;
    let root: Hash = root.try_into().map_err(|_| bad("root hash length"))?;
    Ok(Checkpoint { origin, size, root })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> LogKey {
        LogKey::from_seed("audit.example.org/log", &[7; 32]).unwrap()
    }

    #[test]
    fn keys_survive_their_text_forms() {
        let again = LogKey::from_text(&key().to_text()).unwrap();
        assert_eq!(again.verifier(), key().verifier());
        let public = key().verifier();
        assert_eq!(public.to_string().parse::<VerifierKey>().unwrap(), public);
    }

    /// The example of the Go module golang.org/x/mod/sumdb/note, whose format this is.
    #[test]
    fn reads_a_published_verifier_key_and_note() {
        let key: VerifierKey = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
            .parse()
            .unwrap();
        let note = "If you think cryptography is the answer to your problem,\n\
                    then you don't know what your problem is.\n\n\
                    — PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
        let (body, signatures) = note.rsplit_once("\n\n").unwrap();
        key.check_signatures(&format!("{body}\n"), signatures)
            .unwrap();
        let other = body.replace("answer", "Answer");
        assert!(matches!(
            key.check_signatures(&format!("{other}\n"), signatures),
            Err(NoteError::WrongSignature(_))
        ));
    }

    #[test]
    fn checkpoints_are_read_back_and_every_byte_counts() {
        let root = [0xab; 32];
        let note = key().checkpoint(1027, &root);
        let verifier = key().verifier();
        let expected = Checkpoint {
            origin: "audit.example.org/log".into(),
            size: 1027,
            root,
        };
        assert_eq!(verifier.open(note.as_bytes()).unwrap(), expected);
        for i in 0..note.len() {
            for flip in [1, 0x80] {
                let mut bytes = note.clone().into_bytes();
                bytes[i] ^= flip;
                verifier.open(&bytes).unwrap_err();
            }
            verifier.open(&note.as_bytes()[..i]).unwrap_err();
        }
    }

    #[test]
    fn another_key_or_name_is_refused() {
        let note = key().checkpoint(0, &[0; 32]);
        let other = LogKey::from_seed("audit.example.org/log", &[8; 32]).unwrap();
        assert!(matches!(
            other.verifier().open(note.as_bytes()),
            Err(NoteError::NotSigned(_))
        ));
        for name in ["", "a b", "a+b", "a\nb"] {
            assert!(matches!(
                LogKey::from_seed(name, &[1; 32]),
                Err(NoteError::UnsuitableName(_))
            ));
        }
        let wrong_id = key().verifier().to_string().replacen('+', "+0", 1);
        assert!(wrong_id.parse::<VerifierKey>().is_err());
    }

    #[test]
    fn further_signatures_are_ignored() {
        let mut note = key().checkpoint(3, &[1; 32]);
        note.push_str(&format!(
            "— witness.example.org {}\n",
            BASE64.encode([9; 72])
        ));
        key().verifier().open(note.as_bytes()).unwrap();
    }
}
