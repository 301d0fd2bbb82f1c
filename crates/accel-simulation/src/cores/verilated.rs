//! The Verilog, simulated in a process of its own.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::net::SendFlags;

/// Time until a process has started: it computes some cycles.
const START: Duration = Duration::from_secs(20);
/// Time that a process may be silent. The longest command takes seconds, and many of them on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

use crate::cores::bus::{BusOperation, Core, CoreError, WAIT_MAX};

/// Kinds of records, as `hw/core.cpp` describes them.
const END: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;
const WAIT: u8 = 3;
const SECRET_BITS: u8 = 4;
const FAULT: u8 = 5;

/// Our end of the connection with the process. A socket and no pipe: a core that is gone must not end a program in which
/// this is a library by SIGPIPE.
struct Channel(UnixStream);

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A core simulated by Verilator; `scripts/hw cores FOLDER` builds the program.
///
/// For tests and measurements. A core that stays busy and a process that is silent are errors.
pub struct Verilated {
    process: Child,
    to: BufWriter<Channel>,
    from: BufReader<UnixStream>,
    cycles: u64,
    /// Words that the batch's answer has at most.
    expected: u32,
}

impl Verilated {
    /// Starts the program; the core has been reset when this returns.
    ///
    /// # Errors
    /// [`CoreError::Process`] if it cannot be started or does not answer.
    pub fn start(program: &Path) -> Result<Self, CoreError> {
        let connection = || {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_read_timeout(Some(START))?;
            ours.set_write_timeout(Some(PATIENCE))?;
            let (input, output) = (OwnedFd::from(theirs.try_clone()?), OwnedFd::from(theirs));
            let process = Command::new(program).stdin(input).stdout(output).spawn()?;
            Ok((process, BufReader::new(ours.try_clone()?), ours))
        };
        let (process, from, ours) = connection().map_err(CoreError::Process)?;
        let mut core = Self {
            process,
            to: BufWriter::new(Channel(ours)),
            from,
            cycles: 0,
            expected: 0,
        };
        let answered = core.transact(&[], &mut Vec::new());
        core.connection_patience(PATIENCE)
            .map_err(CoreError::Process)?;
        answered.map(|()| core)
    }

    fn connection_patience(&self, patience: Duration) -> io::Result<()> {
        self.from.get_ref().set_read_timeout(Some(patience))
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
        self.expected += u32::from(matches!(kind, READ | SECRET_BITS));
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
        let expected = std::mem::take(&mut self.expected);
        // Less after a wait that did not end.
        if count > expected || (hung == 0 && count < expected) {
            return Err(io::ErrorKind::InvalidData.into());
        }
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
