//! The driver's side: a process of this machine, or `/dev/uioN`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use accel_abi::Register;
use accel_abi::register::PAGE;
use accel_driver::Transport;
use accel_engine::Bus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::shared::Mapping;

use crate::ivshmem::{self, Connection, DEVICE, DOORBELL};
use crate::window::{DriverWindow, Words};

/// No way to a device.
#[derive(Debug)]
pub enum LinkError {
    /// The device process, or `/dev/uioN`, cannot be used.
    Io(io::Error),
    /// The file is not a `/dev/uioN` of the kernel module.
    NotUio,
    /// A file of sysfs has something else in it than the module writes there.
    Attribute(PathBuf),
    /// The shared memory has no room for a window and for data.
    Memory(usize),
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(_) => f.write_str("the device cannot be reached"),
            Self::NotUio => f.write_str("not a device of the kernel module cordon_accel"),
            Self::Attribute(path) => write!(f, "{} cannot be read as a number", path.display()),
            Self::Memory(bytes) => write!(f, "{bytes} bytes of shared memory are too few"),
        }
    }
}

impl std::error::Error for LinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Name that the kernel module gives its devices.
const MODULE: &str = "cordon_accel";
/// Longest time until a device process has taken a client and said what it has for it.
const GREETING: Duration = Duration::from_secs(1);

/// The way to tell the device that something was posted, and to hear from it.
#[derive(Debug)]
enum Events {
    Process {
        connection: Connection,
    },
    Uio {
        file: File,
        doorbell: Mapping,
        /// Interrupts up to the last read, as the kernel counts them.
        seen: u32,
    },
}

/// The register window, and the process behind it, if it is one.
#[derive(Debug)]
struct Page {
    words: Arc<Mapping>,
    peer: Option<UnixStream>,
}

impl Words for Page {
    fn load(&self, offset: u32) -> u32 {
        Words::load(&self.words, offset)
    }

    fn store(&self, offset: u32, value: u32) {
        Words::store(&self.words, offset, value);
    }

    fn pause(&self, turns: u32) {
        Words::pause(&self.words, turns);
    }

    fn abandoned(&self) -> bool {
        self.peer.as_ref().is_some_and(has_ended)
    }
}

/// Says whether the process at the other end of a socket has closed it, or ended.
fn has_ended(socket: &UnixStream) -> bool {
    let mut looked = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut looked, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
}

/// Registers, memory and interrupts of a device that is not in this process.
#[derive(Debug)]
pub struct Link {
    window: DriverWindow<Page>,
    events: Events,
    memory: Arc<Mapping>,
    /// Beginning of registered memory in the mapping, and its device address.
    start: usize,
    address: u64,
    interrupts: u64,
}

impl Link {
    /// Connects to a device process (`accel_serve`); memory behind the window is registered.
    ///
    /// A process that says nothing is given up after a second.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn connect(path: &Path) -> Result<Self, LinkError> {
        let connection = Connection::open(path, GREETING)?;
        let size = rustix::fs::fstat(&connection.memory)
            .map_err(io::Error::from)?
            .st_size;
        let size = usize::try_from(size).unwrap_or(0);
        let start = PAGE as usize;
        if size <= start {
            return Err(LinkError::Memory(size));
        }
        let memory = Arc::new(Mapping::new(&connection.memory, 0, size)?);
        Ok(Self {
            window: DriverWindow::new(Page {
                words: Arc::clone(&memory),
                peer: Some(connection.socket.try_clone()?),
            }),
            events: Events::Process { connection },
            memory,
            start,
            address: start as u64,
            interrupts: 0,
        })
    }

    /// Opens `/dev/uioN` of the kernel module in `hw/driver`, whose maps are the register window,
    /// the doorbell's page and a buffer for DMA.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn uio(path: &Path) -> Result<Self, LinkError> {
        let file = File::options().read(true).write(true).open(path)?;
        // By its number: the path may be a symbolic link with another name.
        let status = rustix::fs::fstat(&file).map_err(io::Error::from)?;
        let (major, minor) = (
            rustix::fs::major(status.st_rdev),
            rustix::fs::minor(status.st_rdev),
        );
        let class = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
        let name = std::fs::read_to_string(class.join("name")).unwrap_or_default();
        let kind = rustix::fs::FileType::from_raw_mode(status.st_mode);
        if kind != rustix::fs::FileType::CharacterDevice || name.trim() != MODULE {
            return Err(LinkError::NotUio);
        }
        let size = |map: u64| {
            let size = number(&class.join(format!("maps/map{map}/size")), 16)?;
            usize::try_from(size).map_err(|_| LinkError::Memory(0))
        };
        // The kernel takes the number of a map as the offset, in pages.
        let map = |index: u64| {
            let page = rustix::param::page_size() as u64;
            Ok::<_, LinkError>(Mapping::new(&file, index * page, size(index)?)?)
        };
        let (window, doorbell, memory) = (Arc::new(map(0)?), map(1)?, Arc::new(map(2)?));
        // The kernel counts on for whoever opens it next.
        let event = class.join("event");
        let seen = number(&event, 10)?;
        if window.len() < PAGE as usize {
            return Err(LinkError::Memory(window.len()));
        }
        Ok(Self {
            window: DriverWindow::new(Page {
                words: window,
                peer: None,
            }),
            address: number(&class.join("device/dma_address"), 16)?,
            events: Events::Uio {
                file,
                doorbell,
                seen: u32::try_from(seen).map_err(|_| LinkError::Attribute(event))?,
            },
            memory,
            start: 0,
            interrupts: 0,
        })
    }

    /// Takes a device for gone that has not taken a write to a register after this time; five seconds unless said.
    pub fn set_patience(&mut self, patience: Duration) {
        self.window.set_patience(patience);
    }

    /// Interrupts that came so far. Those that came together are counted by `/dev/uioN` only.
    pub fn interrupts(&self) -> u64 {
        self.interrupts
    }

    fn length(&self) -> usize {
        self.memory.len().saturating_sub(self.start)
    }

    fn place(&self, offset: usize, length: usize) -> Option<usize> {
        let inside = offset.checked_add(length)? <= self.length();
        inside.then(|| self.start + offset)
    }

    fn ring(&self) {
        match &self.events {
            // If it cannot be rung, the driver's deadline ends what waits for it.
            Events::Process { connection } => drop(ivshmem::ring(&connection.doorbell)),
            Events::Uio { doorbell, .. } => drop(doorbell.store(DOORBELL, u32::from(DEVICE) << 16)),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.events {
            Events::Process { connection } => connection.interrupt.as_fd(),
            Events::Uio { file, .. } => file.as_fd(),
        }
    }

    /// Reads the interrupts that have come.
    fn take(&mut self) -> io::Result<u64> {
        match &mut self.events {
            Events::Process { connection } => {
                let mut count = [0; 8];
                match rustix::io::read(&connection.interrupt, &mut count) {
                    Ok(_) => Ok(u64::from_ne_bytes(count)),
                    Err(rustix::io::Errno::AGAIN) => Ok(0),
                    Err(error) => Err(error.into()),
                }
            }
            Events::Uio { file, seen, .. } => {
                let mut count = [0; 4];
                rustix::io::read(&*file, &mut count)?;
                let count = u32::from_ne_bytes(count);
                let new = count.wrapping_sub(std::mem::replace(seen, count));
                Ok(u64::from(new))
            }
        }
    }
}

/// A number in a file of sysfs: addresses and sizes are hexadecimal there.
fn number(path: &Path, radix: u32) -> Result<u64, LinkError> {
    let text = std::fs::read_to_string(path)?;
    let digits = text.trim().trim_start_matches("0x");
    u64::from_str_radix(digits, radix).map_err(|_| LinkError::Attribute(path.to_owned()))
}

impl Transport for Link {
    fn read_register(&mut self, register: Register) -> u32 {
        self.window.read(register)
    }

    fn write_register(&mut self, register: Register, value: u32) {
        if self.window.write(register, value) {
            self.ring();
        }
    }

    fn memory(&self) -> (u64, usize) {
        (self.address, self.length())
    }

    fn read_memory(&mut self, offset: usize, into: &mut [u8]) -> bool {
        self.place(offset, into.len())
            .is_some_and(|at| self.memory.read(at, into))
    }

    fn write_memory(&mut self, offset: usize, bytes: &[u8]) -> bool {
        self.place(offset, bytes.len())
            .is_some_and(|at| self.memory.write(at, bytes))
    }
}

impl Bus for Link {
    fn wait(&mut self, at_most: Duration) -> bool {
        let limit = Timespec::try_from(at_most).ok();
        let (ready, gone) = {
            let interrupt = PollFd::new(self, PollFlags::IN);
            match &self.events {
                Events::Process { connection } => {
                    let end = PollFd::new(&connection.socket, PollFlags::RDHUP);
                    let mut looked = [interrupt, end];
                    let _ = poll(&mut looked, limit.as_ref());
                    let [interrupt, end] = looked;
                    (!interrupt.revents().is_empty(), !end.revents().is_empty())
                }
                Events::Uio { .. } => {
                    let mut looked = [interrupt];
                    let _ = poll(&mut looked, limit.as_ref());
                    let [interrupt] = looked;
                    (!interrupt.revents().is_empty(), false)
                }
            }
        };
        if gone {
            // Whoever waits for it need not wait for its deadline.
            self.window.give_up();
        }
        let came = if ready { self.take().unwrap_or(0) } else { 0 };
        self.interrupts += came;
        came > 0
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor()
    }
}
