//! Where there are no kernels: types without values, so that every engine is the library.

use crate::jobs::Jobs;

/// AES-GCM with one key.
pub(crate) enum GcmKernel {}

impl GcmKernel {
    pub(crate) fn new(_: &[u8]) -> Option<Self> {
        None
    }

    pub(crate) fn seal(&self, _: &[u8; 12], _: &[u8], _: &mut [u8]) -> Option<[u8; 16]> {
        match *self {}
    }

    pub(crate) fn open(&self, _: &[u8; 12], _: &[u8], _: &mut [u8], _: &[u8]) -> Option<()> {
        match *self {}
    }
}

/// The same on two blocks per instruction.
pub(crate) enum GcmPairsKernel {}

impl GcmPairsKernel {
    pub(crate) fn new(_: &[u8]) -> Option<Self> {
        None
    }

    pub(crate) fn seal(&self, _: &[u8; 12], _: &[u8], _: &mut [u8]) -> Option<[u8; 16]> {
        match *self {}
    }

    pub(crate) fn open(&self, _: &[u8; 12], _: &[u8], _: &mut [u8], _: &[u8]) -> Option<()> {
        match *self {}
    }
}

/// A text to encrypt.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "written for kernels that are not here")]
pub(crate) struct Text {
    pub(crate) start: usize,
    pub(crate) blocks: usize,
}

/// Packets side by side.
pub(crate) const LANES: usize = 16;

/// AES-CBC with one key in one direction.
pub(crate) enum CbcKernel {}

impl CbcKernel {
    pub(crate) fn encrypting(_: &[u8]) -> Option<Self> {
        None
    }

    pub(crate) fn decrypting(_: &[u8]) -> Option<Self> {
        None
    }

    pub(crate) fn encrypt_blocks(&self, _: &mut [[u8; 16]; LANES]) {
        match *self {}
    }

    pub(crate) fn encrypt(&self, _: &mut [u8], _: &mut dyn Iterator<Item = Text>) -> Option<()> {
        match *self {}
    }

    pub(crate) fn decrypt(&self, _: &[u8; 16], _: &mut [u8]) -> Option<()> {
        match *self {}
    }
}

/// HMAC-SHA1 or HMAC-SHA2-256 with one key.
pub(crate) enum HmacKernel {}

impl HmacKernel {
    pub(crate) fn sha1(_: &[u8]) -> Option<Self> {
        None
    }

    pub(crate) fn sha256(_: &[u8]) -> Option<Self> {
        None
    }

    pub(crate) const fn worthwhile(&self) -> usize {
        match *self {}
    }

    pub(crate) fn run(&self, _: &mut [u8], _: &mut impl Jobs, _: usize) {
        match *self {}
    }
}
