//! What the policy adds to a message that stays with software.
//!
//! `cargo bench -p offload-policy` prints, for each operation and size, the time of a message with
//! the library called directly, with the policy in front of it, and the difference. The two take
//! turns in the same run; each figure is the median of many short turns.
//!
//! A stream keeps its vector or position for the next piece, which a single call of the library does not. So streams are
//! compared with the library used as a stream too: what its caller then has to write.

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use offload::{Aead, Encryption, Engine};
use offload_policy::{AesCbc, AesCtr, AesGcm, Direction, Hash, Hmac, Policy, Selection, Settings};

const SIZES: [usize; 8] = [16, 64, 256, 512, 1024, 1440, 4096, 16_384];
/// Pairs of turns, and how long a turn takes.
const TURNS: usize = 401;
const TURN: Duration = Duration::from_micros(150);
const KEY: [u8; 16] = [7; 16];

/// A thing that processes a message in place.
type Work<'a> = Box<dyn FnMut(&mut [u8]) + 'a>;

fn unbound() -> UnboundCipherKey {
    UnboundCipherKey::new(&AES_128, &KEY).expect("16 bytes")
}

/// Operations, each with the library alone and with the policy.
fn pairs(policy: &Arc<Policy>) -> Vec<(&'static str, Work<'static>, Work<'static>)> {
    let iv = || EncryptionContext::Iv128(FixedLength::from([3; 16]));
    let gcm = Aead::new(Encryption::AesGcm128, &KEY, Engine::Fastest).expect("16 bytes");
    let policy_gcm = AesGcm::new(policy, &KEY).expect("16 bytes");
    let cbc = EncryptingKey::cbc(unbound()).expect("a key");
    let mut policy_cbc = AesCbc::new(policy, Direction::Encrypt, &KEY, [3; 16]).expect("16 bytes");
    let ctr = EncryptingKey::ctr(unbound()).expect("a key");
    let mut policy_ctr = AesCtr::new(policy, &KEY, [3; 16]).expect("16 bytes");
    let chained = EncryptingKey::cbc(unbound()).expect("a key");
    let mut other_cbc = policy_cbc.clone();
    let mut chain = [3; 16];
    let counted = EncryptingKey::ctr(unbound()).expect("a key");
    let mut other_ctr = policy_ctr.clone();
    let mut counter = u128::from_be_bytes([3; 16]);
    let mac = hmac::Key::new(hmac::HMAC_SHA256, &KEY);
    let policy_mac = Hmac::new(policy, Hash::Sha256, &KEY).expect("a key");
    vec![
        (
            "AES-128-GCM seal",
            Box::new(move |data: &mut [u8]| {
                let mut tag = [0; 16];
                black_box(gcm.seal([9; 12], &[1; 8], data, &mut tag));
                black_box(tag);
            }) as Work<'_>,
            Box::new(move |data: &mut [u8]| {
                let _ = black_box(policy_gcm.seal([9; 12], &[1; 8], data));
            }) as Work<'_>,
        ),
        (
            "AES-128-CBC encrypt",
            Box::new(move |data: &mut [u8]| {
                let _ = black_box(cbc.less_safe_encrypt(data, iv()));
            }),
            Box::new(move |data: &mut [u8]| {
                let _ = black_box(policy_cbc.process(data));
            }),
        ),
        (
            "CBC, as a stream",
            Box::new(move |data: &mut [u8]| {
                let iv = EncryptionContext::Iv128(FixedLength::from(chain));
                let _ = black_box(chained.less_safe_encrypt(data, iv));
                chain = data.last_chunk().copied().unwrap_or(chain);
            }),
            Box::new(move |data: &mut [u8]| {
                let _ = black_box(other_cbc.process(data));
            }),
        ),
        (
            "CTR, as a stream",
            Box::new(move |data: &mut [u8]| {
                let iv = FixedLength::from(counter.to_be_bytes());
                let iv = EncryptionContext::Iv128(iv);
                let _ = black_box(counted.less_safe_encrypt(data, iv));
                counter = counter.wrapping_add((data.len() / 16) as u128);
            }),
            Box::new(move |data: &mut [u8]| {
                let _ = black_box(other_ctr.process(data));
            }),
        ),
        (
            "AES-128-CTR",
            Box::new(move |data: &mut [u8]| {
                let _ = black_box(ctr.less_safe_encrypt(data, iv()));
            }),
            Box::new(move |data: &mut [u8]| {
                let _ = black_box(policy_ctr.process(data));
            }),
        ),
        (
            "HMAC-SHA256 sign",
            Box::new(move |data: &mut [u8]| {
                black_box(hmac::sign(&mac, data));
            }),
            Box::new(move |data: &mut [u8]| {
                let mut tag = [0; 16];
                let _ = black_box(policy_mac.sign(data, &mut tag));
                black_box(tag);
            }),
        ),
    ]
}

/// Nanoseconds of a message in one turn.
fn turn(work: &mut Work<'_>, data: &mut [u8], count: u32) -> f64 {
    let started = Instant::now();
    for _ in 0..count {
        work(black_box(data));
    }
    started.elapsed().as_nanos() as f64 / f64::from(count)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> std::io::Result<()> {
    let settings = Settings {
        selection: Selection::Software,
        ..Settings::default()
    };
    let policy = Policy::new(None, settings);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "operation             bytes   library ns   policy ns   added"
    )?;
    for (name, mut direct, mut through) in pairs(&policy) {
        for size in SIZES {
            let mut data = vec![0x5a; size];
            let once = turn(&mut direct, &mut data, 100).max(1.0);
            #[expect(clippy::cast_possible_truncation, reason = "a number of repetitions")]
            let count = ((TURN.as_nanos() as f64 / once) as u32).max(1);
            let (mut library, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for pair in 0..TURNS {
                // Whoever comes second finds the caches and the clock of the first.
                let (one, other) = if pair % 2 == 0 {
                    let one = turn(&mut direct, &mut data, count);
                    (one, turn(&mut through, &mut data, count))
                } else {
                    let other = turn(&mut through, &mut data, count);
                    (turn(&mut direct, &mut data, count), other)
                };
                library.push(one);
                with.push(other);
                ratios.push(other / one);
            }
            let (library, with) = (median(&mut library), median(&mut with));
            let added = (median(&mut ratios) - 1.0) * 100.0;
            writeln!(
                out,
                "{name:20} {size:6} {library:12.1} {with:11.1} {added:6.1} %"
            )?;
        }
    }
    Ok(())
}
