//! All lengths, offsets and splits on all back ends, against the model.

use crate::model::Model;
use ibc::mode::{CbcDecryptor, CbcEncryptor, CbcJob, Ctr, cbc_encrypt_many};
use ibc::{Backend, Block, Ibc, InOutBuf, Iv, Variant};

/// Longest message in bytes.
const LONGEST: usize = 1024;

/// Bytes that repeat nowhere nearby; a different row for each `seed`.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

fn blocks(seed: u64, count: usize) -> Vec<Block> {
    bytes(seed, 32 * count)
        .chunks(32)
        .map(|c| c.try_into().unwrap())
        .collect()
}

fn key(variant: Variant) -> Vec<u8> {
    bytes(variant.rounds() as u64, variant.key_size())
}

/// Every variant on every back end, with the model of the same key.
fn everywhere(mut work: impl FnMut(&Ibc, &Model)) {
    for variant in Variant::ALL {
        let key = key(variant);
        let model = Model::new(&key, variant.rounds());
        for backend in Backend::available() {
            work(&Ibc::with_backend(variant, &key, backend).unwrap(), &model);
        }
    }
}

#[test]
fn the_best_back_end_is_available_and_all_available_ones_work() {
    let available: Vec<Backend> = Backend::available().collect();
    assert!(available.contains(&Backend::Portable));
    assert_eq!(available.last(), Some(&Backend::best()));
    // Part of every AArch64 processor; the others depend on the machine, which gets told.
    assert_eq!(
        available.contains(&Backend::Neon),
        cfg!(target_arch = "aarch64")
    );
    for backend in Backend::ALL.into_iter().filter(|b| !available.contains(b)) {
        eprintln!("not tested, as this processor can not run it: {backend}");
    }
    for backend in Backend::ALL {
        assert_eq!(backend.name().parse(), Ok(backend));
        let made = Ibc::with_backend(Variant::Indect128, &[0; 16], backend);
        assert_eq!(made.is_ok(), available.contains(&backend), "{backend}");
        if let Ok(cipher) = made {
            assert_eq!(cipher.backend(), backend);
        }
    }
}

#[test]
fn ecb_of_any_number_of_blocks_is_the_model() {
    everywhere(|cipher, model| {
        let text = blocks(1, 80);
        let mut expected = text.clone();
        expected.iter_mut().for_each(|b| model.encrypt(b));
        for count in 0..=80 {
            let mut out = vec![[0; 32]; count];
            cipher.encrypt_blocks(InOutBuf::new(&text[..count], &mut out).unwrap());
            assert_eq!(out, expected[..count], "{} {count}", cipher.backend());
            cipher.decrypt_blocks(out.as_mut_slice().into());
            assert_eq!(out, text[..count], "{} {count}", cipher.backend());
        }
    });
}

#[test]
fn single_blocks_are_the_model() {
    everywhere(|cipher, model| {
        for block in blocks(2, 40) {
            let (mut ours, mut theirs) = (block, block);
            cipher.encrypt_block(&mut ours);
            model.encrypt(&mut theirs);
            assert_eq!(ours, theirs);
            model.decrypt(&mut theirs);
            cipher.decrypt_block(&mut ours);
            assert_eq!((ours, theirs), (block, block));
        }
    });
}

#[test]
fn cbc_of_any_number_of_blocks_in_place_and_apart_is_the_model() {
    everywhere(|cipher, model| {
        for (iv, raw) in [
            (Iv::Short([9; 16]), vec![9; 16]),
            (Iv::Full([7; 32]), vec![7; 32]),
        ] {
            let text = blocks(3, 70);
            let mut expected = text.clone();
            model.cbc_encrypt(&raw, &mut expected);
            let mut encryptor = CbcEncryptor::new(cipher.clone(), iv);
            let mut decryptor = CbcDecryptor::new(cipher.clone(), iv);
            for count in 0..=70 {
                encryptor.reset(iv);
                let mut out = vec![[0; 32]; count];
                encryptor.encrypt(InOutBuf::new(&text[..count], &mut out).unwrap());
                assert_eq!(out, expected[..count], "{} {count}", cipher.backend());

                decryptor.reset(iv);
                let mut apart = vec![[0; 32]; count];
                decryptor.decrypt(InOutBuf::new(&out, &mut apart).unwrap());
                assert_eq!(apart, text[..count], "{} {count}", cipher.backend());

                decryptor.reset(iv);
                decryptor.decrypt(out.as_mut_slice().into());
                assert_eq!(out, text[..count], "{} {count} in place", cipher.backend());
            }
        }
    });
}

#[test]
fn cbc_split_anywhere_gives_the_same() {
    everywhere(|cipher, model| {
        let iv = Iv::Full([5; 32]);
        let text = blocks(4, 67);
        let mut expected = text.clone();
        model.cbc_encrypt(&[5; 32], &mut expected);
        for piece in [1, 2, 3, 7, 8, 9, 16, 31, 33] {
            let mut out = text.clone();
            let mut encryptor = CbcEncryptor::new(cipher.clone(), iv);
            out.chunks_mut(piece)
                .for_each(|c| encryptor.encrypt(c.into()));
            assert_eq!(out, expected, "{} {piece}", cipher.backend());
            let mut decryptor = CbcDecryptor::new(cipher.clone(), iv);
            out.chunks_mut(piece)
                .for_each(|c| decryptor.decrypt(c.into()));
            assert_eq!(out, text, "{} {piece}", cipher.backend());
        }
    });
}

#[test]
fn ctr_of_every_length_is_the_model() {
    everywhere(|cipher, model| {
        let text = bytes(5, LONGEST);
        let mut expected = text.clone();
        model.ctr(&[3; 16], &mut expected);
        let mut ctr = Ctr::new(cipher.clone(), Iv::Short([3; 16]));
        for len in 0..=LONGEST {
            ctr.reset(Iv::Short([3; 16]));
            let mut out = text[..len].to_vec();
            ctr.apply(out.as_mut_slice().into());
            assert_eq!(out, expected[..len], "{} {len}", cipher.backend());
        }
    });
}

#[test]
fn ctr_at_every_offset_and_split_is_the_model() {
    everywhere(|cipher, model| {
        let text = bytes(6, LONGEST + 64);
        let mut expected = text.clone();
        model.ctr(&[8; 32], &mut expected);
        for offset in 0..64 {
            // The text lies at any alignment, and so does the output.
            let mut input = vec![0; offset];
            input.extend(&text);
            let mut out = vec![0; input.len() + 1];
            let mut ctr = Ctr::new(cipher.clone(), Iv::Full([8; 32]));
            let (mut done, mut piece) = (0, offset);
            while done < text.len() {
                let len = piece.min(text.len() - done);
                let from = &input[offset + done..][..len];
                ctr.apply(InOutBuf::new(from, &mut out[done + 1..][..len]).unwrap());
                done += len;
                piece = (piece * 7 + 13) % 300;
            }
            assert_eq!(
                out[1..=text.len()],
                expected,
                "{} {offset}",
                cipher.backend()
            );
        }
    });
}

#[test]
fn counters_carry_through_all_256_bits() {
    everywhere(|cipher, model| {
        // Carries out of the low 64, 128 and 256 bits, some blocks after the start.
        for zeros in [24, 16, 0] {
            for start in [0xF0, 0xDD, 0xFE, 0xFF] {
                let mut iv = [0x11; 32];
                iv[zeros..].fill(0xFF);
                iv[31] = start;
                let mut out = bytes(7, 32 * 70);
                let mut expected = out.clone();
                model.ctr(&iv, &mut expected);
                Ctr::new(cipher.clone(), Iv::Full(iv)).apply(out.as_mut_slice().into());
                assert_eq!(out, expected, "{} {zeros} {start}", cipher.backend());
            }
        }
    });
}

#[test]
fn blocks_at_any_alignment_are_the_model() {
    everywhere(|cipher, model| {
        let text = blocks(8, 35);
        let mut expected = text.clone();
        model.cbc_encrypt(&[1; 32], &mut expected);
        for offset in 0..64 {
            let mut memory = vec![0u8; offset];
            memory.extend(text.concat());
            let (aligned, _) = memory[offset..].as_chunks_mut::<32>();
            CbcEncryptor::new(cipher.clone(), Iv::Full([1; 32])).encrypt(aligned.into());
            assert_eq!(aligned, expected);
            CbcDecryptor::new(cipher.clone(), Iv::Full([1; 32])).decrypt(aligned.into());
            assert_eq!(aligned, text);
        }
    });
}

#[test]
fn many_chains_are_each_the_model() {
    everywhere(|cipher, model| {
        // Equal lengths, mixed lengths, empty ones; fewer and more chains than registers take.
        let shapes: [&[usize]; 8] = [
            &[],
            &[5],
            &[4, 4],
            &[3; 8],
            &[0, 9, 0, 1, 30, 2, 2, 17],
            &[6; 9],
            &[
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
            ],
            &[0, 0, 40, 1],
        ];
        for lengths in shapes {
            let texts: Vec<Vec<Block>> = lengths
                .iter()
                .enumerate()
                .map(|(i, n)| blocks(20 + i as u64, *n))
                .collect();
            let mut out = texts.clone();
            let mut encryptors: Vec<CbcEncryptor> = (0..texts.len())
                .map(|i| CbcEncryptor::new(cipher.clone(), Iv::Short([i as u8; 16])))
                .collect();
            // In two calls, so that the chaining values have to come out right.
            for part in 0..2 {
                let mut jobs: Vec<CbcJob<'_>> = encryptors
                    .iter_mut()
                    .zip(&mut out)
                    .map(|(encryptor, text)| {
                        let third = text.len() / 3;
                        let (first, second) = text.split_at_mut(third);
                        CbcJob::new(encryptor, if part == 0 { first } else { second }.into())
                    })
                    .collect();
                cbc_encrypt_many(&mut jobs);
            }
            for (i, (mut text, out)) in texts.into_iter().zip(out).enumerate() {
                model.cbc_encrypt(&[i as u8; 16], &mut text);
                assert_eq!(text, out, "{} {lengths:?} chain {i}", cipher.backend());
            }
        }
    });
}

#[test]
fn chains_under_different_keys_keep_their_keys() {
    for backend in Backend::available() {
        let mut chains: Vec<(CbcEncryptor, Vec<Block>)> = (0..6u8)
            .map(|i| {
                let cipher = Ibc::with_backend(Variant::Indect128, &[i / 2; 16], backend).unwrap();
                (CbcEncryptor::new(cipher, Iv::Full([i; 32])), blocks(9, 4))
            })
            .collect();
        let mut jobs: Vec<CbcJob<'_>> = chains
            .iter_mut()
            .map(|(e, b)| CbcJob::new(e, b.as_mut_slice().into()))
            .collect();
        cbc_encrypt_many(&mut jobs);
        for (i, (_, out)) in (0u8..).zip(chains) {
            let mut expected = blocks(9, 4);
            Model::new(&[i / 2; 16], 8).cbc_encrypt(&[i; 32], &mut expected);
            assert_eq!(out, expected);
        }
    }
}

#[test]
fn the_traits_of_the_cipher_crate_give_the_model() {
    use cipher::{BlockCipherDecrypt, BlockCipherEncrypt};
    everywhere(|cipher, model| {
        let text = blocks(10, 37);
        let mut expected = text.clone();
        expected.iter_mut().for_each(|b| model.encrypt(b));
        let mut out: Vec<cipher::Block<Ibc>> = text.iter().map(|b| (*b).into()).collect();
        BlockCipherEncrypt::encrypt_blocks(cipher, &mut out);
        assert!(out.iter().zip(&expected).all(|(a, b)| a.0 == *b));
        BlockCipherDecrypt::decrypt_blocks(cipher, &mut out);
        assert!(out.iter().zip(&text).all(|(a, b)| a.0 == *b));
        BlockCipherEncrypt::encrypt_block(cipher, &mut out[0]);
        assert_eq!(out[0].0, expected[0]);
    });
}
