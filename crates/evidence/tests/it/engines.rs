//! Media through a crypto device: the blocks of software, whatever the device does.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use accel_engine::Accelerator;
use accel_simulation::{MODEL_CONFIG, ModelBus, model};
use evidence::block::CHUNK_LEN;
use evidence::digest::Sha256Digest;
use evidence::open::{OpenError, Opener};
use evidence::seal::Sealer;
use offload_policy::{Device, DeviceError, Operation, Policy, Request, Selection, Settings};
use zeroize::Zeroizing;

use crate::block::{Scene, draft, media};
use crate::identity::NOW;

/// The accelerator's model, which lies when it is told to.
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
            bytes[7] ^= 1;
        }
        Ok(bytes)
    }

    fn forget(&self, id: u64) {
        self.model.forget(id);
    }
}

fn engines() -> (Arc<Lying>, Arc<Policy>) {
    let device = Arc::new(Lying {
        model: model(MODEL_CONFIG).unwrap(),
        lies: AtomicBool::new(false),
    });
    let settings = Settings {
        selection: Selection::From(1024),
        check_one_in: 1,
        ..Settings::default()
    };
    (device.clone(), Policy::new(Some(device), settings))
}

/// An empty medium, some chunks with a short last one, and one that ends with its chunk.
fn contents() -> [Vec<u8>; 3] {
    let bytes = |count: usize| (0..count).map(|i| (i * i % 251) as u8).collect();
    [
        Vec::new(),
        bytes(3 * CHUNK_LEN + 1500),
        bytes(2 * CHUNK_LEN),
    ]
}

fn sealed(sealer: &Sealer, contents: &[Vec<u8>; 3]) -> Vec<u8> {
    let [a, b, c] = contents;
    let media = media(&[("a.jpg", a), ("b.jpg", b), ("c.jpg", c)]);
    let mut block = Vec::new();
    sealer
        .seal(draft(1, Sha256Digest::ZERO), media, NOW, &mut block)
        .unwrap();
    block
}

fn opened(opener: &Opener, block: &[u8]) -> Result<Vec<Vec<u8>>, OpenError> {
    let mut opened = opener.open(Cursor::new(block))?;
    (0..opened.manifest.media.len())
        .map(|index| {
            let mut out = Vec::new();
            opened.read_medium(index, &mut out).map(|_| out)
        })
        .collect()
}

#[test]
fn blocks_go_between_device_and_software() {
    let scene = Scene::new();
    let contents = contents();
    let (_, policy) = engines();
    let by_device = sealed(&scene.sealer().with_engines(policy.clone()), &contents);
    // The last chunk of the second medium has 1500 bytes: everything but the empty chunk is long enough.
    assert_eq!(policy.requests(Operation::GcmSeal).device, 6);
    assert_eq!(policy.requests(Operation::GcmSeal).software, 1);
    assert_eq!(opened(&scene.opener(), &by_device).unwrap(), contents);
    let by_software = sealed(&scene.sealer(), &contents);
    let opener = scene.opener().with_engines(policy.clone());
    for block in [&by_device, &by_software] {
        assert_eq!(opened(&opener, block).unwrap(), contents);
    }
    assert_eq!(policy.requests(Operation::GcmOpen).device, 12);
    assert_eq!(policy.quarantine(), None);
}

#[test]
fn an_altered_block_is_refused_and_the_device_is_not_blamed() {
    let scene = Scene::new();
    let (_, policy) = engines();
    let opener = scene.opener().with_engines(policy.clone());
    let mut block = sealed(&scene.sealer(), &contents());
    let middle = block.len() / 2;
    block[middle] ^= 1;
    let refused = opened(&opener, &block).unwrap_err();
    assert_eq!(refused.code(), "chunk-authentication");
    assert_eq!(policy.quarantine(), None);
}

#[test]
fn a_device_that_lies_in_the_middle_leaves_no_trace_in_the_block() {
    let scene = Scene::new();
    let contents = contents();
    for sealing in [true, false] {
        let (device, policy) = engines();
        let sealer = scene.sealer().with_engines(policy.clone());
        let opener = scene.opener().with_engines(policy.clone());
        let before = sealed(&sealer, &contents);
        assert_eq!(policy.quarantine(), None);
        device.lies.store(true, Ordering::Relaxed);
        if sealing {
            let block = sealed(&sealer, &contents);
            assert_eq!(opened(&scene.opener(), &block).unwrap(), contents);
        } else {
            assert_eq!(opened(&opener, &before).unwrap(), contents);
        }
        assert!(policy.quarantine().is_some());
        assert_eq!(
            policy.counters().repeated,
            1,
            "nothing goes to it afterwards"
        );
    }
}
