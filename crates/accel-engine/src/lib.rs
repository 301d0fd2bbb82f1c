#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! The accelerator as a device of `offload-policy`.
//!
//! [`Accelerator`] puts a clock, a lock and the table of key slots around the driver, which has none
//! of them. [`ModelBus`] is a way to a device in this process: the model of the accelerator, which
//! computes on the processor that it would relieve. What goes through it shows that the way is
//! right, and nothing about speed.

mod accelerator;
mod model;

pub use crate::accelerator::{Accelerator, Bus, Usage};
pub use crate::model::{BusError, MODEL_CONFIG, MODEL_SHOT, ModelBus, model, single_shot_model};
