//! Disks for tests: one that records what is done to it, to rebuild what a crash would have left, and one that fails.
//!
//! Ordinary code rather than a feature, so that programs and tests share one build of everything above; the linker
//! leaves it out of programs, in which nothing names it.

mod failing;
mod recording;
mod simulated;

pub use failing::{FailingDisk, Fault};
pub use recording::{Crash, Op, RecordingDisk};
pub use simulated::{Item, LUCK, Simulated, Tree};
