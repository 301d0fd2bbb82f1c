//! The custody package: a folder that a court's expert checks with `openssl` and a short script.
//!
//! ```text
//! README.md              what it is, and the commands that check it
//! SHA256SUMS             hash of every other file but the signature over itself
//! SHA256SUMS.sig         signature over SHA256SUMS by the centre (raw, not CMS)
//! block.cordon           the sealed block, unchanged
//! manifest.p7s           the camera's signed manifest, as it was inside the block
//! manifest.json          its content
//! media/NN-NAME          the decrypted media
//! receipt.p7s            the centre's signed receipt
//! receipt.json           its content
//! camera.pem  centre.pem certificate chains, leaf first
//! root.pem               the trust anchor
//! crls/NN.pem            revocation lists
//! events.jsonl           entries of the audit log about this block, one a line
//! proofs.json            their inclusion proofs
//! checkpoint             the signed state of the log
//! log.pem                public key of the log
//! verify_inclusion.py    checks the proofs, with Python's standard library
//! ```
//!
//! Every file but `SHA256SUMS.sig` is under the signature of `SHA256SUMS`, and every byte of a raw
//! signature counts, so that no byte of the folder can change unnoticed. (A CMS message would carry
//! bytes that no verifier looks at.) Whoever reads the package must get the root's fingerprint from
//! elsewhere; nothing inside a folder can prove its own origin.

mod readme;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pki::cert::CertificateChain;
use pki::key::{KeyError, PrivateKey};
use serde::Serialize;
use time::OffsetDateTime;

use crate::cms::{self, CmsError};
use crate::digest::Sha256Digest;
use crate::manifest::{Manifest, ManifestError};
use crate::open::OpenError;
use crate::receipt::{Receipt, ReceiptError};

use writer::Folder;

/// Most audit events in a package.
pub const MAX_EVENTS: usize = 10_000;

/// Gives the plaintext of medium `index` to a writer; [`crate::open::Opened::read_medium`] is one.
pub type ReadMedium<'a> = dyn FnMut(usize, &mut dyn io::Write) -> Result<u64, OpenError> + 'a;

/// One entry of the audit log, with its proof.
#[derive(Clone, Debug)]
pub struct CustodyEvent {
    /// The entry's exact bytes, which are one line of JSON.
    pub entry: Vec<u8>,
    /// Its index in the log, from 0.
    pub index: u64,
    /// RFC 6962 inclusion proof in the tree of the checkpoint, lowest first.
    pub proof: Vec<[u8; 32]>,
}

/// The log's state that the proofs lead to.
#[derive(Clone, Debug)]
pub struct LogProof {
    /// Signed note (C2SP tlog-checkpoint), with an Ed25519 signature by the key `origin`.
    pub checkpoint: String,
    /// Origin line, which is also the name of the key.
    pub origin: String,
    /// The log's Ed25519 public key, raw.
    pub public_key: [u8; 32],
    /// The events, in the order of the log.
    pub events: Vec<CustodyEvent>,
}

/// Everything that goes into a package.
pub struct Package<'a> {
    /// Path of the sealed block.
    pub block: &'a Path,
    /// The camera's signed manifest, as [`crate::open::Opened::signed_data_der`].
    pub signed_manifest: &'a [u8],
    /// The camera's certificate and issuers.
    pub camera_chain: &'a CertificateChain,
    /// The centre's signed receipt.
    pub receipt: &'a [u8],
    /// The centre's certificate and issuers.
    pub centre_chain: &'a CertificateChain,
    /// The centre's key, which signs the package.
    pub centre_key: &'a PrivateKey,
    /// The trust anchor, in PEM.
    pub root_pem: &'a str,
    /// Revocation lists, each in PEM.
    pub crls_pem: &'a [String],
    /// The audit log's part.
    pub log: &'a LogProof,
    /// Who asked for the package and why: one line for the README.
    pub purpose: &'a str,
    /// When the package is made.
    pub now: OffsetDateTime,
}

/// Why a package could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The folder exists already.
    #[error("folder {path:?} exists already")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The manifest's or receipt's signature is not valid.
    #[error("signature of the {part} is not valid")]
    Signature {
        /// Which of the two.
        part: &'static str,
        /// The cause.
        source: CmsError,
    },
    /// The signed content is not a manifest.
    #[error("manifest is not acceptable")]
    Manifest(#[source] ManifestError),
    /// The signed content is not a receipt.
    #[error("receipt is not acceptable")]
    Receipt(#[source] ReceiptError),
    /// Two parts do not belong together.
    #[error("{part} does not match the rest of the package")]
    Inconsistent {
        /// The part that differs.
        part: &'static str,
    },
    /// A medium could not be decrypted.
    #[error("cannot read medium {index}")]
    Medium {
        /// Its index, from 0.
        index: usize,
        /// The cause.
        source: OpenError,
    },
    /// The centre's key could not sign the package.
    #[error("cannot sign the package")]
    Sign(#[source] KeyError),
    /// A certificate or structure could not be encoded.
    #[error("cannot encode {part}")]
    Encode {
        /// What it was.
        part: &'static str,
    },
    /// The folder could not be written.
    #[error("cannot write the package")]
    Io(#[source] io::Error),
}

impl ExportError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Exists { .. } => "export-exists",
            Self::Signature { .. } => "export-signature",
            Self::Manifest(_) => "export-manifest",
            Self::Receipt(_) => "export-receipt",
            Self::Inconsistent { .. } => "export-inconsistent",
            Self::Medium { .. } => "export-medium",
            Self::Sign(_) => "export-sign",
            Self::Encode { .. } => "export-encode",
            Self::Io(_) => "export-io",
        }
    }
}

#[derive(Serialize)]
struct ProofFile<'a> {
    origin: &'a str,
    receipt_index: u64,
    events: Vec<ProofEntry>,
}

#[derive(Serialize)]
struct ProofEntry {
    index: u64,
    hashes: Vec<String>,
}

/// Writes the package into the new folder `target`.
///
/// It is written beside `target` first and renamed when complete, so that a package is whole or
/// absent. The parts are checked against each other: what is exported verifies.
///
/// # Errors
/// [`ExportError`], one variant per reason.
pub fn write(
    package: &Package<'_>,
    read_medium: &mut ReadMedium<'_>,
    target: &Path,
) -> Result<(), ExportError> {
    let (manifest, manifest_bytes, signed_at) = verified_manifest(package)?;
    let (receipt, receipt_bytes, receipted_at) = verified_receipt(package)?;
    check_log(package.log, &receipt)?;
    if package.purpose.contains(['\n', '\r']) {
        return Err(ExportError::Inconsistent { part: "purpose" });
    }
    if receipt.manifest_sha256 != Some(Sha256Digest::of(&manifest_bytes)) {
        return Err(ExportError::Inconsistent { part: "receipt" });
    }
    let mut folder = Folder::begin(target)?;
    let block_sha256 = folder.copy("block.cordon", package.block)?;
    if block_sha256 != receipt.block_sha256 {
        return Err(ExportError::Inconsistent { part: "block" });
    }
    folder.write("manifest.p7s", package.signed_manifest)?;
    folder.write("manifest.json", &manifest_bytes)?;
    folder.write("receipt.p7s", package.receipt)?;
    folder.write("receipt.json", &receipt_bytes)?;
    let media = write_media(&mut folder, &manifest, read_medium)?;
    write_trust(&mut folder, package)?;
    write_log(&mut folder, package.log, receipt.log_index)?;
    let facts = readme::Facts {
        package,
        manifest: &manifest,
        receipt: &receipt,
        signed_at,
        receipted_at,
        media: &media,
        file_count: folder.final_count(),
    };
    folder.write("README.md", readme::render(&facts).as_bytes())?;
    folder.finish(package.centre_key)
}

fn verified_manifest(
    package: &Package<'_>,
) -> Result<(Manifest, Vec<u8>, OffsetDateTime), ExportError> {
    let verified = cms::parse_signed_data(package.signed_manifest)
        .and_then(|m| m.verify())
        .map_err(|source| ExportError::Signature {
            part: "manifest",
            source,
        })?;
    if verified.signer_chain.leaf() != package.camera_chain.leaf() {
        return Err(ExportError::Inconsistent {
            part: "camera certificate",
        });
    }
    let manifest = Manifest::parse_canonical(&verified.content).map_err(ExportError::Manifest)?;
    Ok((manifest, verified.content, verified.signing_time))
}

fn verified_receipt(
    package: &Package<'_>,
) -> Result<(Receipt, Vec<u8>, OffsetDateTime), ExportError> {
    let verified = cms::parse_signed_data(package.receipt)
        .and_then(|m| m.verify())
        .map_err(|source| ExportError::Signature {
            part: "receipt",
            source,
        })?;
    let receipt = Receipt::parse(&verified.content).map_err(ExportError::Receipt)?;
    Ok((receipt, verified.content, verified.signing_time))
}

/// Checks what the script will rely on: one line per entry, and the receipt's entry among them.
fn check_log(log: &LogProof, receipt: &Receipt) -> Result<(), ExportError> {
    let bad = |part| Err(ExportError::Inconsistent { part });
    if log.events.len() > MAX_EVENTS {
        return bad("number of audit events");
    }
    if log.events.iter().any(|e| e.entry.contains(&b'\n')) {
        return bad("audit event with a line break");
    }
    if log.origin != receipt.log_origin || log.origin.contains(['\n', '\'', '"']) {
        return bad("log origin");
    }
    if log.checkpoint.lines().next() != Some(log.origin.as_str()) {
        return bad("checkpoint");
    }
    if !log.events.iter().any(|e| e.index == receipt.log_index) {
        return bad("audit event of the receipt");
    }
    Ok(())
}

/// File names of the media, in order.
fn write_media(
    folder: &mut Folder,
    manifest: &Manifest,
    read_medium: &mut ReadMedium<'_>,
) -> Result<Vec<String>, ExportError> {
    let mut names = Vec::new();
    for (index, medium) in manifest.media.iter().enumerate() {
        // Names are safe for a file system by the manifest's rules; here also for a shell.
        let safe: String = medium
            .name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let name = format!("media/{:02}-{safe}", index.saturating_add(1));
        let hash = folder.stream(&name, |out| {
            read_medium(index, out)
                .map(|_| ())
                .map_err(|source| ExportError::Medium { index, source })
        })?;
        if hash != medium.sha256 {
            return Err(ExportError::Inconsistent { part: "medium" });
        }
        names.push(name);
    }
    Ok(names)
}

fn write_trust(folder: &mut Folder, package: &Package<'_>) -> Result<(), ExportError> {
    let pem = |chain: &CertificateChain| {
        chain.to_pem().map_err(|_| ExportError::Encode {
            part: "certificates",
        })
    };
    folder.write("camera.pem", pem(package.camera_chain)?.as_bytes())?;
    folder.write("centre.pem", pem(package.centre_chain)?.as_bytes())?;
    folder.write("root.pem", package.root_pem.as_bytes())?;
    for (index, crl) in package.crls_pem.iter().enumerate() {
        let name = format!("crls/{:02}.pem", index.saturating_add(1));
        folder.write(&name, crl.as_bytes())?;
    }
    Ok(())
}

fn write_log(folder: &mut Folder, log: &LogProof, receipt_index: u64) -> Result<(), ExportError> {
    let mut lines = Vec::new();
    for event in &log.events {
        lines.extend_from_slice(&event.entry);
        lines.push(b'\n');
    }
    folder.write("events.jsonl", &lines)?;
    let proofs = ProofFile {
        origin: &log.origin,
        receipt_index,
        events: log
            .events
            .iter()
            .map(|e| ProofEntry {
                index: e.index,
                hashes: e.proof.iter().map(hex::encode).collect(),
            })
            .collect(),
    };
    let proofs = serde_json::to_vec(&proofs).map_err(|_| ExportError::Encode { part: "proofs" })?;
    folder.write("proofs.json", &proofs)?;
    folder.write("checkpoint", log.checkpoint.as_bytes())?;
    folder.write("log.pem", ed25519_pem(&log.public_key).as_bytes())?;
    folder.write("verify_inclusion.py", readme::SCRIPT.as_bytes())
}

/// An Ed25519 key as a PEM `SubjectPublicKeyInfo` (RFC 8410 section 4).
fn ed25519_pem(raw: &[u8; 32]) -> String {
    const PREFIX: [u8; 12] = [
        0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
    ];
    let mut der = PREFIX.to_vec();
    der.extend_from_slice(raw);
    format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(der)
    )
}
