//! Issuing authorities under a root that is elsewhere: what the site asks of it, and what comes back of a
//! [ceremony](crate::ceremony).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use audit::{Actor, Event, Outcome};
use der::Encode as _;
use pki::cert::CertificateChain;
use pki::issue::{CertificateAuthority, IssueError};
use pki::key::Passphrase;
use pki::name::Subject;
use pki::profile::CaKind;
use pki::{Certificate, csr, file};
use time::OffsetDateTime;

use crate::config::Config;
use crate::files::{self, AuthorityFile};
use crate::generation::{AuthorityId, MAX_GENERATIONS};
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
        Event::new(now, who, "authority.install", resource, Outcome::Ok)
            .with_detail("authorities", names.join(" "))
            .with_detail("ceremony", self.ceremony)
    }
}

/// Certification requests (PEM): for the keys of the newest generations, or for those of the first, which wait for their
/// certificates.
pub(crate) fn request(
    directory: &Path,
    config: &Config,
    passphrase: &Passphrase,
) -> Result<Vec<(AuthorityId, String)>, RegistryError> {
    let established = files::exists(directory).map_err(files::io("look into", directory))?;
    if !established {
        files::make_requested(directory, config, passphrase)?;
    }
    let certified = match established {
        true => files::certified(directory)?,
        false => CaKind::ALL.map(AuthorityId::first).into(),
    };
    CaKind::ALL
        .into_iter()
        .map(|kind| {
            let id = files::newest(&certified, kind)?;
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

/// The generation that comes next of a kind, if there may be one.
pub(crate) fn next(directory: &Path, kind: CaKind) -> Result<AuthorityId, RegistryError> {
    let certified = files::certified(directory)?;
    let newest = files::newest(&certified, kind)?;
    let of_kind = certified.iter().filter(|id| id.kind() == kind);
    let now = OffsetDateTime::now_utc();
    let mut valid = 0;
    for id in of_kind {
        let end = files::certificate(directory, *id)?.tbs_certificate.validity;
        let end = OffsetDateTime::from(end.not_after.to_system_time());
        valid += usize::from(end > now);
    }
    let next = newest.next().filter(|_| valid < MAX_GENERATIONS);
    next.ok_or(RegistryError::TooManyGenerations(kind))
}

/// Certification requests (PEM) for another generation of each kind. Asked again before their certificates are there, it
/// requests the same.
pub(crate) fn request_next(
    directory: &Path,
    config: &Config,
    passphrase: &Passphrase,
    kinds: &[CaKind],
) -> Result<Vec<(AuthorityId, String)>, RegistryError> {
    let request = |kind: &CaKind| {
        let id = next(directory, *kind)?;
        let key = files::make_next_key(directory, config, passphrase, id)?;
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
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
        delivery: &Delivery<'_>,
        now: OffsetDateTime,
    ) -> Result<Self, RegistryError> {
        let Delivery { folder, root } = *delivery;
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
                checked.take(directory, config, passphrase, (id, certificate), now)?;
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
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
        (id, certificate): (AuthorityId, Certificate),
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let present = match self.established {
            true => files::certified(directory)?,
            false => CaKind::ALL.map(AuthorityId::first).into(),
        };
        let is_new = !present.contains(&id);
        let file = AuthorityFile::at(directory, self.established, id);
        if is_new && next(directory, id.kind())? != id {
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
        if authority.kind() != Some(id.kind()) {
            return Err(RegistryError::WrongKind { expected: id });
        }
        let validity = authority.validity();
        if now < validity.not_before || now > validity.not_after {
            return Err(IssueError::IssuerNotValid { now }.into());
        }
        let tbs = &certificate.tbs_certificate;
        if is_new {
            for other in present {
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
