//! Cores against published vectors, and the simulated Verilog against the functional models.

mod aes_vectors;
mod hmac_vectors;
mod ibc_vectors;
mod mont_faults;
mod mont_rtl;
mod mont_vectors;
mod refusals;
mod rtl;
mod support;
