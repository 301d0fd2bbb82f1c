//! Every target over its corpus and over seeded mutations of it: a smoke test that needs no fuzzer.
//!
//! `FUZZ_SEED=N cargo test -p fuzz` repeats a run or tries another one.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use fuzz::TARGETS;

/// Mutations of a target, and the time after which a slow one stops earlier.
const RUNS: usize = 2000;
const TIME: Duration = Duration::from_secs(3);
/// Bytes of an input at most; larger ones only repeat what smaller ones do.
const MAX: usize = 2048;

/// Numbers that look random and are the same for the same seed (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[3]).collect()
    }
}

/// Random bytes, or a sample with some bytes changed, removed, repeated, or joined to another sample's.
fn mutation(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    if corpus.is_empty() || random.below(4) == 0 {
        let len = random.below(256);
        return random.bytes(len);
    }
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(5) {
            0 if at < input.len() => input[at] = random.next().to_le_bytes()[3],
            1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 => input.truncate(at),
            3 => {
                let len = random.below(16);
                let more = random.bytes(len);
                input.splice(at..at, more);
            }
            _ => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
    input.truncate(MAX);
    input
}

fn smoke(name: &str) {
    let (_, run) = TARGETS.iter().find(|(target, _)| *target == name).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut files: Vec<_> = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (sample, file) in corpus.iter().zip(&files) {
        let done = catch_unwind(AssertUnwindSafe(|| run(sample)));
        assert!(done.is_ok(), "{} fails", file.display());
    }
    let seed = std::env::var("FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ seed);
    let end = Instant::now() + TIME;
    for count in 0..RUNS {
        if Instant::now() > end {
            break;
        }
        let input = mutation(&mut random, &corpus);
        let done = catch_unwind(AssertUnwindSafe(|| run(&input)));
        let bytes: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(done.is_ok(), "input {count} of seed {seed} fails: {bytes}");
    }
}

#[test]
fn corpus_belongs_to_targets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(TARGETS.iter().any(|(target, _)| *target == name), "{name}");
    }
}

#[test]
fn accelerator_holds_on_corpus_and_mutations() {
    smoke("accelerator");
}

#[test]
fn acme_request_holds_on_corpus_and_mutations() {
    smoke("acme_request");
}

#[test]
fn block_holds_on_corpus_and_mutations() {
    smoke("block");
}

#[test]
fn certificates_holds_on_corpus_and_mutations() {
    smoke("certificates");
}

#[test]
fn cmp_message_holds_on_corpus_and_mutations() {
    smoke("cmp_message");
}

#[test]
fn cms_holds_on_corpus_and_mutations() {
    smoke("cms");
}

#[test]
fn ibc_container_holds_on_corpus_and_mutations() {
    smoke("ibc_container");
}

#[test]
fn ike_daemon_holds_on_corpus_and_mutations() {
    smoke("ike_daemon");
}

#[test]
fn ike_eap_holds_on_corpus_and_mutations() {
    smoke("ike_eap");
}

#[test]
fn ike_exchange_holds_on_corpus_and_mutations() {
    smoke("ike_exchange");
}

#[test]
fn ike_message_holds_on_corpus_and_mutations() {
    smoke("ike_message");
}

#[test]
fn leaf_holds_on_corpus_and_mutations() {
    smoke("leaf");
}

#[test]
fn manifest_holds_on_corpus_and_mutations() {
    smoke("manifest");
}

#[test]
fn packets_holds_on_corpus_and_mutations() {
    smoke("packets");
}

#[test]
fn profile_holds_on_corpus_and_mutations() {
    smoke("profile");
}

#[test]
fn provider_holds_on_corpus_and_mutations() {
    smoke("provider");
}

#[test]
fn receipt_holds_on_corpus_and_mutations() {
    smoke("receipt");
}

#[test]
fn replay_holds_on_corpus_and_mutations() {
    smoke("replay");
}

#[test]
fn scep_message_holds_on_corpus_and_mutations() {
    smoke("scep_message");
}

#[test]
fn spd_holds_on_corpus_and_mutations() {
    smoke("spd");
}

#[test]
fn tiles_holds_on_corpus_and_mutations() {
    smoke("tiles");
}

#[test]
fn trust_bundle_holds_on_corpus_and_mutations() {
    smoke("trust_bundle");
}

#[test]
fn upload_holds_on_corpus_and_mutations() {
    smoke("upload");
}
