//! A device behind a register window.

use crate::device::{Device, Dma};
use accel_abi::window::QUEUE_LENGTH;
use accel_transport::Words;

use crate::window::DeviceWindow;

/// Outcome of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// A write was taken or a request processed: another turn may find more.
    pub worked: bool,
    /// An interrupt is due.
    pub interrupt: bool,
}

/// A device and the window to its registers.
pub struct Endpoint<W> {
    device: Device,
    window: DeviceWindow<W>,
}

impl<W: Words> Endpoint<W> {
    /// A device whose registers stand in a page of zeros.
    pub fn new(device: Device, words: W) -> Self {
        let window = DeviceWindow::new(words, &device);
        Self { device, window }
    }

    /// Takes the writes that are posted, and processes at most one request.
    pub fn turn(&mut self, dma: &mut dyn Dma) -> Turn {
        let mut worked = false;
        for _ in 0..QUEUE_LENGTH {
            if !self.window.take(&mut self.device) {
                break;
            }
            worked = true;
        }
        if self.device.step(dma) {
            worked = true;
            // Before the interrupt: its handler reads the cause.
            self.window.show(&self.device);
        }
        let interrupt = self.device.take_interrupt();
        Turn { worked, interrupt }
    }

    /// The window; [`DeviceWindow::halted`] says whether a driver broke it.
    pub fn window(&self) -> &DeviceWindow<W> {
        &self.window
    }
}
