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
use crate::lists::CrlName;
use crate::{RegistryError, ceremony};

/// The name that an authority's certificate has.
pub(crate) struct CertifiedName {
    subject: Subject,
}

impl CertifiedName {
    pub(crate) fn new(organisation: &str, country: Option<&str>, kind: CaKind) -> Self {
        let subject = Subject {
            organisation: Some(organisation.to_owned()),
            country: country.map(str::to_owned),
            ..Subject::new(format!("{organisation} {kind} CA"))
        };
        Self { subject }
    }

    pub(crate) fn subject(self) -> Subject {
        self.subject
    }

    /// Whether somebody asks for this name.
    pub(crate) fn check(&self, asked: &Subject) -> Result<(), String> {
        if *asked == self.subject {
            return Ok(());
        }
        Err(format!(
            "it asks for the name {}, and the script is about {}",
            shown(asked),
            shown(&self.subject)
        ))
    }
}

fn shown(subject: &Subject) -> String {
    let name = subject.to_name();
    name.map_or_else(|_| "that is none".to_owned(), |name| name.to_string())
}

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
    pub authorities: Vec<CaKind>,
    /// Digest of the root's certificate (DER).
    pub root_digest: String,
    /// The ceremony that they come from.
    pub ceremony: u32,
    pub title: String,
}

impl Installed {
    pub(crate) fn event(&self, who: Actor, now: OffsetDateTime) -> Event {
        let kinds: Vec<_> = self.authorities.iter().map(|kind| kind.name()).collect();
        let resource = format!("root/{}", self.root_digest);
        Event::new(now, who, "authority.install", resource, Outcome::Ok)
            .with_detail("authorities", kinds.join(" "))
            .with_detail("ceremony", self.ceremony)
    }
}

/// Certification requests (PEM) for all authorities: for their keys, or for new ones that wait for their certificates.
pub(crate) fn request(
    directory: &Path,
    config: &Config,
    passphrase: &Passphrase,
) -> Result<Vec<(CaKind, String)>, RegistryError> {
    let established = files::exists(directory).map_err(files::io("look into", directory))?;
    if !established {
        files::make_requested(directory, config, passphrase)?;
    }
    CaKind::ALL
        .into_iter()
        .map(|kind| {
            let file = AuthorityFile::at(directory, established, kind);
            let key = files::open_key(&file, config, passphrase, kind)?;
            let subject = if established {
                let present = file::load_chain(&file.certificate)?;
                let name = &present.leaf().tbs_certificate.subject;
                Subject::from_name(name).map_err(IssueError::Name)?
            } else {
                let country = config.country.as_deref();
                CertifiedName::new(&config.organisation, country, kind).subject()
            };
            Ok((kind, csr::to_pem(&csr::build(&*key, &subject, &[])?)?))
        })
        .collect()
}

/// A delivery that was checked.
pub(crate) struct Checked {
    ceremony: ceremony::check::Checked,
    certificates: BTreeMap<CaKind, Certificate>,
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
        for kind in CaKind::ALL {
            checked.take(directory, config, passphrase, kind, now)?;
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
        kind: CaKind,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let made = &self.ceremony.certificates;
        let Some(certificate) = made.get(&files::certificate_file(kind)).cloned() else {
            return Ok(());
        };
        let present = AuthorityFile::at(directory, self.established, kind);
        let key = files::open_key(&present, config, passphrase, kind)?;
        let authority = CertificateAuthority::new(certificate.clone(), key, config.arc)?;
        if authority.kind() != Some(kind) {
            return Err(RegistryError::WrongKind { expected: kind });
        }
        let validity = authority.validity();
        if now < validity.not_before || now > validity.not_after {
            return Err(IssueError::IssuerNotValid { now }.into());
        }
        let tbs = &certificate.tbs_certificate;
        if self.established {
            let present = file::load_chain(&present.certificate)?;
            // The name that its leaves have as issuer.
            if present.leaf().tbs_certificate.subject != tbs.subject {
                return refused("an authority cannot change its name");
            }
        }
        let list = files::verified_list(&self.ceremony.list, &self.ceremony.root)?;
        let serial = tbs.serial_number.as_bytes();
        if list.entries.iter().any(|entry| entry.serial == serial) {
            return refused(format!(
                "the certificate of the {kind} authority is revoked"
            ));
        }
        self.certificates.insert(kind, certificate);
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
            for (kind, certificate) in self.certificates {
                let file = AuthorityFile::at(directory, true, kind);
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
            for (kind, certificate) in self.certificates {
                let file = AuthorityFile::within(folder, kind);
                // Not where it is elsewhere.
                let requested = AuthorityFile::at(directory, false, kind).key;
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
