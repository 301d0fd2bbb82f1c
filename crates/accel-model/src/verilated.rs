//! The Verilog, simulated in a process of its own.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::bus::{BusOperation, Core, CoreError, WAIT_MAX};

/// Kinds of records, as `hw/core.cpp` describes them.
const END: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;
const WAIT: u8 = 3;
const SECRET_BITS: u8 = 4;
const FAULT: u8 = 5;

/// A core simulated by Verilator; `scripts/hw cores FOLDER` builds the program.
///
/// For tests and measurements: its process is trusted to answer. A core that stays busy is an
/// error, a process that is stopped blocks.
pub struct Verilated {
    process: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    cycles: u64,
}

impl Verilated {
    /// Starts the program; the core has been reset when this returns.
    ///
    /// # Errors
    /// [`CoreError::Process`] if it cannot be started or does not answer.
    pub fn start(program: &Path) -> Result<Self, CoreError> {
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(CoreError::Process)?;
        let (Some(to), Some(from)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(CoreError::Process(io::ErrorKind::BrokenPipe.into()));
        };
        let mut core = Self {
            process,
            to: BufWriter::new(to),
            from: BufReader::new(from),
            cycles: 0,
        };
        core.transact(&[], &mut Vec::new())?;
        Ok(core)
    }

    /// Number of bits set in all registers and memories for keys and blocks, past the bus.
    ///
    /// # Errors
    /// [`CoreError::Process`] if the process fails.
    pub fn secret_bits(&mut self) -> Result<u32, CoreError> {
        let mut words = Vec::new();
        self.record(SECRET_BITS, 0, 0).map_err(CoreError::Process)?;
        self.answer(&mut words)?;
        words
            .pop()
            .ok_or_else(|| CoreError::Process(io::ErrorKind::InvalidData.into()))
    }

    /// Has one permuted bit inverted in the next wait. Only the core of IBC can do this.
    ///
    /// # Errors
    /// [`CoreError::Process`] if the process fails.
    pub fn inject_fault(&mut self) -> Result<(), CoreError> {
        self.record(FAULT, 0, 0).map_err(CoreError::Process)
    }

    /// Has one bit of the core for modular arithmetic inverted after so many cycles, which one as
    /// `hw/core.cpp` says.
    ///
    /// # Errors
    /// [`CoreError::Process`] if the process fails.
    pub fn inject_fault_at(&mut self, place: u16, cycles: u32) -> Result<(), CoreError> {
        self.record(FAULT, place, cycles)
            .map_err(CoreError::Process)
    }

    fn record(&mut self, kind: u8, address: u16, data: u32) -> io::Result<()> {
        let [a0, a1] = address.to_le_bytes();
        let [d0, d1, d2, d3] = data.to_le_bytes();
        self.to.write_all(&[kind, 0, a0, a1, d0, d1, d2, d3])
    }

    fn answer(&mut self, words: &mut Vec<u32>) -> Result<(), CoreError> {
        self.end_of_batch(words)
            .map_err(CoreError::Process)
            .and_then(|hung| {
                if hung {
                    Err(CoreError::Hung(WAIT_MAX))
                } else {
                    Ok(())
                }
            })
    }

    /// Ends the batch and reads the answer: whether a wait did not end.
    fn end_of_batch(&mut self, words: &mut Vec<u32>) -> io::Result<bool> {
        self.record(END, 0, 0)?;
        self.to.flush()?;
        let (count, hung) = (self.word()?, self.word()?);
        let (low, high) = (self.word()?, self.word()?);
        self.cycles = u64::from(high) << 32 | u64::from(low);
        for _ in 0..count {
            let word = self.word()?;
            words.push(word);
        }
        Ok(hung != 0)
    }

    fn word(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.from.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

impl Core for Verilated {
    fn transact(
        &mut self,
        operations: &[BusOperation],
        words: &mut Vec<u32>,
    ) -> Result<(), CoreError> {
        for operation in operations {
            match *operation {
                BusOperation::Write { address, data } => self.record(WRITE, address, data),
                BusOperation::Read { address } => self.record(READ, address, 0),
                BusOperation::Wait => self.record(WAIT, 0, WAIT_MAX),
            }
            .map_err(CoreError::Process)?;
        }
        self.answer(words)
    }

    fn cycles(&self) -> u64 {
        self.cycles
    }
}

impl Drop for Verilated {
    fn drop(&mut self) {
        // It ends by itself at the end of its input; killing it as well keeps the drop short.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
