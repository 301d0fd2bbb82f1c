//! The ring as the driver sees it.

use std::collections::VecDeque;
use std::time::Duration;

use accel_abi::descriptor;
use accel_abi::register::{control, interrupt, state};
use accel_abi::{Register, Segment, TAG_MAX};
use zeroize::Zeroizing;

use crate::completion::{Choice, Completion};
use crate::layout::Layout;
use crate::request::{Completed, Failure, Output, Request, RequestError, SubmitError, Ticket};
use crate::work::{Expected, Work};
use crate::{ABSENT, Timestamp, Transport, identify};

/// Settings of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Descriptors of the ring, a power of two from 2 to 1024: requests under way at once.
    pub ring_size: u32,
    /// Most bytes of associated data and data of a request, 64 to 2^20 - 32.
    pub buffer: usize,
    /// The way to learn of completions.
    pub completion: Completion,
    /// A request that takes longer than this makes the driver give the device up.
    pub deadline: Duration,
    /// Without an interrupt for so long, the driver looks by itself.
    pub watchdog: Duration,
    /// Time between two looks while polling.
    pub poll_interval: Duration,
    /// Sequence number of the first request; another one after each start keeps completions of an
    /// earlier user of the same memory from counting.
    pub first_sequence: u32,
}

impl Config {
    /// Bytes of registered memory that a driver with these settings needs; none if they are out of
    /// bounds.
    pub fn memory(&self) -> Option<usize> {
        Layout::new(self.ring_size, self.buffer).map(Layout::total)
    }
}

/// Numbers for whoever watches the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Requests that the device completed, with whatever outcome.
    pub completed: u64,
    /// Interrupts that found something.
    pub interrupts: u64,
    /// Interrupts that found nothing.
    pub spurious_interrupts: u64,
    /// Completions that were found without an interrupt although one was due.
    pub missed_interrupts: u64,
}

/// A request in the ring.
struct Pending {
    ticket: Ticket,
    sequence: u32,
    submitted: Timestamp,
    /// It was the only one when it was submitted.
    alone: bool,
    source_length: usize,
    expected: Expected,
}

/// The driver of one device.
pub struct Driver<T: Transport> {
    transport: T,
    config: Config,
    layout: Layout,
    base: u64,
    choice: Choice,
    failure: Option<Failure>,
    /// Requests posted since the start; the register holds the low half.
    posted: u64,
    pending: VecDeque<Pending>,
    /// At most as many as the ring has: [`Self::submit`] counts them.
    finished: VecDeque<Completed>,
    looked: Timestamp,
    statistics: Statistics,
}

impl<T: Transport> Driver<T> {
    /// Resets the device and enables its ring; none if the configuration does not fit the
    /// transport's memory.
    ///
    /// A device that does not answer gives a driver that has failed: [`Self::failure`].
    pub fn new(transport: T, config: Config, now: Timestamp) -> Option<Self> {
        let layout = Layout::new(config.ring_size, config.buffer)?;
        let (base, length) = transport.memory();
        if length < layout.total() || !base.is_multiple_of(descriptor::SIZE as u64) {
            return None;
        }
        let mut driver = Self {
            transport,
            config,
            layout,
            base,
            choice: Choice::new(config.completion),
            failure: None,
            posted: 0,
            pending: VecDeque::new(),
            finished: VecDeque::new(),
            looked: now,
            statistics: Statistics::default(),
        };
        if let Err(failure) = driver.start() {
            driver.fail(failure);
        }
        Some(driver)
    }

    fn start(&mut self) -> Result<(), Failure> {
        identify(&mut self.transport)?;
        self.transport
            .write_register(Register::CONTROL, control::RESET);
        // Nothing of an earlier user stays, neither in the ring nor where results will be.
        self.wipe_all()?;
        for index in 0..self.config.ring_size {
            let offset = self.layout.descriptor(index);
            self.write(offset, &[0; descriptor::SIZE])?;
        }
        let [a, b, c, d, e, f, g, h] = self.base.to_le_bytes();
        let (low, high) = ([a, b, c, d], [e, f, g, h]);
        for (register, value) in [
            (Register::RING_LOW, u32::from_le_bytes(low)),
            (Register::RING_HIGH, u32::from_le_bytes(high)),
            (Register::RING_SIZE, self.config.ring_size),
            (Register::CONTROL, control::ENABLE),
        ] {
            self.transport.write_register(register, value);
        }
        match self.transport.read_register(Register::STATE) {
            state::ENABLED => {}
            ABSENT => return Err(Failure::NoDevice),
            _ => return Err(Failure::Halted),
        }
        self.enable_interrupts();
        Ok(())
    }

    fn enable_interrupts(&mut self) {
        let completion = if self.choice.is_polling() {
            0
        } else {
            interrupt::COMPLETION
        };
        let wanted = completion | interrupt::HALT;
        self.transport
            .write_register(Register::INTERRUPT_ENABLE, wanted);
    }

    /// The way to registers and memory, for a caller that waits on it.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Counts since the start.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The reason for which the device was given up; it does not go away.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Requests that are neither completed nor failed.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Hands a request to the device.
    ///
    /// Its bytes are copied; the result comes from [`Self::poll_completion`].
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was handed over. Results that were not fetched fill the ring too.
    pub fn submit(&mut self, request: &Request<'_>, now: Timestamp) -> Result<Ticket, SubmitError> {
        if let Some(failure) = self.failure {
            return Err(SubmitError::Failed(failure));
        }
        if self.pending.len() + self.finished.len() >= self.config.ring_size as usize {
            return Err(SubmitError::Full);
        }
        if self.pending.is_empty() && self.choice.decide() {
            self.enable_interrupts();
        }
        let sequence = low(self.posted).wrapping_add(self.config.first_sequence);
        let index = low(self.posted) & (self.config.ring_size - 1);
        let work = Work::new(request, self.layout.buffer)
            .ok_or(SubmitError::Length)?
            .at(&self.layout, self.base, sequence, index);
        if let Err(failure) = self.post(&work, index) {
            self.fail(failure);
            return Err(SubmitError::Failed(failure));
        }
        let ticket = Ticket(self.posted);
        self.pending.push_back(Pending {
            ticket,
            sequence,
            submitted: now,
            alone: self.pending.is_empty(),
            source_length: work.descriptor.source_length as usize,
            expected: work.expected(),
        });
        self.posted += 1;
        self.transport
            .write_register(Register::PRODUCER, low(self.posted));
        Ok(ticket)
    }

    /// Writes lists, source and descriptor; the descriptor's status word last.
    fn post(&mut self, work: &Work<'_>, index: u32) -> Result<(), Failure> {
        let layout = self.layout;
        for (list, piece, length) in [
            (
                layout.source_list(index),
                layout.source(index),
                work.descriptor.source_length,
            ),
            (
                layout.destination_list(index),
                layout.destination(index),
                work.descriptor.destination_length,
            ),
        ] {
            let entry = Segment {
                address: self.base + piece as u64,
                length,
                flags: Segment::LAST,
            };
            self.write(list, &entry.encode())?;
        }
        let mut offset = layout.source(index);
        for piece in work.source {
            self.write(offset, piece)?;
            offset += piece.len();
        }
        let bytes = work.descriptor.encode();
        let (request, status) = bytes.split_at(descriptor::STATUS);
        let offset = layout.descriptor(index);
        self.write(offset, request)?;
        self.write(offset + descriptor::STATUS, status)
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        if self.transport.write_memory(offset, bytes) {
            Ok(())
        } else {
            Err(Failure::Memory)
        }
    }

    fn read(&mut self, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        if self.transport.read_memory(offset, into) {
            Ok(())
        } else {
            Err(Failure::Memory)
        }
    }

    /// Takes note of an interrupt. One that nobody sent does no harm.
    pub fn handle_interrupt(&mut self, now: Timestamp) {
        if self.failure.is_some() {
            return;
        }
        // Cleared before the ring is looked at: a completion after the look interrupts again.
        match self.transport.read_register(Register::INTERRUPT_STATUS) {
            ABSENT => return self.fail(Failure::NoDevice),
            causes if causes & interrupt::HALT != 0 => return self.fail(Failure::Halted),
            causes => self.clear(causes),
        }
        match self.look(now) {
            0 => self.statistics.spurious_interrupts += 1,
            _ => self.statistics.interrupts += 1,
        }
    }

    /// Clears causes of interrupts, before the ring is looked at.
    ///
    /// A write may be under way still; a read waits for it. Else a completion between the look and
    /// the clearing would find its cause set, and send no interrupt.
    fn clear(&mut self, causes: u32) {
        self.transport
            .write_register(Register::INTERRUPT_STATUS, causes);
        if self.transport.read_register(Register::STATE) == ABSENT {
            self.fail(Failure::NoDevice);
        }
    }

    /// Looks for completions and deadlines. Too early is harmless.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.failure.is_some() || self.pending.is_empty() {
            return;
        }
        match self.transport.read_register(Register::STATE) {
            ABSENT => return self.fail(Failure::NoDevice),
            state if state & state::HALTED != 0 => return self.fail(Failure::Halted),
            _ => {}
        }
        let found = self.look(now);
        if found > 0 && !self.choice.is_polling() {
            // The device sends no second interrupt for a cause that is not cleared: one lost, all lost.
            self.clear(interrupt::COMPLETION);
            self.statistics.missed_interrupts += found + self.look(now);
        }
        let deadline = self
            .pending
            .front()
            .map(|first| first.submitted.after(self.config.deadline));
        if self.failure.is_none() && deadline.is_some_and(|deadline| deadline <= now) {
            self.fail(Failure::Deadline);
        }
    }

    /// The next result, in the order of submission.
    pub fn poll_completion(&mut self) -> Option<Completed> {
        self.finished.pop_front()
    }

    /// The moment by which [`Self::handle_timeout`] wants to be called; none if nothing is under way.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let first = self.pending.front()?;
        let polling = self.choice.is_polling();
        let interval = if polling {
            self.config.poll_interval
        } else {
            self.config.watchdog
        };
        let from = self.looked.max(first.submitted);
        Some(
            from.after(interval)
                .min(first.submitted.after(self.config.deadline)),
        )
    }

    /// True while an interrupt may come before the timeout.
    pub fn waits_for_interrupt(&self) -> bool {
        !self.pending.is_empty() && !self.choice.is_polling()
    }

    /// Takes completed requests from the ring, in order; their number.
    fn look(&mut self, now: Timestamp) -> u64 {
        self.looked = now;
        let mut found = 0;
        while let Some(first) = self.pending.front() {
            let index = low(first.ticket.0) & (self.config.ring_size - 1);
            match self.completion(index) {
                Ok(Some(result)) => {
                    let Some(done) = self.pending.pop_front() else {
                        break;
                    };
                    if done.alone {
                        self.choice.observe(done.submitted, now);
                    }
                    found += 1;
                    self.statistics.completed += 1;
                    self.finished.push_back(Completed {
                        ticket: done.ticket,
                        result,
                    });
                }
                Ok(None) => break,
                Err(failure) => {
                    self.fail(failure);
                    break;
                }
            }
        }
        found
    }

    /// The result of the oldest request, at `index`; none if the device still owns it.
    fn completion(&mut self, index: u32) -> Result<Option<Result<Output, RequestError>>, Failure> {
        let offset = self.layout.descriptor(index);
        // The status first: everything else was written before it.
        let mut status = [0; 8];
        self.read(offset + descriptor::STATUS, &mut status)?;
        let mut results = [0; descriptor::STATUS - descriptor::PRODUCED];
        self.read(offset + descriptor::PRODUCED, &mut results)?;
        let mut bytes = [0; descriptor::SIZE];
        let written = results.iter().chain(&status);
        let fields = bytes.iter_mut().skip(descriptor::PRODUCED);
        fields.zip(written).for_each(|(to, from)| *to = *from);
        let completion = descriptor::Completion::decode(&bytes);
        let (Some(status), Some(first)) = (completion.status, self.pending.front()) else {
            return Ok(None);
        };
        if completion.echo != first.sequence {
            return Err(Failure::Echo {
                expected: first.sequence,
                found: completion.echo,
            });
        }
        let refusal = first.expected.refusal(status, completion.produced)?;
        let (expected, source) = (first.expected.length, first.source_length);
        // Taken out of shared memory before anything is compared: the device cannot change it later.
        let mut output = Zeroizing::new(vec![0; expected as usize]);
        self.read(self.layout.destination(index), &mut output)?;
        self.wipe(index, source, output.len())?;
        let Some(first) = self.pending.front() else {
            return Ok(None);
        };
        Ok(Some(match refusal {
            Some(error) => Err(error),
            None => first.expected.output(output, completion.cycles),
        }))
    }

    /// Overwrites keys and data of a request.
    fn wipe(&mut self, index: u32, source: usize, destination: usize) -> Result<(), Failure> {
        let zeros = vec![0; source.max(destination)];
        for (offset, length) in [
            (self.layout.source(index), source),
            (self.layout.destination(index), destination),
        ] {
            self.write(offset, zeros.get(..length).unwrap_or(&[]))?;
        }
        Ok(())
    }

    /// Gives the device up: everything under way fails, nothing is accepted any more.
    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        for request in std::mem::take(&mut self.pending) {
            self.finished.push_back(Completed {
                ticket: request.ticket,
                result: Err(RequestError::Failed(failure)),
            });
        }
        self.release();
    }

    /// Has the device forget ring and keys, and leaves no keys and data in memory.
    fn release(&mut self) {
        self.transport
            .write_register(Register::CONTROL, control::RESET);
        // If memory cannot be reached, there is nothing more to do.
        let _ = self.wipe_all();
    }

    fn wipe_all(&mut self) -> Result<(), Failure> {
        let size = self.config.buffer + TAG_MAX;
        (0..self.config.ring_size).try_for_each(|index| self.wipe(index, size, size))
    }
}

impl<T: Transport> Drop for Driver<T> {
    fn drop(&mut self) {
        if self.failure.is_none() {
            self.release();
        }
    }
}

/// The low half: registers count modulo 2^32.
fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
