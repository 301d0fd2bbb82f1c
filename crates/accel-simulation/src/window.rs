//! The device's end of a register window.

use crate::device::Device;
use accel_abi::Register;
use accel_abi::register::{Access, REGISTERS};
use accel_abi::window::{MIRROR, POSTED, QUEUE_LENGTH, TAKEN, entry};
use accel_transport::Words;

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
