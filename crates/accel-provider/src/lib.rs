//! OpenSSL 3 provider over the crypto accelerator: programs use the device without knowing of it.
//!
//! OpenSSL loads the shared library from its module folder, under the name `cordon_accel.so`, and calls
//! [`OSSL_provider_init`]. The library offers AES-128, -192 and -256 in CBC (with ciphertext stealing as well), CTR and
//! GCM, HMAC, and signatures with RSA keys of 2048, 3072 and 4096 bits. Whether a message goes to the device or to software, `offload-policy` decides; what is not
//! offered, OpenSSL's own provider goes on to do.
//!
//! ```ini
//! [cordon_accel]
//! module = /usr/lib/ossl-modules/cordon_accel.so
//! engine = verilated
//! aes = /usr/lib/cordon/cores/aes
//! from = 1024
//! activate = 1
//! ```
//!
//! Layers: the crate `provider-abi` has the C types and turns pointers into safe types; `provider`, `key`,
//! `mac` and `signature` are entry points; the rest is safe code. There is no process-wide
//! state: all belongs to the loaded provider.

mod algorithm;
mod blocks;
mod cipher;
mod cts;
mod device;
mod gcm;
mod ghash;
mod key;
mod loaded;
mod mac;
mod pieces;
mod provider;
mod refusal;
mod settings;
mod signature;
mod statistics;

pub use provider::OSSL_provider_init;
pub use provider_abi::abi;
