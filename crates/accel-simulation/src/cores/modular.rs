//! Numbers through the core of `hw/mont`: exponentiation, and what RSA and P-256 build on.

use accel_abi::Status;
use zeroize::Zeroizing;

use crate::cores::bus::{BusOperation, Core, CoreError};
use crate::cores::mont_core::{BITS_MAX, map};

/// A number, the lowest byte first, as long as its modulus.
pub(crate) type Number = Zeroizing<Vec<u8>>;

/// Fewest bytes of a number: what eight words of 32 bits hold.
const LENGTH_MIN: usize = 32;

/// A modulus and the constants of its Montgomery form.
pub(crate) struct Field {
    pub(crate) modulus: Number,
    /// R, which is one in Montgomery form.
    pub(crate) one: Number,
    /// R^2: a product with it brings a number into Montgomery form.
    pub(crate) square: Number,
}

/// Modular arithmetic over a core with the bus of `hw/mont`.
///
/// Exponents and lengths decide how many operations there are; values of operands do not.
/// Private keys' operations leave the core zeroised.
pub struct Modular {
    core: Box<dyn Core>,
    /// Bytes of the core's words; known after the first look.
    word: Option<usize>,
    operations: Vec<BusOperation>,
    length: usize,
}

impl Modular {
    /// Modular arithmetic over this core.
    pub fn new(core: Box<dyn Core>) -> Self {
        Self {
            core,
            word: None,
            operations: Vec::new(),
            length: 0,
        }
    }

    /// Cycles of the core since it was made.
    pub fn cycles(&self) -> u64 {
        self.core.cycles()
    }

    /// Overwrites everything in the core.
    ///
    /// # Errors
    /// [`CoreError`] if the core does not end.
    pub fn zeroise(&mut self) -> Result<(), CoreError> {
        // What was prepared and not carried out holds operands.
        self.operations.clear();
        let zeroise = [
            BusOperation::write(map::CONTROL, map::ZEROISE),
            BusOperation::Wait,
        ];
        self.core.transact(&zeroise, &mut Vec::new())
    }

    /// `base` to the `exponent` modulo an odd `modulus`, all with the highest byte first; the
    /// result is as long as the modulus. The exponent's length is no secret, its value is not used
    /// but by the core.
    ///
    /// # Errors
    /// [`Status::BAD_LENGTH`] without a modulus or exponent of 1 to 512 bytes, or a base that is
    /// longer than the modulus, [`Status::BAD_OPERAND`] if the modulus is even or less than 3 or
    /// the base is not less than it, [`Status::CORE_HUNG`].
    pub fn power(
        &mut self,
        modulus: &[u8],
        base: &[u8],
        exponent: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Status> {
        let bound = 1..=BITS_MAX / 8;
        let fits = bound.contains(&modulus.len()) && bound.contains(&exponent.len());
        if !fits || base.len() > modulus.len() {
            return Err(Status::BAD_LENGTH);
        }
        let length = padded(modulus.len());
        let (modulus_number, base) = (number(modulus, length), number(base, length));
        if !less(&base, &modulus_number) {
            return Err(Status::BAD_OPERAND);
        }
        let field = self.field(modulus_number)?;
        let exponent = number(exponent, exponent.len().next_multiple_of(4));
        let result = self.power_in(&field, &base, &exponent);
        self.finish(result)
            .map(|result| big_endian(&result, modulus.len()))
    }

    /// Zeroises the core, whatever came before.
    pub(crate) fn finish<R>(&mut self, result: Result<R, Status>) -> Result<R, Status> {
        let zeroised = self.zeroise().map_err(|_| Status::CORE_HUNG);
        let result = result?;
        zeroised.map(|()| result)
    }

    /// Has the core compute the constants of a modulus.
    pub(crate) fn field(&mut self, modulus: Number) -> Result<Field, Status> {
        let odd = modulus.first().is_some_and(|low| low & 1 == 1);
        let one = number(&[1], modulus.len());
        if !odd || !less(&one, &modulus) {
            return Err(Status::BAD_OPERAND);
        }
        let mut field = Field {
            modulus,
            one,
            square: Number::default(),
        };
        self.load(&field, &[0; 4])?;
        self.put(0, &field.one);
        self.command(map::CONSTANTS, 1, 0, 0);
        field.one = self.get(0)?;
        field.square = self.get(1)?;
        Ok(field)
    }

    /// Sets size, modulus and exponent.
    pub(crate) fn load(&mut self, field: &Field, exponent: &[u8]) -> Result<(), Status> {
        let word = self.word()?;
        self.length = field.modulus.len();
        let count = |bytes: &[u8]| u32::try_from(bytes.len() / word).unwrap_or(u32::MAX);
        let size = count(&field.modulus) | count(exponent) << 16;
        self.operations.push(BusOperation::write(map::SIZE, size));
        self.words(map::MODULUS, &field.modulus);
        self.words(map::EXPONENT, exponent);
        let lowest = field
            .modulus
            .first_chunk()
            .map_or(0, |low| u32::from_le_bytes(*low));
        let inverse = BusOperation::write(map::INVERSE, negative_inverse(lowest));
        self.operations.push(inverse);
        Ok(())
    }

    fn words(&mut self, first: u16, bytes: &[u8]) {
        let word = self.word.unwrap_or(4);
        for (address, chunk) in (first..).zip(bytes.chunks(word)) {
            let low_first = chunk.iter().rev();
            let data = low_first.fold(0, |sum, byte| sum << 8 | u32::from(*byte));
            self.operations.push(BusOperation::write(address, data));
        }
    }

    /// First word of a slot.
    fn place(&mut self, slot: u8) -> u16 {
        let words = self.length / self.word.unwrap_or(4);
        u16::try_from(usize::from(slot) * words.next_power_of_two()).unwrap_or(u16::MAX)
    }

    /// Writes a number into a slot.
    pub(crate) fn put(&mut self, slot: u8, number: &[u8]) {
        let first = map::SLOTS.saturating_add(self.place(slot));
        self.words(first, number);
    }

    /// Has the core carry out a command.
    pub(crate) fn command(&mut self, command: u32, to: u8, a: u8, b: u8) {
        let [low, ..] = command.to_le_bytes();
        let data = u32::from_le_bytes([low, to, a, b]);
        self.operations
            .push(BusOperation::write(map::CONTROL, data));
        self.operations.push(BusOperation::Wait);
    }

    /// Carries out what was prepared, and reads a slot.
    pub(crate) fn get(&mut self, slot: u8) -> Result<Number, Status> {
        let word = self.word()?;
        let first = self.place(slot);
        for address in (first..).take(self.length / word) {
            let fetch = BusOperation::write(map::FETCH, u32::from(address));
            let read = BusOperation::read(map::FETCHED);
            self.operations.extend([fetch, BusOperation::Wait, read]);
        }
        self.operations.push(BusOperation::read(map::STATUS));
        let mut words = Zeroizing::new(Vec::with_capacity(self.length / word + 1));
        let operations = Zeroizing::new(Operations(std::mem::take(&mut self.operations)));
        let done = self.core.transact(&operations.0, &mut words);
        done.map_err(|_| Status::CORE_HUNG)?;
        // A write that the core refused has left something undone.
        if words.pop().is_none_or(|status| status & map::ERROR != 0) {
            return Err(Status::CORE_HUNG);
        }
        let mut bytes = Number::new(Vec::with_capacity(self.length));
        for read in words.iter() {
            bytes.extend(read.to_le_bytes().iter().take(word));
        }
        Ok(bytes)
    }

    fn word(&mut self) -> Result<usize, Status> {
        if let Some(word) = self.word {
            return Ok(word);
        }
        let mut words = Vec::new();
        let status = [BusOperation::read(map::STATUS)];
        let done = self.core.transact(&status, &mut words);
        done.map_err(|_| Status::CORE_HUNG)?;
        let word = match words.first().map(|status| status >> 8 & 0xff) {
            Some(16) => 2,
            Some(32) => 4,
            _ => return Err(Status::CORE_HUNG),
        };
        self.word = Some(word);
        Ok(word)
    }

    /// `base` to the `exponent`; the base may be any number of the modulus' length.
    pub(crate) fn power_in(
        &mut self,
        field: &Field,
        base: &[u8],
        exponent: &[u8],
    ) -> Result<Number, Status> {
        self.load(field, exponent)?;
        self.put(0, &field.one);
        self.put(1, base);
        self.put(2, &field.square);
        self.command(map::MULTIPLY, 1, 1, 2);
        self.power_of_slot_1(field)
    }

    /// Slot 1, in Montgomery form, to the exponent; with R in slot 0. Not in Montgomery form.
    pub(crate) fn power_of_slot_1(&mut self, field: &Field) -> Result<Number, Status> {
        self.command(map::POWER, 1, 0, 0);
        self.put(2, &number(&[1], field.modulus.len()));
        self.command(map::MULTIPLY, 1, 1, 2);
        self.get(1)
    }
}

/// Operations that hold operands: overwritten when dropped.
struct Operations(Vec<BusOperation>);

impl zeroize::Zeroize for Operations {
    fn zeroize(&mut self) {
        for operation in &mut self.0 {
            if let BusOperation::Write { data, .. } = operation {
                data.zeroize();
            }
        }
    }
}

/// A length in whole words of either size.
pub(crate) fn padded(length: usize) -> usize {
    length.next_multiple_of(4).max(LENGTH_MIN)
}

/// A number from its bytes with the highest first; `length` is at least theirs without zeros.
pub(crate) fn number(bytes: &[u8], length: usize) -> Number {
    let mut number = Number::new(vec![0; length]);
    for (to, from) in number.iter_mut().zip(bytes.iter().rev()) {
        *to = *from;
    }
    number
}

/// The lowest `length` bytes, the highest of them first.
pub(crate) fn big_endian(number: &[u8], length: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(number.iter().take(length).rev().copied().collect())
}

/// Compares two numbers of the same length, whatever their values in the same time.
pub(crate) fn less(a: &[u8], b: &[u8]) -> bool {
    let borrow = |borrow: i16, (a, b): (&u8, &u8)| {
        let difference = i16::from(*a) - i16::from(*b) - borrow;
        (difference >> 15) & 1
    };
    a.iter().zip(b).fold(0i16, borrow) == 1
}

/// -1 / n modulo 2^32 for an odd n: each step of Newton's iteration doubles the bits that are right.
fn negative_inverse(n: u32) -> u32 {
    // Three bits are right: n * n is 1 modulo 8.
    let step = |x: u32, _| x.wrapping_mul(2u32.wrapping_sub(n.wrapping_mul(x)));
    (0..4).fold(n, step).wrapping_neg()
}
