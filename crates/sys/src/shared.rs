//! Memory that this process shares with others, or with a device.
#![expect(unsafe_code, reason = "mmap, and what is mapped")]

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A file, or a piece of a device, mapped for reading and writing.
///
/// Others may change it at any moment, so nothing here gives a reference into it: words are loaded
/// with acquire and stored with release order, and bytes are copied by such loads and stores, of
/// eight bytes where they are aligned. Whatever was written before a word is there for whoever has
/// read that word.
///
/// Whoever can shorten the file afterwards can end this process (SIGBUS).
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, and every access to it is an atomic one.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Bytes of the widest access.
const WIDE: usize = size_of::<u64>();

impl Mapping {
    /// Maps `len` bytes from `offset`, a multiple of the page's size.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a regular file that is shorter, or for no bytes at all;
    /// those of `fstat` and `mmap`.
    pub fn new(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        let end = offset.checked_add(len as u64);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if len == 0 || end.is_none_or(|end| regular && end > size) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free place, so no mapping that somebody uses is replaced.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { start, len })
    }

    /// Bytes of the mapping.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of `size` bytes at `offset`, which `size` divides; none outside of the mapping.
    fn place(&self, offset: usize, size: usize) -> Option<NonNull<u8>> {
        let inside = offset
            .checked_add(size)
            .is_some_and(|end| end <= self.len && offset.is_multiple_of(size));
        // SAFETY: the offset is inside of the mapping, which is one allocation.
        inside.then(|| unsafe { self.start.add(offset) })
    }

    fn byte(&self, offset: usize) -> Option<&AtomicU8> {
        let place = self.place(offset, 1)?;
        // SAFETY: the byte is mapped as long as `self` is, and only accessed by atomic operations.
        Some(unsafe { AtomicU8::from_ptr(place.as_ptr()) })
    }

    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let place = self.place(offset, size_of::<u32>())?;
        // SAFETY: as above; the mapping begins at a page, so the word is aligned if its offset is.
        Some(unsafe { AtomicU32::from_ptr(place.as_ptr().cast()) })
    }

    fn wide(&self, offset: usize) -> Option<&AtomicU64> {
        let place = self.place(offset, WIDE)?;
        // SAFETY: as above.
        Some(unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) })
    }

    /// The word at `offset`, a multiple of four; none outside of the mapping.
    pub fn load(&self, offset: usize) -> Option<u32> {
        Some(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores a word at `offset`, a multiple of four; false outside of the mapping.
    pub fn store(&self, offset: usize, value: u32) -> bool {
        let word = self.word(offset);
        word.map(|word| word.store(value, Ordering::Release))
            .is_some()
    }

    fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Copies bytes from `offset`, in ascending order; false if they are not all inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        if !self.holds(offset, into.len()) {
            return false;
        }
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let wide = at.is_multiple_of(WIDE) && rest.len() >= WIDE;
            let (now, later) = rest.split_at_mut(if wide { WIDE } else { 1 });
            match (self.wide(at), self.byte(at)) {
                (Some(word), _) if wide => {
                    now.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
                }
                (_, Some(byte)) => now.fill(byte.load(Ordering::Acquire)),
                _ => return false,
            }
            at += now.len();
            rest = later;
        }
        true
    }

    /// Copies bytes to `offset`, in ascending order; false if they do not all fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        if !self.holds(offset, bytes.len()) {
            return false;
        }
        let (mut at, mut rest) = (offset, bytes);
        while let Some(&first) = rest.first() {
            let aligned = rest.first_chunk().filter(|_| at.is_multiple_of(WIDE));
            let done = match (aligned, self.wide(at), self.byte(at)) {
                (Some(bytes), Some(word), _) => {
                    word.store(u64::from_ne_bytes(*bytes), Ordering::Release);
                    WIDE
                }
                (None, _, Some(byte)) => {
                    byte.store(first, Ordering::Release);
                    1
                }
                _ => return false,
            };
            at += done;
            rest = rest.get(done..).unwrap_or_default();
        }
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok(), "the range is a mapping of this process");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(len: u64) -> (std::os::fd::OwnedFd, io::Result<Mapping>) {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&file, len).unwrap();
        let mapped = Mapping::new(&file, 0, 8192);
        (file, mapped)
    }

    #[test]
    fn what_one_mapping_wrote_another_reads_at_every_offset_and_length() {
        let (file, one) = mapping(8192);
        let (one, other) = (one.unwrap(), Mapping::new(&file, 4096, 4096).unwrap());
        let bytes: Vec<u8> = (0..40).map(|i| 200 - i).collect();
        for offset in 0..16 {
            for len in 0..bytes.len() {
                assert!(one.write(4096, &[0; 64]));
                assert!(one.write(4096 + offset, &bytes[..len]));
                let mut all = [0; 64];
                assert!(other.read(0, &mut all));
                assert_eq!(all[offset..][..len], bytes[..len]);
                assert!(all[..offset].iter().all(|&byte| byte == 0));
                assert!(all[offset + len..].iter().all(|&byte| byte == 0));
                let mut part = vec![0; len];
                assert!(other.read(offset, &mut part));
                assert_eq!(part, bytes[..len]);
            }
        }
        assert!(one.store(4096 + 4, 0x0102_0304));
        assert_eq!(other.load(4), Some(0x0102_0304));
    }

    #[test]
    fn nothing_outside_is_reached() {
        let (_file, mapped) = mapping(8192);
        let mapped = mapped.unwrap();
        assert!(mapped.write(8190, &[1, 2]) && !mapped.write(8191, &[1, 2]));
        assert!(mapped.read(8192, &mut []) && !mapped.read(8193, &mut []));
        assert!(!mapped.read(usize::MAX, &mut [0; 2]) && !mapped.write(usize::MAX, &[0; 2]));
        assert_eq!(mapped.load(8192), None);
        assert_eq!(mapped.load(2), None, "not aligned");
        assert!(mapped.store(8188, 1) && !mapped.store(8190, 1));
    }

    #[test]
    fn file_that_is_too_short_is_refused() {
        for len in [0, 4096, 8191] {
            assert_eq!(
                mapping(len).1.unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }
}
