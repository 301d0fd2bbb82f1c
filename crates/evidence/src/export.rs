//! The custody package: what a court's expert checks with `openssl` and a short script.
//!
//! ```text
//! README.md              what it is, and how to check it
//! package.json           which violation, when, for whom, and its place in the log
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
//! events.jsonl           the custody record: entries of the audit log, one a line
//! proofs.json            their inclusion proofs
//! checkpoint             the signed state of the log
//! epoch.json             the event that began the epoch of the camera's chain, after the first one
//! log.pem                public key of the log
//! verify_package.py      the script that checks a package; whoever checks uses an own copy
//! ```
//!
//! Every file but `SHA256SUMS.sig` is under the signature of `SHA256SUMS`, and every byte of a raw
//! signature counts, so that no byte of the package can change unnoticed. (A CMS message would carry
//! bytes that no verifier looks at.) [`crate::check`] is the verifier; what it relies on comes from a
//! trust file, for nothing inside a package can prove its own origin.
//!
//! A package is written file after file to a [`Target`], each once and from beginning to end, so that
//! a target may be a stream.

mod error;
mod readme;
mod writer;

use std::fs::File;
use std::io;
use std::path::Path;

use pki::cert::CertificateChain;
use pki::key::PrivateKey;

use serde::Serialize;
use time::OffsetDateTime;

use crate::cms;
use crate::digest::Sha256Digest;
use crate::manifest::Manifest;
use crate::open::OpenError;
use crate::package::{EPOCH, EpochFile, PACKAGE_SCHEMA, PackageFile, ed25519_pem};
use crate::receipt::Receipt;

pub use crate::package::{MAX_EVENTS, medium_name};
pub use error::ExportError;
pub use readme::SCRIPT;
use writer::Writer;
pub use writer::{Fill, FolderTarget, Target};

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
    pub violation: &'a str,
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
    /// The event that began the epoch of the camera's chain, with its proof; `None` in the first epoch.
    pub epoch: Option<&'a CustodyEvent>,
    /// Person and reason of the package: one line for the README.
    pub purpose: &'a str,
    /// When the package is made.
    pub now: OffsetDateTime,
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

/// Writes the package to `target`.
///
/// The parts are checked against each other: what is exported verifies. After an error the target
/// must not be taken for a package.
///
/// # Errors
/// [`ExportError`], one variant per reason.
pub fn write(
    package: &Package<'_>,
    read_medium: &mut ReadMedium<'_>,
    target: &mut dyn Target,
) -> Result<(), ExportError> {
    let (manifest, manifest_bytes, signed_at) = verified_manifest(package)?;
    let (receipt, receipt_bytes) = verified_receipt(package)?;
    let export_index = check_log(package.log, &receipt)?;
    if package.purpose.contains(['\n', '\r']) {
        return Err(ExportError::Inconsistent { part: "purpose" });
    }
    if receipt.manifest_sha256 != Some(Sha256Digest::of(&manifest_bytes)) {
        return Err(ExportError::Inconsistent { part: "receipt" });
    }
    let mut out = Writer::new(target);
    let block_sha256 = out.stream("block.cordon", |out| {
        let mut source = File::open(package.block).map_err(ExportError::Io)?;
        io::copy(&mut source, out).map_err(ExportError::Io)?;
        Ok(())
    })?;
    if block_sha256 != receipt.block_sha256 {
        return Err(ExportError::Inconsistent { part: "block" });
    }
    out.write("manifest.p7s", package.signed_manifest)?;
    out.write("manifest.json", &manifest_bytes)?;
    out.write("receipt.p7s", package.receipt)?;
    out.write("receipt.json", &receipt_bytes)?;
    let media = write_media(&mut out, &manifest, read_medium)?;
    write_trust(&mut out, package)?;
    write_log(&mut out, package.log, receipt.log_index)?;
    if let Some(event) = package.epoch {
        write_epoch(&mut out, event, receipt.log_index)?;
    }
    write_package_file(&mut out, package, receipt.log_index, export_index)?;
    let facts = readme::Facts {
        package,
        manifest: &manifest,
        receipt: &receipt,
        signed_at,
        media: &media,
    };
    out.write("README.md", readme::render(&facts).as_bytes())?;
    out.finish(package.centre_key)
}

fn write_package_file(
    out: &mut Writer<'_>,
    package: &Package<'_>,
    receipt_index: u64,
    export_index: u64,
) -> Result<(), ExportError> {
    let file = PackageFile {
        schema: PACKAGE_SCHEMA.to_owned(),
        violation: package.violation.to_owned(),
        made_at: package.now,
        purpose: package.purpose.to_owned(),
        receipt_index,
        export_index,
    };
    let bytes = serde_json_canonicalizer::to_vec(&file).map_err(|_| ExportError::Encode {
        part: "package.json",
    })?;
    out.write("package.json", &bytes)
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

fn verified_receipt(package: &Package<'_>) -> Result<(Receipt, Vec<u8>), ExportError> {
    let verified = cms::parse_signed_data(package.receipt)
        .and_then(|m| m.verify())
        .map_err(|source| ExportError::Signature {
            part: "receipt",
            source,
        })?;
    let receipt = Receipt::parse(&verified.content).map_err(ExportError::Receipt)?;
    Ok((receipt, verified.content))
}

/// Checks what a verifier will rely on: one line per entry, and the receipt's entry the first of
/// them. Gives the index of the last, which is the export's.
fn check_log(log: &LogProof, receipt: &Receipt) -> Result<u64, ExportError> {
    let bad = |part| Err(ExportError::Inconsistent { part });
    if log.events.len() > MAX_EVENTS {
        return bad("number of audit events");
    }
    if log.events.iter().any(|e| e.entry.contains(&b'\n')) {
        return bad("audit event with a line break");
    }
    if log.origin != receipt.log_origin {
        return bad("log origin");
    }
    if log.checkpoint.lines().next() != Some(log.origin.as_str()) {
        return bad("checkpoint");
    }
    match (log.events.first(), log.events.last()) {
        (Some(first), Some(last)) if first.index == receipt.log_index => Ok(last.index),
        _ => bad("audit event of the receipt"),
    }
}

fn write_epoch(
    out: &mut Writer<'_>,
    event: &CustodyEvent,
    receipt_index: u64,
) -> Result<(), ExportError> {
    if event.index >= receipt_index {
        return Err(ExportError::Inconsistent { part: "epoch" });
    }
    let encode = || ExportError::Encode { part: EPOCH };
    let file = EpochFile {
        entry: String::from_utf8(event.entry.clone()).map_err(|_| encode())?,
        hashes: event
            .proof
            .iter()
            .copied()
            .map(Sha256Digest::from)
            .collect(),
        index: event.index,
    };
    let bytes = serde_json_canonicalizer::to_vec(&file).map_err(|_| encode())?;
    out.write(EPOCH, &bytes)
}

/// File names of the media, in order.
fn write_media(
    out: &mut Writer<'_>,
    manifest: &Manifest,
    read_medium: &mut ReadMedium<'_>,
) -> Result<Vec<String>, ExportError> {
    let mut names = Vec::new();
    for (index, medium) in manifest.media.iter().enumerate() {
        let name = medium_name(index, &medium.name);
        let hash = out.stream(&name, |out| {
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

fn write_trust(out: &mut Writer<'_>, package: &Package<'_>) -> Result<(), ExportError> {
    let pem = |chain: &CertificateChain| {
        chain.to_pem().map_err(|_| ExportError::Encode {
            part: "certificates",
        })
    };
    out.write("camera.pem", pem(package.camera_chain)?.as_bytes())?;
    out.write("centre.pem", pem(package.centre_chain)?.as_bytes())?;
    out.write("root.pem", package.root_pem.as_bytes())?;
    for (index, crl) in package.crls_pem.iter().enumerate() {
        let name = format!("crls/{:02}.pem", index.saturating_add(1));
        out.write(&name, crl.as_bytes())?;
    }
    Ok(())
}

fn write_log(out: &mut Writer<'_>, log: &LogProof, receipt_index: u64) -> Result<(), ExportError> {
    let mut lines = Vec::new();
    for event in &log.events {
        lines.extend_from_slice(&event.entry);
        lines.push(b'\n');
    }
    out.write("events.jsonl", &lines)?;
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
    out.write("proofs.json", &proofs)?;
    out.write("checkpoint", log.checkpoint.as_bytes())?;
    out.write("log.pem", ed25519_pem(&log.public_key).as_bytes())?;
    out.write("verify_package.py", SCRIPT.as_bytes())
}
