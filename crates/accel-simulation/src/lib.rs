#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! The accelerator without hardware: its device over the models, in this process or in one of its own.
//!
//! [`cores`] are models of the cores, and what puts messages through them; [`device`] is the device over these: registers, ring
//! and memory access. Neither has a thread or a clock, or knows a driver.
//!
//! [`ModelBus`] is a way to a device in this process, which computes on the processor that it would
//! relieve: what goes through it shows that the way is right, and nothing about speed. [`Endpoint`]
//! and [`MappedDma`] are the device's side of shared memory; the program `accel_serve` puts them
//! together for QEMU and for processes of this machine. [`Faulty`] makes a device misbehave.
//!
//! Programs that are shipped know nothing of this crate: a board takes its place.

pub mod cores;
pub mod device;

mod dma;
mod endpoint;
mod faults;
mod model;
mod window;

pub use crate::dma::MappedDma;
pub use crate::endpoint::{Endpoint, Turn};
pub use crate::faults::{Conduct, Faulty};
pub use crate::model::{BusError, MODEL_CONFIG, MODEL_SHOT, ModelBus, model, single_shot_model};
pub use crate::window::DeviceWindow;
