#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! The choice between the processor and a crypto device, for each message anew.
//!
//! [`Policy`] knows a [`Device`] and what it costs: at the start it measures, for each operation and
//! several sizes, how long a caller waits for the device and for software, and keeps the size from
//! which the device is quicker. [`AesCbc`], [`AesCtr`], [`AesGcm`] and [`Hmac`] are keys under a
//! policy, and [`RsaKey`] signs under it. The former keep whatever connects two pieces of a stream on this side, so that each piece can
//! go another way and the bytes are the same.
//!
//! [`PacketEngine`] offers packets of a tunnel to the device, a batch at a time.
//!
//! A device is not trusted. Tags are compared here. Its first fault, missed deadline, wrong length or
//! wrong result puts it in quarantine ([`Quarantine`]) for the policy's lifetime, and software does
//! that request again. Software computes a random sample of the device's results a second time: the
//! number of them is a setting, since only that notices wrong bytes without a tag.
//!
//! Software is the library, and for AES-GCM this project's vector code where the processor runs it
//! ([`offload::Aead`]). Linux's AF_ALG is no engine here: a message costs it four system calls, and
//! its ciphers are the processor's.
//!
//! The crate is not part of `offload`, which moves packets and neither reads clocks nor shares state
//! between threads; and it knows no device, only the trait of one.

mod batch;
mod break_even;
mod device;
mod gcm;
mod hmac;
mod measure;
mod operation;
mod packets;
mod policy;
mod rsa;
mod settings;
mod software;
mod stream;
mod trial;

pub use crate::batch::{AeadMessage, CipherMessage, MacMessage};
pub use crate::break_even::{Cost, SIZES};
pub use crate::device::{Device, DeviceError, DeviceKey, Request};
pub use crate::gcm::AesGcm;
pub use crate::hmac::{Hash, Hmac};
pub use crate::operation::Operation;
pub use crate::packets::PacketEngine;
pub use crate::policy::{Counters, Policy, Quarantine, Requests};
pub use crate::rsa::{RsaKey, RsaNumbers, RsaPadding, SignedHash};
pub use crate::settings::{Selection, Settings};
pub use crate::stream::{AesCbc, AesCtr, Direction, MessageError};
