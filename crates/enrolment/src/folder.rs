//! A person's folder: the key, its password, the certificate, and the file for the browser.
//!
//! | file | content |
//! |---|---|
//! | `password` | protects `key.pem` and the PKCS#12 files, unless the person named another file |
//! | `key.pem` | the private key, encrypted (PKCS#8) |
//! | `request.pem` | the certification request |
//! | `root.pem` | the site's root, whose fingerprint the registrar gave |
//! | `origin` | what `certificate.pem` comes from: [`Invitation::origin`], or [`INSTALLED`] |
//! | `certificate.pem` | the certificate and its issuer |
//! | `UID.p12`, `UID-legacy.p12` | key and certificates for the browser |

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use commandline::{Failure, OrHint as _, Outcome, is_there, new_password};
use pki::cert::{Certificate, CertificateChain, fingerprint_sha256, to_der};
use pki::csr;
use pki::file;
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use pki::name::Subject;
use pki::path::{Identity, Purpose, TrustStore};
use pki::pkcs12::{self, Protection};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::invitation::Invitation;

/// Origin of a certificate that the person received as a file.
pub(crate) const INSTALLED: &str = "installed";
const ORIGIN: &str = "origin";
/// Bytes of the file `origin` at most; an origin has 75.
const MAX_ORIGIN: usize = 128;
/// Rights of the group and of all others.
const OTHERS: u32 = 0o077;
const NEW_FOLDER: &str = "name a new folder with --out";
const DISK: &str = "check the room on the disk and the folder's rights";

/// A person's folder, with the key in it.
pub(crate) struct Folder {
    path: PathBuf,
    uid: String,
    password: Zeroizing<String>,
    pub(crate) password_file: PathBuf,
    pub(crate) key: PrivateKey,
    /// The key was there before, of a run that did not end.
    pub(crate) resumed: bool,
}

impl Folder {
    /// Opens the folder of the person, and makes folder, password and key where they are missing. The key is on disk when
    /// this returns.
    ///
    /// # Errors
    /// The folder, its key or its password is a link, or another account owns, reads or writes it.
    pub(crate) fn open(
        path: &Path,
        uid: &str,
        password_file: Option<&Path>,
        algorithm: KeyAlgorithm,
    ) -> Outcome<Self> {
        create(path).or_hint(format!("cannot make {}", path.display()), DISK)?;
        let key_file = path.join("key.pem");
        for own in [path, &key_file, &path.join("password")] {
            check_private(own)?;
        }
        let resumed = is_there(&key_file)?;
        let (password_file, password) = password(path, password_file, resumed)?;
        let passphrase = Passphrase::new(Zeroizing::new(password.as_bytes().to_vec()));
        if !resumed {
            let key = PrivateKey::generate(algorithm).or_hint("cannot make a key", "try again")?;
            let pem = key.to_encrypted_pem(&passphrase).map(Zeroizing::new);
            let pem = pem.or_hint("cannot encrypt the key", "report this")?;
            // Another run at the same time may have been faster: its key counts.
            write_first(&key_file, pem.as_bytes(), 0o600)?;
        }
        let key = file::load_private(&key_file, &passphrase);
        let hint = "name the file with its password with --password-file, or another folder";
        Ok(Self {
            path: path.to_owned(),
            uid: uid.to_owned(),
            password,
            password_file,
            key: key.or_hint("the key of the folder", hint)?,
            resumed,
        })
    }

    /// A certification request for the key, in DER.
    pub(crate) fn request(&self) -> Outcome<Vec<u8>> {
        csr::build(&self.key, &Subject::new(&self.uid), &[])
            .or_hint("cannot make the certification request", "report this")
    }

    /// Writes the certification request as a file for the registrar.
    pub(crate) fn write_request(&self) -> Outcome<PathBuf> {
        let pem = csr::to_pem(&self.request()?).or_hint("request", "report this")?;
        self.write("request.pem", pem.as_bytes(), 0o644)
    }

    /// The root of an earlier run. It must have the fingerprint that is wanted now.
    pub(crate) fn root(&self, wanted: &str) -> Outcome<Option<Certificate>> {
        let path = self.path.join("root.pem");
        if !is_there(&path)? {
            return Ok(None);
        }
        let root = read_root(&path)?;
        let found = fingerprint(&root)?;
        if found != wanted {
            let what = anyhow::anyhow!("{} has the fingerprint {found}", path.display());
            let hint = "the folder is of another site: name a new one with --out";
            return Err(Failure::new(what, hint));
        }
        Ok(Some(root))
    }

    pub(crate) fn write_root(&self, root: &Certificate) -> Outcome {
        let pem = pki::cert::to_pem(root).or_hint("root", "report this")?;
        self.write("root.pem", pem.as_bytes(), 0o644).map(drop)
    }

    /// The certificate that an earlier run received for this invitation. `None`: the folder has no certificate.
    ///
    /// # Errors
    /// The certificate has another origin. It may be revoked, and returning it would leave the invitation unused.
    pub(crate) fn certificate(&self, invitation: &Invitation) -> Outcome<Option<CertificateChain>> {
        let path = self.path.join("certificate.pem");
        if !is_there(&path)? {
            return Ok(None);
        }
        if self.origin()?.as_deref() != Some(invitation.origin().as_bytes()) {
            let what = anyhow::anyhow!("{} is not from this invitation", path.display());
            return Err(Failure::new(what, NEW_FOLDER));
        }
        let chain = file::load_chain(&path);
        chain
            .map(Some)
            .or_hint("the certificate of the folder", "remove the file")
    }

    /// Content of the file `origin`, if there is one.
    fn origin(&self) -> Outcome<Option<Vec<u8>>> {
        let path = self.path.join(ORIGIN);
        match durable::real().load(&path, MAX_ORIGIN) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).or_hint(format!("cannot read {}", path.display()), DISK),
        }
    }

    /// Checks that a certificate is this person's, for this key, and leads to the root; then writes it with its origin.
    pub(crate) fn install(
        &self,
        chain: &CertificateChain,
        origin: &str,
        root: &Certificate,
        now: OffsetDateTime,
    ) -> Outcome<Identity> {
        const HINT: &str = "ask the registrar: the site issued something else than was asked for";
        if chain.leaf().tbs_certificate.subject_public_key_info != self.key.spki() {
            let what =
                anyhow::anyhow!("the certificate is for another key than that of the folder");
            return Err(Failure::new(what, HINT));
        }
        let trust = TrustStore::new(std::slice::from_ref(root), &[]);
        let trust = trust.or_hint("the site's root", "ask the registrar for the right one")?;
        let identity = trust.validate(chain.ders(), Purpose::ClientUser, now);
        let identity = identity.or_hint("the certificate is not acceptable", HINT)?;
        if identity.uid.as_deref() != Some(self.uid.as_str()) {
            let uid = identity.uid.as_deref().unwrap_or_default();
            let what = anyhow::anyhow!("the certificate is of {uid:?}, not of {:?}", self.uid);
            return Err(Failure::new(what, HINT));
        }
        let pem = chain.to_pem().or_hint("certificate", "report this")?;
        // The origin first: after a crash between the two, a certificate has a foreign origin and is refused.
        self.write(ORIGIN, origin.as_bytes(), 0o600)?;
        self.write("certificate.pem", pem.as_bytes(), 0o644)?;
        Ok(Identity::clone(&identity))
    }

    /// Writes key and certificates for the browser.
    pub(crate) fn write_pkcs12(
        &self,
        chain: &CertificateChain,
        protection: Protection,
    ) -> Outcome<PathBuf> {
        let subject = Subject::from_name(&chain.leaf().tbs_certificate.subject);
        let name = subject.map_or_else(|_| self.uid.clone(), |subject| subject.common_name);
        let p12 = pkcs12::export_with(&self.key, chain, &name, &self.password, protection);
        let p12 = p12.map(Zeroizing::new).or_hint("PKCS#12", "report this")?;
        let name = match protection {
            Protection::Modern => format!("{}.p12", self.uid),
            Protection::Legacy => format!("{}-legacy.p12", self.uid),
        };
        self.write(&name, &p12, 0o600)
    }

    fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Outcome<PathBuf> {
        let path = self.path.join(name);
        let written = durable::write_atomic(&path, bytes, mode);
        written.or_hint(format!("cannot write {}", path.display()), DISK)?;
        Ok(path)
    }
}

/// Creates the folder for its owner alone, unless it exists.
fn create(path: &Path) -> io::Result<()> {
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        durable::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| durable::sync_parent(path)),
    }
}

/// Refuses a file or folder that another account may have prepared, may change, or can read. A missing one is accepted.
///
/// The folder comes first: once it belongs to this account alone, no other account can exchange the files in it.
fn check_private(path: &Path) -> Outcome {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.or_hint(format!("cannot look at {}", path.display()), DISK)?,
    };
    let shown = path.display();
    let (what, hint) = if found.is_symlink() {
        (format!("{shown} is a symbolic link"), NEW_FOLDER.to_owned())
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        let what = format!("{shown} belongs to the account with id {}", found.uid());
        (what, NEW_FOLDER.to_owned())
    } else if found.mode() & OTHERS != 0 {
        let mode = found.mode() & 0o777;
        let hint = format!("if only you used it, run `chmod go= {shown}`; else {NEW_FOLDER}");
        (
            format!("{shown} has mode {mode:o}, which other accounts can use"),
            hint,
        )
    } else {
        return Ok(());
    };
    Err(Failure::new(anyhow::anyhow!(what), hint))
}

/// Reads the one certificate of a file.
pub(crate) fn read_root(path: &Path) -> Outcome<Certificate> {
    let hint = "name the site's root certificate, in PEM";
    let chain = file::load_chain(path).or_hint("the site's root", hint)?;
    match chain.certificates() {
        [root] => Ok(root.clone()),
        several => {
            let what = anyhow::anyhow!("{} certificates in {}", several.len(), path.display());
            Err(Failure::new(what, hint))
        }
    }
}

pub(crate) fn fingerprint(certificate: &Certificate) -> Outcome<String> {
    let der = to_der(certificate).or_hint("certificate", "report this")?;
    Ok(fingerprint_sha256(&der))
}

/// The password of key and PKCS#12: of the file that the person named, or of the folder, where it is made once.
fn password(
    folder: &Path,
    named: Option<&Path>,
    has_key: bool,
) -> Outcome<(PathBuf, Zeroizing<String>)> {
    let own = folder.join("password");
    if named.is_none() && !has_key {
        let line = Zeroizing::new(format!("{}\n", new_password()?.as_str()));
        write_first(&own, line.as_bytes(), 0o600)?;
    }
    let path = named.unwrap_or(&own);
    let bytes = commandline::passphrase(folder, Some(path))?;
    let text = std::str::from_utf8(&bytes).or_hint(
        format!("the password in {}", path.display()),
        "use a password of letters, digits and signs",
    )?;
    Ok((path.to_owned(), Zeroizing::new(text.to_owned())))
}

/// Writes a file unless there is one.
fn write_first(path: &Path, bytes: &[u8], mode: u32) -> Outcome {
    match durable::write_new(path, bytes, mode) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).or_hint(format!("cannot write {}", path.display()), DISK)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn open(path: &Path) -> Outcome<Folder> {
        Folder::open(path, "officer-9", None, KeyAlgorithm::EcdsaP256)
    }

    #[test]
    fn key_is_made_once_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        let first = open(&path).unwrap();
        let again = open(&path).unwrap();
        assert!(!first.resumed && again.resumed);
        assert_eq!(first.key.public_spki_der(), again.key.public_spki_der());
        assert_eq!(*first.password, *again.password);
        for (file, mode) in [("", 0o700), ("key.pem", 0o600), ("password", 0o600)] {
            let found = path.join(file).metadata().unwrap().mode();
            assert_eq!(found & 0o777, mode, "{file}");
        }
    }

    #[test]
    fn folder_or_file_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        open(&path).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let said = |path: &Path| format!("{:?}", open(path).map(drop).unwrap_err());
        assert!(said(&link).contains("is a symbolic link"));
        for (name, right) in [("", 0o700), ("key.pem", 0o600), ("password", 0o600)] {
            let own = path.join(name);
            for foreign in [0o040, 0o020, 0o004, 0o002] {
                set_permissions(&own, Permissions::from_mode(right | foreign)).unwrap();
                let said = said(&path);
                assert!(
                    said.contains("which other accounts can use"),
                    "{name}: {said}"
                );
            }
            set_permissions(&own, Permissions::from_mode(right)).unwrap();
            assert!(open(&path).unwrap().resumed);
        }
        for name in ["key.pem", "password"] {
            let moved = folder.path().join(name);
            std::fs::rename(path.join(name), &moved).unwrap();
            symlink(&moved, path.join(name)).unwrap();
            assert!(said(&path).contains("is a symbolic link"), "{name}");
            std::fs::rename(&moved, path.join(name)).unwrap();
        }
        assert!(open(&path).unwrap().resumed);
        // A link that leads nowhere is not a missing file.
        let empty = folder.path().join("empty");
        DirBuilder::new().mode(0o700).create(&empty).unwrap();
        symlink(folder.path().join("nowhere"), empty.join("key.pem")).unwrap();
        assert!(said(&empty).contains("is a symbolic link"));
    }

    #[test]
    fn folder_of_another_account_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["", "key.pem", "password"] {
            let path = folder.path().join(format!("mine{name}"));
            open(&path).unwrap();
            std::os::unix::fs::chown(path.join(name), Some(12345), None).unwrap();
            let said = format!("{:?}", open(&path).map(drop).unwrap_err());
            assert!(
                said.contains("belongs to the account with id 12345"),
                "{said}"
            );
        }
    }

    #[test]
    fn key_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        open(&path).unwrap();
        let (key, password) = (path.join("key.pem"), path.join("password"));
        let before = std::fs::read(&key).unwrap();
        // With another password, and without any.
        std::fs::write(&password, "another one").unwrap();
        let said = format!("{:?}", open(&path).map(drop).unwrap_err());
        assert!(said.contains("the key of the folder"), "{said}");
        std::fs::remove_file(&password).unwrap();
        assert!(open(&path).is_err());
        assert_eq!(std::fs::read(&key).unwrap(), before);
    }

    #[test]
    fn certificate_of_another_origin_is_refused() {
        let invitation = |uid: &str, root: &str, code: &str| {
            let code = Zeroizing::new(code.to_owned());
            Invitation::new(uid, "pki.example.org:8445", &root.repeat(64), code).unwrap()
        };
        let (first, second) = ("ABCDEFGHJKLMNPQRSTUV", "VUTSRQPNMLKJHGFEDCBA");
        let mine = invitation("officer-9", "a", first);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        let open = open(&path).unwrap();
        assert!(open.certificate(&mine).unwrap().is_none());
        std::fs::write(path.join("certificate.pem"), "damaged").unwrap();
        let said =
            |invitation: &Invitation| format!("{:?}", open.certificate(invitation).unwrap_err());
        let foreign = "is not from this invitation";
        assert!(said(&mine).contains(foreign), "no origin");
        let origin = path.join(ORIGIN);
        for content in [INSTALLED.to_owned(), String::new(), "x".repeat(MAX_ORIGIN)] {
            std::fs::write(&origin, &content).unwrap();
            assert!(said(&mine).contains(foreign), "{content}");
        }
        std::fs::write(&origin, "x".repeat(MAX_ORIGIN + 1)).unwrap();
        assert!(said(&mine).contains("cannot read"), "{}", said(&mine));
        std::fs::write(&origin, mine.origin()).unwrap();
        assert!(said(&mine).contains("the certificate of the folder"));
        for other in [
            invitation("officer-9", "a", second),
            invitation("officer-8", "a", first),
            invitation("officer-9", "b", first),
        ] {
            assert!(said(&other).contains(foreign), "{}", other.uid);
        }
    }

    #[test]
    fn root_with_another_fingerprint_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        let mine = open(&path).unwrap();
        assert!(mine.root("00").unwrap().is_none());
        std::fs::write(path.join("root.pem"), "not a certificate").unwrap();
        assert!(mine.root("00").is_err());
    }
}
