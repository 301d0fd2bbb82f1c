#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! The accelerator as a device of `offload-policy`.
//!
//! [`Accelerator`] puts a clock, a lock and the table of key slots around the driver, which has none
//! of them. The way to the device is a [`Bus`]: shared memory or `/dev/uioN` in `accel-transport`,
//! a device in this process in `accel-simulation`.

mod accelerator;

pub use crate::accelerator::{Accelerator, Bus, Usage, supports};
