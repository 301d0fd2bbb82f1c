#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "helpers of tests are not recognised as tests, and may fail by panicking"
)]

use std::sync::Mutex;

use super::*;
use crate::algorithm::COUNT;

const IV: [u8; 16] = *b"a packet number.";

fn key(algorithm: Algorithm) -> Vec<u8> {
    (0..algorithm.variant.key_size() as u8).collect()
}

/// A keyed context. Setting up a key takes long where there is no fast back end: once per cipher.
fn begun(algorithm: Algorithm, direction: Direction) -> Stream {
    static KEYED: Mutex<Vec<Stream>> = Mutex::new(Vec::new());
    let mut keyed = KEYED.lock().unwrap();
    let known = keyed.iter().find(|stream| stream.algorithm == algorithm);
    let mut stream = known.cloned().unwrap_or_else(|| {
        let mut stream = Stream::of(algorithm, Backend::best());
        let key = key(algorithm);
        stream.begin(direction, Some(&key), Some(&IV)).unwrap();
        keyed.push(stream.clone());
        stream
    });
    stream.begin(direction, None, Some(&IV)).unwrap();
    stream
}

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 % 251) as u8).collect()
}

fn update(stream: &mut Stream, input: &[u8], output: &mut Vec<u8>) {
    let mut room = vec![0; input.len() + BLOCK_SIZE];
    let len = stream
        .update(&mut Regions::separate(input, &mut room))
        .unwrap();
    output.extend_from_slice(&room[..len]);
}

fn finish(stream: &mut Stream, output: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut room = [0; BLOCK_SIZE];
    let len = stream.finish(&mut Regions::separate(&[], &mut room))?;
    output.extend_from_slice(&room[..len]);
    Ok(())
}

/// The whole message in one call each.
fn process(mut stream: Stream, input: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut output = Vec::new();
    update(&mut stream, input, &mut output);
    finish(&mut stream, &mut output)?;
    Ok(output)
}

/// The same by the library alone.
fn expected(algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
    let cipher = begun(algorithm, Direction::Encrypt).key.unwrap();
    let iv = Iv::Short(IV);
    let mut bytes = message.to_vec();
    if algorithm.mode == Mode::Ctr {
        Ctr::new(cipher, iv).apply(bytes.as_mut_slice().into());
        return bytes;
    }
    let fill = BLOCK_SIZE - bytes.len() % BLOCK_SIZE;
    bytes.resize(bytes.len() + fill, fill as u8);
    let blocks = bytes.as_chunks_mut().0.into();
    match algorithm.mode {
        Mode::Ecb => cipher.encrypt_blocks(blocks),
        _ => CbcEncryptor::new(cipher, iv).encrypt(blocks),
    }
    bytes
}

fn all() -> impl Iterator<Item = Algorithm> {
    (0..COUNT).map(Algorithm::numbered)
}

/// One of each mode.
fn modes() -> [Algorithm; 3] {
    [0, 1, 2].map(Algorithm::numbered)
}

#[test]
fn whole_messages_are_what_the_library_makes() {
    for algorithm in all() {
        for len in (0..=65).chain([1023, 1024, 1025]) {
            let message = message(len);
            let encrypted = process(begun(algorithm, Direction::Encrypt), &message).unwrap();
            assert_eq!(
                encrypted,
                expected(algorithm, &message),
                "{algorithm:?} {len}"
            );
            let decrypted = process(begun(algorithm, Direction::Decrypt), &encrypted);
            assert_eq!(decrypted, Ok(message), "{algorithm:?} {len}");
        }
    }
}

#[test]
fn pieces_may_end_anywhere() {
    for algorithm in modes() {
        for len in [0, 1, 33, 64, 95] {
            let message = message(len);
            let encrypted = expected(algorithm, &message);
            for (direction, from, to) in [
                (Direction::Encrypt, &message, &encrypted),
                (Direction::Decrypt, &encrypted, &message),
            ] {
                for first in 0..=from.len() {
                    for second in first..=from.len() {
                        let mut stream = begun(algorithm, direction);
                        let mut output = Vec::new();
                        update(&mut stream, &from[..first], &mut output);
                        update(&mut stream, &from[first..second], &mut output);
                        update(&mut stream, &from[second..], &mut output);
                        finish(&mut stream, &mut output).unwrap();
                        assert_eq!(output, *to, "{algorithm:?} {len}: {first}, {second}");
                    }
                }
            }
        }
    }
}

/// Input and output in one memory, the output so many bytes behind (or before) the input.
fn overlapping(stream: &mut Stream, input: &[u8], shift: isize) -> Result<Vec<u8>, Refusal> {
    let margin = 3000usize;
    let output = margin + 1;
    let at = output.checked_add_signed(-shift).unwrap();
    let mut memory = vec![0xEE; 2 * margin + input.len() + BLOCK_SIZE];
    memory[at..at + input.len()].copy_from_slice(input);
    let len = stream.update(&mut Regions::within(&mut memory, at, input.len(), output))?;
    assert!(shift != 0 || memory[..output].iter().all(|b| *b == 0xEE));
    assert!(
        memory[output + len.max(input.len())..]
            .iter()
            .all(|b| *b == 0xEE)
            || shift < 0
    );
    Ok(memory[output..output + len].to_vec())
}

#[test]
fn output_may_lie_over_input() {
    let chunk = CHUNK as isize;
    for algorithm in modes() {
        let message = message(2500);
        let encrypted = expected(algorithm, &message);
        for (direction, from, to) in [
            (Direction::Encrypt, &message, &encrypted),
            (Direction::Decrypt, &encrypted, &message),
        ] {
            for held in [0, 1, 31, 32] {
                for shift in [
                    0, 1, 31, 32, 33, 500, chunk, -1, -31, -32, -33, -500, -chunk, -2500,
                ] {
                    let mut stream = begun(algorithm, direction);
                    let mut output = Vec::new();
                    update(&mut stream, &from[..held], &mut output);
                    // What is held moves the output ahead of the input by as much.
                    let ahead = shift - if algorithm.mode == Mode::Ctr { 0 } else { 32 };
                    let ahead = if held == 0 { shift } else { ahead };
                    output.extend(overlapping(&mut stream, &from[held..], ahead).unwrap());
                    finish(&mut stream, &mut output).unwrap();
                    assert_eq!(output, *to, "{algorithm:?} {direction:?} {held} {shift}");
                }
            }
        }
    }
}

#[test]
fn output_far_over_later_input_is_refused_and_changes_nothing() {
    for algorithm in modes() {
        let message = message(2500);
        let mut stream = begun(algorithm, Direction::Encrypt);
        let refused = overlapping(&mut stream, &message, CHUNK as isize + 1);
        assert_eq!(refused, Err(Refusal::Overlap));
        let mut output = Vec::new();
        update(&mut stream, &message, &mut output);
        finish(&mut stream, &mut output).unwrap();
        assert_eq!(output, expected(algorithm, &message));
    }
}

#[test]
fn an_iv_alone_begins_the_next_message_and_nothing_repeats_the_last() {
    for algorithm in modes() {
        let mut stream = begun(algorithm, Direction::Encrypt);
        let other = [9; 16];
        let mut first = Vec::new();
        update(&mut stream, &message(50), &mut first);
        stream
            .begin(Direction::Encrypt, None, Some(&other))
            .unwrap();
        let second = process(stream.clone(), &message(50)).unwrap();
        let mut fresh = Stream::of(algorithm, Backend::best());
        fresh.begin(Direction::Encrypt, None, Some(&other)).unwrap();
        fresh
            .begin(Direction::Encrypt, Some(&key(algorithm)), None)
            .unwrap();
        assert_eq!(process(fresh, &message(50)).unwrap(), second);
        stream.begin(Direction::Encrypt, None, None).unwrap();
        assert_eq!(process(stream.clone(), &message(50)).unwrap(), second);
        // The direction may change under the same key as well.
        stream.begin(Direction::Decrypt, None, None).unwrap();
        assert_eq!(process(stream, &second).unwrap(), message(50));
    }
}

#[test]
fn calls_out_of_order_are_refused() {
    for algorithm in modes() {
        let mut room = [0; 64];
        let mut new = Stream::of(algorithm, Backend::best());
        let mut refused = |stream: &mut Stream| {
            let update = stream.update(&mut Regions::separate(&[0; 32], &mut room));
            let cipher = stream.cipher(&mut Regions::separate(&[0; 32], &mut room));
            let finish = stream.finish(&mut Regions::separate(&[], &mut room));
            assert_eq!((update, cipher), (finish, finish));
            finish.unwrap_err()
        };
        assert_eq!(refused(&mut new), Refusal::NotBegun);
        new.begin(Direction::Encrypt, None, Some(&IV)).unwrap();
        assert_eq!(refused(&mut new), Refusal::NoKey);
        let mut no_iv = Stream::of(algorithm, Backend::best());
        no_iv
            .begin(Direction::Encrypt, Some(&key(algorithm)), None)
            .unwrap();
        let mut done = begun(algorithm, Direction::Encrypt);
        finish(&mut done, &mut Vec::new()).unwrap();
        match algorithm.mode {
            Mode::Ecb => assert!(process(no_iv, b"").is_ok()),
            _ => assert_eq!(refused(&mut no_iv), Refusal::NoIv),
        }
        match algorithm.mode {
            Mode::Ctr => assert!(finish(&mut done, &mut Vec::new()).is_ok()),
            _ => assert_eq!(refused(&mut done), Refusal::Finished),
        }
    }
}

#[test]
fn wrong_lengths_of_key_and_iv_are_refused_and_change_nothing() {
    for algorithm in all() {
        let mut stream = begun(algorithm, Direction::Encrypt);
        let wanted = algorithm.variant.key_size();
        for given in (0..64).filter(|len| *len != wanted) {
            let refused = stream.begin(Direction::Encrypt, Some(&vec![0; given]), None);
            assert_eq!(refused, Err(Refusal::KeyLength { given, wanted }));
        }
        for given in (0..40).filter(|len| *len != 16 && algorithm.mode != Mode::Ecb) {
            let refused = stream.begin(Direction::Encrypt, None, Some(&vec![0; given]));
            assert_eq!(refused, Err(Refusal::IvLength { given, wanted: 16 }));
        }
        assert_eq!(process(stream, b"x").unwrap(), expected(algorithm, b"x"));
    }
}

#[test]
fn damaged_ciphertexts_are_refused_in_one_way() {
    for algorithm in [Algorithm::numbered(0), Algorithm::numbered(1)] {
        let encrypted = expected(algorithm, &message(40));
        let decrypt = |bytes: &[u8]| process(begun(algorithm, Direction::Decrypt), bytes);
        for len in (0..64).filter(|len| *len != 64) {
            // After 32 bytes the end looks whole, but has no padding.
            assert_eq!(
                decrypt(&encrypted[..len]),
                Err(Refusal::BadDecrypt),
                "{len}"
            );
        }
        let mut stream = begun(algorithm, Direction::Decrypt);
        stream
            .begin(Direction::Decrypt, Some(&[1; 16]), None)
            .unwrap();
        assert_eq!(process(stream, &encrypted), Err(Refusal::BadDecrypt));
    }
}

#[test]
fn without_padding_only_whole_blocks_pass() {
    for algorithm in [Algorithm::numbered(0), Algorithm::numbered(1)] {
        let whole = message(96);
        let encrypted = expected(algorithm, &whole);
        for (direction, from, to) in [
            (Direction::Encrypt, &whole[..], &encrypted[..96]),
            (Direction::Decrypt, &encrypted[..96], &whole[..]),
        ] {
            for len in 0..=96 {
                let mut stream = begun(algorithm, direction);
                stream.set_padding(false);
                let result = process(stream, &from[..len]);
                match len % 32 {
                    0 => assert_eq!(result.unwrap(), to[..len]),
                    left => assert_eq!(result, Err(Refusal::PartialBlock { left })),
                }
            }
        }
        // Switched off while a block is held back.
        let mut stream = begun(algorithm, Direction::Decrypt);
        let mut output = Vec::new();
        update(&mut stream, &encrypted[..96], &mut output);
        assert_eq!(output.len(), 64);
        stream.set_padding(false);
        finish(&mut stream, &mut output).unwrap();
        assert_eq!(output, whole);
    }
}

#[test]
fn too_little_room_is_told_and_changes_nothing() {
    let algorithm = Algorithm::numbered(1);
    let message = message(100);
    let mut stream = begun(algorithm, Direction::Encrypt);
    let small = stream.update(&mut Regions::separate(&message, &mut [0; 95]));
    assert_eq!(
        small,
        Err(Refusal::OutputTooSmall {
            needed: 96,
            room: 95
        })
    );
    let mut output = Vec::new();
    update(&mut stream, &message, &mut output);
    let small = stream.finish(&mut Regions::separate(&[], &mut [0; 31]));
    assert_eq!(
        small,
        Err(Refusal::OutputTooSmall {
            needed: 32,
            room: 31
        })
    );
    finish(&mut stream, &mut output).unwrap();
    assert_eq!(output, expected(algorithm, &message));
}

#[test]
fn one_call_takes_whole_blocks_without_padding() {
    for algorithm in modes() {
        let message = message(128);
        let encrypted = expected(algorithm, &message);
        let mut stream = begun(algorithm, Direction::Decrypt);
        let mut output = [0; 128];
        for (start, end) in [(0, 32), (32, 128)] {
            let mut regions = Regions::separate(&encrypted[start..end], &mut output[start..end]);
            assert_eq!(stream.cipher(&mut regions), Ok(end - start));
        }
        assert_eq!(output[..], message);
        let partial = stream.cipher(&mut Regions::separate(&encrypted[..33], &mut [0; 64]));
        match algorithm.mode {
            Mode::Ctr => assert_eq!(partial, Ok(33)),
            _ => assert_eq!(partial, Err(Refusal::PartialBlock { left: 1 })),
        }
    }
}

#[test]
fn a_message_goes_on_with_the_updated_iv() {
    for algorithm in all().filter(|a| a.mode != Mode::Ecb) {
        for done in [0, 32, 64, 1024] {
            let message = message(2000);
            let encrypted = expected(algorithm, &message);
            let mut stream = begun(algorithm, Direction::Encrypt);
            assert_eq!(stream.iv(), Some(&IV[..]));
            update(&mut stream, &message[..done], &mut Vec::new());
            let iv = stream.updated_iv().unwrap();
            assert_eq!(iv.len(), if done == 0 { 16 } else { 32 });
            assert_eq!(stream.num(), 0);
            let mut other = Stream::of(algorithm, Backend::best());
            other.set_iv_len(iv.len()).unwrap();
            let key = key(algorithm);
            other
                .begin(Direction::Encrypt, Some(&key), Some(&iv))
                .unwrap();
            assert_eq!(process(other, &message[done..]).unwrap(), encrypted[done..]);
            let mut decrypting = begun(algorithm, Direction::Decrypt);
            decrypting.set_padding(false);
            update(&mut decrypting, &encrypted[..done], &mut Vec::new());
            assert_eq!(decrypting.updated_iv().unwrap(), iv);
        }
    }
    let mut stream = begun(Algorithm::numbered(2), Direction::Encrypt);
    update(&mut stream, &message(33), &mut Vec::new());
    assert_eq!(stream.num(), 1);
}

#[test]
fn iv_lengths_are_16_and_32_or_none() {
    for algorithm in modes() {
        let mut stream = Stream::of(algorithm, Backend::best());
        for len in 0..=64 {
            let fits = match algorithm.mode {
                Mode::Ecb => len == 0,
                _ => len == 16 || len == 32,
            };
            assert_eq!(stream.set_iv_len(len).is_ok(), fits, "{algorithm:?} {len}");
        }
        stream
            .begin(Direction::Encrypt, None, Some(&[0; 32]))
            .unwrap();
        stream.set_iv_len(algorithm.iv_len()).unwrap();
        assert_eq!(stream.iv(), None);
    }
}

#[test]
fn counters_carry() {
    let mut number = [0, 0xff, 0xff, 0xff];
    add(&mut number, 1);
    assert_eq!(number, [1, 0, 0, 0]);
    add(&mut number, 0x0102_0304);
    assert_eq!(number, [2, 2, 3, 4]);
    let mut number = [0xff; 32];
    add(&mut number, u128::MAX);
    assert_eq!(number[16..], [[0xff; 15].as_slice(), &[0xfe]].concat());
    assert_eq!(number[..16], [0; 16]);
}

#[test]
fn plans_lose_no_byte() {
    for held in 0..=BLOCK_SIZE {
        for len in 0..200 {
            for hold_last in [false, true] {
                let plan = Plan::new(held, len, hold_last);
                let output = plan.blocks() * BLOCK_SIZE;
                assert_eq!(output + plan.keep, held + len);
                let most = if hold_last {
                    BLOCK_SIZE
                } else {
                    BLOCK_SIZE - 1
                };
                assert!(plan.keep <= most);
                if plan.blocks() > 0 {
                    assert_eq!(plan.fill + plan.direct * BLOCK_SIZE + plan.keep, len);
                }
            }
        }
    }
}
