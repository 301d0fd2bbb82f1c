//! The accelerator as a device: registers, ring, DMA, interrupts, over [`crate::cores`].
//!
//! It has no thread, no clock and no socket. [`Device::step`] processes at most one request and is
//! bounded whatever stands in memory; [`Device::take_interrupt`] says whether a message is due.
//! Memory is what the host has registered ([`Dma`], [`Memory`]): the device touches nothing else,
//! and checks every address of a request before it reads or writes the first byte of it.
//!
//! This is no hardware. The ring engine and the memory access exist in Rust
//! only; the cores exist as Verilog too.

mod dma;
mod ring;
mod shot;

pub use crate::device::dma::{Dma, DmaFault, Memory, Region};

use crate::cores::Engine;
use accel_abi::register::{capabilities, control, interrupt, state};
use accel_abi::{ID, RING_MAX, RING_MIN, Register, VERSION, descriptor};

use crate::device::shot::Shot;

/// The device: what a driver reaches by registers, and by interrupts.
pub struct Device {
    engine: Engine,
    enabled: bool,
    halted: bool,
    interrupt_enable: u32,
    interrupt_status: u32,
    /// A message is due to the host.
    message: bool,
    ring: u64,
    ring_size: u32,
    producer: u32,
    consumer: u32,
    dma_faults: u32,
    shot: Shot,
}

impl Device {
    /// A device after its reset, with these cores.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            enabled: false,
            halted: false,
            interrupt_enable: 0,
            interrupt_status: 0,
            message: false,
            ring: 0,
            ring_size: 0,
            producer: 0,
            consumer: 0,
            dma_faults: 0,
            shot: Shot::new(),
        }
    }

    /// Reads a register; reserved offsets read as zero.
    pub fn read(&self, register: Register) -> u32 {
        let bit = |condition: bool, bit: u32| if condition { bit } else { 0 };
        match register {
            Register::ID => ID,
            Register::VERSION => VERSION,
            Register::CAPABILITIES => self.engine.capabilities() | capabilities::SINGLE_SHOT,
            Register::CONTROL => bit(self.enabled, control::ENABLE),
            Register::STATE => {
                bit(self.enabled, state::ENABLED)
                    | bit(
                        self.shot.is_started() || self.enabled && self.producer != self.consumer,
                        state::BUSY,
                    )
                    | bit(self.halted, state::HALTED)
            }
            Register::INTERRUPT_ENABLE => self.interrupt_enable,
            Register::INTERRUPT_STATUS => self.interrupt_status,
            Register::RING_LOW => low(self.ring),
            Register::RING_HIGH => low(self.ring >> 32),
            Register::RING_SIZE => self.ring_size,
            Register::PRODUCER => self.producer,
            Register::CONSUMER => self.consumer,
            Register::DMA_FAULTS => self.dma_faults,
            other => self.shot.read(other),
        }
    }

    /// Writes a register; writes that mean nothing change nothing.
    pub fn write(&mut self, register: Register, value: u32) {
        match register {
            Register::CONTROL => self.command(value),
            Register::INTERRUPT_ENABLE => {
                let newly = value & !self.interrupt_enable & self.interrupt_status;
                self.interrupt_enable = value & (interrupt::COMPLETION | interrupt::HALT);
                self.message |= newly & self.interrupt_enable != 0;
            }
            Register::INTERRUPT_STATUS => self.interrupt_status &= !value,
            _ if self.shot.write(register, value) => {}
            Register::PRODUCER if self.enabled => self.producer = value,
            _ if self.enabled => {}
            Register::RING_LOW => self.ring = self.ring >> 32 << 32 | u64::from(value),
            Register::RING_HIGH => self.ring = u64::from(value) << 32 | u64::from(low(self.ring)),
            Register::RING_SIZE => self.ring_size = value,
            _ => {}
        }
    }

    fn command(&mut self, value: u32) {
        if value & control::RESET != 0 {
            // A core that does not end its zeroisation has no key slot left to serve.
            let _ = self.engine.zeroise();
            self.enabled = false;
            self.halted = false;
            self.interrupt_enable = 0;
            self.interrupt_status = 0;
            self.message = false;
            self.ring = 0;
            self.ring_size = 0;
            self.producer = 0;
            self.consumer = 0;
            self.dma_faults = 0;
            self.shot.reset();
            return;
        }
        if value & control::ZEROISE != 0 {
            let _ = self.engine.zeroise();
            self.shot.reset();
        }
        let enable = value & control::ENABLE != 0;
        if enable && !self.enabled {
            let sized = (RING_MIN..=RING_MAX).contains(&self.ring_size);
            let usable = sized && self.ring_size.is_power_of_two();
            if usable && self.ring.is_multiple_of(descriptor::SIZE as u64) {
                self.producer = 0;
                self.consumer = 0;
                self.enabled = true;
            } else {
                self.halt();
            }
        } else if !enable {
            self.enabled = false;
        }
    }

    /// True once for every message-signalled interrupt that the device sends.
    ///
    /// A cause that has not been cleared sends no second message.
    pub fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.message)
    }

    /// Cycles of the cores since they were made.
    pub fn cycles(&self) -> u64 {
        self.engine.cycles()
    }

    fn cause(&mut self, bit: u32) {
        let newly = bit & !self.interrupt_status & self.interrupt_enable;
        self.interrupt_status |= bit;
        self.message |= newly != 0;
    }

    fn halt(&mut self) {
        self.enabled = false;
        self.halted = true;
        self.cause(interrupt::HALT);
    }

    /// Changes of the words behind [`Register::SHOT_DATA`] so far, modulo 2^32: for whoever shows them elsewhere.
    pub fn shot_changes(&self) -> u32 {
        self.shot.changes()
    }

    /// Processes the next request, if there is one; false if there was nothing to do.
    ///
    /// One call reads and writes at most one descriptor, two segment lists and their pieces. A single shot comes
    /// before the ring's requests, one of which follows it.
    pub fn step(&mut self, dma: &mut dyn Dma) -> bool {
        let shot = self.shot.step(&mut self.engine);
        if !self.enabled || self.producer == self.consumer {
            return shot;
        }
        if self.producer.wrapping_sub(self.consumer) > self.ring_size {
            self.halt();
            return true;
        }
        let index = self.consumer & (self.ring_size - 1);
        let offset = u64::from(index) * descriptor::SIZE as u64;
        let done = self.ring.checked_add(offset).ok_or(DmaFault);
        let done = done.and_then(|address| ring::process(&mut self.engine, dma, address));
        match done {
            Ok(faults) => {
                self.dma_faults = self.dma_faults.saturating_add(faults);
                self.consumer = self.consumer.wrapping_add(1);
                self.cause(interrupt::COMPLETION);
            }
            Err(DmaFault) => {
                self.dma_faults = self.dma_faults.saturating_add(1);
                self.halt();
            }
        }
        true
    }
}

/// The low half of a number.
fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
