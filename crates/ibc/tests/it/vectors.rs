//! The vectors of the project's IBC specification (`tests/data/ibc_vectors.json`).
//!
//! Another file in the same format is run instead if `IBC_VECTORS` names it.

use ibc::ced::inject::{Placement, SplitMix64, draw_faults, encrypt_block_with_faults};
use ibc::ced::{CheckedIbc, Code, Stage};
use ibc::mode::{CbcDecryptor, CbcEncryptor, Ctr};
use ibc::research::{ReducedIbc, matrix_from_word};
use ibc::{Backend, Block, Ibc, Iv, Variant, padding};
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct File {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Vector {
    Matrix {
        word: String,
        rows: Hex,
    },
    Keysetup {
        key: Hex,
        words: Vec<String>,
        matrices: Vec<Hex>,
        sboxes: Vec<Hex>,
        sboxes_are: String,
    },
    Trace {
        key: Hex,
        rounds: usize,
        pt: Hex,
        states: Vec<Hex>,
        ct: Hex,
    },
    Block {
        key: Hex,
        rounds: usize,
        pt: Hex,
        ct: Hex,
    },
    Chain {
        key: Hex,
        rounds: usize,
        pt: Hex,
        count: usize,
        ct: Hex,
    },
    Iv {
        key: Hex,
        rounds: usize,
        iv: Hex,
        iv32: Hex,
    },
    Mode {
        mode: String,
        padding: String,
        key: Hex,
        rounds: usize,
        iv: Hex,
        pt: Hex,
        ct: Hex,
    },
    Container {
        mode: String,
        key: Hex,
        rounds: usize,
        iv: Hex,
        pt: Hex,
        file: Hex,
    },
    Check {
        ced: String,
        block: Hex,
        value: u16,
    },
    Ced {
        ced: String,
        key: Hex,
        rounds: usize,
        pt: Hex,
        errors: usize,
        spread: bool,
        fault_seed: String,
        faults: Vec<(usize, usize, Hex)>,
        ct: Hex,
        detected: u32,
        alarms: u32,
    },
}

/// Bytes written as hexadecimal digits.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(try_from = "String")]
struct Hex(Vec<u8>);

impl TryFrom<String> for Hex {
    type Error = hex::FromHexError;

    fn try_from(digits: String) -> Result<Self, hex::FromHexError> {
        hex::decode(digits).map(Self)
    }
}

impl Hex {
    fn block(&self) -> Block {
        self.0.as_slice().try_into().unwrap()
    }
}

fn vectors() -> Vec<Vector> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/ibc_vectors.json");
    let path = std::env::var("IBC_VECTORS").unwrap_or(own.to_owned());
    let file: File = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(
        file.vectors.len() >= 200,
        "only {} vectors",
        file.vectors.len()
    );
    file.vectors
}

fn cipher(key: &Hex, rounds: usize, backend: Backend) -> Ibc {
    let variant = Variant::from_parts(key.0.len(), rounds).unwrap();
    Ibc::with_backend(variant, &key.0, backend).unwrap()
}

fn blocks(bytes: &[u8]) -> Vec<Block> {
    assert_eq!(bytes.len() % 32, 0);
    bytes.chunks(32).map(|c| c.try_into().unwrap()).collect()
}

fn padded(message: &[u8]) -> Vec<Block> {
    let mut bytes = message.to_vec();
    bytes.resize(message.len() / 32 * 32 + 32, 0);
    let mut blocks = blocks(&bytes);
    padding::pad(message.len(), blocks.last_mut().unwrap());
    blocks
}

fn unpadded(blocks: &[Block]) -> Vec<u8> {
    let rest = padding::unpad(blocks.last().unwrap()).unwrap();
    let mut bytes = blocks.concat();
    bytes.truncate(bytes.len() - 32 + rest);
    bytes
}

fn encrypt(cipher: Ibc, mode: &str, iv: &[u8], message: &[u8]) -> Vec<u8> {
    match mode {
        "ctr" => {
            let mut bytes = message.to_vec();
            Ctr::new(cipher, Iv::try_from(iv).unwrap()).apply(bytes.as_mut_slice().into());
            bytes
        }
        "cbc" => {
            let mut blocks = padded(message);
            let iv = Iv::try_from(iv).unwrap();
            CbcEncryptor::new(cipher, iv).encrypt(blocks.as_mut_slice().into());
            blocks.concat()
        }
        "ecb" => {
            let mut blocks = padded(message);
            cipher.encrypt_blocks(blocks.as_mut_slice().into());
            blocks.concat()
        }
        _ => panic!("mode {mode}"),
    }
}

fn decrypt(cipher: Ibc, mode: &str, iv: &[u8], text: &[u8]) -> Vec<u8> {
    match mode {
        "ctr" => encrypt(cipher, mode, iv, text),
        "cbc" => {
            let mut blocks = blocks(text);
            let iv = Iv::try_from(iv).unwrap();
            CbcDecryptor::new(cipher, iv).decrypt(blocks.as_mut_slice().into());
            unpadded(&blocks)
        }
        "ecb" => {
            let mut blocks = blocks(text);
            cipher.decrypt_blocks(blocks.as_mut_slice().into());
            unpadded(&blocks)
        }
        _ => panic!("mode {mode}"),
    }
}

/// Checks one vector on one back end.
fn check(vector: &Vector, backend: Backend) {
    match vector {
        Vector::Matrix { word, rows } => {
            assert_eq!(matrix_from_word(number(word)).as_slice(), rows.0);
        }
        Vector::Keysetup {
            key,
            words,
            matrices,
            sboxes,
            sboxes_are,
        } => {
            let cipher = ReducedIbc::new(&key.0, 8).unwrap();
            assert_eq!(
                cipher
                    .matrices()
                    .iter()
                    .map(|m| Hex(m.to_vec()))
                    .collect::<Vec<_>>(),
                *matrices
            );
            let tables = cipher
                .sboxes()
                .into_iter()
                .map(|s| match sboxes_are.as_str() {
                    "tables" => Hex(s.to_vec()),
                    _ => Hex(Sha256::digest(s).to_vec()),
                });
            assert_eq!(tables.collect::<Vec<_>>(), *sboxes);
            for (index, (word, matrix)) in words.iter().zip(matrices).enumerate() {
                let part = u64::from_be_bytes(key.0[8 * index..][..8].try_into().unwrap());
                assert_eq!(ibc::research::mix_part(part, index as u64), number(word));
                assert_eq!(matrix_from_word(number(word)).as_slice(), matrix.0);
            }
        }
        Vector::Trace {
            key,
            rounds,
            pt,
            states,
            ct,
        } => {
            let layers = ReducedIbc::new(&key.0, *rounds).unwrap();
            let mut block = pt.block();
            let mut trace = Vec::new();
            for round in 0..*rounds {
                layers.substitute(round, &mut block);
                trace.push(Hex(block.to_vec()));
                layers.permute(round, &mut block);
                trace.push(Hex(block.to_vec()));
            }
            assert_eq!(trace, *states);
            assert_eq!(block, ct.block());
            for round in (0..*rounds).rev() {
                layers.unpermute(round, &mut block);
                layers.unsubstitute(round, &mut block);
            }
            assert_eq!(block, pt.block());
            check_block(&cipher(key, *rounds, backend), pt, ct);
        }
        Vector::Block {
            key,
            rounds,
            pt,
            ct,
        } => {
            check_block(&cipher(key, *rounds, backend), pt, ct);
        }
        Vector::Chain {
            key,
            rounds,
            pt,
            count,
            ct,
        } => {
            let cipher = cipher(key, *rounds, backend);
            let mut block = pt.block();
            (0..*count).for_each(|_| cipher.encrypt_block(&mut block));
            assert_eq!(block, ct.block());
            (0..*count).for_each(|_| cipher.decrypt_block(&mut block));
            assert_eq!(block, pt.block());
        }
        Vector::Iv {
            key,
            rounds,
            iv,
            iv32,
        } => {
            // The first ciphertext block of a zero message is E(IV32).
            let cipher = cipher(key, *rounds, backend);
            let mut block = [[0u8; 32]];
            let iv = Iv::try_from(iv.0.as_slice()).unwrap();
            CbcEncryptor::new(cipher.clone(), iv).encrypt(block.as_mut_slice().into());
            cipher.decrypt_block(&mut block[0]);
            assert_eq!(block[0], iv32.block());
        }
        Vector::Mode {
            mode,
            padding,
            key,
            rounds,
            iv,
            pt,
            ct,
        } => {
            assert_eq!(padding, if mode == "ctr" { "none" } else { "pkcs7" });
            let cipher = cipher(key, *rounds, backend);
            assert_eq!(encrypt(cipher.clone(), mode, &iv.0, &pt.0), ct.0);
            assert_eq!(decrypt(cipher, mode, &iv.0, &ct.0), pt.0);
        }
        Vector::Container {
            mode,
            key,
            rounds,
            iv,
            pt,
            file,
        } => {
            // The header is the container module's; here the text after header and IV.
            let text = &file.0[16 + iv.0.len()..];
            let cipher = cipher(key, *rounds, backend);
            assert_eq!(encrypt(cipher.clone(), mode, &iv.0, &pt.0), text);
            assert_eq!(decrypt(cipher, mode, &iv.0, text), pt.0);
        }
        Vector::Check { ced, block, value } => {
            assert_eq!(ced.parse::<Code>().unwrap().check(&block.block()), *value);
        }
        Vector::Ced { .. } => check_faults(vector),
    }
}

fn check_block(cipher: &Ibc, pt: &Hex, ct: &Hex) {
    let mut block = pt.block();
    cipher.encrypt_block(&mut block);
    assert_eq!(block, ct.block());
    cipher.decrypt_block(&mut block);
    assert_eq!(block, pt.block());
}

fn check_faults(vector: &Vector) {
    let Vector::Ced {
        ced,
        key,
        rounds,
        pt,
        errors,
        spread,
        fault_seed,
        faults,
        ct,
        detected,
        alarms,
    } = vector
    else {
        unreachable!()
    };
    let placement = if *spread {
        Placement::Spread
    } else {
        Placement::OneStage
    };
    let mut rng = SplitMix64::new(number(fault_seed));
    let drawn = draw_faults(&mut rng, *rounds, *errors, placement).unwrap();
    let listed = faults.iter().map(|(round, stage, mask)| {
        let stage = [Stage::Substitution, Stage::Permutation][*stage];
        ((*round, stage), mask.block())
    });
    assert_eq!(drawn, listed.collect());

    let variant = Variant::from_parts(key.0.len(), *rounds).unwrap();
    let cipher = CheckedIbc::new(variant, &key.0, ced.parse().unwrap()).unwrap();
    let mut block = pt.block();
    let outcome = encrypt_block_with_faults(&cipher, &mut block, &drawn);
    assert_eq!((outcome.detected, outcome.alarms), (*detected, *alarms));
    assert_eq!(block, ct.block());
}

fn number(digits: &str) -> u64 {
    u64::from_str_radix(digits, 16).unwrap()
}

#[test]
fn every_vector_holds_on_every_back_end() {
    let vectors = vectors();
    for backend in Backend::available() {
        for (id, vector) in vectors.iter().enumerate() {
            if std::panic::catch_unwind(|| check(vector, backend)).is_err() {
                panic!("vector {id} fails on {backend}");
            }
        }
    }
}
