//! The library under its two names in a folder of its own, and what the crate `ibc` makes of the
//! same input.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ibc::mode::{CbcEncryptor, Ctr};
use ibc::{Ibc, Iv, Variant};

/// A folder that `OPENSSL_MODULES` can name.
pub(crate) fn modules() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cordon_ibc.so", "cordon_ibc_openvpn.so"] {
            std::fs::copy(library(), folder.path().join(name)).unwrap();
        }
        folder
    });
    folder.path()
}

/// The library that cargo has built for this test: beside the test program or one folder up.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let near = program.ancestors().skip(1).take(2);
    let found = near
        .map(|folder| folder.join("libibc_provider.so"))
        .find(|f| f.exists());
    found.expect("cargo builds the shared library with the tests")
}

pub(crate) const MODES: [&str; 3] = ["ECB", "CBC", "CTR"];

pub(crate) const IV: [u8; 16] = *b"\x00\x01\xff\xfe sixteen byt";

pub(crate) fn key(variant: Variant) -> Vec<u8> {
    (0..variant.key_size())
        .map(|n| u8::try_from(n * 11 % 251).unwrap())
        .collect()
}

pub(crate) fn message(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from(n * 7 % 251).unwrap())
        .collect()
}

/// Computes the crate's output for a message, with padding where the mode has it.
pub(crate) fn expected(variant: Variant, mode: &str, message: &[u8]) -> Vec<u8> {
    let cipher = Ibc::new(variant, &key(variant)).unwrap();
    encrypt(cipher, mode, Iv::Short(IV), message, true)
}

/// The same with any key, IV and padding.
pub(crate) fn encrypt(cipher: Ibc, mode: &str, iv: Iv, message: &[u8], padding: bool) -> Vec<u8> {
    let mut bytes = message.to_vec();
    if mode == "CTR" {
        Ctr::new(cipher, iv).apply(bytes.as_mut_slice().into());
        return bytes;
    }
    if padding {
        let fill = 32 - bytes.len() % 32;
        bytes.resize(bytes.len() + fill, u8::try_from(fill).unwrap());
    }
    let (blocks, rest) = bytes.as_chunks_mut();
    assert!(rest.is_empty());
    match mode {
        "ECB" => cipher.encrypt_blocks(blocks.into()),
        _ => CbcEncryptor::new(cipher, iv).encrypt(blocks.into()),
    }
    bytes
}
