//! Settings of a policy.

use std::time::Duration;

/// The way to choose between device and software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The device where it is quicker by what was measured.
    Measured,
    /// The device for messages of at least so many bytes, whatever it costs.
    From(usize),
    /// No device.
    Software,
}

/// Settings of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The way to choose.
    pub selection: Selection,
    /// Most time that one measurement may take. It ends with the request under way, so a device adds
    /// its own deadline to this.
    pub measuring: Duration,
    /// With so many requests at the device, further ones go to software; zero counts as one.
    pub queue_full: usize,
    /// Requests go to the device again when no more than this many are left.
    pub queue_free: usize,
    /// One in so many results of the device, at random, is computed a second time; none with zero.
    pub check_one_in: u32,
}

impl Default for Settings {
    /// By measurement of at most five milliseconds, with eight requests at the device, and a second
    /// computation of one result in 64.
    fn default() -> Self {
        Self {
            selection: Selection::Measured,
            measuring: Duration::from_millis(5),
            queue_full: 8,
            queue_free: 4,
            check_one_in: 64,
        }
    }
}
