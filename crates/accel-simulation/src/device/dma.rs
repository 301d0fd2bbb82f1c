//! Memory that the host has registered with the device.

use std::ops::Range;

/// An access was refused: not wholly inside one region, or a write where only reads are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaFault;

/// The host's memory as the device reaches it, by device addresses.
pub trait Dma {
    /// Says whether `length` bytes at `address` may be read or written.
    fn allows(&self, address: u64, length: u64, write: bool) -> bool;

    /// Reads all of `into`, or nothing.
    ///
    /// # Errors
    /// [`DmaFault`] if it is not allowed.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault>;

    /// Writes all of `bytes`, or nothing.
    ///
    /// # Errors
    /// [`DmaFault`] if it is not allowed.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DmaFault>;
}

/// A range that the device may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Device addresses of the range.
    pub addresses: Range<u64>,
    /// The device may write.
    pub writable: bool,
}

/// A piece of memory in this process, and the ranges of it that are registered.
///
/// Device addresses are offsets into it from `base`.
#[derive(Debug)]
pub struct Memory {
    bytes: Vec<u8>,
    base: u64,
    regions: Vec<Region>,
}

impl Memory {
    /// Zeros, nothing of them registered.
    pub fn new(base: u64, length: usize) -> Self {
        Self {
            bytes: vec![0; length],
            base,
            regions: Vec::new(),
        }
    }

    /// Lets the device at a range of it.
    pub fn register(&mut self, region: Region) {
        self.regions.push(region);
    }

    /// The bytes as the host sees them, registered or not.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Place of an allowed access in `bytes`.
    fn place(&self, address: u64, length: u64, write: bool) -> Option<Range<usize>> {
        let end = address.checked_add(length)?;
        let inside = |region: &Region| {
            region.addresses.start <= address
                && end <= region.addresses.end
                && (region.writable || !write)
        };
        self.regions.iter().find(|region| inside(region))?;
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let end = usize::try_from(end.checked_sub(self.base)?).ok()?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

impl Dma for Memory {
    fn allows(&self, address: u64, length: u64, write: bool) -> bool {
        self.place(address, length, write).is_some()
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let place = self
            .place(address, into.len() as u64, false)
            .ok_or(DmaFault)?;
        into.copy_from_slice(self.bytes.get(place).ok_or(DmaFault)?);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let place = self
            .place(address, bytes.len() as u64, true)
            .ok_or(DmaFault)?;
        self.bytes
            .get_mut(place)
            .ok_or(DmaFault)?
            .copy_from_slice(bytes);
        Ok(())
    }
}
