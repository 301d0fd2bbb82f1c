//! RSA keys through a crypto device: signatures that everybody verifies, whatever the device does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use accel_engine::Accelerator;
use accel_simulation::cores::{Cores, MontCore};
use accel_simulation::{MODEL_CONFIG, ModelBus};
use offload_policy::{Device, DeviceError, Operation, Policy, Request, Selection, Settings};
use pki::key::{KeyAlgorithm, PrivateKey, verify};
use pki::profile::Profile;
use pki::tls::{ServerIdentity, ServerTls, client_config};
use zeroize::Zeroizing;

use crate::fixture::World;
use crate::tls::{chain, handshake};

/// The accelerator's model with its core for RSA, which lies when it is told to.
struct Lying {
    model: Accelerator<ModelBus>,
    lies: AtomicBool,
}

impl Device for Lying {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn supports(&self, operation: Operation, key_len: usize) -> bool {
        self.model.supports(operation, key_len)
    }

    fn max_len(&self) -> usize {
        self.model.max_len()
    }

    fn run(&self, request: &Request<'_>) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        let mut bytes = self.model.run(request)?;
        if self.lies.load(Ordering::Relaxed) {
            bytes[100] ^= 1;
        }
        Ok(bytes)
    }

    fn forget(&self, id: u64) {
        self.model.forget(id);
    }
}

fn engines() -> (Arc<Lying>, Arc<Policy>) {
    let cores = Cores {
        modular: MontCore::new(32).map(|core| Box::new(core) as _),
        ..Cores::default()
    };
    let bus = ModelBus::with_cores(&MODEL_CONFIG, cores).unwrap();
    let device = Arc::new(Lying {
        model: Accelerator::new("model", bus, MODEL_CONFIG).unwrap(),
        lies: AtomicBool::new(false),
    });
    let settings = Settings {
        selection: Selection::From(0),
        ..Settings::default()
    };
    (device.clone(), Policy::new(Some(device), settings))
}

fn by_device(policy: &Policy) -> u64 {
    policy.requests(Operation::RsaPrivate).device
}

#[test]
fn signatures_are_those_of_the_library_with_a_device_and_after_its_fault() {
    let (device, policy) = engines();
    let key = PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap();
    let through = key.with_engines(&policy).unwrap();
    assert_eq!(through.public_spki_der(), key.public_spki_der());
    let message = b"a receipt";
    assert!(through.sign(message).unwrap() == key.sign(message).unwrap());
    assert_eq!(by_device(&policy), 1);
    device.lies.store(true, Ordering::Relaxed);
    assert!(through.sign(message).unwrap() == key.sign(message).unwrap());
    assert!(policy.quarantine().is_some());
    verify(
        key.public_spki_der(),
        &key.signature_algorithm(),
        message,
        &through.sign(message).unwrap(),
    )
    .unwrap();
    assert_eq!(by_device(&policy), 1);
}

#[test]
fn keys_of_other_kinds_and_without_a_device_stay_as_they_are() {
    let (_, policy) = engines();
    for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Ed25519] {
        let key = PrivateKey::generate(algorithm).unwrap();
        key.with_engines(&policy).unwrap().sign(b"a").unwrap();
    }
    let key = PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap();
    let same = key.with_engines(&Policy::software()).unwrap();
    assert!(same.sign(b"a").unwrap() == key.sign(b"a").unwrap());
    assert_eq!(by_device(&policy), 0);
}

#[test]
fn a_handshake_is_signed_by_the_device_and_after_its_fault_by_software() {
    let world = World::new();
    let (device, policy) = engines();
    let (key, chain) = chain(&world, Profile::Server, KeyAlgorithm::Rsa2048);
    let key = key.with_engines(&policy).unwrap();
    let identity = ServerIdentity::new(&chain, &key).unwrap();
    let server = ServerTls::new(identity).build().unwrap();
    for lies in [false, true, true] {
        // Each time another client: nobody resumes.
        let client = client_config(&world.trust(), None, &[]).unwrap();
        device.lies.store(lies, Ordering::Relaxed);
        handshake(&client, &server, "portal.example.org").unwrap();
        assert_eq!(policy.quarantine().is_some(), lies);
        assert_eq!(by_device(&policy), 1);
    }
    // A certificate for another key is refused as with any other engine.
    let other = PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap();
    let other = other.with_engines(&policy).unwrap();
    assert!(ServerIdentity::new(&chain, &other).is_err());
}
