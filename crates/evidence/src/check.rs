//! Checks a custody package against what the verifier knew before: a [`TrustFile`].
//!
//! Nothing inside a package proves where it comes from. The trust file pins the root certificate and
//! the audit log's public key; everything else follows from these two, and each certificate must
//! have the *role* in which it appears. `docs/formats.md` is the normative text; the numbers of its
//! steps stand beside the code here.
//!
//! Revocation is decided, not displayed: at the receipt's time for the camera, at the time that the
//! log has for it for the receipt's signer, at the export's time for the package's signer.

mod custody;
mod error;
mod folder;
mod log;
mod revocation;
mod trust;

use std::path::Path;

use pki::cert::{self, Certificate, CertificateChain};
use pki::oid::ExtensionArc;
use pki::path::{Identity, Purpose, TrustStore};
use pki::profile::ServiceRole;
use serde::Serialize;
use time::{Duration, OffsetDateTime};

pub use crate::package::{PACKAGE_SCHEMA, PackageFile};
pub use error::CheckError;
pub use trust::{LogTrust, SCHEMA as TRUST_SCHEMA, TrustFile};

use crate::cms::{self, Verified};
use crate::digest::Sha256Digest;
use crate::manifest::Manifest;
use crate::names;
use crate::receipt::{Receipt, Verdict};
use error::malformed;
use folder::Folder;
use revocation::{Lists, Role};

/// Distance by which the camera's clock may be ahead of the centre's.
const CLOCK_SKEW: Duration = Duration::minutes(5);

/// Facts that a package proves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub violation: String,
    /// The camera that signed the facts and the media.
    pub device: String,
    /// Its number for them.
    pub sequence: u64,
    /// Epoch of its chain: how often it had been replaced.
    pub epoch: u64,
    /// When the camera says that it saw them.
    #[serde(with = "time::serde::rfc3339")]
    pub captured_at: OffsetDateTime,
    /// When the centre had received the block.
    #[serde(with = "time::serde::rfc3339")]
    pub received_at: OffsetDateTime,
    /// When the package was exported, by the log.
    #[serde(with = "time::serde::rfc3339")]
    pub exported_at: OffsetDateTime,
    /// SHA-256 of the sealed block.
    pub block_sha256: Sha256Digest,
    /// Events of the custody record, complete up to the export.
    pub events: u64,
    /// Entries of the log at its checkpoint.
    pub log_size: u64,
    /// Until when revocations are known, the oldest list deciding.
    #[serde(with = "time::serde::rfc3339")]
    pub revocations_until: OffsetDateTime,
    /// Remarks that do not make the package invalid but should be known.
    pub notes: Vec<String>,
}

/// Checks the package in `folder`.
///
/// `extra_lists` are revocation lists in DER that the verifier brings, newer than those of the
/// package; `now` is for their dates only.
///
/// # Errors
/// [`CheckError`], the first reason found; a package is valid or it is not.
pub fn check(
    folder: &Path,
    trust: &TrustFile,
    extra_lists: &[Vec<u8>],
    now: OffsetDateTime,
) -> Result<Report, CheckError> {
    let folder = Folder::open(folder)?;
    // 1: the form. 2: the root.
    let package = package_file(&folder)?;
    let sums = folder.check_sums()?;
    let store = store(&folder, trust)?;
    // 3: the log.
    let log = log::Log::read(&folder, trust)?;
    // 4: the camera's statement and the media. 5: the receipt.
    let (manifest, signed_manifest) = manifest(&folder)?;
    let (receipt, signed_receipt) = receipt(&folder)?;
    check_pair(&folder, &manifest, &signed_manifest, &receipt)?;
    log.check_receipt(&receipt, trust)?;
    folder.check_media(&manifest)?;
    // 6: custody.
    let custody = custody::check(&log, &package, &receipt)?;
    // 7: roles and revocation.
    let lists = Lists::read(&folder, extra_lists, custody.exported_at, now)?;
    let mut notes = Vec::new();
    let mut until = custody.exported_at;
    let camera = role(
        &store,
        &signed_manifest.signer_chain,
        Purpose::DeviceSigner,
        signed_manifest.signing_time,
        "camera",
    )?;
    if camera.0.common_name != manifest.device {
        return Err(CheckError::Mismatch("device of the camera's certificate"));
    }
    let signer = role(
        &store,
        &signed_receipt.signer_chain,
        Purpose::ServiceSigner,
        signed_receipt.signing_time,
        "receipt",
    )?;
    if names::service_role(signed_receipt.signer_chain.leaf()) != Some(ServiceRole::Receipts) {
        return Err(CheckError::Mismatch("role of the receipt's signer"));
    }
    let maker_chain = chain(&folder, "centre.pem")?;
    let maker = role(
        &store,
        &maker_chain,
        Purpose::ServiceSigner,
        custody.exported_at,
        "package",
    )?;
    if names::service_role(maker_chain.leaf()) != Some(ServiceRole::Receipts) {
        return Err(CheckError::Mismatch("role of the package's signer"));
    }
    folder.check_signature(maker_chain.leaf(), &sums)?;
    let received_at = receipt.received_at;
    let camera_signed = Some(signed_manifest.signing_time);
    for ((_, path), name, at, signed) in [
        (&camera, "camera", received_at, camera_signed),
        (&signer, "receipt", received_at.max(custody.logged_at), None),
        (&maker, "package", custody.exported_at, None),
    ] {
        let role = Role {
            name,
            path,
            at,
            signed,
        };
        until = until.min(lists.decide(&role, &mut notes)?);
    }
    Ok(Report {
        violation: package.violation,
        device: manifest.device,
        sequence: manifest.sequence,
        epoch: custody.epoch,
        captured_at: manifest.captured_at,
        received_at,
        exported_at: custody.exported_at,
        block_sha256: receipt.block_sha256,
        events: log.events.len() as u64,
        log_size: log.size,
        revocations_until: until,
        notes,
    })
}

fn package_file(folder: &Folder) -> Result<PackageFile, CheckError> {
    let package: PackageFile =
        serde_json::from_slice(&folder.read("package.json")?).map_err(|source| {
            CheckError::Malformed {
                file: "package.json".to_owned(),
                problem: source.to_string(),
            }
        })?;
    if package.schema != PACKAGE_SCHEMA {
        return Err(CheckError::UnknownSchema(package.schema));
    }
    Ok(package)
}

fn chain(folder: &Folder, name: &str) -> Result<CertificateChain, CheckError> {
    let text = String::from_utf8(folder.read(name)?).map_err(|e| malformed(name, e))?;
    CertificateChain::from_pem(&text).map_err(|e| malformed(name, e))
}

/// The pinned root, with the issuing authorities of the package as candidates for paths: none of
/// them is trusted for being there.
fn store(folder: &Folder, trust: &TrustFile) -> Result<TrustStore, CheckError> {
    let roots = chain(folder, "root.pem")?;
    let found = roots.leaf_fingerprint();
    if roots.certificates().len() != 1 || found != trust.root_sha256.to_string() {
        return Err(CheckError::OtherRoot { found });
    }
    let arc = trust
        .extension_arc
        .parse()
        .ok()
        .and_then(|arc| ExtensionArc::under(arc).ok())
        .ok_or(CheckError::Trust("extension_arc is no object identifier"))?;
    let mut candidates: Vec<Certificate> = Vec::new();
    for name in ["camera.pem", "centre.pem"] {
        let chain = chain(folder, name)?;
        candidates.extend(chain.certificates().iter().skip(1).cloned());
    }
    let store = TrustStore::new(&[roots.leaf().clone()], &candidates)
        .map_err(|e| malformed("root.pem", e))?;
    Ok(store.with_arc(arc))
}

fn role(
    store: &TrustStore,
    chain: &CertificateChain,
    purpose: Purpose,
    at: OffsetDateTime,
    name: &'static str,
) -> Result<(Identity, Vec<Certificate>), CheckError> {
    store
        .validate_path(chain.ders(), purpose, at)
        .map_err(|source| CheckError::Path { role: name, source })
}

/// Verifies `NAME.p7s`; `NAME.json` must be its content.
fn signed(folder: &Folder, name: &'static str) -> Result<Verified, CheckError> {
    let der = folder.read(&format!("{name}.p7s"))?;
    let verified = cms::parse_signed_data(&der)
        .and_then(|message| message.verify())
        .map_err(|source| CheckError::Signature { name, source })?;
    if folder.read(&format!("{name}.json"))? != verified.content {
        return Err(CheckError::Mismatch(
            "JSON file and signed content of manifest or receipt",
        ));
    }
    Ok(verified)
}

fn manifest(folder: &Folder) -> Result<(Manifest, Verified), CheckError> {
    let verified = signed(folder, "manifest")?;
    let manifest =
        Manifest::parse_canonical(&verified.content).map_err(|e| malformed("manifest.json", e))?;
    Ok((manifest, verified))
}

fn receipt(folder: &Folder) -> Result<(Receipt, Verified), CheckError> {
    let verified = signed(folder, "receipt")?;
    let receipt = Receipt::parse(&verified.content).map_err(|e| malformed("receipt.json", e))?;
    Ok((receipt, verified))
}

/// Whether manifest, receipt and block speak of the same, and the chains shown are the signers'.
fn check_pair(
    folder: &Folder,
    manifest: &Manifest,
    signed: &Verified,
    receipt: &Receipt,
) -> Result<(), CheckError> {
    let differs = |what| Err(CheckError::Mismatch(what));
    if receipt.verdict != Verdict::Accepted {
        return Err(CheckError::NotAccepted);
    }
    if receipt.manifest_sha256 != Some(Sha256Digest::of(&signed.content)) {
        return differs("manifest of the receipt");
    }
    if receipt.device != manifest.device || receipt.sequence != Some(manifest.sequence) {
        return differs("device and sequence of the receipt");
    }
    if signed.signing_time > receipt.received_at + CLOCK_SKEW {
        return differs("time of the camera's signature, which is after the receipt,");
    }
    if folder.hash("block.cordon")? != (receipt.block_sha256, receipt.size) {
        return differs("block of the receipt");
    }
    let shown = chain(folder, "camera.pem")?;
    if shown.leaf() != signed.signer_chain.leaf() {
        return differs("camera.pem");
    }
    Ok(())
}

/// SHA-256 of a certificate, in hexadecimal; what a trust file pins.
///
/// # Errors
/// [`CheckError::Malformed`].
pub fn fingerprint(root: &Certificate) -> Result<Sha256Digest, CheckError> {
    let der = cert::to_der(root).map_err(|e| malformed("root certificate", e))?;
    Ok(Sha256Digest::of(&der))
}
