//! The functional model of `hw/mont`.

use zeroize::Zeroize;

use crate::cores::bus::{BusOperation, Core, CoreError};

/// Addresses and commands of the core's bus, in the words of `hw/mont/mont.v`.
pub(crate) mod map {
    pub(crate) const CONTROL: u16 = 0;
    pub(crate) const STATUS: u16 = 1;
    pub(crate) const SIZE: u16 = 2;
    pub(crate) const INVERSE: u16 = 3;
    pub(crate) const FETCH: u16 = 4;
    pub(crate) const FETCHED: u16 = 5;
    pub(crate) const MODULUS: u16 = 0x1000;
    pub(crate) const EXPONENT: u16 = 0x1800;
    pub(crate) const SLOTS: u16 = 0x2000;
    pub(crate) const END: u16 = 0x4000;

    pub(crate) const MULTIPLY: u32 = 1;
    pub(crate) const ADD: u32 = 2;
    pub(crate) const ZEROISE: u32 = 3;
    pub(crate) const ACKNOWLEDGE: u32 = 4;
    pub(crate) const SUBTRACT: u32 = 5;
    pub(crate) const POWER: u32 = 6;
    pub(crate) const CONSTANTS: u32 = 7;

    pub(crate) const ERROR: u32 = 2;
}

/// Most bits of a number.
pub(crate) const BITS_MAX: usize = 4096;

/// Place of an operand: in the slots from a word on, or in the accumulator of "power".
#[derive(Clone, Copy)]
enum Place {
    Slots(usize),
    Accumulator,
}

/// Montgomery arithmetic and exponentiation: the same bus, results and cycles as the Verilog.
pub struct MontCore {
    word: usize,
    slots: Vec<u32>,
    accumulator: Vec<u32>,
    modulus: Vec<u32>,
    exponent: Vec<u32>,
    running: Vec<u32>,
    /// Part of the running sum above its words.
    top: bool,
    inverse: u32,
    size: usize,
    exponent_size: usize,
    fetched: usize,
    held: bool,
    error: bool,
    busy: u64,
    cycles: u64,
    fault: Option<(u64, usize)>,
}

impl Drop for MontCore {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl MontCore {
    /// A core after its reset, with words of 16 or 32 bits; none with others.
    pub fn new(word: usize) -> Option<Self> {
        if !matches!(word, 16 | 32) {
            return None;
        }
        let number = || vec![0; BITS_MAX / word];
        let slots = vec![0; 16 * BITS_MAX / word];
        Some(Self {
            word,
            cycles: 1 + slots.len() as u64,
            slots,
            accumulator: number(),
            modulus: number(),
            exponent: number(),
            running: number(),
            top: false,
            inverse: 0,
            size: 0,
            exponent_size: 0,
            fetched: 0,
            held: false,
            error: false,
            busy: 0,
            fault: None,
        })
    }

    /// Inverts a bit of the result of one operation: that after `operations` others from now on.
    /// An exponentiation consists of many. For tests.
    pub fn inject_fault(&mut self, operations: u64, bit: usize) {
        self.fault = Some((operations, bit));
    }

    fn wipe(&mut self) {
        for memory in [
            &mut self.slots,
            &mut self.accumulator,
            &mut self.modulus,
            &mut self.exponent,
            &mut self.running,
        ] {
            memory.as_mut_slice().zeroize();
        }
        self.inverse.zeroize();
        self.top = false;
        self.size = 0;
        self.exponent_size = 0;
        self.fetched = 0;
        self.held = false;
        self.error = false;
        self.busy = 0;
    }

    fn write(&mut self, address: u16, data: u32) {
        let idle = self.busy == 0;
        self.cycles += 1;
        self.busy = self.busy.saturating_sub(1);
        self.held = false;
        let done = match address {
            map::CONTROL if data & 7 == map::ZEROISE => {
                self.wipe();
                self.busy = self.slots.len() as u64;
                true
            }
            _ if !idle => false,
            map::CONTROL => self.command(data),
            map::SIZE => self.set_size(data),
            map::INVERSE => {
                self.inverse = data & self.mask();
                true
            }
            map::FETCH => {
                let within = (data as usize) < self.slots.len();
                if within {
                    self.fetched = data as usize;
                    self.held = true;
                    self.busy = 1;
                }
                within
            }
            map::MODULUS..map::END => {
                let data = data & self.mask();
                let (memory, first) = match address {
                    map::SLOTS.. => (&mut self.slots, map::SLOTS),
                    map::EXPONENT.. => (&mut self.exponent, map::EXPONENT),
                    _ => (&mut self.modulus, map::MODULUS),
                };
                let word = memory.get_mut(usize::from(address - first));
                word.map(|word| *word = data).is_some()
            }
            _ => false,
        };
        self.error |= !done;
    }

    fn mask(&self) -> u32 {
        u32::MAX >> (32 - self.word)
    }

    fn set_size(&mut self, data: u32) -> bool {
        let most = BITS_MAX / self.word;
        let (size, exponent_size) = ((data & 0x1ff) as usize, (data >> 16 & 0x1ff) as usize);
        let fits = (8..=most).contains(&size) && (1..=most).contains(&exponent_size);
        if fits {
            (self.size, self.exponent_size) = (size, exponent_size);
        }
        fits
    }

    /// The slot's place; none if there is no such slot.
    fn slot(&self, slot: u32) -> Option<usize> {
        let first = slot as usize * self.size.next_power_of_two();
        (first < self.slots.len()).then_some(first)
    }

    /// Carries a command out; false if it is refused.
    fn command(&mut self, data: u32) -> bool {
        let [low, to, a, b] = data.to_le_bytes().map(u32::from);
        let command = low & 7;
        match command {
            0 => return true,
            map::ACKNOWLEDGE => {
                self.error = false;
                return true;
            }
            _ if self.size == 0 => return false,
            _ => {}
        }
        let Some(to) = self.slot(to) else {
            return false;
        };
        // The sequencer's own cycle before each operation, and one at the end.
        self.busy = 1;
        match command {
            map::POWER => self.power(to),
            map::CONSTANTS => self.constants(to),
            _ => {
                let (Some(a), Some(b)) = (self.slot(a), self.slot(b)) else {
                    self.busy = 0;
                    return false;
                };
                self.operate(command, Place::Slots(to), Place::Slots(a), Place::Slots(b));
            }
        }
        true
    }

    fn power(&mut self, to: usize) {
        let stride = self.size.next_power_of_two();
        let entry = |number: usize| Place::Slots(number * stride);
        for number in 2..16 {
            self.operate(map::MULTIPLY, entry(number), entry(number - 1), entry(1));
        }
        let digits = self.word / 4;
        for digit in (0..self.exponent_size * digits).rev() {
            let word = self.exponent.get(digit / digits).copied().unwrap_or(0);
            let window = entry((word >> (4 * (digit % digits)) & 15) as usize);
            let accumulator = Place::Accumulator;
            if digit + 1 == self.exponent_size * digits {
                self.operate(map::MULTIPLY, accumulator, entry(0), window);
                continue;
            }
            for _ in 0..4 {
                self.operate(map::MULTIPLY, accumulator, accumulator, accumulator);
            }
            let target = if digit == 0 {
                Place::Slots(to)
            } else {
                accumulator
            };
            self.operate(map::MULTIPLY, target, accumulator, window);
        }
    }

    fn constants(&mut self, to: usize) {
        let (first, to) = (Place::Slots(0), Place::Slots(to));
        for _ in 0..self.size * self.word {
            self.operate(map::ADD, first, first, first);
        }
        self.operate(map::ADD, to, first, first);
        for _ in 1..self.size {
            self.operate(map::ADD, to, to, to);
        }
        for _ in 0..self.word.trailing_zeros() {
            self.operate(map::MULTIPLY, to, to, to);
        }
    }

    fn operate(&mut self, command: u32, to: Place, a: Place, b: Place) {
        let size = self.size as u64;
        let pass = size + 2;
        self.busy += 1;
        let (a, b) = (self.operand(a), self.operand(b));
        let over = match command {
            map::MULTIPLY => {
                self.busy += size * (size + 11) + 2 * pass;
                self.multiply(&a, &b);
                self.reaches_modulus()
            }
            map::ADD => {
                self.busy += 4 * pass;
                self.top = self.sum(&a, &b, false);
                self.reaches_modulus()
            }
            _ => {
                self.busy += 3 * pass;
                self.top = !self.sum(&a, &b, true);
                self.top
            }
        };
        let mut result = std::mem::take(&mut self.running);
        let mut carry = u64::from(command != map::SUBTRACT);
        for (word, modulus) in result.iter_mut().zip(&self.modulus).take(self.size) {
            let modulus = if over { *modulus } else { 0 };
            let add = if command == map::SUBTRACT {
                modulus
            } else {
                !modulus
            };
            *word = add_words(*word, add, &mut carry, self.word);
        }
        self.fault_in(&mut result);
        let target = match to {
            Place::Slots(first) => self.slots.get_mut(first..),
            Place::Accumulator => self.accumulator.get_mut(..),
        };
        for (to, word) in target.into_iter().flatten().zip(&result).take(self.size) {
            *to = *word;
        }
        self.running = result;
    }

    fn fault_in(&mut self, result: &mut [u32]) {
        match self.fault.take() {
            Some((0, bit)) => {
                let bit = bit % (self.size * self.word);
                if let Some(word) = result.get_mut(bit / self.word) {
                    *word ^= 1 << (bit % self.word);
                }
            }
            Some((left, bit)) => self.fault = Some((left - 1, bit)),
            None => {}
        }
    }

    fn operand(&self, place: Place) -> Vec<u32> {
        let words = match place {
            Place::Slots(first) => self.slots.get(first..first + self.size),
            Place::Accumulator => self.accumulator.get(..self.size),
        };
        words.unwrap_or(&[]).to_vec()
    }

    /// The running sum becomes a * b / R, not yet less than the modulus: a row for each word of b.
    fn multiply(&mut self, a: &[u32], b: &[u32]) {
        let (word, mask, inverse) = (self.word, u64::from(self.mask()), u64::from(self.inverse));
        self.running.fill(0);
        self.top = false;
        for &factor in b {
            let factor = u64::from(factor);
            let lowest = a.first().map_or(0, |&lowest| u64::from(lowest));
            let old = self.running.first().map_or(0, |&old| u64::from(old));
            let multiple = (((old + lowest * factor) & mask) * inverse) & mask;
            // The carry in two parts, neither of which is more than a word.
            let (mut high, mut modulus_high) = (0, 0);
            for ((old, a), n) in self.running.iter_mut().zip(a).zip(&self.modulus) {
                let sum = u64::from(*a) * factor + u64::from(*old) + high;
                high = sum >> word;
                let sum = u64::from(*n) * multiple + (sum & mask) + modulus_high;
                modulus_high = sum >> word;
                *old = low_word(sum & mask);
            }
            let sum = u64::from(self.top) + high + modulus_high;
            self.top = sum >> word & 1 == 1;
            // The lowest word is a multiple of 2^word and is left out.
            let row = self.running.get_mut(..self.size).unwrap_or_default();
            row.rotate_left(1);
            if let Some(last) = row.last_mut() {
                *last = low_word(sum & mask);
            }
        }
    }

    /// The running sum becomes a + b or a - b; the last carry.
    fn sum(&mut self, a: &[u32], b: &[u32], minus: bool) -> bool {
        let mut carry = u64::from(minus);
        for ((to, a), b) in self.running.iter_mut().zip(a).zip(b) {
            let b = if minus { !*b } else { *b };
            *to = add_words(*a, b, &mut carry, self.word);
        }
        carry == 1
    }

    fn reaches_modulus(&self) -> bool {
        let mut carry = 1;
        for (word, modulus) in self.running.iter().zip(&self.modulus).take(self.size) {
            add_words(*word, !*modulus, &mut carry, self.word);
        }
        self.top || carry == 1
    }

    fn read(&self, address: u16) -> u32 {
        let bit = |condition: bool, bit: u32| if condition { bit } else { 0 };
        let idle = self.busy == 0;
        match address {
            map::STATUS => {
                let word = if self.word == 16 { 16 << 8 } else { 32 << 8 };
                word | bit(self.error, map::ERROR) | bit(!idle, 1)
            }
            map::FETCHED if self.held && idle => self.slots.get(self.fetched).copied().unwrap_or(0),
            _ => 0,
        }
    }
}

/// Adds two words of so many bits and the carry.
fn add_words(a: u32, b: u32, carry: &mut u64, word: usize) -> u32 {
    let mask = u32::MAX >> (32 - word);
    let sum = u64::from(a) + u64::from(b & mask) + *carry;
    *carry = sum >> word;
    low_word(sum) & mask
}

fn low_word(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl Core for MontCore {
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
