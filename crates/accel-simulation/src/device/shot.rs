//! Single shots: requests in registers, without descriptor and memory access.

use crate::cores::Engine;
use accel_abi::register::shot;
use accel_abi::{
    Algorithm, Descriptor, Mode, Operation, Register, SHOT_MAX, Status, descriptor::Iv,
};
use zeroize::{Zeroize, Zeroizing};

use crate::device::ring::{perform, result_length};

/// Words of source and result.
const WORDS: usize = SHOT_MAX as usize / 4;

/// The registers of a single shot.
pub(crate) struct Shot {
    command: u32,
    lengths: u32,
    sizes: u32,
    source: Zeroizing<[u32; WORDS]>,
    result: Zeroizing<[u32; WORDS]>,
    status: u32,
    produced: u32,
    cycles: u32,
    /// Number of the request that is under way.
    started: Option<u16>,
    /// Changes of the result's words so far, modulo 2^32.
    changes: u32,
}

impl Shot {
    pub(crate) fn new() -> Self {
        Self {
            command: 0,
            lengths: 0,
            sizes: 0,
            source: Zeroizing::new([0; WORDS]),
            result: Zeroizing::new([0; WORDS]),
            status: 0,
            produced: 0,
            cycles: 0,
            started: None,
            changes: 0,
        }
    }

    /// Forgets everything but how often the result has changed.
    pub(crate) fn reset(&mut self) {
        self.clear_result();
        *self = Self {
            changes: self.changes,
            ..Self::new()
        };
    }

    pub(crate) fn changes(&self) -> u32 {
        self.changes
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.is_some()
    }

    pub(crate) fn read(&self, register: Register) -> u32 {
        match register {
            Register::SHOT_STATUS => self.status,
            Register::SHOT_PRODUCED => self.produced,
            Register::SHOT_CYCLES => self.cycles,
            _ => {
                let word = register.shot_index().and_then(|index| {
                    let index = usize::try_from(index).ok()?;
                    self.result.get(index)
                });
                word.copied().unwrap_or(0)
            }
        }
    }

    /// Writes a register; false if it is none of these. While a request is under way nothing changes.
    pub(crate) fn write(&mut self, register: Register, value: u32) -> bool {
        let place = match register {
            Register::SHOT_COMMAND => &mut self.command,
            Register::SHOT_LENGTHS => &mut self.lengths,
            Register::SHOT_SIZES => &mut self.sizes,
            Register::SHOT_START => {
                let (number, _) = shot::halves(value);
                self.started = self.started.or(Some(number));
                return true;
            }
            _ => {
                let index = register.shot_index();
                let index = index.and_then(|index| usize::try_from(index).ok());
                match index.and_then(|index| self.source.get_mut(index)) {
                    Some(place) => place,
                    None => return false,
                }
            }
        };
        if self.started.is_none() {
            *place = value;
            if register == Register::SHOT_COMMAND {
                self.clear_result();
            }
        }
        true
    }

    fn clear_result(&mut self) {
        if self.result.iter().any(|word| *word != 0) {
            self.result.zeroize();
            self.changes = self.changes.wrapping_add(1);
        }
    }

    /// Processes the request that is under way; false if there is none.
    pub(crate) fn step(&mut self, engine: &mut Engine) -> bool {
        let Some(number) = self.started.take() else {
            return false;
        };
        self.clear_result();
        let before = engine.cycles();
        let done = self.execute(engine);
        self.source.zeroize();
        let cycles = engine.cycles() - before;
        self.cycles = u32::try_from(cycles).unwrap_or(u32::MAX);
        let (status, produced) = match done {
            Ok(bytes) => {
                self.changes = self.changes.wrapping_add(u32::from(!bytes.is_empty()));
                for (word, bytes) in self.result.iter_mut().zip(bytes.chunks(4)) {
                    let mut whole = [0; 4];
                    whole
                        .iter_mut()
                        .zip(bytes)
                        .for_each(|(to, from)| *to = *from);
                    *word = u32::from_le_bytes(whole);
                }
                (Status::OK, bytes.len())
            }
            Err(status) => (status, 0),
        };
        self.produced = u32::try_from(produced).unwrap_or(0);
        self.status = shot::status(status.0, number);
        true
    }

    fn execute(&self, engine: &mut Engine) -> Result<Zeroizing<Vec<u8>>, Status> {
        let [operation, algorithm, mode, slot] = self.command.to_le_bytes();
        let (source_length, aad_length) = shot::halves(self.lengths);
        let [iv_length, tag_length, ..] = self.sizes.to_le_bytes();
        let bytes: Zeroizing<Vec<u8>> = Zeroizing::new(
            self.source
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect(),
        );
        let cut = bytes.split_at_checked(usize::from(iv_length));
        let (iv, rest) = cut.ok_or(Status::BAD_LENGTH)?;
        let source = rest.get(..usize::from(source_length));
        let source = source.ok_or(Status::BAD_LENGTH)?;
        let mut request = Descriptor {
            operation: Operation(operation),
            algorithm: Algorithm(algorithm),
            mode: Mode(mode),
            slot,
            sequence: 0,
            source: 0,
            destination: 0,
            source_length: source_length.into(),
            aad_length: aad_length.into(),
            destination_length: 0,
            iv: Iv::new(iv).ok_or(Status::BAD_LENGTH)?,
            tag_length,
        };
        if !matches!(
            request.operation,
            Operation::LOAD_KEY | Operation::ZEROISE_KEY
        ) {
            request.destination_length = result_length(&request)?;
            if request.destination_length > SHOT_MAX {
                return Err(Status::BAD_LENGTH);
            }
        }
        perform(engine, &request, source)
    }
}
