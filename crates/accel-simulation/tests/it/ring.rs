//! Driver, window and device under every order of accesses that the memory model allows (loom).
//!
//! Driver and device are the real ones, over memory of loom's atomic words; what the cores do has no
//! part in it. Up to the first request only one side works at a time, and loom explores nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use accel_abi::register::REGISTERS;
use accel_abi::window::{MIRROR, POSTED, TAKEN, entry};
use accel_abi::{Algorithm, Mode, Register};
use accel_driver::{Completion, Config, Driver, Message, Request, Timestamp, Transport};
use accel_simulation::Endpoint;
use accel_simulation::cores::{AesCore, Cores, Engine};
use accel_simulation::device::{Device, Dma, DmaFault};
use accel_transport::{DriverWindow, Words};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use loom::thread;

const CONFIG: Config = Config {
    ring_size: 2,
    buffer: 64,
    completion: Completion::Interrupt,
    deadline: Duration::from_secs(600),
    watchdog: Duration::from_secs(600),
    poll_interval: Duration::ZERO,
    first_sequence: 7,
};

/// Memory that the two sides share. `release` is the order of stores, which a test weakens.
struct Shared {
    words: BTreeMap<u32, AtomicU32>,
    memory: Vec<AtomicU64>,
    interrupts: AtomicUsize,
    ended: AtomicUsize,
    release: Ordering,
}

/// Writes that the queue takes in these tests; its places beyond are never used.
const WRITES: u32 = 24;

impl Shared {
    fn new(release: Ordering) -> Self {
        let registers = REGISTERS.iter().map(|entry| MIRROR + entry.register.0);
        let queue = (0..WRITES).flat_map(|number| [entry(number), entry(number) + 4]);
        let places = registers.chain([POSTED, TAKEN]).chain(queue);
        Self {
            words: places.map(|place| (place, AtomicU32::new(0))).collect(),
            memory: (0..CONFIG.memory().unwrap() / 8)
                .map(|_| AtomicU64::new(0))
                .collect(),
            interrupts: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            release,
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let mut at = offset;
        while at < offset + into.len() {
            let bytes = self.memory[at / 8].load(Ordering::Acquire).to_le_bytes();
            let part = (8 - at % 8).min(offset + into.len() - at);
            into[at - offset..][..part].copy_from_slice(&bytes[at % 8..][..part]);
            at += part;
        }
    }

    /// Bytes of a word that are not written belong to the same side at that time.
    fn write(&self, offset: usize, bytes: &[u8]) {
        let mut at = offset;
        while at < offset + bytes.len() {
            let part = (8 - at % 8).min(offset + bytes.len() - at);
            let word = &self.memory[at / 8];
            let mut new = match part {
                8 => [0; 8],
                _ => word.load(Ordering::Relaxed).to_le_bytes(),
            };
            new[at % 8..][..part].copy_from_slice(&bytes[at - offset..][..part]);
            word.store(u64::from_le_bytes(new), self.release);
            at += part;
        }
    }
}

struct Side(Arc<Shared>);

impl Words for Side {
    fn load(&self, offset: u32) -> u32 {
        self.0.words[&offset].load(Ordering::Acquire)
    }

    fn store(&self, offset: u32, value: u32) {
        self.0.words[&offset].store(value, self.0.release);
    }

    fn pause(&self, _turns: u32) {
        thread::yield_now();
    }
}

impl Dma for Side {
    fn allows(&self, address: u64, length: u64, _write: bool) -> bool {
        address + length <= 8 * self.0.memory.len() as u64
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        self.0.read(address as usize, into);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.0.write(address as usize, bytes);
        Ok(())
    }
}

struct Bus {
    window: DriverWindow<Side>,
    shared: Arc<Shared>,
}

impl Transport for Bus {
    fn read_register(&mut self, register: Register) -> u32 {
        self.window.read(register)
    }

    fn write_register(&mut self, register: Register, value: u32) {
        self.window.write(register, value);
    }

    fn memory(&self) -> (u64, usize) {
        (0, 8 * self.shared.memory.len())
    }

    fn read_memory(&mut self, offset: usize, into: &mut [u8]) -> bool {
        self.shared.read(offset, into);
        true
    }

    fn write_memory(&mut self, offset: usize, bytes: &[u8]) -> bool {
        self.shared.write(offset, bytes);
        true
    }
}

fn serve(shared: &Arc<Shared>) {
    let cores = Cores {
        aes: Some(Box::new(AesCore::new())),
        ..Cores::default()
    };
    let device = Device::new(Engine::new(cores));
    let mut endpoint = Endpoint::new(device, Side(Arc::clone(shared)));
    let mut dma = Side(Arc::clone(shared));
    loop {
        let turn = endpoint.turn(&mut dma);
        if turn.interrupt {
            shared.interrupts.fetch_add(1, Ordering::Release);
        }
        if !turn.worked {
            if shared.ended.load(Ordering::Acquire) == 1 {
                return;
            }
            thread::yield_now();
        }
    }
}

/// Waits for interrupts, and for nothing else, until so many requests are done.
fn wait(driver: &mut Driver<Bus>, shared: &Shared, mut left: usize) -> Vec<Vec<u8>> {
    let mut results = Vec::new();
    while left > 0 {
        if shared.interrupts.swap(0, Ordering::AcqRel) == 0 {
            thread::yield_now();
            continue;
        }
        driver.handle_interrupt(Timestamp::default());
        assert_eq!(driver.failure(), None);
        while let Some(completed) = driver.poll_completion() {
            results.push(completed.result.unwrap().bytes.to_vec());
            left -= 1;
        }
    }
    results
}

/// AES-128 in ECB with a key of zeros, of zeros and of ones (FIPS 197 by the library `aes`).
const CIPHERTEXTS: [[u8; 16]; 2] = [
    [
        0x66, 0xe9, 0x4b, 0xd4, 0xef, 0x8a, 0x2c, 0x3b, 0x88, 0x4c, 0xfa, 0x59, 0xca, 0x34, 0x2b,
        0x2e,
    ],
    [
        0x3f, 0x5b, 0x8c, 0xc9, 0xea, 0x85, 0x5a, 0x0a, 0xfa, 0x73, 0x47, 0xd2, 0x3e, 0x8d, 0x66,
        0x4e,
    ],
];

fn encrypt(byte: &[u8; 16]) -> Request<'_> {
    Request::Encrypt {
        message: Message {
            algorithm: Algorithm::AES,
            mode: Mode::ECB,
            slot: 0,
            iv: &[],
            aad: &[],
            data: byte,
        },
        tag_length: 0,
    }
}

/// The number of executions that were explored.
fn explore(release: Ordering) -> usize {
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.expect_explicit_explore = true;
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared::new(release));
        let server = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || serve(&shared))
        };
        let bus = Bus {
            window: DriverWindow::new(Side(Arc::clone(&shared))),
            shared: Arc::clone(&shared),
        };
        while bus.shared.words[&MIRROR].load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        let now = Timestamp::default();
        let mut driver = Driver::new(bus, CONFIG, now).unwrap();
        assert_eq!(driver.failure(), None);
        let key = Request::LoadKey {
            slot: 0,
            algorithm: Algorithm::AES,
            key: &[0; 16],
        };
        driver.submit(&key, now).unwrap();
        wait(&mut driver, &shared, 1);
        loom::explore();
        driver.submit(&encrypt(&[0; 16]), now).unwrap();
        driver.submit(&encrypt(&[0xff; 16]), now).unwrap();
        let results = wait(&mut driver, &shared, 2);
        loom::stop_exploring();
        assert_eq!(results, CIPHERTEXTS);
        drop(driver);
        shared.ended.store(1, Ordering::Release);
        server.join().unwrap();
    });
    executions.load(Ordering::Relaxed)
}

#[test]
fn no_order_of_accesses_loses_an_interrupt_or_hands_on_wrong_bytes() {
    let executions = explore(Ordering::Release);
    assert!(executions > 1000, "{executions} executions");
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn stores_without_release_order_would() {
    explore(Ordering::Relaxed);
}
