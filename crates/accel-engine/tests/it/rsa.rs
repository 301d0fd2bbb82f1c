//! Signatures with RSA through the driver and the model.

use std::sync::Arc;

use accel_engine::Accelerator;
use accel_simulation::cores::{Cores, MontCore};
use accel_simulation::{MODEL_CONFIG, ModelBus};
use offload_policy::{
    MessageError, Operation, Policy, RsaKey, RsaNumbers, RsaPadding, Selection, Settings,
    SignedHash,
};

use crate::support::{CONFIG, Fault, FaultyBus, Random, settings, software};

/// A key of 2048 bits, made for these tests.
const NUMBERS: [&str; 8] = include!("rsa_2048.in");

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
    digits.iter().map(|pair| byte(pair).unwrap()).collect()
}

fn key(policy: &Arc<Policy>) -> RsaKey {
    let numbers = NUMBERS.map(hex);
    let [n, e, d, p, q, dp, dq, qinv] = numbers.each_ref().map(Vec::as_slice);
    let numbers = RsaNumbers {
        n,
        e,
        d,
        p,
        q,
        dp,
        dq,
        qinv,
    };
    RsaKey::new(policy, &numbers).unwrap()
}

fn cores() -> Cores {
    Cores {
        modular: MontCore::new(32).map(|core| Box::new(core) as _),
        ..Cores::default()
    }
}

fn device() -> Arc<Accelerator<ModelBus>> {
    let bus = ModelBus::with_cores(&MODEL_CONFIG, cores()).unwrap();
    Arc::new(Accelerator::new("model", bus, MODEL_CONFIG).unwrap())
}

/// Signatures of both engines before one is chosen.
const SAMPLES: u64 = 3;

const HASHES: [SignedHash; 3] = [SignedHash::Sha256, SignedHash::Sha384, SignedHash::Sha512];

#[test]
fn signatures_of_the_device_are_those_of_the_library() {
    let device = device();
    let policy = Policy::new(Some(device.clone()), settings(0));
    let (through, library) = (key(&policy), key(&software()));
    for hash in HASHES {
        let digest = Random(1).bytes(hash.size());
        let signature = through.sign(RsaPadding::Pkcs1, hash, &digest).unwrap();
        assert_eq!(
            signature,
            library.sign(RsaPadding::Pkcs1, hash, &digest).unwrap()
        );
        let signature = through.sign(RsaPadding::Pss, hash, &digest).unwrap();
        library
            .verify(RsaPadding::Pss, hash, &digest, &signature)
            .unwrap();
        let other = Random(2).bytes(hash.size());
        for (padding, digest) in [(RsaPadding::Pss, &other), (RsaPadding::Pkcs1, &digest)] {
            let refused = library.verify(padding, hash, digest, &signature);
            assert_eq!(refused, Err(MessageError::Tag));
        }
    }
    assert_eq!(policy.counters().device, 6);
    // Each is verified, whatever the settings say about samples.
    assert_eq!(policy.counters().checked, 6);
    assert_eq!(device.usage().key_loads, 1);
    assert!(through.same_public(&library));
    let short = through.sign(RsaPadding::Pss, SignedHash::Sha256, &[0; 31]);
    assert_eq!(short, Err(MessageError::Length(31)));
}

#[test]
fn a_wrong_result_is_not_seen_and_the_device_is_set_aside() {
    for fault in [
        Fault::FirstByte,
        Fault::LastByte,
        Fault::Status,
        Fault::Vanished,
        Fault::Doorbell,
    ] {
        let bus = FaultyBus::over(ModelBus::with_cores(&CONFIG, cores()).unwrap());
        let device = Arc::new(Accelerator::new("faulty", bus, CONFIG).unwrap());
        let policy = Policy::new(Some(device.clone()), settings(0));
        let key = key(&policy);
        let digest = [9; 32];
        let first = key
            .sign(RsaPadding::Pkcs1, SignedHash::Sha256, &digest)
            .unwrap();
        assert_eq!(policy.quarantine(), None);
        device.with_bus(|bus| bus.fault = fault);
        let second = key
            .sign(RsaPadding::Pkcs1, SignedHash::Sha256, &digest)
            .unwrap();
        assert_eq!(first, second, "{fault:?}");
        assert!(policy.quarantine().is_some(), "{fault:?}");
        assert_eq!(policy.counters().device, 1, "{fault:?}");
    }
}

#[test]
fn what_is_measured_decides_for_the_keys_that_follow() {
    const SIGNATURES: u64 = 8;
    let device = device();
    let settings = Settings {
        selection: Selection::Measured,
        ..Settings::default()
    };
    let policy = Policy::new(Some(device.clone()), settings);
    let first = key(&policy);
    let later = key(&policy);
    let digest = [1; 32];
    for number in 0..SIGNATURES {
        let key = if number < SAMPLES { &first } else { &later };
        let signature = key
            .sign(RsaPadding::Pss, SignedHash::Sha256, &digest)
            .unwrap();
        key.verify(RsaPadding::Pss, SignedHash::Sha256, &digest, &signature)
            .unwrap();
        if number + 1 < SAMPLES {
            assert_eq!(
                policy.signature_costs()[0].device,
                None,
                "decided too early"
            );
        }
    }
    // Both make the first ones. Whatever the machine did meanwhile, what was measured decides about the others.
    let cost = policy.signature_costs()[0];
    let (software, on_device) = (cost.software.unwrap(), cost.device.unwrap());
    let quicker = on_device * 100 < software * 80;
    assert_eq!(policy.break_even(Operation::RsaPrivate).is_some(), quicker);
    let (requests, later) = (policy.requests(Operation::RsaPrivate), SIGNATURES - SAMPLES);
    let (by_device, by_software) = if quicker { (later, 0) } else { (0, later) };
    assert_eq!(requests.device, SAMPLES + by_device, "{cost:?}");
    assert_eq!(requests.software, by_software, "{cost:?}");
}

#[test]
fn keys_that_are_none_are_refused() {
    let numbers = NUMBERS.map(hex);
    for damaged in 0..8 {
        let mut wrong = numbers.clone();
        wrong[damaged][0] ^= 1;
        let [n, e, d, p, q, dp, dq, qinv] = wrong.each_ref().map(Vec::as_slice);
        let numbers = RsaNumbers {
            n,
            e,
            d,
            p,
            q,
            dp,
            dq,
            qinv,
        };
        assert!(
            RsaKey::new(&software(), &numbers).is_err(),
            "number {damaged}"
        );
    }
    let [_, e, d, p, q, dp, dq, qinv] = numbers.each_ref().map(Vec::as_slice);
    for n in [
        &[][..],
        &[0x80; 255],
        &[0x80; 257],
        &[0x7f; 256],
        &[0x80; 1024],
    ] {
        let numbers = RsaNumbers {
            n,
            e,
            d,
            p,
            q,
            dp,
            dq,
            qinv,
        };
        assert!(RsaKey::new(&software(), &numbers).is_err());
    }
}
