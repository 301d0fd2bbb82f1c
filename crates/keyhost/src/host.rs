//! The service's side of the process with the private keys.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::algorithm::{KeyKind, SignatureScheme};
use crate::message::{MAX_MESSAGE, Request, Response};
use crate::uri::Uri;

/// Longest wait for a key from a file: passphrases are slow on purpose.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for a token or a signature: the slowest smart cards take some seconds for one.
pub const TOKEN_PATIENCE: Duration = Duration::from_secs(10);
/// Time that a process that is no longer needed may take to end.
const END_WAIT: Duration = Duration::from_secs(1);

/// Why there is no signature or no key. Says nothing about keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyHostError {
    /// The process says why.
    #[error("{0}")]
    Refused(String),
    /// More than any handshake has.
    #[error("the message is too long to be signed")]
    TooLong,
    /// It is gone, or talks nonsense.
    #[error("the process with the private keys is gone")]
    Gone,
    /// It was killed for that: a token's library waits for a token that does not answer.
    #[error("the holder of the key did not answer in time")]
    Silent,
}

/// Whether the name of a key or certificate is that of an object on a token.
pub fn is_token(name: &Path) -> bool {
    Uri::is_one(name.as_os_str().as_bytes())
}

/// Checks the name of a key on a token.
///
/// # Errors
/// What is wrong with it, for the operator.
pub fn check_token(name: &str) -> Result<(), String> {
    Uri::parse(name).map(drop)
}

/// A handle to the process with the private keys.
#[derive(Clone)]
pub struct KeyHost(Arc<Inner>);

struct Inner {
    /// One request and its answer at a time.
    socket: Mutex<OwnedFd>,
    child: Mutex<Option<Child>>,
    /// The same for signals, whoever waits for it.
    process: Option<OwnedFd>,
    /// Numbers of keys that nobody uses any more; said with the next request.
    unused: Mutex<Vec<u32>>,
    closed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&ours, Timeout::Send, Some(PATIENCE))?;
    Ok((ours, theirs))
}

impl KeyHost {
    /// Starts the process. `command` is a program that calls [`crate::run`] before it has any other thread.
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

    pub(crate) fn over(socket: OwnedFd, child: Option<Child>) -> Self {
        let process = child.as_ref().and_then(|child| {
            let id = rustix::process::Pid::from_child(child);
            pidfd_open(id, PidfdFlags::empty()).ok()
        });
        Self(Arc::new(Inner {
            socket: Mutex::new(socket),
            child: Mutex::new(child),
            process,
            unused: Mutex::default(),
            closed: AtomicBool::new(false),
        }))
    }

    /// The same in a thread of the caller's process: for tests of what is around it, as keys are not apart then.
    ///
    /// # Errors
    /// Those of making a socket.
    #[doc(hidden)]
    pub fn in_thread() -> io::Result<Self> {
        use std::os::fd::AsFd as _;
        let (ours, theirs) = pair()?;
        std::thread::spawn(move || crate::process::serve(theirs.as_fd()));
        Ok(Self::over(ours, None))
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// That it did without having been told to.
    pub fn watch(&self) -> io::Result<()> {
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

    /// Lets the process end; [`Self::watch`] takes that for wanted.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        hang_up(&lock(&self.0.socket));
    }

    /// Has the process take a key into service: that of the certificate with this public key. `passphrase`
    /// is the file that has it, or the token's PIN.
    ///
    /// # Errors
    /// [`KeyHostError`].
    pub fn load(
        &self,
        key: &Path,
        passphrase: Option<&Path>,
        public: &[u8],
    ) -> Result<Key, KeyHostError> {
        let octets = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let request = Request::Load {
            key: octets(key),
            passphrase: passphrase.map(octets),
            public: public.to_vec(),
        };
        match self.request(&request)? {
            Response::Key { number, kind } => Ok(Key {
                number,
                kind,
                host: self.clone(),
            }),
            other => Err(self.unexpected(other)),
        }
    }

    /// Has the process read a certificate (DER) from a token.
    ///
    /// # Errors
    /// [`KeyHostError`].
    pub fn certificate(&self, uri: &Path) -> Result<Vec<u8>, KeyHostError> {
        let uri = uri.as_os_str().as_bytes().to_vec();
        match self.request(&Request::Certificate { uri })? {
            Response::Certificate(der) => Ok(der),
            other => Err(self.unexpected(other)),
        }
    }

    /// Has the process read a public key (DER SubjectPublicKeyInfo) from a token.
    ///
    /// # Errors
    /// [`KeyHostError`].
    pub fn public_key(&self, uri: &Path) -> Result<Vec<u8>, KeyHostError> {
        let uri = uri.as_os_str().as_bytes().to_vec();
        match self.request(&Request::PublicKey { uri })? {
            Response::PublicKey(der) => Ok(der),
            other => Err(self.unexpected(other)),
        }
    }

    /// Sends a request and waits for its response.
    fn request(&self, request: &Request) -> Result<Response, KeyHostError> {
        self.request_within(request, patience(request))
    }

    pub(crate) fn request_within(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<Response, KeyHostError> {
        let bytes = request.encode().ok_or(KeyHostError::TooLong)?;
        let socket = lock(&self.0.socket);
        let talk = || {
            for number in std::mem::take(&mut *lock(&self.0.unused)) {
                let forget = Request::Forget { number }.encode();
                exchange(&socket, &forget.unwrap_or_default(), patience)?;
            }
            exchange(&socket, &bytes, patience)
        };
        // It may be in a library that will never return, and end by itself no more.
        talk().inspect_err(|_| self.0.kill())
    }

    fn unexpected(&self, response: Response) -> KeyHostError {
        if let Response::Refused(why) = response {
            return KeyHostError::Refused(why);
        }
        hang_up(&lock(&self.0.socket));
        KeyHostError::Gone
    }
}

/// Time to wait for the answer to this.
fn patience(request: &Request) -> Duration {
    match request {
        Request::Load { key, .. } if !Uri::is_one(key) => PATIENCE,
        _ => TOKEN_PATIENCE,
    }
}

/// One request and its answer. After a failure nobody knows what the next answer would be about, so there
/// is none: the process ends, and [`KeyHost::watch`] says so.
pub(crate) fn exchange(
    socket: &OwnedFd,
    request: &[u8],
    patience: Duration,
) -> Result<Response, KeyHostError> {
    let talk = || -> io::Result<Option<Response>> {
        set_socket_timeout(socket, Timeout::Recv, Some(patience))?;
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
            hang_up(socket);
            let Err(error) = failed else {
                return Err(KeyHostError::Gone);
            };
            tracing::error!(%error, "asking the process with the private keys");
            match error.kind() {
                io::ErrorKind::WouldBlock => Err(KeyHostError::Silent),
                _ => Err(KeyHostError::Gone),
            }
        }
    }
}

fn hang_up(socket: &OwnedFd) {
    // It may have been done before.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

impl Inner {
    fn kill(&self) {
        if let Some(process) = &self.process {
            // It may have ended, or belong to another user by now.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        hang_up(&lock(&self.socket));
        let Some(mut child) = lock(&self.child).take() else {
            return;
        };
        // It ends with the socket, unless a token's library does not let it.
        if let Some(process) = &self.process {
            let mut ended = [PollFd::new(process, PollFlags::IN)];
            let wait = Timespec::try_from(END_WAIT).ok();
            if !matches!(poll(&mut ended, wait.as_ref()), Ok(1)) {
                self.kill();
            }
        }
        // Elsewhere: what waits inside of the kernel ends when that lets it, and nobody is left to be told how.
        let reaper = std::thread::Builder::new().name("key-host-end".into());
        let _ = reaper.spawn(move || child.wait());
    }
}

/// A private key as the service has it: a number.
pub struct Key {
    pub(crate) number: u32,
    pub(crate) kind: KeyKind,
    pub(crate) host: KeyHost,
}

impl Key {
    /// Kind of the key.
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Signs a whole message.
    ///
    /// # Errors
    /// [`KeyHostError`].
    pub fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, KeyHostError> {
        let request = Request::Sign {
            number: self.number,
            scheme,
            message: message.to_vec(),
        };
        match self.host.request(&request)? {
            Response::Signature(signature) => Ok(signature),
            other => Err(self.host.unexpected(other)),
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // Asking now could wait for a signature that somebody else wants.
        lock(&self.host.0.unused).push(self.number);
    }
}
