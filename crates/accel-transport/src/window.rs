//! The driver's end of a register window, and the memory that both ends share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accel_abi::Register;
use accel_abi::window::{MIRROR, POSTED, QUEUE_LENGTH, TAKEN, entry};
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

    /// Says whether it is certain that there is no other side any more.
    fn abandoned(&self) -> bool {
        false
    }
}

/// Looks at a word without giving the processor away, then looks in between sleeps of this length.
const SPINS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(50);
/// A device takes a write between two requests; one that has not done so after this time is gone, unless the
/// caller says otherwise. A request that takes longer, as RSA in a simulated core does, must be alone in the ring.
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
    patience: Duration,
    absent: bool,
}

impl<W: Words> DriverWindow<W> {
    /// Goes on where the driver before it ended.
    pub fn new(words: W) -> Self {
        let posted = words.load(POSTED);
        Self {
            words,
            posted,
            patience: PATIENCE,
            absent: false,
        }
    }

    /// Takes the device for gone when it has not taken a write after this time.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Takes the device for gone.
    pub fn give_up(&mut self) {
        self.absent = true;
    }

    /// Waits until at most `most` writes are not taken; false if the device does not take them, or
    /// did not before.
    fn settle(&mut self, most: u32) -> bool {
        let mut waiting: Option<(Instant, u32)> = None;
        while !self.absent && self.posted.wrapping_sub(self.words.load(TAKEN)) > most {
            let (since, turns) = *waiting.get_or_insert_with(|| (Instant::now(), 0));
            self.words.pause(turns);
            self.absent =
                since.elapsed() > self.patience || (turns > SPINS && self.words.abandoned());
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
