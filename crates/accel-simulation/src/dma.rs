//! Registered memory that another process, or a guest, has mapped as well.

use std::sync::Arc;

use crate::device::{Dma, DmaFault};
use sys::shared::Mapping;

/// The part of a mapping that is registered with the device.
#[derive(Debug)]
pub struct MappedDma {
    mapping: Arc<Mapping>,
    start: usize,
}

impl MappedDma {
    /// Registers a mapping from `start` to its end, for reading and writing.
    ///
    /// Device addresses are offsets into the mapping: what a guest calls a physical address, if it
    /// is its memory from the beginning.
    pub fn new(mapping: Arc<Mapping>, start: usize) -> Self {
        Self { mapping, start }
    }

    fn place(&self, address: u64, length: u64) -> Option<usize> {
        let offset = usize::try_from(address).ok()?;
        let end = address.checked_add(length)?;
        (offset >= self.start && end <= self.mapping.len() as u64).then_some(offset)
    }
}

impl Dma for MappedDma {
    fn allows(&self, address: u64, length: u64, _write: bool) -> bool {
        self.place(address, length).is_some()
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let offset = self.place(address, into.len() as u64).ok_or(DmaFault)?;
        let done = self.mapping.read(offset, into);
        done.then_some(()).ok_or(DmaFault)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let offset = self.place(address, bytes.len() as u64).ok_or(DmaFault)?;
        let done = self.mapping.write(offset, bytes);
        done.then_some(()).ok_or(DmaFault)
    }
}
