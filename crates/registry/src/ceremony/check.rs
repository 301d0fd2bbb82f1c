//! Checking the records of ceremonies, with the root's certificate and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use der::Encode as _;
use evidence::cms;
use pki::Certificate;
use pki::oid::eku::DOCUMENT_SIGNING;
use time::OffsetDateTime;
use x509_cert::ext::pkix::ExtendedKeyUsage;

use super::perform::{one_certificate, rfc3339};
use super::transcript::{FORMAT, Transcript};
use super::{
    CEREMONIES, CeremonyError, ROOT_CERTIFICATE, ROOT_LIST, SCRIPT, SIGNATURE, TRANSCRIPT, digest,
    read, refused,
};

/// A ceremony whose record holds.
#[derive(Debug)]
pub struct Checked {
    pub folder: PathBuf,
    pub transcript: Transcript,
    pub ended: OffsetDateTime,
    /// Digest of the transcript, which the next one has.
    pub digest: String,
    pub root: Certificate,
    /// Digest of the root's certificate (DER), to be held against what people wrote down.
    pub root_digest: String,
    /// The root's revocation list (DER).
    pub list: Vec<u8>,
    /// The certificates that were made, by the names of their files.
    pub certificates: BTreeMap<String, Certificate>,
}

/// Checks all ceremonies of a root's folder, and that they follow one another; oldest first. A folder without any has none.
///
/// # Errors
/// [`CeremonyError`], the first that is wrong; [`CeremonyError::Unfinished`] for one that did not end.
pub fn all(folder: &Path) -> Result<Vec<Checked>, CeremonyError> {
    let ceremonies = folder.join(CEREMONIES);
    let mut checked: Vec<Checked> = Vec::new();
    for name in names(&ceremonies)? {
        let path = ceremonies.join(&name);
        if name.ends_with(".unfinished") {
            return Err(CeremonyError::Unfinished(path));
        }
        let before = checked.last();
        let one = one(&path, before.map(|before| before.root_digest.as_str()))?;
        let expected = checked.len().saturating_add(1);
        if name != format!("{expected:04}") || one.transcript.number as usize != expected {
            return Err(refused(&path, format!("ceremony {expected} is missing")));
        }
        if one.transcript.previous.as_ref() != before.map(|before| &before.digest) {
            let reason = "it does not follow the ceremony before it";
            return Err(refused(&path, reason));
        }
        checked.push(one);
    }
    Ok(checked)
}

fn names(folder: &Path) -> Result<BTreeSet<String>, CeremonyError> {
    let failed = |source| CeremonyError::Io {
        operation: "list",
        path: folder.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        other => other.map_err(failed)?,
    };
    entries
        .map(|entry| {
            let name = entry.map_err(failed)?.file_name();
            let shown = name.to_string_lossy().into_owned();
            let text = name.into_string();
            text.map_err(|_| refused(&folder.join(shown), "unknown file"))
        })
        .collect()
}

/// Checks one ceremony: its signature by a signer that the root certified for it, and every file. With `root`, the
/// root's certificate must have this digest; without it the record is only held against itself.
///
/// # Errors
/// [`CeremonyError`], the first that is wrong.
pub fn one(folder: &Path, root: Option<&str>) -> Result<Checked, CeremonyError> {
    let root_path = folder.join(ROOT_CERTIFICATE);
    let certificate = one_certificate(&root_path, &read(&root_path)?)?;
    let der = certificate
        .to_der()
        .map_err(|_| refused(&root_path, "cannot be encoded"))?;
    let root_digest = digest(&der);
    if root.is_some_and(|expected| !expected.eq_ignore_ascii_case(&root_digest)) {
        return Err(refused(&root_path, format!("its SHA-256 is {root_digest}")));
    }
    if !pki::cert::is_signed_by(&certificate, &certificate) {
        return Err(refused(&root_path, "not a root"));
    }
    let path = folder.join(TRANSCRIPT);
    let bytes = read(&path)?;
    let ended = signed_at(folder, &bytes, &certificate)?;
    let transcript: Transcript =
        serde_json::from_slice(&bytes).map_err(|error| refused(&path, error.to_string()))?;
    let wrong = [
        (transcript.format != FORMAT, "another form"),
        (transcript.root != root_digest, "another root"),
        (
            transcript.ended != rfc3339(ended),
            "another time than its signature",
        ),
    ];
    if let Some((_, reason)) = wrong.iter().find(|(wrong, _)| *wrong) {
        return Err(refused(&path, *reason));
    }
    let made = files(folder, &transcript, &certificate)?;
    Ok(Checked {
        certificates: made.certificates,
        folder: folder.to_owned(),
        ended,
        digest: digest(&bytes),
        list: list(folder, &made.list, &certificate)?,
        transcript,
        root: certificate,
        root_digest,
    })
}

/// When the transcript was signed, by somebody who might do so.
fn signed_at(
    folder: &Path,
    transcript: &[u8],
    root: &Certificate,
) -> Result<OffsetDateTime, CeremonyError> {
    let path = folder.join(SIGNATURE);
    let message = cms::parse_signed_data(&read(&path)?)?;
    let verified = message.verify_detached(transcript)?;
    let signer = verified.signer_chain.leaf();
    if !pki::path::is_issued(signer, root) {
        return Err(refused(&path, "the signer is not certified by the root"));
    }
    let uses = signer.tbs_certificate.get::<ExtendedKeyUsage>();
    let uses = uses
        .ok()
        .flatten()
        .map_or_else(Vec::new, |(_, uses)| uses.0);
    if uses != [DOCUMENT_SIGNING] {
        return Err(refused(&path, "the signer is certified for something else"));
    }
    let validity = &signer.tbs_certificate.validity;
    let from = OffsetDateTime::from(validity.not_before.to_system_time());
    let until = OffsetDateTime::from(validity.not_after.to_system_time());
    if !(from..=until).contains(&verified.signing_time) {
        return Err(refused(&path, "signed when its certificate was not valid"));
    }
    Ok(verified.signing_time)
}

/// What a ceremony made, as it was held against the transcript: another look at a medium may show another file.
#[derive(Default)]
struct Made {
    certificates: BTreeMap<String, Certificate>,
    /// The root's revocation list (DER).
    list: Vec<u8>,
}

/// Holds each file against the transcript; there is none that it does not know.
fn files(
    folder: &Path,
    transcript: &Transcript,
    root: &Certificate,
) -> Result<Made, CeremonyError> {
    let mut made = Made::default();
    let mut known: BTreeSet<String> = [ROOT_CERTIFICATE, TRANSCRIPT, SIGNATURE, SCRIPT]
        .map(str::to_owned)
        .into();
    let script = folder.join(SCRIPT);
    if digest(&read(&script)?) != transcript.script {
        return Err(refused(&script, "not the one that was carried out"));
    }
    for step in &transcript.steps {
        for record in step.used.iter().chain(&step.made) {
            let path = folder.join(&record.file);
            if record.file.contains('/') {
                return Err(refused(&path, "no name of a file"));
            }
            let bytes = read(&path)?;
            if digest(&bytes) != record.digest {
                return Err(refused(&path, "not what the ceremony used or made"));
            }
            known.insert(record.file.clone());
            if step.made.contains(record) && record.file == ROOT_LIST {
                made.list = bytes.to_vec();
            }
            if step.made.contains(record) && record.file.ends_with(".pem") {
                let certificate = one_certificate(&path, &bytes)?;
                if certificate != *root && !pki::path::is_issued(&certificate, root) {
                    return Err(refused(&path, "not certified by the root"));
                }
                made.certificates.insert(record.file.clone(), certificate);
            }
        }
    }
    match names(folder)?.difference(&known).next() {
        Some(other) => Err(refused(
            &folder.join(other),
            "the transcript does not know it",
        )),
        None => Ok(made),
    }
}

fn list(folder: &Path, der: &[u8], root: &Certificate) -> Result<Vec<u8>, CeremonyError> {
    if der.is_empty() {
        return Err(refused(&folder.join(ROOT_LIST), "the ceremony made none"));
    }
    // At its own date: whether it is still fresh is for who uses it to ask.
    let issued = pki::crl::parse(der)?.tbs_cert_list.this_update;
    pki::crl::verify(der, root, OffsetDateTime::from(issued.to_system_time()))?;
    Ok(der.to_vec())
}
