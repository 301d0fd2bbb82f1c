//! Models of the accelerator's cores, and what puts messages through them.
//!
//! A core is seen through its bus ([`Core`]): words written, words read, cycles counted. There are
//! two of each kind. [`AesCore`], [`HmacCore`], [`IbcCore`] and [`MontCore`] do in Rust what the Verilog in `hw/` does, cycle
//! for cycle as far as the bus shows it; [`Verilated`] talks to the simulated Verilog in a process
//! of its own, so that no C++ is built with this workspace. [`Engine`] drives either: it keeps the
//! key slots, cuts messages into blocks and does what the cores leave to their surroundings.
//! [`Modular`] does the same for numbers: exponentiation, RSA, points of P-256.
//!
//! Cycles are those of the cores with a bus that takes a word a cycle. They say nothing about time
//! until somebody names a clock, and nothing about DMA.
//!
//! This is no implementation of ciphers to use. It is slow, and the
//! functional cores look tables up at secret places.

mod aes_core;
mod aes_front;
mod bus;
mod engine;
mod hmac_core;
mod hmac_front;
mod ibc_core;
mod ibc_front;
mod modular;
mod mont_core;
mod p256;
mod rsa;
mod verilated;

pub use crate::cores::aes_core::AesCore;
pub use crate::cores::bus::{BusOperation, Core, CoreError};
pub use crate::cores::engine::{Cores, Engine, Job};
pub use crate::cores::hmac_core::HmacCore;
pub use crate::cores::ibc_core::IbcCore;
pub use crate::cores::ibc_front::Check;
pub use crate::cores::modular::Modular;
pub use crate::cores::mont_core::MontCore;
pub use crate::cores::rsa::{RsaKey, RsaParts};
pub use crate::cores::verilated::Verilated;
