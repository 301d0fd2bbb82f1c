//! The two ends of a register window.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accel_abi::Register;
use accel_abi::register::{Access, REGISTERS};
use accel_abi::window::{MIRROR, POSTED, QUEUE_LENGTH, TAKEN, entry};
use accel_device::Device;
use sys::shared::Mapping;

/// A register of a device that does not answer.
const ABSENT: u32 = u32::MAX;

/// Words of a page that two sides share.
///
/// A load has acquire, a store release order.
pub trait Words {
    /// The word at `offset`, a multiple of four inside of the page.
    fn load(&self, offset: u32) -> u32;

    /// Stores a word at `offset`, a multiple of four inside of the page.
    fn store(&self, offset: u32, value: u32);

    /// Waits a little before the other side's word is looked at again, after `turns` looks.
    fn pause(&self, turns: u32);
}

/// Looks at a word without giving the processor away, then looks in between sleeps of this length.
const SPINS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(50);
/// A device takes a write between two requests; one that has not done so after this time is gone. A
/// request that takes longer, as RSA in a simulated core does, must be alone in the ring.
const PATIENCE: Duration = Duration::from_secs(5);

impl Words for Arc<Mapping> {
    fn load(&self, offset: u32) -> u32 {
        Mapping::load(self, offset as usize).unwrap_or(ABSENT)
    }

    fn store(&self, offset: u32, value: u32) {
        // The page was found to be inside when the window was made.
        Mapping::store(self, offset as usize, value);
    }

    fn pause(&self, turns: u32) {
        if turns < SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(SLEEP);
        }
    }
}

/// The driver's end: registers as if they were read and written.
#[derive(Debug)]
pub struct DriverWindow<W> {
    words: W,
    posted: u32,
    absent: bool,
}

impl<W: Words> DriverWindow<W> {
    /// Goes on where the driver before it ended.
    pub fn new(words: W) -> Self {
        let posted = words.load(POSTED);
        Self {
            words,
            posted,
            absent: false,
        }
    }

    /// Waits until at most `most` writes are not taken; false if the device does not take them, or
    /// did not before.
    fn settle(&mut self, most: u32) -> bool {
        let mut waiting: Option<(Instant, u32)> = None;
        while !self.absent && self.posted.wrapping_sub(self.words.load(TAKEN)) > most {
            let (since, turns) = *waiting.get_or_insert_with(|| (Instant::now(), 0));
            self.words.pause(turns);
            self.absent = since.elapsed() > PATIENCE;
            waiting = Some((since, turns.saturating_add(1)));
        }
        !self.absent
    }

    /// Posts a write; a doorbell has to follow. False if no device answers.
    pub fn write(&mut self, register: Register, value: u32) -> bool {
        if !self.settle(QUEUE_LENGTH - 1) {
            return false;
        }
        let at = entry(self.posted);
        self.words.store(at, register.0);
        self.words.store(at + 4, value);
        self.posted = self.posted.wrapping_add(1);
        self.words.store(POSTED, self.posted);
        true
    }

    /// Reads a register as it is after all writes before; all ones if no device answers.
    pub fn read(&mut self, register: Register) -> u32 {
        if self.settle(0) {
            self.words.load(MIRROR + register.0)
        } else {
            ABSENT
        }
    }
}

/// The device's end.
#[derive(Debug)]
pub struct DeviceWindow<W> {
    words: W,
    taken: u32,
    halted: bool,
    /// State of a single shot's data that the mirror shows.
    shown: u32,
}

impl<W: Words> DeviceWindow<W> {
    /// Shows the registers in a page of zeros.
    pub fn new(words: W, device: &Device) -> Self {
        let taken = words.load(TAKEN);
        let mut window = Self {
            words,
            taken,
            halted: false,
            shown: device.shot_changes(),
        };
        window.show(device);
        window
    }

    /// Gives the next posted write to the device; false if there is none.
    pub fn take(&mut self, device: &mut Device) -> bool {
        let waiting = self.words.load(POSTED).wrapping_sub(self.taken);
        // More than the queue holds: entries were overwritten, and no order is left.
        self.halted |= waiting > QUEUE_LENGTH;
        if self.halted || waiting == 0 {
            return false;
        }
        let at = entry(self.taken);
        let register = Register(self.words.load(at));
        device.write(register, self.words.load(at + 4));
        if register.shot_index().is_some() {
            // The queue would keep keys and plaintext until it comes around.
            self.words.store(at + 4, 0);
        }
        // The mirror first: whoever sees the write taken reads what came of it.
        self.show(device);
        self.taken = self.taken.wrapping_add(1);
        self.words.store(TAKEN, self.taken);
        true
    }

    /// Brings the mirror up to date.
    pub fn show(&mut self, device: &Device) {
        // Before its status, which says that it is there.
        if self.shown != device.shot_changes() {
            self.shown = device.shot_changes();
            for word in (0..).map_while(Register::shot_data) {
                self.words.store(MIRROR + word.0, device.read(word));
            }
        }
        for entry in REGISTERS {
            let register = entry.register;
            if entry.access != Access::WriteOnly && register != Register::SHOT_DATA {
                self.words.store(MIRROR + register.0, device.read(register));
            }
        }
    }

    /// True once the driver has posted more writes than the queue holds.
    pub fn halted(&self) -> bool {
        self.halted
    }
}
