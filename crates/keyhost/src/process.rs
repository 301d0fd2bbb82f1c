//! The process that has the private keys and nothing else.
//!
//! It reads keys from files, or lets a token sign, and answers one request after the other on the socket
//! that it was born with. It ends when that socket does, however the service ended.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use der::Decode as _;
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use pki::{KeyAlgorithm, PrivateKey};
use rustix::net::{RecvFlags, SendFlags, SocketType, sockopt};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use spki::SubjectPublicKeyInfoOwned;
use sys::privileges;
use zeroize::Zeroizing;

use crate::algorithm::{KeyKind, SignatureScheme};
use crate::message::{MAX_MESSAGE, Request, Response};
use crate::secret_file::{self, SECRET_MAX};
use crate::signing_key::{SignError, SigningKey};
use crate::token::{Modules, TokenKey};
use crate::uri::Uri;

/// Keys in service at most.
const MAX_KEYS: usize = 4096;

/// System calls that the process never makes, whoever tells it to: start programs, look into other processes, enter
/// namespaces, mount, change the kernel; or use io_uring, which does things without system calls.
const FORBIDDEN: [libc::c_long; 24] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
];

/// Serves the service that started this process with a socket as standard input, until it ends.
///
/// # Errors
/// That standard input is no such socket, or what cannot be given up; a service that is gone is none.
pub fn run() -> io::Result<()> {
    let input = io::stdin();
    if !sockopt::socket_type(input.as_fd()).is_ok_and(|kind| kind == SocketType::SEQPACKET) {
        return Err(io::Error::other(
            "standard input is no socket of a program that signs",
        ));
    }
    harden()?;
    serve(input.as_fd())
}

/// Gives up what keys do not need. The calling thread is the only one of its process.
fn harden() -> io::Result<()> {
    // Neither core dumps nor debuggers of the same user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Signals for the whole group are for the service, which ends this process when it has no more use
    // for it.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    // Root reads the files of others without it no more.
    let had = capabilities(None)?.permitted;
    privileges::keep(had & CapabilitySet::DAC_READ_SEARCH)?;
    let filter = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter(&filter).map_err(io::Error::other)
}

/// No network: of sockets only those of this host, by which tokens reach their readers.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let family = u64::try_from(libc::AF_UNIX).unwrap_or(1);
    let others = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)?;
    let socket = (libc::SYS_socket, vec![SeccompRule::new(vec![others])?]);
    let rules = FORBIDDEN.into_iter().map(|number| (number, vec![]));
    let filter = SeccompFilter::new(
        rules.chain([socket]).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap_or(1)),
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into()
}

/// Answers until nobody asks any more.
///
/// # Errors
/// Those of receiving.
pub(crate) fn serve(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut keys = Keys::default();
    let mut buffer = vec![0; MAX_MESSAGE + 1];
    loop {
        let len = match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => return Ok(()),
            Ok((len, _)) => len,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        // What is too long was cut, and its lengths do not fit.
        let request = buffer.get(..len).and_then(Request::decode);
        let response = match request {
            Some(request) => keys.handle(request),
            None => Response::Refused("unreadable request".into()),
        };
        let answer = response.encode().unwrap_or_default();
        match rustix::net::send(socket, &answer, SendFlags::NOSIGNAL) {
            Ok(_) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The keys in service.
#[derive(Default)]
struct Keys {
    keys: BTreeMap<u32, Held>,
    next: u32,
    modules: Modules,
}

/// Place of a key.
enum Held {
    File(SigningKey),
    Token {
        key: Box<TokenKey>,
        /// DER SubjectPublicKeyInfo.
        public: Vec<u8>,
    },
}

impl Held {
    fn kind(&self) -> KeyKind {
        match self {
            Self::File(key) => key.kind(),
            Self::Token { key, .. } => key.kind(),
        }
    }

    fn sign(&mut self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::File(key) => key.sign(scheme, message).map_err(|error| error.to_string()),
            Self::Token { key, public } => {
                let wrong = || Err(SignError::Scheme(scheme).to_string());
                let signature = key.sign(scheme, message).unwrap_or_else(wrong)?;
                // A token may be another one by now, or be broken: a wrong signature can give an RSA key away.
                match scheme.verifies(public, message, &signature) {
                    true => Ok(signature),
                    false => Err("the token's signature is wrong: not of this key".into()),
                }
            }
        }
    }
}

impl Keys {
    fn handle(&mut self, request: Request) -> Response {
        let done = match request {
            Request::Load {
                key,
                passphrase,
                public,
            } => self.load(&key, passphrase.as_deref(), &public),
            Request::Sign {
                number,
                scheme,
                message,
            } => match self.keys.get_mut(&number) {
                Some(key) => key.sign(scheme, &message).map(Response::Signature),
                None => Err("there is no such key".into()),
            },
            Request::Forget { number } => match self.keys.remove(&number) {
                Some(_) => Ok(Response::Done),
                None => Err("there is no such key".into()),
            },
            Request::Certificate { uri } => self.certificate(&uri),
            Request::PublicKey { uri } => self.public_key(&uri),
        };
        done.unwrap_or_else(Response::Refused)
    }

    fn load(
        &mut self,
        name: &[u8],
        passphrase: Option<&[u8]>,
        public: &[u8],
    ) -> Result<Response, String> {
        if self.keys.len() >= MAX_KEYS {
            return Err(format!("there are {MAX_KEYS} keys already"));
        }
        let path = |bytes| Path::new(std::ffi::OsStr::from_bytes(bytes));
        let passphrase = passphrase.map(path);
        let other = || "`key` is not the key of `certificate`".to_owned();
        let key = if Uri::is_one(name) {
            let mut key = self.token_key(name, passphrase, public)?;
            if !matches(&mut key, public)? {
                return Err(other());
            }
            Held::Token {
                key: Box::new(key),
                public: public.to_vec(),
            }
        } else {
            let key = SigningKey::new(read_key(path(name), passphrase)?);
            if key.public() != public {
                return Err(other());
            }
            Held::File(key)
        };
        let number = self.next;
        self.next = number.checked_add(1).ok_or("there are no numbers left")?;
        let kind = key.kind();
        self.keys.insert(number, key);
        Ok(Response::Key { number, kind })
    }

    fn token_key(
        &mut self,
        name: &[u8],
        pin: Option<&Path>,
        public: &[u8],
    ) -> Result<TokenKey, String> {
        let unusable = |what: String| format!("{}: {what}", String::from_utf8_lossy(name));
        let spki = SubjectPublicKeyInfoOwned::from_der(public).ok();
        let algorithm = spki.and_then(|spki| KeyAlgorithm::of_spki(&spki).ok());
        let algorithm = algorithm.ok_or_else(|| unusable("a kind of key not known here".into()))?;
        let pin = pin
            .map(|file| secret_file::read(file, SECRET_MAX))
            .transpose()?;
        let uri = uri(name)?;
        let key = self.modules.key(uri, pin, algorithm.into());
        key.map_err(unusable)
    }

    fn certificate(&mut self, name: &[u8]) -> Result<Response, String> {
        let der = self.modules.certificate(&uri(name)?);
        let shown = String::from_utf8_lossy(name);
        der.map(Response::Certificate)
            .map_err(|what| format!("{shown}: {what}"))
    }

    fn public_key(&mut self, name: &[u8]) -> Result<Response, String> {
        let der = self.modules.public_key(&uri(name)?);
        let shown = String::from_utf8_lossy(name);
        der.map(Response::PublicKey)
            .map_err(|what| format!("{shown}: {what}"))
    }
}

fn uri(name: &[u8]) -> Result<Uri, String> {
    let text = std::str::from_utf8(name).map_err(|_| "a URI that is no UTF-8".to_owned())?;
    Uri::parse(text).map_err(|what| format!("{text}: {what}"))
}

/// Whether a token's key belongs to a public one. Tokens show the public half of a private key or do not,
/// each in its own way; so it signs something.
fn matches(key: &mut TokenKey, public: &[u8]) -> Result<bool, String> {
    let scheme = match key.kind() {
        KeyKind::Rsa => SignatureScheme::RsaPssSha256,
        KeyKind::EcdsaP256 => SignatureScheme::EcdsaP256,
        KeyKind::EcdsaP384 => SignatureScheme::EcdsaP384,
        KeyKind::Ed25519 => SignatureScheme::Ed25519,
    };
    const PROBE: &[u8] = b"Cordon: does this key belong to its certificate?";
    let signed = key.sign(scheme, PROBE);
    let signature = signed.unwrap_or_else(|| Err("the key has no scheme".into()))?;
    Ok(scheme.verifies(public, PROBE, &signature))
}

/// Reads a key (PEM, PKCS#8). What it says on failure contains nothing of the files.
fn read_key(file: &Path, passphrase: Option<&Path>) -> Result<PrivateKey, String> {
    let text = secret_file::read(file, SECRET_MAX)?;
    let shown = file.display();
    let unusable = |what: &dyn std::fmt::Display| format!("{shown}: {what}");
    let nothing = || unusable(&"there is no PKCS#8 key in it");
    let text = std::str::from_utf8(&text).map_err(|error| unusable(&error))?;
    // A camera's identity has certificates in the same file.
    let text = pem_key(text).ok_or_else(nothing)?;
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") {
        let file = passphrase
            .ok_or_else(|| unusable(&"the key is encrypted: `passphrase_file` is missing"))?;
        let passphrase = secret_file::read(file, SECRET_MAX)?;
        return PrivateKey::from_encrypted_pem(text, &passphrase.as_slice().into())
            .map_err(|e| unusable(&e));
    }
    let (label, der) = der::pem::decode_vec(text.as_bytes()).map_err(|e| unusable(&e))?;
    let der = Zeroizing::new(der);
    if label != "PRIVATE KEY" {
        return Err(nothing());
    }
    PrivateKey::from_pkcs8_der(&der).map_err(|error| unusable(&error))
}

/// The PKCS#8 key among the parts of a PEM file.
fn pem_key(text: &str) -> Option<&str> {
    ["PRIVATE KEY", "ENCRYPTED PRIVATE KEY"]
        .iter()
        .find_map(|label| pki::key::pem_part(text, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_key_beside_certificates_is_found() {
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
        let other = "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----";
        assert_eq!(pem_key(&format!("{other}\n{key}\n{other}")), Some(key));
        assert_eq!(pem_key(key), Some(key));
        for none in [
            other,
            "",
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
        ] {
            assert_eq!(pem_key(none), None);
        }
    }

    #[test]
    fn seccomp_filter_of_the_key_process_compiles() {
        assert!(!filter().unwrap().is_empty());
    }
}
