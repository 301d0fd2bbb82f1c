//! A core as its bus shows it.

/// An operation on a core's bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusOperation {
    /// A write of one word; it takes a cycle.
    Write {
        /// Address, counted in words.
        address: u16,
        /// The word to write.
        data: u32,
    },
    /// A read of one word; it takes no cycle of its own.
    Read {
        /// Address, counted in words.
        address: u16,
    },
    /// Cycles until the core is no longer busy.
    Wait,
}

impl BusOperation {
    /// A write of `data` to `address`.
    pub const fn write(address: u16, data: u32) -> Self {
        Self::Write { address, data }
    }

    /// A read from `address`.
    pub const fn read(address: u16) -> Self {
        Self::Read { address }
    }
}

/// A core cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// A wait did not end within the core's bound of cycles.
    #[error("the core was still busy after {0} cycles")]
    Hung(u32),
    /// The process with the simulated core failed.
    #[error("the simulated core does not answer")]
    Process(#[source] std::io::Error),
}

/// Cycles after which a core that is still busy counts as hung: the longest command of any core, an
/// exponentiation with 4096 bits of modulus and exponent and words of 16 bits, takes 354 million.
pub(crate) const WAIT_MAX: u32 = 400_000_000;

/// A cipher core on its bus.
pub trait Core: Send {
    /// Carries the operations out in order and appends what was read to `words`.
    ///
    /// # Errors
    /// [`CoreError`]; the operations after the one that failed are left out.
    fn transact(
        &mut self,
        operations: &[BusOperation],
        words: &mut Vec<u32>,
    ) -> Result<(), CoreError>;

    /// Cycles since the core was made, its own start included.
    fn cycles(&self) -> u64;
}

impl<C: Core + ?Sized> Core for Box<C> {
    fn transact(
        &mut self,
        operations: &[BusOperation],
        words: &mut Vec<u32>,
    ) -> Result<(), CoreError> {
        (**self).transact(operations, words)
    }

    fn cycles(&self) -> u64 {
        (**self).cycles()
    }
}
