//! The field agent's command line: `cordon camera`, and a program of its own for machines that are
//! cameras and nothing else.
#![forbid(unsafe_code)]

mod cli;
mod commands;

pub use cli::{Camera, Cli};
pub use commands::run;
