//! The INDECT Block Cipher by back end, mode and size, beside AES and ChaCha20.

use std::cell::RefCell;
use std::time::Duration;

use aes::cipher::{BlockEncryptMut as _, KeyIvInit as _};
use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use ibc::mode::{CbcDecryptor, CbcEncryptor, CbcJob, Ctr, cbc_encrypt_many};
use ibc::{Backend, Block, Ibc, Iv, Variant};

use super::OPENSSL;
use super::timing::{nanoseconds, openssl_speed};
use crate::LabError;
use crate::experiment::Experiment;
use crate::record::Better;
use crate::session::{Plan, Rounds, Session};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ibc",
    title: "Speed of the INDECT Block Cipher",
    question: "What does the research cipher cost on this processor, by key size, mode and instruction \
               set, beside AES and ChaCha20?",
    source: "No published figures for the cipher alone; through OpenVPN they are in vpn-ciphers \
             (INDECT, Table III)",
    needs: &[],
    wants: &[OPENSSL],
    seconds: (20, 60),
    run,
};

const SPEED: &str = "speed";
const SIZE: &str = "size";
const SERIAL: &str = "serial";
/// Bytes of a request in the bar charts.
const REQUEST: usize = 16 * 1024;
const SIZES: [usize; 6] = [32, 64, 256, 1024, 4096, 16_384];
/// Chains side by side.
const CHAINS: usize = 8;
const BASE: &str = "AES-128-CBC, OpenSSL";

/// The work of one case with a request of so many bytes, in nanoseconds.
enum Work {
    Own {
        /// Bar chart in which it is shown.
        figure: &'static str,
        run: RefCell<Box<dyn FnMut(usize, Duration) -> f64>>,
        /// Bytes that one call of a request of one byte handles: the number of chains.
        chains: usize,
        /// Whether it is drawn over all sizes, too.
        sizes: bool,
    },
    OpenSsl {
        figure: &'static str,
        cipher: &'static str,
        aead: bool,
    },
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let budget = Duration::from_millis(session.pick(20, 60));
    session.parameter("bytes of a request in bar charts", REQUEST);
    session.parameter("processors used", 1);
    let title = "Blocks independent of each other: CTR, CBC decryption, GCM, ChaCha20";
    session.plan(Plan::bars(SPEED, title, "Gbit/s", Better::More).base(BASE));
    let title = "Each block needs the one before: CBC encryption";
    session.plan(Plan::bars(SERIAL, title, "Gbit/s", Better::More).base(BASE));
    session.plan(
        Plan::bars(SIZE, "By size of the request", "Gbit/s", Better::More)
            .over("bytes of a request")
            .logarithmic()
            .base("AES-256-GCM, aws-lc-rs"),
    );
    let mut cases = own()?;
    cases.extend(libraries()?);
    if OPENSSL.is_installed() {
        for (figure, name, cipher, aead) in [
            (SERIAL, BASE, "aes-128-cbc", false),
            (SPEED, BASE, "aes-128-cbc", false),
            (SPEED, "AES-256-GCM, OpenSSL", "aes-256-gcm", true),
            (
                SPEED,
                "ChaCha20-Poly1305, OpenSSL",
                "chacha20-poly1305",
                true,
            ),
        ] {
            cases.push((
                name.to_owned(),
                Work::OpenSsl {
                    figure,
                    cipher,
                    aead,
                },
            ));
        }
    } else {
        session.missing(BASE, "there is no openssl", Some(OPENSSL.package));
    }
    let rounds = Rounds {
        count: session.pick(2, 5),
        warm_up: true,
    };
    session.rounds(rounds, &cases, |work, round| {
        match work {
            Work::Own {
                figure,
                run,
                chains,
                sizes,
            } => {
                let mut run = run.borrow_mut();
                let mut speed = |size| (size * chains) as f64 * 8.0 / run(size, budget);
                round.put(figure, speed(REQUEST));
                if *sizes {
                    for size in SIZES {
                        round.put_at(SIZE, size as f64, speed(size));
                    }
                }
            }
            Work::OpenSsl {
                figure,
                cipher,
                aead,
            } => {
                let (bytes, usage) = openssl_speed(cipher, *aead, REQUEST)?;
                round.put(figure, bytes * 8e-9);
                round.used("openssl", usage);
            }
        }
        Ok(())
    });
    session.caveat(
        "IBC is a research cipher and broken (docs/ibc-security.md): its figures serve comparison with \
         the publication, never a choice.",
    );
    session.caveat(
        "OpenSSL counts processor time, our own clock counts time that passes; on an idle machine that \
         is the same. Its CBC is encryption in both charts: the base must be one number.",
    );
    Ok(())
}

/// IBC by back end.
fn own() -> Result<Vec<(String, Work)>, LabError> {
    let mut cases = Vec::new();
    for backend in Backend::available() {
        let best = backend == Backend::best();
        for variant in [Variant::Indect128, Variant::Indect192, Variant::Indect320] {
            if !best && variant == Variant::Indect192 {
                continue;
            }
            let key = vec![0x5A; variant.key_size()];
            let cipher = Ibc::with_backend(variant, &key, backend)
                .map_err(|error| LabError::Unexpected(error.to_string()))?;
            let mut add = |figure, mode: &str, chains, run| {
                let name = format!("{variant} {mode}, {backend}");
                let sizes = best && chains == 1 && variant == Variant::Indect128;
                let run = RefCell::new(run);
                cases.push((
                    name,
                    Work::Own {
                        figure,
                        run,
                        chains,
                        sizes,
                    },
                ));
            };
            add(SPEED, "CTR", 1, counter(&cipher));
            add(SPEED, "CBC decryption", 1, decryption(&cipher));
            add(SERIAL, "CBC", 1, encryption(&cipher));
            if best {
                add(SERIAL, "CBC, 8 chains at once", CHAINS, chains(&cipher));
            }
        }
    }
    Ok(cases)
}

type Run = Box<dyn FnMut(usize, Duration) -> f64>;

const IV: Iv = Iv::Full([7; 32]);

fn blocks(size: usize) -> Vec<Block> {
    vec![[0x33; ibc::BLOCK_SIZE]; size.div_ceil(ibc::BLOCK_SIZE)]
}

fn counter(cipher: &Ibc) -> Run {
    let mut mode = Ctr::new(cipher.clone(), IV);
    Box::new(move |size, budget| {
        let mut bytes = vec![0; size];
        nanoseconds(budget, || mode.apply(bytes.as_mut_slice().into()))
    })
}

fn decryption(cipher: &Ibc) -> Run {
    let mut mode = CbcDecryptor::new(cipher.clone(), IV);
    Box::new(move |size, budget| {
        let mut blocks = blocks(size);
        nanoseconds(budget, || mode.decrypt(blocks.as_mut_slice().into()))
    })
}

fn encryption(cipher: &Ibc) -> Run {
    let mut mode = CbcEncryptor::new(cipher.clone(), IV);
    Box::new(move |size, budget| {
        let mut blocks = blocks(size);
        nanoseconds(budget, || mode.encrypt(blocks.as_mut_slice().into()))
    })
}

fn chains(cipher: &Ibc) -> Run {
    let cipher = cipher.clone();
    Box::new(move |size, budget| {
        let chain = || (CbcEncryptor::new(cipher.clone(), IV), blocks(size));
        let mut chains: Vec<_> = (0..CHAINS).map(|_| chain()).collect();
        nanoseconds(budget, || {
            let mut jobs: Vec<CbcJob<'_>> = chains
                .iter_mut()
                .map(|(mode, blocks)| CbcJob::new(mode, blocks.as_mut_slice().into()))
                .collect();
            cbc_encrypt_many(&mut jobs);
        })
    })
}

/// AES and ChaCha20 of the libraries that Cordon uses.
fn libraries() -> Result<Vec<(String, Work)>, LabError> {
    let mut cases = vec![(
        "AES-128-CBC, RustCrypto".to_owned(),
        Work::Own {
            figure: SERIAL,
            run: RefCell::new(aes_cbc()),
            chains: 1,
            sizes: false,
        },
    )];
    for (name, algorithm, length, sizes) in [
        ("AES-128-GCM, aws-lc-rs", &AES_128_GCM, 16, false),
        ("AES-256-GCM, aws-lc-rs", &AES_256_GCM, 32, true),
        ("ChaCha20-Poly1305, aws-lc-rs", &CHACHA20_POLY1305, 32, true),
    ] {
        let run = RefCell::new(aead(algorithm, length)?);
        cases.push((
            name.to_owned(),
            Work::Own {
                figure: SPEED,
                run,
                chains: 1,
                sizes,
            },
        ));
    }
    Ok(cases)
}

fn aes_cbc() -> Run {
    let mut mode = cbc::Encryptor::<aes::Aes128>::new(&[0x5A; 16].into(), &[7; 16].into());
    Box::new(move |size, budget| {
        let mut blocks = vec![aes::Block::default(); size.div_ceil(16)];
        nanoseconds(budget, || mode.encrypt_blocks_mut(&mut blocks))
    })
}

fn aead(algorithm: &'static Algorithm, length: usize) -> Result<Run, LabError> {
    let refused = |_| LabError::Unexpected("aws-lc-rs refused a key".to_owned());
    let key = vec![0x5A; length];
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &key).map_err(refused)?);
    let mut number = 0_u64;
    Ok(Box::new(move |size, budget| {
        let mut bytes = vec![0; size];
        nanoseconds(budget, || {
            // A nonce never comes twice, out of habit: these messages go nowhere.
            number += 1;
            let mut nonce = [0; 12];
            nonce[4..].copy_from_slice(&number.to_be_bytes());
            let nonce = Nonce::assume_unique_for_key(nonce);
            // Cannot fail at these lengths.
            let _ = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut bytes);
        })
    }))
}
