//! The ciphers: four modes, each with three sizes of keys.

use std::ffi::CStr;

/// A mode of the ciphers, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gcm,
    Ctr,
    Cbc,
    Cts,
}

/// Modes times sizes of keys.
pub(crate) const COUNT: usize = 12;

/// Ciphers with names and numbers: three sizes of keys for each mode.
pub(crate) const fn numbered(number: usize) -> (Kind, usize, &'static CStr) {
    match number {
        0 => (
            Kind::Gcm,
            16,
            c"AES-128-GCM:id-aes128-GCM:2.16.840.1.101.3.4.1.6",
        ),
        1 => (
            Kind::Gcm,
            24,
            c"AES-192-GCM:id-aes192-GCM:2.16.840.1.101.3.4.1.26",
        ),
        2 => (
            Kind::Gcm,
            32,
            c"AES-256-GCM:id-aes256-GCM:2.16.840.1.101.3.4.1.46",
        ),
        3 => (Kind::Ctr, 16, c"AES-128-CTR"),
        4 => (Kind::Ctr, 24, c"AES-192-CTR"),
        5 => (Kind::Ctr, 32, c"AES-256-CTR"),
        6 => (Kind::Cbc, 16, c"AES-128-CBC:AES128:2.16.840.1.101.3.4.1.2"),
        7 => (Kind::Cbc, 24, c"AES-192-CBC:AES192:2.16.840.1.101.3.4.1.22"),
        8 => (Kind::Cbc, 32, c"AES-256-CBC:AES256:2.16.840.1.101.3.4.1.42"),
        9 => (Kind::Cts, 16, c"AES-128-CBC-CTS"),
        10 => (Kind::Cts, 24, c"AES-192-CBC-CTS"),
        _ => (Kind::Cts, 32, c"AES-256-CBC-CTS"),
    }
}
