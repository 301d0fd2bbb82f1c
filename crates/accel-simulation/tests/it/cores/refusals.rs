//! Requests that an engine refuses.

use accel_abi::{Algorithm, Mode, Status};
use accel_simulation::cores::{Cores, Engine, Job};

use crate::cores::support::{functional, job, refused};

#[test]
fn lengths_that_do_not_fit_the_mode_are_refused() {
    let mut engine = functional();
    engine.load_key(0, Algorithm::AES, &[1; 16]).unwrap();
    engine.load_key(1, Algorithm::IBC_128, &[1; 16]).unwrap();
    let (iv, data) = ([0; 40], [0; 100]);
    let cases = [
        (Mode::ECB, 0, 0),
        (Mode::ECB, 0, 15),
        (Mode::ECB, 1, 16),
        (Mode::CBC, 16, 17),
        (Mode::CBC, 12, 16),
        (Mode::CTR, 16, 0),
        (Mode::CFB, 15, 5),
        (Mode::OFB, 17, 5),
        (Mode::CTS, 16, 16),
        (Mode::GCM, 12, 5),
        (Mode::CCM, 12, 5),
    ];
    for (mode, iv_length, length) in cases {
        let case = job(Algorithm::AES, mode, &iv[..iv_length], &data[..length]);
        refused(&mut engine, &case, Status::BAD_LENGTH);
    }
    let tagged = |mode, iv_length: usize, tag_length| Job {
        tag_length,
        ..job(Algorithm::AES, mode, &iv[..iv_length], &data)
    };
    for case in [
        tagged(Mode::GCM, 12, 11),
        tagged(Mode::GCM, 16, 16),
        tagged(Mode::GCM, 12, 17),
        tagged(Mode::CCM, 6, 8),
        tagged(Mode::CCM, 14, 8),
        tagged(Mode::CCM, 12, 5),
        tagged(Mode::CTR, 16, 16),
        Job {
            aad: &[1],
            ..tagged(Mode::CTR, 16, 0)
        },
    ] {
        refused(&mut engine, &case, Status::BAD_LENGTH);
    }
    let long = vec![0; 0x1_0000];
    let counted = Job {
        data: &long,
        ..tagged(Mode::CCM, 13, 8)
    };
    refused(&mut engine, &counted, Status::BAD_LENGTH);
    let ibc = Job {
        slot: 1,
        ..job(Algorithm::IBC_128, Mode::CBC, &iv[..17], &data[..64])
    };
    refused(&mut engine, &ibc, Status::BAD_LENGTH);
}

#[test]
fn numbers_without_a_core_are_unsupported() {
    let mut engine = functional();
    for algorithm in [0, 10, 11, 255].map(Algorithm) {
        assert_eq!(
            engine.load_key(0, algorithm, &[0; 16]),
            Err(Status::UNSUPPORTED)
        );
        refused(
            &mut engine,
            &job(algorithm, Mode::ECB, &[], &[0; 32]),
            Status::UNSUPPORTED,
        );
    }
    for mode in [0, 9, 255].map(Mode) {
        refused(
            &mut engine,
            &job(Algorithm::AES, mode, &[], &[0; 32]),
            Status::UNSUPPORTED,
        );
    }
    for mode in [Mode::CFB, Mode::OFB, Mode::CTS, Mode::GCM, Mode::CCM] {
        refused(
            &mut engine,
            &job(Algorithm::IBC_128, mode, &[0; 16], &[0; 32]),
            Status::UNSUPPORTED,
        );
    }
    assert_eq!(
        engine.load_key(16, Algorithm::AES, &[0; 16]),
        Err(Status::UNSUPPORTED)
    );
    // Algorithms that are no ciphers encrypt nothing.
    for algorithm in [
        Algorithm::HMAC_SHA_1,
        Algorithm::HMAC_SHA_256,
        Algorithm::RSA,
    ] {
        let message = job(algorithm, Mode::ECB, &[], &[0; 32]);
        refused(&mut engine, &message, Status::UNSUPPORTED);
    }
    assert_eq!(engine.capabilities(), 0b1111);
    let mut none = Engine::new(Cores::default());
    assert_eq!(
        none.exponentiate(&[9], &[1], &[1]),
        Err(Status::UNSUPPORTED)
    );
    assert_eq!(none.rsa_private(0, &[1; 256]), Err(Status::UNSUPPORTED));
    for algorithm in [Algorithm::HMAC_SHA_256, Algorithm::RSA] {
        assert_eq!(
            none.load_key(0, algorithm, &[1; 32]),
            Err(Status::UNSUPPORTED)
        );
    }
    assert_eq!(none.capabilities(), 0);
    assert_eq!(
        none.load_key(0, Algorithm::AES, &[0; 16]),
        Err(Status::UNSUPPORTED)
    );
}

#[test]
fn slot_serves_only_its_own_algorithm_and_nothing_after_zeroisation() {
    let mut engine = functional();
    let aes = job(Algorithm::AES, Mode::ECB, &[], &[0; 32]);
    let ibc = job(Algorithm::IBC_128, Mode::ECB, &[], &[0; 32]);
    refused(&mut engine, &aes, Status::NO_KEY);
    engine.load_key(0, Algorithm::AES, &[0; 16]).unwrap();
    refused(&mut engine, &ibc, Status::NO_KEY);
    engine.run(&aes).unwrap();
    engine.load_key(1, Algorithm::AES, &[1; 16]).unwrap();
    engine.zeroise_key(0).unwrap();
    refused(&mut engine, &aes, Status::NO_KEY);
    // Another slot's key goes on working, although the core forgot it.
    engine.run(&Job { slot: 1, ..aes }).unwrap();
    engine.zeroise().unwrap();
    refused(&mut engine, &Job { slot: 1, ..aes }, Status::NO_KEY);
    assert_eq!(engine.keys(), 0);
    assert_eq!(
        engine.load_key(0, Algorithm::AES, &[0; 17]),
        Err(Status::BAD_LENGTH)
    );
}
