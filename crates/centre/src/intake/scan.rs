//! Malware scan by clamd, with its INSTREAM command (`man clamd`, section COMMANDS).
//!
//! The client is ours because the media are decrypted chunk by chunk and never held whole; the
//! client libraries that exist want a buffer or an async stream.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScannerAddress {
    Unix(PathBuf),
    Tcp(String),
}

/// The scanner's finding on one medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanResult {
    Clean,
    /// The name of what was found.
    Infected(String),
    /// The medium is larger than clamd takes (its setting `StreamMaxLength`).
    TooLarge,
}

/// A scan that gave no result; the medium counts as not scanned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    /// clamd cannot be reached or broke off.
    #[error("cannot talk to clamd")]
    Io(#[from] io::Error),
    /// clamd answered with an error.
    #[error("clamd answered: {0}")]
    Refused(String),
}

/// A stuck scanner must not hold an intake worker for ever.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for a scanner to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest answer that makes sense: a file name, a signature name and a word.
const MAX_ANSWER: u64 = 4096;

trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

/// One INSTREAM conversation; bytes written to it are scanned.
pub(crate) struct Scan {
    stream: Box<dyn Duplex>,
}

impl Scan {
    /// Connects and opens the stream.
    pub(crate) fn start(address: &ScannerAddress) -> Result<Self, ScanError> {
        let mut stream: Box<dyn Duplex> = match address {
            ScannerAddress::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
            ScannerAddress::Tcp(address) => {
                let stream = connect(address)?;
                // A chunk is a short length and then its bytes: waiting for more gains nothing.
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
        };
        stream.write_all(b"zINSTREAM\0")?;
        Ok(Self { stream })
    }

    /// Ends the stream and reads the verdict.
    pub(crate) fn finish(mut self) -> Result<ScanResult, ScanError> {
        self.stream.write_all(&0u32.to_be_bytes())?;
        self.answer()
    }

    /// Reads the verdict, also of a stream that clamd has closed to further bytes.
    pub(crate) fn answer(self) -> Result<ScanResult, ScanError> {
        let mut answer = String::new();
        self.stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
        let answer = answer.trim_end_matches(['\0', '\n']);
        let verdict = answer.strip_prefix("stream: ").unwrap_or(answer);
        if verdict == "OK" {
            Ok(ScanResult::Clean)
        } else if let Some(name) = verdict.strip_suffix(" FOUND") {
            Ok(ScanResult::Infected(name.to_owned()))
        } else if verdict.contains("size limit exceeded") {
            Ok(ScanResult::TooLarge)
        } else {
            Err(ScanError::Refused(answer.to_owned()))
        }
    }
}

/// Connects to the first address of `host:port` that answers.
fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Write for Scan {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An empty chunk would end the stream.
        if bytes.is_empty() {
            return Ok(0);
        }
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.stream.write_all(&length.to_be_bytes())?;
        self.stream.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
