//! Private keys, in a process of their own.
//!
//! ```text
//! daemon: Signer, Key ──── SOCK_SEQPACKET (`message`) ──── `process`: SigningKey
//! ```
//!
//! The daemon starts the process before it opens anything else, tells it which files to read, and never
//! reads them itself. What comes back are numbers, public keys and signatures. If the process ends, or
//! does not answer in time, the daemon ends as well, in an orderly way: tunnels without the means to
//! prove who we are could not be had again, and whatever restarts services restarts both.

mod key;
pub(super) mod message;
mod process;
mod token;
mod uri;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ikev2::auth::Scheme;
use ikev2::config::KeyKind;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use message::{MAX_MESSAGE, Request, Response};
pub use process::run;

/// How long an answer may take: passphrases are slow on purpose, and so are smart cards.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no signature or no key. Says nothing about keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignerError {
    /// The process says why.
    #[error("{0}")]
    Refused(String),
    /// More than any handshake has.
    #[error("the message is too long to be signed")]
    TooLong,
    /// It is gone, or talks nonsense.
    #[error("the process with the private keys does not answer")]
    Gone,
}

/// Whether the name of a key or certificate is that of an object on a token.
pub(super) fn is_token(name: &Path) -> bool {
    uri::Uri::is_one(name.as_os_str().as_bytes())
}

/// The way to the process with the private keys.
#[derive(Clone)]
pub struct Signer(Arc<Inner>);

struct Inner {
    /// One request and its answer at a time.
    socket: Mutex<OwnedFd>,
    child: Mutex<Option<Child>>,
    /// Numbers of keys that nobody uses any more; said with the next request.
    forgotten: Mutex<Vec<u32>>,
    /// We ended it.
    closed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for way in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&ours, way, Some(PATIENCE))?;
    }
    Ok((ours, theirs))
}

impl Signer {
    /// Starts the process. `command` is a program that calls [`run`] before it has any other thread.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let (ours, theirs) = pair()?;
        // A group of its own: what a terminal sends to all is for the daemon to act on.
        command.process_group(0).stdin(Stdio::from(theirs));
        let child = command.stdout(Stdio::null()).spawn()?;
        Ok(Self::over(ours, Some(child)))
    }

    fn over(socket: OwnedFd, child: Option<Child>) -> Self {
        Self(Arc::new(Inner {
            socket: Mutex::new(socket),
            child: Mutex::new(child),
            forgotten: Mutex::default(),
            closed: AtomicBool::new(false),
        }))
    }

    /// The same in a thread, for tests of what is around it.
    #[cfg(test)]
    pub(super) fn in_thread() -> Self {
        use std::os::fd::AsFd as _;
        let (ours, theirs) = pair().unwrap();
        std::thread::spawn(move || process::serve(theirs.as_fd()).unwrap());
        Self::over(ours, None)
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// That it did without having been told to.
    pub(super) fn watch(&self) -> io::Result<()> {
        let child = lock(&self.0.child).take();
        let Some(mut child) = child else {
            return Ok(());
        };
        let status = child.wait()?;
        if self.0.closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let error = format!("the process with the private keys ended ({status})");
        Err(io::Error::other(error))
    }

    /// Ends the process.
    pub(super) fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        hang_up(&lock(&self.0.socket));
    }

    /// Has the process take a key into service: that of the certificate with this public key. `passphrase`
    /// is the file that has it, or the token's PIN.
    ///
    /// # Errors
    /// [`SignerError`].
    pub(super) fn load(
        &self,
        key: &Path,
        passphrase: Option<&Path>,
        public: &[u8],
    ) -> Result<Key, SignerError> {
        let octets = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let request = Request::Load {
            key: octets(key),
            passphrase: passphrase.map(octets),
            public: public.to_vec(),
        };
        match self.ask(&request)? {
            Response::Key { number, kind } => Ok(Key {
                number,
                kind,
                signer: self.clone(),
            }),
            other => Err(self.nonsense(other)),
        }
    }

    /// Has the process read a certificate (DER) from a token.
    ///
    /// # Errors
    /// [`SignerError`].
    pub(super) fn certificate(&self, uri: &Path) -> Result<Vec<u8>, SignerError> {
        let uri = uri.as_os_str().as_bytes().to_vec();
        match self.ask(&Request::Certificate { uri })? {
            Response::Certificate(der) => Ok(der),
            other => Err(self.nonsense(other)),
        }
    }

    /// Asks and waits for the answer.
    fn ask(&self, request: &Request) -> Result<Response, SignerError> {
        let bytes = request.encode().ok_or(SignerError::TooLong)?;
        let socket = lock(&self.0.socket);
        for number in std::mem::take(&mut *lock(&self.0.forgotten)) {
            let forget = Request::Forget { number }.encode();
            exchange(&socket, &forget.unwrap_or_default())?;
        }
        exchange(&socket, &bytes)
    }

    fn nonsense(&self, response: Response) -> SignerError {
        if let Response::Refused(why) = response {
            return SignerError::Refused(why);
        }
        hang_up(&lock(&self.0.socket));
        SignerError::Gone
    }
}

/// One request and its answer. After a failure nobody knows what the next answer would be about, so there
/// is none: the process ends, and [`Signer::watch`] says so.
fn exchange(socket: &OwnedFd, request: &[u8]) -> Result<Response, SignerError> {
    let talk = || -> io::Result<Option<Response>> {
        rustix::net::send(socket, request, SendFlags::NOSIGNAL)?;
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
                Ok((len, _)) => return Ok(buffer.get(..len).and_then(Response::decode)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    };
    match talk() {
        Ok(Some(response)) => Ok(response),
        failed => {
            if let Err(error) = failed {
                tracing::error!(%error, "asking the process with the private keys");
            }
            hang_up(socket);
            Err(SignerError::Gone)
        }
    }
}

fn hang_up(socket: &OwnedFd) {
    // It may have been done before.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

impl Drop for Inner {
    fn drop(&mut self) {
        hang_up(&lock(&self.socket));
        if let Some(mut child) = lock(&self.child).take() {
            // It ends with the socket; nobody is left to be told how.
            let _ = child.wait();
        }
    }
}

/// A private key as the daemon has it: a number.
pub(super) struct Key {
    number: u32,
    kind: KeyKind,
    signer: Signer,
}

impl Key {
    pub(super) const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Signs a whole message.
    ///
    /// # Errors
    /// [`SignerError`].
    pub(super) fn sign(&self, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, SignerError> {
        let request = Request::Sign {
            number: self.number,
            scheme,
            message: message.to_vec(),
        };
        match self.signer.ask(&request)? {
            Response::Signature(signature) => Ok(signature),
            other => Err(self.signer.nonsense(other)),
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // Asking now could wait for a signature that somebody else wants.
        lock(&self.signer.0.forgotten).push(self.number);
    }
}

#[cfg(test)]
mod tests;
