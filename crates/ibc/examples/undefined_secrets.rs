//! Runs the whole library with keys and data that valgrind takes for uninitialised memory.
//!
//! Under `valgrind --error-exitcode=9` the program exits with 9 if any branch or address depends on
//! a secret. `leak-branch` and `leak-address` do so on purpose, to show that it would be seen.

#![expect(
    unsafe_code,
    reason = "requests to valgrind are an instruction sequence"
)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for tests"
)]
#![expect(
    clippy::indexing_slicing,
    reason = "one leak on purpose, and constant sizes"
)]

use ibc::ced::{CheckedIbc, Code};
use ibc::mode::{CbcDecryptor, CbcEncryptor, CbcJob, Ctr, cbc_encrypt_many};
use ibc::{Backend, Block, Ibc, Iv, Variant, padding};
use std::hint::black_box;

// Numbers of valgrind's client requests: the core's, and memcheck's, which start at "MC".
const RUNNING_ON_VALGRIND: usize = 0x1001;
const MAKE_MEM_UNDEFINED: usize = 0x4D43_0001;
const MAKE_MEM_DEFINED: usize = 0x4D43_0002;

/// Asks valgrind; on a real processor the sequence does nothing and the answer is 0.
#[cfg(target_arch = "x86_64")]
fn ask(request: usize, address: usize, len: usize) -> usize {
    let arguments = [request, address, len, 0, 0, 0];
    let answer: usize;
    // SAFETY: four rotations by 128 bits in all and an exchange of a register with itself change
    // nothing; valgrind recognises them and reads the six words that rax points to.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") 0usize => answer,
        );
    }
    answer
}

#[cfg(not(target_arch = "x86_64"))]
fn ask(_: usize, _: usize, _: usize) -> usize {
    0
}

/// Makes bytes secret. The compiler must take them for changed, hence the exclusive reference and
/// the exposed address.
fn hide(bytes: &mut [u8]) {
    ask(
        MAKE_MEM_UNDEFINED,
        bytes.as_mut_ptr().expose_provenance(),
        bytes.len(),
    );
}

/// Makes bytes public.
fn show(bytes: &mut [u8]) {
    ask(
        MAKE_MEM_DEFINED,
        bytes.as_mut_ptr().expose_provenance(),
        bytes.len(),
    );
}

fn main() {
    let mut secret = [0x5Au8; 64];
    hide(&mut secret);
    match std::env::args().nth(1).as_deref() {
        Some("leak-branch") => {
            if black_box(secret[0]) > 7 {
                println!("a branch on a secret");
            }
        }
        Some("leak-address") => {
            let table = [1u8; 256];
            let found = black_box(&table)[usize::from(black_box(secret[1]))];
            black_box(found);
        }
        _ => everything(&secret),
    }
}

fn everything(secret: &[u8; 64]) {
    if ask(RUNNING_ON_VALGRIND, 0, 0) > 0 {
        println!("running under valgrind");
    }
    for backend in Backend::available() {
        for variant in Variant::ALL {
            let cipher = Ibc::with_backend(variant, &secret[..variant.key_size()], backend);
            modes(&cipher.unwrap());
        }
        println!("{backend}: done");
    }
    for variant in Variant::ALL {
        for code in Code::ALL {
            let cipher = CheckedIbc::new(variant, &secret[..variant.key_size()], code).unwrap();
            checked(&cipher);
        }
    }
    println!("checked: done");
}

fn modes(cipher: &Ibc) {
    let mut blocks: Vec<Block> = vec![[0xC3; 32]; 21];
    let iv = Iv::Short([9; 16]);
    for count in [1, 2, 7, 21] {
        let some = &mut blocks[..count];
        hide(some.as_flattened_mut());
        cipher.encrypt_blocks((&mut *some).into());
        cipher.decrypt_blocks((&mut *some).into());
        CbcEncryptor::new(cipher.clone(), iv).encrypt((&mut *some).into());
        CbcDecryptor::new(cipher.clone(), iv).decrypt((&mut *some).into());
        Ctr::new(cipher.clone(), iv).apply(some.as_flattened_mut().into());
    }
    hide(blocks.as_flattened_mut());
    let mut first = CbcEncryptor::new(cipher.clone(), iv);
    let mut second = CbcEncryptor::new(cipher.clone(), iv);
    let (left, right) = blocks.split_at_mut(9);
    let jobs = &mut [
        CbcJob::new(&mut first, left.into()),
        CbcJob::new(&mut second, right.into()),
    ];
    cbc_encrypt_many(jobs);

    // The padding check hides everything but its result.
    let mut last = blocks[0];
    padding::pad(13, &mut last);
    hide(&mut last);
    black_box(padding::unpad(&last).is_ok());
    show(blocks.as_flattened_mut());
}

/// That no fault happened is public, and each comparison says so.
fn checked(cipher: &CheckedIbc) {
    let mut block = [0x3C; 32];
    hide(&mut block);
    assert_eq!(cipher.encrypt_block(&mut block), Ok(()));
    assert_eq!(cipher.decrypt_block(&mut block), Ok(()));
}
