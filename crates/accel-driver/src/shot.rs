//! The driver without descriptors: requests in registers.

use std::time::Duration;

use accel_abi::register::{capabilities, control, shot};
use accel_abi::{Register, SHOT_MAX, Status};
use zeroize::Zeroizing;

use crate::request::{Failure, Output, Request, RequestError, SubmitError};
use crate::work::{Expected, Work};
use crate::{ABSENT, Timestamp, Transport, identify};

/// Settings of a driver without descriptors.
#[derive(Clone, Copy, Debug)]
pub struct ShotConfig {
    /// A request that takes longer than this makes the driver give the device up.
    pub deadline: Duration,
    /// Time between two looks at the status.
    pub poll_interval: Duration,
    /// Number before that of the first request; another one after each start keeps an earlier user's status from counting.
    pub number: u16,
}

/// A request in the registers.
struct Pending {
    number: u16,
    submitted: Timestamp,
    looked: Timestamp,
    expected: Expected,
}

/// The driver of a device that is used without ring and registered memory: one request at a time, each word of it an access
/// to a register.
///
/// It needs nothing of its transport but registers. Whoever shares the device with a [`crate::Driver`] loses its keys
/// to that one's reset.
pub struct SingleShot<T: Transport> {
    transport: T,
    config: ShotConfig,
    number: u16,
    /// Number in the device's status before the request that is under way; zero after a reset.
    seen: u16,
    pending: Option<Pending>,
    failure: Option<Failure>,
    completed: u64,
}

impl<T: Transport> SingleShot<T> {
    /// Most bytes of vector, associated data and data of a request, and of its result with the tag.
    pub const MOST: usize = SHOT_MAX as usize;

    /// Resets the device. One that does not answer, or takes no such requests, gives a driver that has failed:
    /// [`Self::failure`].
    pub fn new(mut transport: T, config: ShotConfig) -> Self {
        let failure = start(&mut transport).err();
        Self {
            transport,
            config,
            number: config.number,
            seen: 0,
            pending: None,
            failure,
            completed: 0,
        }
    }

    /// The way to registers, for a caller that waits on it.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The reason for which the device was given up; it does not go away.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Requests that the device completed, with whatever outcome.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Hands a request to the device; its result comes from [`Self::poll`].
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was handed over. [`SubmitError::Full`] while another one is under way.
    pub fn submit(&mut self, request: &Request<'_>, now: Timestamp) -> Result<(), SubmitError> {
        if let Some(failure) = self.failure {
            return Err(SubmitError::Failed(failure));
        }
        if self.pending.is_some() {
            return Err(SubmitError::Full);
        }
        let work = Work::new(request, Self::MOST).ok_or(SubmitError::Length)?;
        let wanted = &work.descriptor;
        let iv = wanted.iv.as_slice();
        let given = iv.len() + work.source.iter().map(|piece| piece.len()).sum::<usize>();
        if given > Self::MOST || wanted.destination_length > SHOT_MAX {
            return Err(SubmitError::Length);
        }
        let half = |length: u32| u16::try_from(length).map_err(|_| SubmitError::Length);
        let iv_length = u8::try_from(iv.len()).map_err(|_| SubmitError::Length)?;
        let command = shot::command(
            wanted.operation.0,
            wanted.algorithm.0,
            wanted.mode.0,
            wanted.slot,
        );
        let lengths = shot::lengths(half(wanted.source_length)?, half(wanted.aad_length)?);
        // Zero is the number of no request: what the status is after a reset.
        self.number = self.number.wrapping_add(1).max(1);
        let mut bytes = Zeroizing::new(Vec::with_capacity(given));
        bytes.extend_from_slice(iv);
        work.source
            .iter()
            .for_each(|piece| bytes.extend_from_slice(piece));
        let words = bytes.chunks(4).map(word);
        for (register, word) in (0..).map_while(Register::shot_data).zip(words) {
            self.transport.write_register(register, word);
        }
        for (register, value) in [
            (Register::SHOT_COMMAND, command),
            (Register::SHOT_LENGTHS, lengths),
            (
                Register::SHOT_SIZES,
                shot::sizes(iv_length, wanted.tag_length),
            ),
            (Register::SHOT_START, self.number.into()),
        ] {
            self.transport.write_register(register, value);
        }
        self.pending = Some(Pending {
            number: self.number,
            submitted: now,
            looked: now,
            expected: work.expected(),
        });
        Ok(())
    }

    /// Looks for the result of the request that is under way; none while there is none, or no request.
    pub fn poll(&mut self, now: Timestamp) -> Option<Result<Output, RequestError>> {
        let pending = self.pending.as_mut()?;
        pending.looked = now;
        let (number, late) = (
            pending.number,
            pending.submitted.after(self.config.deadline) <= now,
        );
        let found = match self.transport.read_register(Register::SHOT_STATUS) {
            ABSENT => Err(Failure::NoDevice),
            status => {
                let (outcome, echo) = shot::halves(status);
                match echo {
                    echo if echo == number => self.take(Status(outcome)).map(Some),
                    echo if echo == self.seen => Ok(None),
                    found => Err(Failure::Echo {
                        expected: number.into(),
                        found: found.into(),
                    }),
                }
            }
        };
        match found {
            Ok(Some(result)) => {
                self.pending = None;
                self.seen = number;
                self.completed += 1;
                Some(result)
            }
            Ok(None) if !late => None,
            Ok(None) => Some(Err(self.fail(Failure::Deadline))),
            Err(failure) => Some(Err(self.fail(failure))),
        }
    }

    /// Takes the result out of the registers.
    fn take(&mut self, status: Status) -> Result<Result<Output, RequestError>, Failure> {
        let produced = self.transport.read_register(Register::SHOT_PRODUCED);
        let cycles = self.transport.read_register(Register::SHOT_CYCLES);
        let Some(pending) = &self.pending else {
            return Ok(Err(RequestError::Failed(Failure::Memory)));
        };
        let refusal = pending.expected.refusal(status, produced)?;
        let length = pending.expected.length as usize;
        let mut bytes = Zeroizing::new(Vec::with_capacity(length.next_multiple_of(4)));
        let registers = (0..).map_while(Register::shot_data);
        for register in registers.take(length.div_ceil(4)) {
            let word = self.transport.read_register(register);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(length);
        // The device keeps nothing of it.
        self.transport.write_register(Register::SHOT_COMMAND, 0);
        // Words of ones can be a result; a device that is gone has no status either.
        if self.transport.read_register(Register::SHOT_STATUS) == ABSENT {
            return Err(Failure::NoDevice);
        }
        Ok(match refusal {
            Some(error) => Err(error),
            None => pending.expected.output(bytes, cycles.into()),
        })
    }

    /// The moment by which [`Self::poll`] wants to be called; none if nothing is under way.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let pending = self.pending.as_ref()?;
        let deadline = pending.submitted.after(self.config.deadline);
        let next = pending.looked.after(self.config.poll_interval);
        Some(next.min(deadline))
    }

    /// Gives the device up.
    fn fail(&mut self, failure: Failure) -> RequestError {
        self.failure = Some(failure);
        self.pending = None;
        self.reset();
        RequestError::Failed(failure)
    }

    fn reset(&mut self) {
        self.transport
            .write_register(Register::CONTROL, control::RESET);
    }
}

impl<T: Transport> Drop for SingleShot<T> {
    fn drop(&mut self) {
        if self.failure.is_none() {
            self.reset();
        }
    }
}

fn start(transport: &mut impl Transport) -> Result<(), Failure> {
    identify(transport)?;
    transport.write_register(Register::CONTROL, control::RESET);
    match transport.read_register(Register::CAPABILITIES) {
        ABSENT => Err(Failure::NoDevice),
        bits if bits & capabilities::SINGLE_SHOT == 0 => Err(Failure::NoSingleShot),
        _ => match transport.read_register(Register::SHOT_STATUS) {
            0 => Ok(()),
            ABSENT => Err(Failure::NoDevice),
            status => Err(Failure::Echo {
                expected: 0,
                found: shot::halves(status).1.into(),
            }),
        },
    }
}

/// Up to four bytes as a word, zeros behind them.
fn word(bytes: &[u8]) -> u32 {
    let mut whole = [0; 4];
    let places = whole.iter_mut().zip(bytes);
    places.for_each(|(to, from)| *to = *from);
    u32::from_le_bytes(whole)
}
