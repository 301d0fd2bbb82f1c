//! The hierarchy in files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use durable::Disk;
use pki::crl::{RevocationReason, RevokedEntry};
use pki::issue::{CertificateAuthority, CertificateRequest, IssueError, Validity};
use pki::key::{AuthorityKey, Passphrase, PrivateKey};
use pki::name::Subject;
use pki::profile::{CaKind, Profile};
use pki::spki::SubjectPublicKeyInfoOwned;
use pki::status::Revocation;
use pki::{Certificate, CertificateChain, file};
use time::OffsetDateTime;

use crate::RegistryError;
use crate::config::{Config, Passphrases};
use crate::generation::AuthorityId;
use crate::lists::CrlName;
use crate::warrant::check_final;

const FOLDER: &str = "pki";
/// Where the hierarchy is made before it gets its name; not complete, hence worthless.
const UNFINISHED: &str = "pki.unfinished";
/// Keys of authorities that wait for their certificates.
const REQUESTED: &str = "pki.requested";
/// Mode of public files.
const PUBLIC_MODE: u32 = 0o644;

pub(crate) fn exists(directory: &Path) -> std::io::Result<bool> {
    directory.join(FOLDER).join("root.pem").try_exists()
}

pub(crate) fn crl_path(directory: &Path, name: CrlName) -> PathBuf {
    directory
        .join(FOLDER)
        .join("crl")
        .join(format!("{name}.crl"))
}

fn authority_file(id: AuthorityId, extension: &str) -> String {
    format!("{id}-ca.{extension}")
}

/// Name of the file with an authority's certificate.
pub(crate) fn certificate_file(id: AuthorityId) -> String {
    authority_file(id, "pem")
}

/// Where an authority has its key and its certificate.
pub(crate) struct AuthorityFile {
    pub(crate) key: PathBuf,
    pub(crate) certificate: PathBuf,
}

impl AuthorityFile {
    /// Those of an authority, or of one that waits for its certificate.
    pub(crate) fn at(directory: &Path, established: bool, id: AuthorityId) -> Self {
        Self::within(
            &directory.join(if established { FOLDER } else { REQUESTED }),
            id,
        )
    }

    pub(crate) fn within(folder: &Path, id: AuthorityId) -> Self {
        Self {
            key: folder.join(authority_file(id, "key")),
            certificate: folder.join(certificate_file(id)),
        }
    }
}

/// The root's certificate.
pub(crate) fn root(directory: &Path) -> Result<Certificate, RegistryError> {
    let path = directory.join(FOLDER).join("root.pem");
    Ok(file::load_chain(&path)?.leaf().clone())
}

/// Makes keys for authorities that another root is to certify, unless they are there.
pub(crate) fn make_requested(
    directory: &Path,
    config: &Config,
    passphrase: &Passphrase,
) -> Result<(), RegistryError> {
    let target = directory.join(REQUESTED);
    if target.try_exists().map_err(io("look at", &target))? {
        return Ok(());
    }
    appear_as(directory, REQUESTED, config, |folder| {
        for id in CaKind::ALL.map(AuthorityId::first) {
            new_key(folder, config, passphrase, id)?;
        }
        Ok(())
    })
}

/// The key of a new authority: made here, in a file below `folder`, unless it is elsewhere.
fn new_key(
    folder: &Path,
    config: &Config,
    passphrase: &Passphrase,
    id: AuthorityId,
) -> Result<AuthorityKey, RegistryError> {
    if let Some(key) = config.authority_keys.key(id)? {
        return Ok(key);
    }
    let key = PrivateKey::generate(config.authority_algorithm)?;
    let file = AuthorityFile::within(folder, id).key;
    file::save_private_on(&*config.disk, &file, &key, passphrase)?;
    Ok(key.into())
}

/// The key of an authority, elsewhere or in this file.
pub(crate) fn open_key(
    file: &AuthorityFile,
    config: &Config,
    passphrase: &Passphrase,
    id: AuthorityId,
) -> Result<AuthorityKey, RegistryError> {
    match config.authority_keys.key(id)? {
        Some(key) => Ok(key),
        None => Ok(file::load_private(&file.key, passphrase)?.into()),
    }
}

/// Removes what waited for certificates, now that they are there.
pub(crate) fn remove_requested(directory: &Path, config: &Config) -> Result<(), RegistryError> {
    let path = directory.join(REQUESTED);
    let removed = config.disk.remove_dir_all(&path);
    removed.map_err(io("remove", &path))
}

pub(crate) fn io(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> RegistryError + use<> {
    let path = path.to_owned();
    move |source| RegistryError::Io {
        operation,
        path,
        source,
    }
}

pub(crate) fn create(
    directory: &Path,
    config: &Config,
    passphrases: &Passphrases,
    now: OffsetDateTime,
) -> Result<(), RegistryError> {
    let requested = directory.join(REQUESTED);
    if requested.try_exists().map_err(io("look at", &requested))? {
        return Err(RegistryError::AuthoritiesRequested(directory.to_owned()));
    }
    appear(directory, config, |folder| {
        fill(folder, config, passphrases, now)
    })
}

/// Has the hierarchy appear at once, as `fill` makes it in a folder with an empty folder for lists.
pub(crate) fn appear(
    directory: &Path,
    config: &Config,
    fill: impl FnOnce(&Path) -> Result<(), RegistryError>,
) -> Result<(), RegistryError> {
    appear_as(directory, FOLDER, config, |folder| {
        let crls = folder.join("crl");
        let made = config.disk.create_dir_all(&crls);
        made.map_err(io("create", &crls))?;
        fill(folder)
    })
}

fn appear_as(
    directory: &Path,
    name: &str,
    config: &Config,
    fill: impl FnOnce(&Path) -> Result<(), RegistryError>,
) -> Result<(), RegistryError> {
    let target = directory.join(name);
    if target.try_exists().map_err(io("look at", &target))? {
        return Err(RegistryError::AlreadyInitialised(directory.to_owned()));
    }
    let unfinished = directory.join(UNFINISHED);
    let disk = &*config.disk;
    disk.remove_dir_all(&unfinished)
        .map_err(io("remove", &unfinished))?;
    disk.create_dir_all(&unfinished)
        .map_err(io("create", &unfinished))?;
    fill(&unfinished)?;
    disk.rename(&unfinished, &target)
        .map_err(io("rename", &unfinished))?;
    disk.sync_dir(directory).map_err(io("flush", directory))
}

fn fill(
    folder: &Path,
    config: &Config,
    passphrases: &Passphrases,
    now: OffsetDateTime,
) -> Result<(), RegistryError> {
    let key = PrivateKey::generate(config.authority_algorithm)?;
    let disk = &*config.disk;
    file::save_private_on(disk, &folder.join("root.key"), &key, &passphrases.root)?;
    let request = request(
        Profile::Root,
        root_subject_of(config),
        key.spki(),
        config,
        now,
    );
    let root = CertificateAuthority::create_root(&request, key, config.arc)?;
    save_certificate(disk, &folder.join("root.pem"), root.certificate())?;
    for id in CaKind::ALL.map(AuthorityId::first) {
        let key = new_key(folder, config, &passphrases.issuing, id)?;
        let (profile, name) = (Profile::IssuingCa(id.kind()), config.authority_name(id));
        let request = self::request(profile, name.subject(), key.spki(), config, now);
        let certificate = root.issue(&request, now)?;
        save_certificate(disk, &folder.join(certificate_file(id)), &certificate)?;
    }
    let until = now.saturating_add(config.lifetimes.authority);
    let crl = root.crl(1, &[], now, until)?;
    let list = folder.join("crl").join("root.crl");
    file::write_atomic_on(disk, &list, &crl, PUBLIC_MODE)?;
    Ok(())
}

fn request(
    profile: Profile,
    subject: Subject,
    spki: SubjectPublicKeyInfoOwned,
    config: &Config,
    now: OffsetDateTime,
) -> CertificateRequest {
    let validity = Validity::starting(now, config.lifetimes.of(profile));
    let mut request = CertificateRequest::new(profile, subject, spki, validity);
    if let Profile::IssuingCa(kind) = profile {
        request.clearance = Some(config.highest_clearance(kind));
        request.crl_url = config.crl_url("root");
        request.issuer_url = config.ca_url("root");
    }
    request
}

fn root_subject_of(config: &Config) -> Subject {
    root_subject(&config.organisation, config.country.as_deref())
}

/// The name of a root.
pub(crate) fn root_subject(organisation: &str, country: Option<&str>) -> Subject {
    Subject {
        organisation: Some(organisation.to_owned()),
        country: country.map(str::to_owned),
        ..Subject::new(format!("{organisation} root CA"))
    }
}

fn save_certificate(
    disk: &dyn Disk,
    path: &Path,
    certificate: &Certificate,
) -> Result<(), RegistryError> {
    let chain = CertificateChain::new(vec![certificate.clone()])?;
    Ok(file::save_chain_on(disk, path, &chain)?)
}

/// The authorities that have certificates, by the names of their files.
pub(crate) fn certified(directory: &Path) -> Result<BTreeSet<AuthorityId>, RegistryError> {
    let folder = directory.join(FOLDER);
    if !exists(directory).map_err(io("look into", directory))? {
        return Err(RegistryError::NotInitialised(directory.to_owned()));
    }
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir(&folder).map_err(io("list", &folder))? {
        let name = entry.map_err(io("list", &folder))?.file_name();
        let name = name.to_string_lossy();
        let id = name.strip_suffix("-ca.pem").map(str::parse::<AuthorityId>);
        ids.extend(id.and_then(Result::ok));
    }
    Ok(ids)
}

/// The certificate of an authority, which has the name of its kind and generation.
pub(crate) fn certificate(directory: &Path, id: AuthorityId) -> Result<Certificate, RegistryError> {
    let file = AuthorityFile::at(directory, true, id).certificate;
    let certificate = file::load_chain(&file)?.leaf().clone();
    let subject = Subject::from_name(&certificate.tbs_certificate.subject);
    match subject.is_ok_and(|subject| id.is_name(&subject.common_name)) {
        true => Ok(certificate),
        false => Err(RegistryError::WrongKind { expected: id }),
    }
}

/// An authority with its key.
pub(crate) fn load(
    directory: &Path,
    config: &Config,
    passphrase: &Passphrase,
    id: AuthorityId,
) -> Result<CertificateAuthority, RegistryError> {
    let file = AuthorityFile::at(directory, true, id);
    let certificate = certificate(directory, id)?;
    let key = open_key(&file, config, passphrase, id)?;
    let authority = CertificateAuthority::new(certificate, key, config.arc)?;
    if authority.kind() != Some(id.kind()) {
        return Err(RegistryError::WrongKind { expected: id });
    }
    Ok(authority)
}

/// Makes the key of a new generation, which waits for its certificate from then on.
pub(crate) fn make_next_key(
    directory: &Path,
    config: &Config,
    passphrase: &Passphrase,
    id: AuthorityId,
) -> Result<AuthorityKey, RegistryError> {
    let file = AuthorityFile::at(directory, true, id);
    match file.key.try_exists().map_err(io("look at", &file.key))? {
        true => open_key(&file, config, passphrase, id),
        false => new_key(&directory.join(FOLDER), config, passphrase, id),
    }
}

/// Removes the file of a key, where that is in one.
pub(crate) fn remove_key(
    directory: &Path,
    config: &Config,
    id: AuthorityId,
) -> Result<(), RegistryError> {
    let path = AuthorityFile::at(directory, true, id).key;
    let folder = directory.join(FOLDER);
    let removed = config.disk.remove_file(&path);
    removed
        .and_then(|()| config.disk.sync_dir(&folder))
        .map_err(io("remove", &path))
}

/// Opens the root with its key.
fn open_root(
    directory: &Path,
    config: &Config,
    passphrase: &Passphrase,
) -> Result<CertificateAuthority, RegistryError> {
    if !exists(directory).map_err(io("look into", directory))? {
        return Err(RegistryError::NotInitialised(directory.to_owned()));
    }
    let key = file::load_private(&directory.join(FOLDER).join("root.key"), passphrase)?;
    Ok(CertificateAuthority::new(
        root(directory)?,
        key,
        config.arc,
    )?)
}

/// Certifies the key of an authority with the root's, under this name.
fn certify(
    directory: &Path,
    config: &Config,
    root: &CertificateAuthority,
    (id, subject): (AuthorityId, Subject),
    spki: SubjectPublicKeyInfoOwned,
    now: OffsetDateTime,
) -> Result<Certificate, RegistryError> {
    let profile = Profile::IssuingCa(id.kind());
    let mut request = request(profile, subject, spki, config, now);
    let end = &mut request.validity.not_after;
    *end = root.validity().not_after.min(*end);
    let certificate = root.issue(&request, now)?;
    let file = AuthorityFile::at(directory, true, id).certificate;
    save_certificate(&*config.disk, &file, &certificate)?;
    Ok(certificate)
}

/// Makes a new generation of an authority with the root's key.
pub(crate) fn certify_next(
    directory: &Path,
    config: &Config,
    passphrases: &Passphrases,
    id: AuthorityId,
    now: OffsetDateTime,
) -> Result<(), RegistryError> {
    let root = open_root(directory, config, &passphrases.root)?;
    let key = make_next_key(directory, config, &passphrases.issuing, id)?;
    let name = config.authority_name(id).subject();
    // The root's list has to live as long; first, as the certificate is what ends the act.
    renew_root_crl(directory, config, &root, None, now)?;
    certify(directory, config, &root, (id, name), key.spki(), now).map(drop)
}

/// Certifies the keys of `authorities` once more, under the same names.
pub(crate) fn renew_authorities(
    directory: &Path,
    config: &Config,
    root_passphrase: &Passphrase,
    authorities: &[AuthorityId],
    now: OffsetDateTime,
) -> Result<(), RegistryError> {
    let root = open_root(directory, config, root_passphrase)?;
    for &id in authorities {
        let present = certificate(directory, id)?.tbs_certificate;
        let spki = present.subject_public_key_info.clone();
        // The name that its leaves have as issuer, whatever the configuration says by now.
        let subject = Subject::from_name(&present.subject).map_err(IssueError::Name)?;
        let name = subject.to_name().map_err(IssueError::Name)?;
        if name != present.subject {
            return Err(RegistryError::Corrupt("name of an authority"));
        }
        certify(directory, config, &root, (id, subject), spki, now)?;
    }
    // The root's list lives as long as an authority and is signed with the same key.
    renew_root_crl(directory, config, &root, None, now).map(drop)
}

/// Whether the root's key is there and opens with this passphrase.
pub(crate) fn root_key_opens(directory: &Path, passphrase: &Passphrase) -> bool {
    file::load_private(&directory.join(FOLDER).join("root.key"), passphrase).is_ok()
}

pub(crate) fn revoke_authority(
    directory: &Path,
    config: &Config,
    root_passphrase: &Passphrase,
    id: AuthorityId,
    reason: RevocationReason,
    now: OffsetDateTime,
) -> Result<bool, RegistryError> {
    check_final(reason)?;
    let root = open_root(directory, config, root_passphrase)?;
    let certificate = certificate(directory, id)?;
    let serial = certificate.tbs_certificate.serial_number.as_bytes();
    let serial = serial.to_vec();
    let revocation = Revocation { at: now, reason };
    let entry = RevokedEntry { serial, revocation };
    renew_root_crl(directory, config, &root, Some(entry), now)
}

/// Makes the root's list anew, with `new` on it; returns whether that was not on it before.
fn renew_root_crl(
    directory: &Path,
    config: &Config,
    root: &CertificateAuthority,
    new: Option<RevokedEntry>,
    now: OffsetDateTime,
) -> Result<bool, RegistryError> {
    let path = crl_path(directory, CrlName::Root);
    let der = fs::read(&path).map_err(io("read", &path))?;
    let until = now.saturating_add(config.lifetimes.authority);
    let (crl, added) = next_list(root, Some(&der), Vec::from_iter(new), now, until)?;
    file::write_atomic_on(&*config.disk, &path, &crl, PUBLIC_MODE)?;
    Ok(added > 0)
}

/// The root's list that follows `past`, with `new` on it, in DER; and how many of these were not on it before.
pub(crate) fn next_list(
    root: &CertificateAuthority,
    past: Option<&[u8]>,
    new: Vec<RevokedEntry>,
    now: OffsetDateTime,
    until: OffsetDateTime,
) -> Result<(Vec<u8>, usize), RegistryError> {
    let (number, mut entries) = match past {
        None => (1, Vec::new()),
        Some(der) => {
            let known = verified_list(der, root.certificate())?;
            let number = list_number(&known)?.checked_add(1);
            let number = number.ok_or(RegistryError::Corrupt("CRL number"))?;
            (number, known.entries)
        }
    };
    let before = entries.len();
    for one in new {
        if entries.iter().all(|entry| entry.serial != one.serial) {
            entries.push(one);
        }
    }
    let added = entries.len().saturating_sub(before);
    Ok((root.crl(number, &entries, now, until)?, added))
}

/// Verifies the root's list at its own date: what a list revokes stays revoked, however stale it is.
pub(crate) fn verified_list(
    der: &[u8],
    root: &Certificate,
) -> Result<pki::crl::VerifiedCrl, RegistryError> {
    let issued = pki::crl::parse(der)?.tbs_cert_list.this_update;
    let issued = OffsetDateTime::from(issued.to_system_time());
    Ok(pki::crl::verify(der, root, issued)?)
}

pub(crate) fn list_number(list: &pki::crl::VerifiedCrl) -> Result<u64, RegistryError> {
    let number = list.window.number.iter().try_fold(0_u64, |n, byte| {
        n.checked_mul(256)?.checked_add(u64::from(*byte))
    });
    number.ok_or(RegistryError::Corrupt("CRL number"))
}
