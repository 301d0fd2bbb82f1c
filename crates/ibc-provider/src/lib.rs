//! OpenSSL 3 provider of the INDECT Block Cipher.
//!
//! **IBC is a research cipher and broken**: see the documentation of the crate `ibc`. The provider
//! serves experiments with unmodified programs; nothing loads it unless told to.
//!
//! OpenSSL loads the shared library from its module folder and calls [`OSSL_provider_init`]. The
//! library offers INDECT-128, -192, -256, -320 and -128-VH, each as -ECB, -CBC and -CTR, and has
//! two names:
//!
//! * `cordon_ibc.so` reports everything as it is;
//! * `cordon_ibc_openvpn.so` reports the CBC ciphers as OFB, because OpenVPN 2.6 ends itself when a
//!   CBC cipher has blocks longer than its IV. The ciphertext is the same.
//!
//! Which it is follows from the name under which OpenSSL has loaded it.
//!
//! ```sh
//! OPENSSL_MODULES=DIR openssl enc -provider default -provider cordon_ibc -INDECT-128-CBC …
//! ```
//!
//! Layers: the crate `provider-abi` has the C types and turns pointers into safe types,
//! `cipher` and `provider` are the entry points, and `stream`, which is safe code, knows how a
//! message is cut into calls. No libcrypto is linked: all that is needed comes from the core's
//! function table. There is no process-wide state.

mod algorithm;
mod cipher;
mod provider;
mod refusal;
mod stream;

pub use provider_abi::abi;

pub use provider::OSSL_provider_init;
