//! Issuing authorities under a root that is elsewhere: what the site asks of it, and what comes back of a
//! [ceremony](crate::ceremony).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use audit::{Actor, Event};
use der::Encode as _;
use event_catalogue::Recorded as _;
use event_catalogue::registry::AuthoritiesInstalled;
use pki::cert::CertificateChain;
use pki::issue::{CertificateAuthority, IssueError};
use pki::key::Passphrase;
use pki::name::Subject;
use pki::profile::CaKind;
use pki::{Certificate, csr, file};
use time::OffsetDateTime;

use crate::authority::Standings;
use crate::config::Config;
use crate::files::{self, AuthorityFile};
use crate::generation::{AuthorityId, AuthorityState};
use crate::lists::CrlName;
use crate::{RegistryError, ceremony};

/// What is brought from a ceremony.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Folder of the ceremony.
    pub folder: &'a Path,
    /// SHA-256 of the root's certificate (DER) in hexadecimal digits, as people wrote it down there. Needed where the site
    /// has no root yet.
    pub root: Option<&'a str>,
}

/// What came of [`crate::Registry::install_authorities`].
#[derive(Debug)]
pub struct Installed {
    /// Whose certificates are new.
    pub authorities: Vec<AuthorityId>,
    /// Digest of the root's certificate (DER).
    pub root_digest: String,
    /// The ceremony that they come from.
    pub ceremony: u32,
    pub title: String,
}

impl Installed {
    pub(crate) fn event(&self, who: Actor, now: OffsetDateTime) -> Event {
        let names: Vec<_> = self
            .authorities
            .iter()
            .map(AuthorityId::to_string)
            .collect();
        let resource = format!("root/{}", self.root_digest);
        let installed = AuthoritiesInstalled {
            authorities: Some(names.join(" ")),
            ceremony: Some(self.ceremony.into()),
        };
        installed.into_event(now, who, resource)
    }
}

/// The generations of a site by its files and its database.
pub(crate) struct Present<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) standings: &'a Standings,
    pub(crate) now: OffsetDateTime,
}

impl Present<'_> {
    fn certified(&self, kind: CaKind) -> Result<impl Iterator<Item = AuthorityId>, RegistryError> {
        let certified = files::certified(self.directory)?.into_iter();
        Ok(certified.filter(move |id| id.kind() == kind))
    }

    /// The generation of this kind that issues.
    fn issuing(&self, kind: CaKind) -> Result<AuthorityId, RegistryError> {
        let mut certified = self.certified(kind)?;
        let issues = |id: &AuthorityId| self.standings.state(*id) == AuthorityState::Issuing;
        let first = AuthorityId::first(kind);
        certified
            .find(issues)
            .ok_or(RegistryError::NoAuthority(first))
    }

    /// The generation of this kind that waits and may still be put to use, now or later.
    fn waiting(&self, kind: CaKind) -> Result<Option<AuthorityId>, RegistryError> {
        let list = files::crl_path(self.directory, CrlName::Root);
        let list = std::fs::read(&list).map_err(files::io("read", &list))?;
        let list = files::verified_list(&list, &files::root(self.directory)?)?;
        for id in self.certified(kind)? {
            if self.standings.state(id) != AuthorityState::Ready {
                continue;
            }
            // One that cannot be used keeps nobody from making another.
            let Ok(certificate) = files::certificate(self.directory, id) else {
                continue;
            };
            let tbs = certificate.tbs_certificate;
            let serial = tbs.serial_number.as_bytes();
            let is_revoked = list.entries.iter().any(|entry| entry.serial == serial);
            let end = OffsetDateTime::from(tbs.validity.not_after.to_system_time());
            if !is_revoked && self.now <= end {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// The generation of this kind that comes next, if there may be one: none while another one waits. Numbers of those that were
    /// dropped are not used again.
    pub(crate) fn next(&self, kind: CaKind) -> Result<AuthorityId, RegistryError> {
        if let Some(waiting) = self.waiting(kind)? {
            return Err(RegistryError::GenerationWaits(waiting));
        }
        let known = self.standings.0.keys().filter(|id| id.kind() == kind);
        let newest = self.certified(kind)?.chain(known.copied()).max();
        let next = newest.and_then(AuthorityId::next);
        next.ok_or(RegistryError::NoNumberLeft(kind))
    }
}

/// Certification requests (PEM): for the keys of those that issue, or for those of the first, which wait for their
/// certificates.
pub(crate) fn request(
    present: &Present<'_>,
    config: &Config,
    passphrase: &Passphrase,
) -> Result<Vec<(AuthorityId, String)>, RegistryError> {
    let directory = present.directory;
    let established = files::exists(directory).map_err(files::io("look into", directory))?;
    if !established {
        files::make_requested(directory, config, passphrase)?;
    }
    CaKind::ALL
        .into_iter()
        .map(|kind| {
            let id = match established {
                true => present.issuing(kind)?,
                false => AuthorityId::first(kind),
            };
            let file = AuthorityFile::at(directory, established, id);
            let key = files::open_key(&file, config, passphrase, id)?;
            let subject = if established {
                let name = files::certificate(directory, id)?.tbs_certificate.subject;
                Subject::from_name(&name).map_err(IssueError::Name)?
            } else {
                config.authority_name(id).subject()
            };
            Ok((id, csr::to_pem(&csr::build(&*key, &subject, &[])?)?))
        })
        .collect()
}

/// Certification requests (PEM) for another generation of each kind. Asked again before their certificates are there, it
/// requests the same.
pub(crate) fn request_next(
    present: &Present<'_>,
    config: &Config,
    passphrase: &Passphrase,
    kinds: &[CaKind],
) -> Result<Vec<(AuthorityId, String)>, RegistryError> {
    let request = |kind: &CaKind| {
        let id = present.next(*kind)?;
        let key = files::make_next_key(present.directory, config, passphrase, id)?;
        let subject = config.authority_name(id).subject();
        Ok((id, csr::to_pem(&csr::build(&*key, &subject, &[])?)?))
    };
    kinds.iter().map(request).collect()
}

/// A delivery that was checked.
pub(crate) struct Checked {
    ceremony: ceremony::check::Checked,
    certificates: BTreeMap<AuthorityId, Certificate>,
    established: bool,
}

impl Checked {
    /// Checks the record of a ceremony, and holds what it made against the site.
    pub(crate) fn new(
        present: &Present<'_>,
        config: &Config,
        passphrase: &Passphrase,
        delivery: &Delivery<'_>,
    ) -> Result<Self, RegistryError> {
        let Delivery { folder, root } = *delivery;
        let (directory, now) = (present.directory, present.now);
        let established = files::exists(directory).map_err(files::io("look into", directory))?;
        let expected = if established {
            let present = files::root(directory)?;
            let der = present.to_der().map_err(IssueError::Encode)?;
            let digest = pki::cert::fingerprint_sha256(&der);
            if root.is_some_and(|root| !root.eq_ignore_ascii_case(&digest)) {
                return refused("the site has another root");
            }
            digest
        } else {
            match root {
                Some(root) => root.to_owned(),
                None => return refused("the first time, the root's SHA-256 must be told"),
            }
        };
        let ceremony = ceremony::check::one(folder, Some(&expected))?;
        let mut checked = Self {
            ceremony,
            certificates: BTreeMap::new(),
            established,
        };
        checked.check_list(directory, now)?;
        let made = checked.ceremony.certificates.clone();
        for (file, certificate) in made {
            let id = file.strip_suffix("-ca.pem").map(str::parse::<AuthorityId>);
            if let Some(Ok(id)) = id {
                checked.take(present, config, passphrase, (id, certificate))?;
            }
        }
        if !established && checked.certificates.len() < CaKind::ALL.len() {
            return refused("the first time, all authorities must be certified");
        }
        Ok(checked)
    }

    fn check_list(&self, directory: &Path, now: OffsetDateTime) -> Result<(), RegistryError> {
        let list = pki::crl::verify(&self.ceremony.list, &self.ceremony.root, now)?;
        if !self.established {
            return Ok(());
        }
        let present = files::crl_path(directory, CrlName::Root);
        let der = std::fs::read(&present).map_err(files::io("read", &present))?;
        let present = files::verified_list(&der, &self.ceremony.root)?;
        match files::list_number(&list)?.cmp(&files::list_number(&present)?) {
            Ordering::Less => {
                refused("a later ceremony is installed: its revocation list has a higher number")
            }
            // Of two copies of the root's folder each had a ceremony of this number: what the one revoked, the other's
            // list would bring back.
            Ordering::Equal if der != self.ceremony.list => {
                refused("another ceremony with a revocation list of the same number is installed")
            }
            Ordering::Equal | Ordering::Greater => Ok(()),
        }
    }

    fn take(
        &mut self,
        present: &Present<'_>,
        config: &Config,
        passphrase: &Passphrase,
        (id, certificate): (AuthorityId, Certificate),
    ) -> Result<(), RegistryError> {
        let (directory, now) = (present.directory, present.now);
        let certified = match self.established {
            true => files::certified(directory)?,
            false => CaKind::ALL.map(AuthorityId::first).into(),
        };
        let is_new = !certified.contains(&id);
        let file = AuthorityFile::at(directory, self.established, id);
        if is_new && present.next(id.kind())? != id {
            return refused(format!("{id} is not the generation that comes next"));
        }
        if is_new {
            // One that this site never asked for has no key here.
            let requested = config.authority_keys.key(id)?.is_some()
                || file
                    .key
                    .try_exists()
                    .map_err(files::io("look at", &file.key))?;
            if !requested {
                return refused(format!("this site has not requested the {id} authority"));
            }
        }
        let key = files::open_key(&file, config, passphrase, id)?;
        let authority = CertificateAuthority::new(certificate.clone(), key, config.arc)?;
        let subject = Subject::from_name(&certificate.tbs_certificate.subject);
        let is_its_name = subject.is_ok_and(|subject| id.is_name(&subject.common_name));
        if authority.kind() != Some(id.kind()) || !is_its_name {
            return Err(RegistryError::WrongKind { expected: id });
        }
        let validity = authority.validity();
        if now < validity.not_before || now > validity.not_after {
            return Err(IssueError::IssuerNotValid { now }.into());
        }
        let tbs = &certificate.tbs_certificate;
        if is_new {
            for other in certified {
                let other = files::certificate(directory, other)?.tbs_certificate;
                if other.subject == tbs.subject {
                    return refused("two generations cannot have one name");
                }
                if other.subject_public_key_info == tbs.subject_public_key_info {
                    return refused("two generations cannot have one key");
                }
            }
        } else if self.established {
            // The name that its leaves have as issuer.
            if files::certificate(directory, id)?.tbs_certificate.subject != tbs.subject {
                return refused("an authority cannot change its name");
            }
        }
        let list = files::verified_list(&self.ceremony.list, &self.ceremony.root)?;
        let serial = tbs.serial_number.as_bytes();
        if list.entries.iter().any(|entry| entry.serial == serial) {
            return refused(format!("the certificate of the {id} authority is revoked"));
        }
        self.certificates.insert(id, certificate);
        Ok(())
    }

    pub(crate) fn describe(&self) -> Installed {
        Installed {
            authorities: self.certificates.keys().copied().collect(),
            root_digest: self.ceremony.root_digest.clone(),
            ceremony: self.ceremony.transcript.number,
            title: self.ceremony.transcript.title.clone(),
        }
    }

    /// Puts everything in its place: all at once where the site had no authorities, else file by file, each of which may
    /// stand without the others.
    pub(crate) fn install(
        self,
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
    ) -> Result<(), RegistryError> {
        let chain = |certificate| CertificateChain::new(vec![certificate]);
        let disk = &*config.disk;
        let root = chain(self.ceremony.root)?;
        if self.established {
            for (id, certificate) in self.certificates {
                let file = AuthorityFile::at(directory, true, id);
                file::save_chain_on(disk, &file.certificate, &chain(certificate)?)?;
            }
            let list = files::crl_path(directory, CrlName::Root);
            return Ok(file::write_atomic_on(
                disk,
                &list,
                &self.ceremony.list,
                0o644,
            )?);
        }
        files::appear(directory, config, |folder| {
            file::save_chain_on(disk, &folder.join("root.pem"), &root)?;
            for (id, certificate) in self.certificates {
                let file = AuthorityFile::within(folder, id);
                // Not where it is elsewhere.
                let requested = AuthorityFile::at(directory, false, id).key;
                if requested
                    .try_exists()
                    .map_err(files::io("look at", &requested))?
                {
                    let key = file::load_private(&requested, passphrase)?;
                    file::save_private_on(disk, &file.key, &key, passphrase)?;
                }
                file::save_chain_on(disk, &file.certificate, &chain(certificate)?)?;
            }
            let list = folder.join("crl").join("root.crl");
            Ok(file::write_atomic_on(
                disk,
                &list,
                &self.ceremony.list,
                0o644,
            )?)
        })?;
        files::remove_requested(directory, config)
    }
}

fn refused<T>(reason: impl Into<String>) -> Result<T, RegistryError> {
    Err(RegistryError::NotInstalled(reason.into()))
}
