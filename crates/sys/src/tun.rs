//! TUN interfaces with segmentation offload (Linux `tun` driver).
//!
//! With offload, one read gives up to 64 KiB of one flow that the kernel has not cut into segments
//! yet, and one write takes as much: what makes a user-space tunnel fast. Each packet is preceded by
//! a `virtio_net_hdr` of [`HEADER_LEN`] bytes that says how it is to be cut and what of its checksum
//! is missing.
#![expect(unsafe_code, reason = "ioctl")]

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;
use rustix::ioctl::{self, IntegerSetter, Opcode, Updater};

/// Bytes of `virtio_net_hdr` in front of each packet.
pub const HEADER_LEN: usize = 10;
/// Longest interface name, in bytes.
pub const MAX_NAME: usize = 15;

// linux/if_tun.h
const TUNSETIFF: Opcode = ioctl::opcode::write::<i32>(b'T', 202);
const TUNSETOFFLOAD: Opcode = ioctl::opcode::write::<u32>(b'T', 208);
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_TSO6: usize = 0x04;
const TUN_F_TSO_ECN: usize = 0x08;
const TUN_F_USO4: usize = 0x20;
const TUN_F_USO6: usize = 0x40;

/// Segmentation offloads that the kernel agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// One packet at a time, checksums done.
    None,
    Tcp,
    /// TCP segments and UDP datagrams (Linux 6.2).
    TcpAndUdp,
}

/// A queue of an open TUN interface, which disappears when its last queue is dropped.
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
    name: String,
    offload: Offload,
}

/// `struct ifreq` as far as `TUNSETIFF` reads and writes it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; MAX_NAME + 1],
    flags: u16,
    rest: [u8; 22],
}

impl Tun {
    /// Creates a TUN interface with one queue. A `%d` in the name is replaced by a number; `offload`
    /// asks for segmentation offload, as far as the kernel has it.
    ///
    /// Reads and writes never block.
    ///
    /// # Errors
    /// Those of the system calls: without `CAP_NET_ADMIN`, `PermissionDenied`; for a name that is
    /// too long or contains a zero byte, `InvalidInput`.
    pub fn create(name: &str, offload: bool) -> io::Result<Self> {
        Self::open(name, offload, 0)
    }

    /// The same with several queues. The kernel spreads flows over them, and what answers what was
    /// written to one comes from the same (tun driver, "automatic steering").
    ///
    /// # Errors
    /// As [`create`](Self::create); `E2BIG` for more queues than the kernel has (256).
    pub fn create_queues(name: &str, offload: bool, queues: NonZeroUsize) -> io::Result<Vec<Self>> {
        if queues.get() == 1 {
            return Ok(vec![Self::create(name, offload)?]);
        }
        let first = Self::open(name, offload, IFF_MULTI_QUEUE)?;
        // A pattern in the name was replaced by now.
        let name = first.name.clone();
        let further = (1..queues.get()).map(|_| Self::open(&name, offload, IFF_MULTI_QUEUE));
        std::iter::once(Ok(first)).chain(further).collect()
    }

    fn open(name: &str, offload: bool, flags: u16) -> io::Result<Self> {
        let mut request = InterfaceRequest {
            name: interface_name(name)?,
            flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | flags,
            rest: [0; 22],
        };
        let open_flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(open_flags.bits()).unwrap_or(0))
            .open("/dev/net/tun")?
            .into();
        // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which `InterfaceRequest` is as large
        // as (40 bytes) and laid out like; it lives until the call returns.
        unsafe { ioctl::ioctl(&file, Updater::<TUNSETIFF, _>::new(&mut request)) }?;
        let offload = if offload {
            set_offload(&file)
        } else {
            Offload::None
        };
        let end = request
            .name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(MAX_NAME);
        let name = request.name.get(..end).unwrap_or_default();
        Ok(Self {
            file,
            name: String::from_utf8_lossy(name).into_owned(),
            offload,
        })
    }

    /// Another handle of the same queue.
    ///
    /// # Errors
    /// Those of copying a descriptor.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            name: self.name.clone(),
            offload: self.offload,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the segmentation offloads of the interface.
    pub const fn offload(&self) -> Offload {
        self.offload
    }

    /// Reads one packet with its header into `buffer`; its length comes back.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; otherwise those of `read`.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.file, buffer)?)
    }

    /// Writes one packet, whose pieces begin with its header.
    ///
    /// # Errors
    /// `WouldBlock` when the queue is full; otherwise those of `writev`: `InvalidInput` for a header
    /// that contradicts the packet.
    pub fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.file, pieces)?)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A name as the kernel takes it, with a zero byte behind it.
fn interface_name(name: &str) -> io::Result<[u8; MAX_NAME + 1]> {
    let mut field = [0; MAX_NAME + 1];
    let place = field
        .get_mut(..name.len())
        .filter(|place| place.len() <= MAX_NAME);
    match place {
        Some(place) if !name.bytes().any(|byte| byte == 0) => {
            place.copy_from_slice(name.as_bytes());
            Ok(field)
        }
        _ => {
            let text = format!("interface name {name:?}: at most {MAX_NAME} bytes, no zero byte");
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// Asks for as much offload as the kernel has.
fn set_offload(file: &OwnedFd) -> Offload {
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    for (flags, offload) in [
        (tcp | TUN_F_USO4 | TUN_F_USO6, Offload::TcpAndUdp),
        (tcp, Offload::Tcp),
    ] {
        // SAFETY: TUNSETOFFLOAD takes its argument by value, as `IntegerSetter` passes it.
        let set = unsafe { IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags) };
        // SAFETY: as above; nothing is read from or written to memory of ours.
        if unsafe { ioctl::ioctl(file, set) }.is_ok() {
            return offload;
        }
    }
    Offload::None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_as_large_as_ifreq() {
        assert_eq!(size_of::<InterfaceRequest>(), 40);
    }

    #[test]
    fn names_are_checked() {
        for name in ["sixteen-letters-", "a\0b"] {
            let error = Tun::create(name, true).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
