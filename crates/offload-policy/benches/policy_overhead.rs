//! What the policy adds to messages that stay with software.
//!
//! `cargo bench -p offload-policy` prints, for each operation and size, the time of a message with the library called
//! directly and with the policy in front of it, one by one and in batches of 64. The two take turns in the same run:
//! a ratio is of two turns side by side, and what is printed of the ratios is their median and, in brackets, the
//! middle half.
//!
//! Both sides do the same work: whoever uses the library writes the tag where it belongs, notes what failed, and
//! keeps a stream's vector or position for the next piece. `again` is the library beside itself: what it shows is
//! the error of the measurement. `cargo bench -p offload-policy -- GCM` measures what has that in its name.

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use offload::{Aead, Encryption, Engine};
use offload_policy::{
    AeadMessage, AesCbc, AesCtr, AesGcm, CipherMessage, Direction, Hash, Hmac, MacMessage,
    MessageError, Policy, Selection, Settings,
};

const SIZES: [usize; 8] = [16, 64, 256, 512, 1024, 1440, 4096, 16_384];
/// Messages of a batch.
const BATCH: usize = 64;
/// Pairs of turns, and about how long a turn takes.
const TURNS: usize = 301;
const TURN: Duration = Duration::from_micros(200);
const KEY: [u8; 16] = [7; 16];
const IV: [u8; 16] = [3; 16];
const NONCE: [u8; 12] = [9; 12];
const AAD: [u8; 8] = [1; 8];

/// The messages of a turn.
struct Messages {
    data: Vec<Vec<u8>>,
    tags: Vec<[u8; 32]>,
}

impl Messages {
    fn new(size: usize) -> Self {
        Self {
            data: vec![vec![0x5a; size]; BATCH],
            tags: vec![[0; 32]; BATCH],
        }
    }

    fn aead(&mut self) -> Vec<AeadMessage<'_>> {
        let message = |data| AeadMessage {
            nonce: NONCE,
            aad: &AAD,
            data,
            tag: [0; 16],
            outcome: Ok(()),
        };
        let data = self.data.iter_mut();
        data.map(|data| message(data.as_mut_slice())).collect()
    }

    fn cipher(&mut self) -> Vec<CipherMessage<'_>> {
        let message = |data| CipherMessage {
            iv: IV,
            data,
            outcome: Ok(()),
        };
        let data = self.data.iter_mut();
        data.map(|data| message(data.as_mut_slice())).collect()
    }

    fn mac(&mut self) -> Vec<MacMessage<'_>> {
        let message = |(data, tag)| MacMessage {
            data,
            tag,
            outcome: Ok(()),
        };
        let data = self.data.iter().map(Vec::as_slice);
        let tags = self.tags.iter_mut().map(<[u8; 32]>::as_mut_slice);
        data.zip(tags).map(message).collect()
    }
}

/// All messages of a turn, so many times: how long that took.
type Turn = Box<dyn FnMut(&mut Messages, u32) -> Duration>;

macro_rules! turn {
    ($kind:ident, |$messages:ident| $work:expr) => {
        Box::new(move |all: &mut Messages, times: u32| {
            let mut made = all.$kind();
            let $messages = &mut made;
            let started = Instant::now();
            for _ in 0..times {
                let $messages = black_box(&mut *$messages);
                $work
            }
            started.elapsed()
        }) as Turn
    };
}

/// A turn in which messages are processed one by one.
macro_rules! each {
    ($kind:ident, |$message:ident| $work:expr) => {
        turn!($kind, |messages| for $message in messages {
            let $message = black_box($message);
            $message.outcome = $work;
        })
    };
}

fn unbound() -> UnboundCipherKey {
    UnboundCipherKey::new(&AES_128, &KEY).expect("16 bytes")
}

fn context(iv: &[u8; 16]) -> EncryptionContext {
    EncryptionContext::Iv128(FixedLength::from(iv))
}

fn sealed(key: &Aead, message: &mut AeadMessage<'_>) -> Result<(), MessageError> {
    let too_long = MessageError::Length(message.data.len());
    let sealed = key.seal(message.nonce, message.aad, message.data, &mut message.tag);
    sealed.ok_or(too_long)
}

fn encrypted(key: &EncryptingKey, iv: &[u8; 16], data: &mut [u8]) -> Result<(), MessageError> {
    let too_long = MessageError::Length(data.len());
    let done = key.less_safe_encrypt(data, context(iv));
    done.map(drop).map_err(|_| too_long)
}

fn signed(key: &hmac::Key, message: &mut MacMessage<'_>) -> Result<(), MessageError> {
    let done = hmac::sign_to_buffer(key, message.data, message.tag);
    done.map(drop).map_err(|_| MessageError::Tag)
}

/// Operations: a name, the library, and the policy.
fn pairs(policy: &Arc<Policy>) -> Vec<(&'static str, Turn, Turn)> {
    let aead = || Aead::new(Encryption::AesGcm128, &KEY, Engine::Fastest).expect("16 bytes");
    let gcm = || AesGcm::new(policy, &KEY).expect("16 bytes");
    let plain_cbc = || EncryptingKey::cbc(unbound()).expect("a key");
    let cbc = || AesCbc::new(policy, Direction::Encrypt, &KEY, IV).expect("16 bytes");
    let plain_ctr = || EncryptingKey::ctr(unbound()).expect("a key");
    let ctr = || AesCtr::new(policy, &KEY, IV).expect("16 bytes");
    let mac = || hmac::Key::new(hmac::HMAC_SHA256, &KEY);
    let policy_mac = || Hmac::new(policy, Hash::Sha256, &KEY).expect("a key");

    let (library, again, key) = (aead(), aead(), gcm());
    let mut pairs = vec![
        (
            "GCM, again",
            each!(aead, |message| sealed(&library, message)),
            each!(aead, |message| sealed(&again, message)),
        ),
        (
            "GCM, one by one",
            {
                let library = aead();
                each!(aead, |message| sealed(&library, message))
            },
            each!(aead, |message| key.seal_into(
                message.nonce,
                message.aad,
                message.data,
                &mut message.tag
            )),
        ),
    ];
    let (library, key) = (aead(), gcm());
    pairs.push((
        "GCM, batch",
        each!(aead, |message| sealed(&library, message)),
        turn!(aead, |messages| key.seal_batch(messages)),
    ));
    let (library, key) = (plain_cbc(), cbc());
    pairs.push((
        "CBC, one by one",
        each!(cipher, |message| encrypted(
            &library,
            &message.iv,
            message.data
        )),
        each!(cipher, |message| key
            .process_message(&message.iv, message.data)),
    ));
    let (library, key) = (plain_cbc(), cbc());
    pairs.push((
        "CBC, batch",
        each!(cipher, |message| encrypted(
            &library,
            &message.iv,
            message.data
        )),
        turn!(cipher, |messages| key.process_batch(messages)),
    ));
    let (library, mut stream, mut chain) = (plain_cbc(), cbc(), IV);
    pairs.push((
        "CBC, stream",
        each!(cipher, |message| {
            let done = encrypted(&library, &chain, message.data);
            chain = message.data.last_chunk().copied().unwrap_or(chain);
            done
        }),
        each!(cipher, |message| stream.process(message.data)),
    ));
    let (library, key) = (plain_ctr(), ctr());
    pairs.push((
        "CTR, one by one",
        each!(cipher, |message| encrypted(
            &library,
            &message.iv,
            message.data
        )),
        each!(cipher, |message| key
            .process_message(&message.iv, message.data)),
    ));
    let (library, key) = (plain_ctr(), ctr());
    pairs.push((
        "CTR, batch",
        each!(cipher, |message| encrypted(
            &library,
            &message.iv,
            message.data
        )),
        turn!(cipher, |messages| key.process_batch(messages)),
    ));
    let (library, mut stream) = (plain_ctr(), ctr());
    let mut counter = u128::from_be_bytes(IV);
    pairs.push((
        "CTR, stream",
        each!(cipher, |message| {
            let done = encrypted(&library, &counter.to_be_bytes(), message.data);
            counter = counter.wrapping_add((message.data.len() / 16) as u128);
            done
        }),
        each!(cipher, |message| stream.process(message.data)),
    ));
    let (library, key) = (mac(), policy_mac());
    pairs.push((
        "HMAC, one by one",
        each!(mac, |message| signed(&library, message)),
        each!(mac, |message| key.sign(message.data, message.tag)),
    ));
    let (library, key) = (mac(), policy_mac());
    pairs.push((
        "HMAC, batch",
        each!(mac, |message| signed(&library, message)),
        turn!(mac, |messages| key.sign_batch(messages)),
    ));
    pairs
}

/// Lower quartile, median and upper quartile.
fn quartiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| {
        let value = values.get(values.len() * quarter / 4);
        value.copied().unwrap_or(f64::NAN)
    })
}

fn main() -> std::io::Result<()> {
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let settings = Settings {
        selection: Selection::Software,
        ..Settings::default()
    };
    let policy = Policy::new(None, settings);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "operation          bytes  library ns  policy ns   added"
    )?;
    for (name, mut library, mut through) in pairs(&policy) {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            continue;
        }
        for size in SIZES {
            let mut messages = Messages::new(size);
            let per_message = |took: Duration, times: u32| {
                took.as_secs_f64() * 1e9 / f64::from(times) / BATCH as f64
            };
            let once = library(&mut messages, 2) / 2;
            #[expect(clippy::cast_possible_truncation, reason = "a number of repetitions")]
            let times = ((TURN.as_secs_f64() / once.as_secs_f64()) as u32).max(1);
            let (mut plain, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for pair in 0..TURNS {
                // Whoever comes second finds the caches and the clock of the first.
                let (one, other) = if pair % 2 == 0 {
                    let one = library(&mut messages, times);
                    (one, through(&mut messages, times))
                } else {
                    let other = through(&mut messages, times);
                    (library(&mut messages, times), other)
                };
                plain.push(per_message(one, times));
                with.push(per_message(other, times));
                ratios.push((other.as_secs_f64() / one.as_secs_f64() - 1.0) * 100.0);
            }
            let ([_, plain, _], [_, with, _]) = (quartiles(&mut plain), quartiles(&mut with));
            let [low, added, high] = quartiles(&mut ratios);
            writeln!(
                out,
                "{name:17} {size:6} {plain:11.1} {with:10.1} {added:+6.1} % ({low:+.1} to {high:+.1})"
            )?;
        }
    }
    Ok(())
}
