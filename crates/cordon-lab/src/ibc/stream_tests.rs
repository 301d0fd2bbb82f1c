//! Streams of every length, through every mode, with readers that give little at a time.

use std::io::{self, Read, Write};

use ibc::container::Mode;
use ibc::{Block, Ibc, Variant};

use super::stream::{Ending, StreamError, Totals, pump};
use super::transform::{BlockCipher, Direction, Fast, FaultFound, Serial, Transform};

const IV: Block = [0xc3; 32];
/// Small, so that short data has several.
const BUFFER: usize = 512;

fn cipher() -> Ibc {
    Ibc::new(Variant::Indect128, &[0x17; 16]).unwrap()
}

fn data(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from(i * 31 % 251).unwrap())
        .collect()
}

/// Gives at most `step` bytes at a time, and an interruption now and then.
struct Trickle<'a>(&'a [u8], usize, bool);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.2 = !self.2;
        if self.2 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = self.1.min(buffer.len()).min(self.0.len());
        let (now, later) = self.0.split_at(len);
        buffer[..len].copy_from_slice(now);
        self.0 = later;
        Ok(len)
    }
}

fn through(
    input: &[u8],
    transform: &mut dyn Transform,
    ending: Ending,
) -> Result<Vec<u8>, StreamError> {
    let mut out = Vec::new();
    let totals = pump(
        &mut Trickle(input, 300, false),
        &mut out,
        transform,
        ending,
        BUFFER,
        &mut |_| true,
    )?;
    let expected = Totals {
        read: input.len() as u64,
        written: out.len() as u64,
    };
    assert_eq!(totals, expected);
    Ok(out)
}

fn endings(mode: Mode) -> (Ending, Ending) {
    match mode {
        Mode::Ctr => (Ending::Any, Ending::Any),
        _ => (Ending::Pad, Ending::Unpad),
    }
}

fn fast(mode: Mode, direction: Direction) -> Fast {
    Fast::new(cipher(), mode, direction, IV)
}

fn serial(mode: Mode, direction: Direction) -> Serial<Plain> {
    Serial::new(Plain(cipher()), mode, direction, IV)
}

/// One block at a time, without checks.
struct Plain(Ibc);

impl BlockCipher for Plain {
    fn encrypt(&mut self, block: &mut Block) -> Result<(), FaultFound> {
        self.0.encrypt_block(block);
        Ok(())
    }

    fn decrypt(&mut self, block: &mut Block) -> Result<(), FaultFound> {
        self.0.decrypt_block(block);
        Ok(())
    }
}

#[test]
fn every_length_comes_back_in_every_mode_and_both_paths_agree() {
    for len in 0..=1024 {
        let plain = data(len);
        for mode in Mode::ALL {
            let (there, back) = endings(mode);
            let secret = through(&plain, &mut fast(mode, Direction::Encrypt), there).unwrap();
            let padded = if mode == Mode::Ctr {
                len
            } else {
                len / 32 * 32 + 32
            };
            assert_eq!(secret.len(), padded);
            let other = through(&plain, &mut serial(mode, Direction::Encrypt), there).unwrap();
            assert!(secret == other, "{mode}, {len} bytes");
            let again = through(&secret, &mut fast(mode, Direction::Decrypt), back).unwrap();
            assert!(again == plain, "{mode}, {len} bytes");
            let again = through(&secret, &mut serial(mode, Direction::Decrypt), back).unwrap();
            assert!(again == plain, "{mode}, {len} bytes");
        }
    }
}

#[test]
fn without_padding_only_whole_blocks_go_through() {
    for mode in [Mode::Ecb, Mode::Cbc] {
        for len in [0, 32, 64, BUFFER] {
            let mut encrypt = fast(mode, Direction::Encrypt);
            let secret = through(&data(len), &mut encrypt, Ending::Whole).unwrap();
            assert_eq!(secret.len(), len);
            let mut decrypt = fast(mode, Direction::Decrypt);
            assert_eq!(
                through(&secret, &mut decrypt, Ending::Whole).unwrap(),
                data(len)
            );
        }
        for len in [1, 31, 33, BUFFER + 1] {
            let error = through(
                &data(len),
                &mut fast(mode, Direction::Encrypt),
                Ending::Whole,
            );
            assert!(matches!(error, Err(StreamError::Length(n)) if n == len as u64));
        }
    }
}

#[test]
fn cut_empty_and_wrongly_padded_data_is_refused() {
    let decrypt = |bytes: &[u8]| {
        through(
            bytes,
            &mut fast(Mode::Cbc, Direction::Decrypt),
            Ending::Unpad,
        )
    };
    let mut encrypt = fast(Mode::Cbc, Direction::Encrypt);
    let secret = through(&data(3000), &mut encrypt, Ending::Pad).unwrap();
    assert!(decrypt(&secret).is_ok());
    assert!(matches!(decrypt(&[]), Err(StreamError::Empty)));
    for cut in [1, 31, 33] {
        let rest = secret.len() - cut;
        let error = decrypt(&secret[..rest]);
        assert!(matches!(error, Err(StreamError::Length(n)) if n == rest as u64));
    }
    let cut = &secret[..secret.len() - 32];
    assert!(matches!(decrypt(cut), Err(StreamError::Padding)));
    let mut spoilt = secret.clone();
    *spoilt.last_mut().unwrap() ^= 1;
    assert!(matches!(decrypt(&spoilt), Err(StreamError::Padding)));
}

/// Goes wrong in the block with this number.
struct Breaks(Ibc, u64);

impl BlockCipher for Breaks {
    fn encrypt(&mut self, block: &mut Block) -> Result<(), FaultFound> {
        if self.1 == 0 {
            return Err(FaultFound(ibc::ced::FaultDetected {
                errors: 3,
                alarms: 1,
                round: 2,
                stage: ibc::ced::Stage::Permutation,
            }));
        }
        self.1 -= 1;
        self.0.encrypt_block(block);
        Ok(())
    }

    fn decrypt(&mut self, block: &mut Block) -> Result<(), FaultFound> {
        self.encrypt(block)
    }
}

/// Remembers how much was written.
struct Counts(usize);

impl Write for Counts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_fault_names_its_block_and_nothing_of_its_buffer_is_written() {
    let per_buffer = BUFFER as u64 / 32;
    for broken in [0, 5, per_buffer - 1, per_buffer, 2 * per_buffer + 7] {
        for mode in Mode::ALL {
            let cipher = Breaks(cipher(), broken);
            let mut transform = Serial::new(cipher, mode, Direction::Encrypt, IV);
            let mut out = Counts(0);
            let input = data(1400);
            let error = pump(
                &mut input.as_slice(),
                &mut out,
                &mut transform,
                endings(mode).0,
                BUFFER,
                &mut |_| true,
            );
            let Err(StreamError::Fault { block, fault }) = error else {
                panic!("no fault told: {error:?}")
            };
            assert_eq!(block, broken);
            assert_eq!(
                fault.to_string(),
                "fault detected in the permutation of round 2"
            );
            assert_eq!(out.0 as u64, broken / per_buffer * per_buffer * 32);
        }
    }
}

#[test]
fn errors_of_reader_and_writer_and_interruptions_are_told_apart() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let run = |reader: &mut dyn Read, writer: &mut dyn Write, go_on: bool| {
        let mut transform = fast(Mode::Ctr, Direction::Encrypt);
        pump(
            reader,
            writer,
            &mut transform,
            Ending::Any,
            BUFFER,
            &mut |_| go_on,
        )
        .unwrap_err()
    };
    let ten = [0; 10];
    assert!(matches!(
        run(&mut Broken, &mut Counts(0), true),
        StreamError::Read(_)
    ));
    assert!(matches!(
        run(&mut ten.as_slice(), &mut Broken, true),
        StreamError::Write(_)
    ));
    let interrupted = run(&mut ten.as_slice(), &mut Counts(0), false);
    assert!(matches!(interrupted, StreamError::Interrupted));
}
