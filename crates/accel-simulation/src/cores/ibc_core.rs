//! The functional model of `hw/ibc`, eight lanes.

use zeroize::Zeroize;

use crate::cores::bus::{BusOperation, Core, CoreError};

/// Addresses and numbers of the core's bus, in the words of `hw/ibc/ibc.v`.
pub(crate) mod map {
    pub(crate) const CONTROL: u16 = 0x000;
    pub(crate) const STATUS: u16 = 0x001;
    pub(crate) const BLOCK: u16 = 0x008;
    pub(crate) const TABLES: u16 = 0x1000;

    pub(crate) const START: u32 = 1 << 0;
    pub(crate) const DECRYPT: u32 = 1 << 1;
    pub(crate) const ZEROISE: u32 = 1 << 2;
    pub(crate) const ACKNOWLEDGE: u32 = 1 << 3;

    pub(crate) const BUSY: u32 = 1 << 0;
    pub(crate) const ERROR: u32 = 1 << 2;
    pub(crate) const ZEROISING: u32 = 1 << 3;
    pub(crate) const READY: u32 = 1 << 4;
}

/// Table entries: five S-boxes and their inverses.
const ENTRIES: usize = 2560;
/// Cycles in which the core overwrites its tables.
const ZEROISATION: u64 = 4096;
/// Cycles of a round with eight lanes: 32 bytes, then 256 bits, and two more for each stage.
const ROUND: u64 = 32 / 8 + 2 + 256 / 8 + 2;
/// Key parts and rounds that go together.
const PAIRS: [(usize, u32); 5] = [(2, 8), (2, 14), (3, 10), (4, 10), (5, 12)];

/// The INDECT Block Cipher: the same bus, results and cycles as the Verilog without detection.
///
/// The tables come over the bus; check values in them are ignored.
pub struct IbcCore {
    tables: Vec<u8>,
    /// Table entries since the zeroisation.
    loaded: usize,
    block: [u8; 32],
    words: u16,
    error: bool,
    ready: bool,
    zeroising: bool,
    busy: u64,
    cycles: u64,
}

impl Drop for IbcCore {
    fn drop(&mut self) {
        self.tables.zeroize();
        self.block.zeroize();
    }
}

impl Default for IbcCore {
    fn default() -> Self {
        Self::new()
    }
}

impl IbcCore {
    /// A core after its reset.
    pub fn new() -> Self {
        Self {
            tables: vec![0; ENTRIES],
            loaded: 0,
            block: [0; 32],
            words: 0,
            error: false,
            ready: false,
            zeroising: false,
            busy: 0,
            cycles: 1 + ZEROISATION,
        }
    }

    fn write(&mut self, address: u16, data: u32) {
        let idle = self.busy == 0;
        self.cycles += 1;
        self.busy = self.busy.saturating_sub(1);
        if address >= map::TABLES {
            let index = usize::from(address - map::TABLES);
            match self.tables.get_mut(index) {
                Some(entry) if idle && index == self.loaded => {
                    let [value, ..] = data.to_le_bytes();
                    *entry = value;
                    self.loaded += 1;
                }
                _ => self.error = true,
            }
        } else if (map::BLOCK..map::BLOCK + 8).contains(&address) {
            let index = address - map::BLOCK;
            let (words, _) = self.block.as_chunks_mut::<4>();
            match words.get_mut(usize::from(index)) {
                Some(word) if idle && (index == 0 || index == self.words) => {
                    *word = data.to_le_bytes();
                    self.words = index + 1;
                    self.ready = false;
                }
                _ => self.error = true,
            }
        } else if address == map::CONTROL {
            self.command(data, idle);
        }
    }

    fn command(&mut self, data: u32, idle: bool) {
        if data & map::ZEROISE != 0 {
            self.tables.zeroize();
            self.tables.resize(ENTRIES, 0);
            self.block.zeroize();
            self.loaded = 0;
            self.words = 0;
            self.error = false;
            self.ready = false;
            self.zeroising = true;
            self.busy = ZEROISATION;
            return;
        }
        let acknowledge = data & map::ACKNOWLEDGE != 0;
        if acknowledge && idle {
            self.error = false;
        } else if data & map::START != 0 {
            let parts = (data >> 4 & 7) as usize;
            let rounds = data >> 8 & 31;
            let fits = PAIRS.contains(&(parts, rounds))
                && self.words == 8
                && self.loaded == 512 * parts
                && !acknowledge;
            if !(fits && idle) {
                self.error = true;
                return;
            }
            self.run(parts, rounds, data & map::DECRYPT != 0);
            self.words = 0;
            self.ready = true;
            self.zeroising = false;
            self.busy = ROUND * u64::from(rounds);
        }
    }

    /// Entry of S-box `sbox` or its inverse.
    fn look_up(&self, sbox: usize, inverse: bool, x: u8) -> u8 {
        let at = 512 * sbox + 256 * usize::from(inverse) + usize::from(x);
        self.tables.get(at).copied().unwrap_or(0)
    }

    fn run(&mut self, parts: usize, rounds: u32, decrypt: bool) {
        for step in 0..rounds {
            let round = if decrypt { rounds - 1 - step } else { step } as usize;
            if decrypt {
                self.permute((parts - 1 + round) % parts, true);
            }
            let substituted: [u8; 32] = std::array::from_fn(|n| {
                let sbox = ((n / 8) % (parts - 1) + round) % parts;
                let x = self.block.get(n).copied().unwrap_or(0);
                self.look_up(sbox, decrypt, x)
            });
            self.block = substituted;
            if !decrypt {
                self.permute((parts - 1 + round) % parts, false);
            }
        }
    }

    /// Moves bit n to position S(n), or back.
    fn permute(&mut self, sbox: usize, back: bool) {
        let mut out = [0u8; 32];
        for from in 0..=255u8 {
            let to = self.look_up(sbox, back, from);
            let byte = self.block.get(usize::from(from / 8)).copied().unwrap_or(0);
            if let Some(target) = out.get_mut(usize::from(to / 8)) {
                *target |= (byte >> (from % 8) & 1) << (to % 8);
            }
        }
        self.block = out;
    }

    fn read(&self, address: u16) -> u32 {
        let idle = self.busy == 0;
        let bit = |condition: bool, bit: u32| if condition { bit } else { 0 };
        if address == map::STATUS {
            return bit(!idle, map::BUSY)
                | bit(self.error, map::ERROR)
                | bit(self.zeroising && !idle, map::ZEROISING)
                | bit(self.ready, map::READY);
        }
        let (words, _) = self.block.as_chunks::<4>();
        match address.checked_sub(map::BLOCK) {
            Some(index) if self.ready && idle => {
                let word = words.get(usize::from(index));
                word.map_or(0, |word| u32::from_le_bytes(*word))
            }
            _ => 0,
        }
    }
}

impl Core for IbcCore {
    fn transact(
        &mut self,
        operations: &[BusOperation],
        words: &mut Vec<u32>,
    ) -> Result<(), CoreError> {
        for operation in operations {
            match *operation {
                BusOperation::Write { address, data } => self.write(address, data),
                BusOperation::Read { address } => words.push(self.read(address)),
                BusOperation::Wait => self.cycles += std::mem::take(&mut self.busy),
            }
        }
        Ok(())
    }

    fn cycles(&self) -> u64 {
        self.cycles
    }
}
