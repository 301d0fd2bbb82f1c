//! Holding a ceremony.

use std::path::{Path, PathBuf};

use der::Encode as _;
use durable::SharedDisk;
use evidence::cms::{self, Placement};
use pki::cert::CertificateChain;
use pki::crl::RevokedEntry;
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use pki::name::Subject;
use pki::oid::ExtensionArc;
use pki::profile::Profile;
use pki::status::Revocation;
use pki::{Certificate, csr, file};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::check::{self, Checked};
use super::script::{Act, Participant, Script};
use super::transcript::{FORMAT, FileRecord, Program, Step, Transcript};
use super::{
    CEREMONIES, CeremonyError, ROOT_CERTIFICATE, ROOT_LIST, SCRIPT, SIGNATURE, TRANSCRIPT, digest,
    read, refused,
};
use crate::RegistryError;
use crate::files::{certificate_file, next_list, root_subject};
use crate::generation::{AuthorityId, CertifiedName};

const ROOT_KEY: &str = "root.key";
/// How long the key that signs a transcript may have done so. Our choice: ceremonies end on the day on which they began.
const SIGNER_LIFETIME: Duration = Duration::days(1);
const PRIVATE_MODE: u32 = 0o600;
const PUBLIC_MODE: u32 = 0o644;

/// Where and with what a ceremony is held.
pub struct Setting<'a> {
    /// The root's folder.
    pub folder: &'a Path,
    pub script: &'a Script,
    /// The script as its file has it, which becomes part of the record.
    pub script_text: &'a [u8],
    /// Folder of the files that the script names.
    pub inputs: &'a Path,
    /// Of the root's key.
    pub passphrase: &'a Passphrase,
    pub program: Program,
    pub arc: ExtensionArc,
    pub disk: SharedDisk,
}

/// Those who are present, and the clock on the wall.
pub trait Attendance {
    /// Shows what is to be done, and gives the names of those who agreed. Step 0 is what holds for all acts, the acts
    /// are from 1 on.
    ///
    /// # Errors
    /// [`CeremonyError::NotConfirmed`] or [`CeremonyError::Attendance`]: nothing of the ceremony stays.
    fn confirm(
        &mut self,
        step: usize,
        act: &str,
        participants: &[Participant],
    ) -> Result<Vec<String>, CeremonyError>;

    fn now(&self) -> OffsetDateTime;
}

/// A ceremony that was held.
#[derive(Debug)]
pub struct Performed {
    /// What it made and used; to be carried to the site.
    pub folder: PathBuf,
    pub transcript: Transcript,
}

/// Holds the ceremony of `setting`.
///
/// # Errors
/// [`CeremonyError`]: then nothing was done, and the root's folder is as before.
pub fn perform(
    setting: &Setting<'_>,
    attendance: &mut dyn Attendance,
) -> Result<Performed, CeremonyError> {
    setting.script.check()?;
    let past = check::all(setting.folder)?;
    let number = u32::try_from(past.len().saturating_add(1)).unwrap_or(u32::MAX);
    let ceremonies = setting.folder.join(CEREMONIES);
    let disk = &*setting.disk;
    let made = disk.create_dir_all(&ceremonies);
    made.map_err(io("create", &ceremonies))?;
    let unfinished = ceremonies.join(format!("{number:04}.unfinished"));
    // Whoever makes it holds this ceremony.
    let taken = disk.create_dir(&unfinished);
    taken.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => CeremonyError::Unfinished(unfinished.clone()),
        _ => io("create", &unfinished)(error),
    })?;
    let mut ceremony = Ceremony {
        setting,
        past: past.last(),
        folder: unfinished.clone(),
        root: None,
        created: None,
        revoked: Vec::new(),
        steps: Vec::new(),
    };
    let target = ceremonies.join(format!("{number:04}"));
    let held = ceremony
        .hold(number, attendance)
        .and_then(|transcript| ceremony.finish(&target).map(|()| transcript));
    match held {
        Ok(transcript) => Ok(Performed {
            folder: target,
            transcript,
        }),
        Err(error) => {
            // Worthless without its transcript; who could not remove it is told the next time.
            let _ = disk.remove_dir_all(&unfinished);
            Err(error)
        }
    }
}

struct Ceremony<'a> {
    setting: &'a Setting<'a>,
    past: Option<&'a Checked>,
    folder: PathBuf,
    root: Option<CertificateAuthority>,
    /// The root's key, where it was made today.
    created: Option<PrivateKey>,
    revoked: Vec<RevokedEntry>,
    steps: Vec<Step>,
}

/// What an act needs, read and looked at before people are asked.
enum Prepared<'a> {
    CreateRoot(KeyAlgorithm, u32),
    CrossCertify(Box<CrossRequest<'a>>),
    Certify(Box<Request<'a>>),
    Revoke(&'a str, String, RevokedEntry),
    IssueList,
}

/// Another root, to be certified by this one.
struct CrossRequest<'a> {
    file: &'a str,
    pem: String,
    root: Certificate,
    years: u32,
}

struct Request<'a> {
    id: AuthorityId,
    file: &'a str,
    pem: String,
    certificate: CertificateRequest,
}

impl<'a> Ceremony<'a> {
    fn hold(
        &mut self,
        number: u32,
        attendance: &mut dyn Attendance,
    ) -> Result<Transcript, CeremonyError> {
        let script = self.setting.script;
        let began = attendance.now();
        if let Some(past) = self.past.filter(|past| past.ended > began) {
            return Err(CeremonyError::Clock(rfc3339(past.ended)));
        }
        self.put(SCRIPT, self.setting.script_text)?;
        self.open_root(&script.acts)?;
        // Nothing is signed before everybody has agreed to everything. What holds for all acts comes first.
        attendance.confirm(0, &self.head(began), &script.participants)?;
        let mut agreed = Vec::new();
        for (step, act) in (1..).zip(&script.acts) {
            let (prepared, details) = self.prepare(act, attendance.now())?;
            let asked = format!("{act}{details}");
            let confirmed_by = attendance.confirm(step, &asked, &script.participants)?;
            agreed.push((act, prepared, confirmed_by));
        }
        for (act, prepared, confirmed_by) in agreed {
            let at = attendance.now();
            let (used, made) = self.act(prepared, at)?;
            self.steps.push(Step {
                act: act.to_string(),
                at: rfc3339(at),
                confirmed_by,
                used,
                made,
            });
        }
        let ended = attendance.now();
        let list = self.list(ended)?;
        self.steps.push(Step {
            act: "publish the root's revocation list".to_owned(),
            at: rfc3339(ended),
            confirmed_by: Vec::new(),
            used: Vec::new(),
            made: vec![list],
        });
        let transcript = Transcript {
            format: FORMAT.to_owned(),
            number,
            title: script.title.clone(),
            program: self.setting.program.clone(),
            script: digest(self.setting.script_text),
            previous: self.past.map(|past| past.digest.clone()),
            root: digest(&self.root()?.certificate_der()),
            participants: script.participants.clone(),
            began: rfc3339(began),
            ended: rfc3339(ended),
            steps: std::mem::take(&mut self.steps),
        };
        self.sign(&transcript, ended)?;
        Ok(transcript)
    }

    /// What a script says of everything that is signed, and the clock by which it is.
    fn head(&self, now: OffsetDateTime) -> String {
        let script = self.setting.script;
        let none = "none";
        format!(
            "{}\n  organisation      {}\n  country           {}\n  lists are at      {}\n  \
             next list within  {} days\n  this clock says   {}",
            script.title,
            script.organisation,
            script.country.as_deref().unwrap_or(none),
            script.crl_base_url.as_deref().unwrap_or(none),
            script.list_days,
            rfc3339(now),
        )
    }

    /// Opens the root's key, unless it is made today.
    fn open_root(&mut self, acts: &[Act]) -> Result<(), CeremonyError> {
        let creates = matches!(acts.first(), Some(Act::CreateRoot { .. }));
        let path = self.setting.folder.join(ROOT_KEY);
        let folder = || self.setting.folder.to_owned();
        let there = path.try_exists().map_err(io("look at", &path))?;
        match (self.past, creates) {
            (None, false) => Err(CeremonyError::NoRoot(folder())),
            (Some(_), true) => Err(CeremonyError::RootExists(folder())),
            (None, true) if there => Err(CeremonyError::Unfinished(path)),
            (None, true) => Ok(()),
            (Some(past), false) => {
                let key = file::load_private(&path, self.setting.passphrase)?;
                let root = CertificateAuthority::new(past.root.clone(), key, self.setting.arc)?;
                let pem = pki::cert::to_pem(root.certificate())?;
                self.put(ROOT_CERTIFICATE, pem.as_bytes())?;
                self.root = Some(root);
                Ok(())
            }
        }
    }

    fn root(&self) -> Result<&CertificateAuthority, CeremonyError> {
        let none = || CeremonyError::NoRoot(self.setting.folder.to_owned());
        self.root.as_ref().ok_or_else(none)
    }

    /// Reads what an act is about, and says what of it people should look at.
    fn prepare<'s>(
        &self,
        act: &'s Act,
        now: OffsetDateTime,
    ) -> Result<(Prepared<'s>, String), CeremonyError> {
        match act {
            Act::CreateRoot { algorithm, years } => {
                let details = until(now.saturating_add(lifetime(*years)));
                Ok((Prepared::CreateRoot(*algorithm, *years), details))
            }
            Act::CrossCertify {
                certificate: file,
                years,
            } => {
                let path = self.setting.inputs.join(file);
                let root = one_certificate(&path, &read(&path)?)?;
                let der = root.to_der();
                let der = der.map_err(|_| refused(&path, "cannot be encoded"))?;
                if !pki::cert::is_signed_by(&root, &root) {
                    return Err(refused(&path, "not a root"));
                }
                let details = format!(
                    "{}\n  name        {}\n  certificate SHA-256 {}",
                    until(now.saturating_add(lifetime(*years))),
                    root.tbs_certificate.subject,
                    digest(&der)
                );
                let request = CrossRequest {
                    file,
                    pem: pki::cert::to_pem(&root)?,
                    root,
                    years: *years,
                };
                Ok((Prepared::CrossCertify(Box::new(request)), details))
            }
            Act::IssueList {} => Ok((Prepared::IssueList, String::new())),
            Act::CertifyAuthority {
                kind,
                generation,
                request: file,
                highest_clearance,
                years,
            } => {
                let path = self.setting.inputs.join(file);
                let text = read(&path)?;
                let text = std::str::from_utf8(&text).map_err(|_| refused(&path, "not in PEM"))?;
                let der = csr::from_pem(text)?;
                let asked = csr::parse_and_verify(&der)?;
                let script = self.setting.script;
                let id = AuthorityId::of(*kind, *generation);
                let name = CertifiedName::new(&script.organisation, script.country.as_deref(), id);
                name.check(&asked.subject)
                    .map_err(|reason| refused(&path, reason))?;
                let key = asked.spki.to_der();
                let key = key.map_err(|_| refused(&path, "the key cannot be encoded"))?;
                let mut validity = Validity::starting(now, lifetime(*years));
                if let Some(root) = &self.root {
                    validity.not_after = validity.not_after.min(root.validity().not_after);
                }
                let details = format!(
                    "{}\n  name        {}\n  public key  SHA-256 {}",
                    until(validity.not_after),
                    asked.subject.common_name,
                    digest(&key)
                );
                let profile = Profile::IssuingCa(*kind);
                let mut certificate =
                    CertificateRequest::new(profile, asked.subject, asked.spki, validity);
                certificate.clearance = Some(*highest_clearance);
                let base = script.crl_base_url.as_deref();
                certificate.crl_url =
                    base.map(|base| format!("{}/root.crl", base.trim_end_matches('/')));
                let request = Request {
                    id,
                    file,
                    // Encoded anew, without whatever else is in the file: this becomes public.
                    pem: csr::to_pem(&der)?,
                    certificate,
                };
                Ok((Prepared::Certify(Box::new(request)), details))
            }
            Act::RevokeAuthority {
                certificate: file,
                reason,
            } => {
                let path = self.setting.inputs.join(file);
                let bytes = read(&path)?;
                let certificate = one_certificate(&path, &bytes)?;
                if !pki::path::is_issued(&certificate, self.root()?.certificate()) {
                    return Err(refused(&path, "not certified by this root"));
                }
                let tbs = &certificate.tbs_certificate;
                let details = format!(
                    "\n  name    {}\n  serial  {}",
                    tbs.subject,
                    pki::cert::serial_hex(&certificate)
                );
                let entry = RevokedEntry {
                    serial: tbs.serial_number.as_bytes().to_vec(),
                    revocation: Revocation {
                        at: now,
                        reason: *reason,
                    },
                };
                let pem = pki::cert::to_pem(&certificate)?;
                Ok((Prepared::Revoke(file, pem, entry), details))
            }
        }
    }

    /// Does what was agreed upon; what was used and made comes back.
    fn act(
        &mut self,
        prepared: Prepared<'_>,
        now: OffsetDateTime,
    ) -> Result<(Vec<FileRecord>, Vec<FileRecord>), CeremonyError> {
        match prepared {
            Prepared::CreateRoot(algorithm, years) => {
                let made = self.create_root(algorithm, years, now)?;
                Ok((Vec::new(), vec![made]))
            }
            Prepared::CrossCertify(request) => {
                let root = self.root()?;
                let mut validity = Validity::starting(now, lifetime(request.years));
                let theirs = request.root.tbs_certificate.validity.not_after;
                let theirs = OffsetDateTime::from(theirs.to_system_time());
                let end = &mut validity.not_after;
                *end = root.validity().not_after.min(theirs).min(*end);
                let certificate = root.cross_certify(&request.root, validity, now)?;
                let content = "certificate of the other root";
                let used = self.keep(request.file, request.pem.as_bytes(), content)?;
                let serial = pki::cert::serial_hex(&certificate);
                let made = self.keep_certificate(
                    &format!("cross-{}.pem", serial.get(..8).unwrap_or_default()),
                    &certificate,
                    "cross certificate of the other root",
                )?;
                Ok((vec![used], vec![made]))
            }
            Prepared::Certify(mut request) => {
                let root = self.root()?;
                let own = &root.certificate().tbs_certificate.subject_public_key_info;
                if request.certificate.spki == *own {
                    let path = self.setting.inputs.join(request.file);
                    return Err(refused(&path, "the root's own key"));
                }
                let end = &mut request.certificate.validity.not_after;
                *end = root.validity().not_after.min(*end);
                let certificate = root.issue(&request.certificate, now)?;
                let content = format!("certification request of the {} authority", request.id);
                let used = self.keep(request.file, request.pem.as_bytes(), &content)?;
                let made = self.keep_certificate(
                    &certificate_file(request.id),
                    &certificate,
                    &format!("certificate of the {} authority", request.id),
                )?;
                Ok((vec![used], vec![made]))
            }
            Prepared::Revoke(file, pem, entry) => {
                let used = self.keep(file, pem.as_bytes(), "certificate that was revoked")?;
                self.revoked.push(entry);
                Ok((vec![used], Vec::new()))
            }
            Prepared::IssueList => Ok((Vec::new(), Vec::new())),
        }
    }

    fn create_root(
        &mut self,
        algorithm: KeyAlgorithm,
        years: u32,
        now: OffsetDateTime,
    ) -> Result<FileRecord, CeremonyError> {
        let script = self.setting.script;
        let key = PrivateKey::generate(algorithm)?;
        let subject = root_subject(&script.organisation, script.country.as_deref());
        let validity = Validity::starting(now, lifetime(years));
        let request = CertificateRequest::new(Profile::Root, subject, key.spki(), validity);
        let root = CertificateAuthority::create_root(&request, key.clone(), self.setting.arc)?;
        let content = "certificate of the root";
        let made = self.keep_certificate(ROOT_CERTIFICATE, root.certificate(), content)?;
        self.root = Some(root);
        self.created = Some(key);
        Ok(made)
    }

    /// The root's list, with those that were revoked today.
    fn list(&mut self, now: OffsetDateTime) -> Result<FileRecord, CeremonyError> {
        let days = Duration::days(i64::from(self.setting.script.list_days));
        let until = now
            .saturating_add(days)
            .min(self.root()?.validity().not_after);
        let past = self.past.map(|past| past.list.as_slice());
        let new = std::mem::take(&mut self.revoked);
        let (list, _) = next_list(self.root()?, past, new, now, until).map_err(|error| {
            let path = self.folder.join(ROOT_LIST);
            match error {
                RegistryError::Issue(error) => CeremonyError::Issue(error),
                RegistryError::Crl(error) => CeremonyError::Crl(error),
                other => refused(&path, error_report::Report(&other).to_string()),
            }
        })?;
        let content = format!("revocation list of the root, until {}", rfc3339(until));
        self.keep(ROOT_LIST, &list, &content)
    }

    fn sign(&self, transcript: &Transcript, now: OffsetDateTime) -> Result<(), CeremonyError> {
        let root = self.root()?;
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256)?;
        let script = self.setting.script;
        let subject = Subject {
            organisation: Some(script.organisation.clone()),
            country: script.country.clone(),
            ..Subject::new(format!("ceremony {:04}", transcript.number))
        };
        let mut validity = Validity::starting(now, SIGNER_LIFETIME);
        validity.not_after = validity.not_after.min(root.validity().not_after);
        let request =
            CertificateRequest::new(Profile::CeremonySigner, subject, key.spki(), validity);
        let certificate = root.issue(&request, now)?;
        let chain = CertificateChain::new(vec![certificate])?;
        let bytes = serde_json::to_vec_pretty(transcript)
            .map_err(|_| refused(&self.folder.join(TRANSCRIPT), "cannot be encoded"))?;
        let signature = cms::sign(&key, &chain, &bytes, Placement::Detached, now)?;
        self.put(TRANSCRIPT, &bytes)?;
        self.put(SIGNATURE, &signature)
    }

    /// Gives the ceremony its name, and the root's key its file.
    fn finish(&self, target: &Path) -> Result<(), CeremonyError> {
        let disk = &*self.setting.disk;
        if let Some(key) = &self.created {
            let path = self.setting.folder.join(ROOT_KEY);
            let pem = key.to_encrypted_pem(self.setting.passphrase)?;
            let written = disk.write_new(&path, pem.as_bytes(), PRIVATE_MODE);
            written.map_err(io("write", &path))?;
        }
        let mut stays = false;
        let named = disk.rename(&self.folder, target).and_then(|()| {
            let synced = disk.sync_parent(target);
            // What may be on the disk or not is taken back.
            synced.inspect_err(|_| stays = disk.rename(target, &self.folder).is_err())
        });
        // A key without a certificate would be in the way of the next attempt, and a certificate without its key a root
        // that nobody can use any more.
        if named.is_err() && !stays && self.created.is_some() {
            let _ = disk.remove_file(&self.setting.folder.join(ROOT_KEY));
        }
        named.map_err(io("name", target))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), CeremonyError> {
        let path = self.folder.join(name);
        let written = self.setting.disk.write_new(&path, bytes, PUBLIC_MODE);
        written.map_err(io("write", &path))
    }

    fn keep(&self, name: &str, bytes: &[u8], content: &str) -> Result<FileRecord, CeremonyError> {
        self.put(name, bytes)?;
        Ok(FileRecord {
            file: name.to_owned(),
            digest: digest(bytes),
            content: content.to_owned(),
        })
    }

    fn keep_certificate(
        &self,
        name: &str,
        certificate: &Certificate,
        content: &str,
    ) -> Result<FileRecord, CeremonyError> {
        let pem = pki::cert::to_pem(certificate)?;
        let content = format!("{content}, serial {}", pki::cert::serial_hex(certificate));
        self.keep(name, pem.as_bytes(), &content)
    }
}

/// The only certificate in a file.
pub(super) fn one_certificate(path: &Path, bytes: &[u8]) -> Result<Certificate, CeremonyError> {
    let text = std::str::from_utf8(bytes).map_err(|_| refused(path, "not in PEM"))?;
    let chain = CertificateChain::from_pem(text)?;
    match chain.certificates() {
        [one] => Ok(one.clone()),
        _ => Err(refused(path, "not one certificate")),
    }
}

/// The end of a certificate as it is shown.
fn until(end: OffsetDateTime) -> String {
    format!("\n  until       {}", rfc3339(end))
}

fn lifetime(years: u32) -> Duration {
    Duration::days(i64::from(years).saturating_mul(365))
}

pub(super) fn rfc3339(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    whole
        .to_offset(time::UtcOffset::UTC)
        .format(&Rfc3339)
        .unwrap_or_default()
}

fn io(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> CeremonyError + use<> {
    let path = path.to_owned();
    move |source| CeremonyError::Io {
        operation,
        path,
        source,
    }
}
