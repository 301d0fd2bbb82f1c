//! Attacks on the cipher, as pure functions with repeatable randomness.
//!
//! Each module is one reason not to trust IBC: [`diffusion`] and [`trails`] measure how bits
//! spread, [`sparse`] tells the cipher from a random permutation, [`recovery`] turns that into
//! the key, and [`slide`] shows why the roles of the S-boxes rotate. `cordon ibc analyse` prints
//! and draws the results; `docs/ibc-security.md` says what they mean.

pub mod diffusion;
mod field;
pub mod random;
pub mod recovery;
pub mod slide;
pub mod sparse;
pub mod trails;
