//! Requests in registers: the same results as through the ring, and a device that does what it should not.

use std::time::Duration;

use accel_abi::register::{capabilities, shot};
use accel_abi::{Algorithm, Mode, Register, SHOT_MAX, Status};
use accel_driver::{
    Failure, Message, Request, RequestError, ShotConfig, SingleShot, SubmitError, Transport,
};
use accel_simulation::device::{Device, Memory};

use crate::simulation::{KEYS, Planned, at, key, plan, reference};
use crate::world::{Life, Random, engine};

/// Ticks until a request is given up, and between two looks.
const DEADLINE: u64 = 100;
const CONFIG: ShotConfig = ShotConfig {
    deadline: Duration::from_millis(DEADLINE),
    poll_interval: Duration::from_millis(2),
    // The numbers begin anew in the middle.
    number: u16::MAX - 9,
};

/// Chances, in thousandths of each request, of what goes wrong.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// The device waits for some ticks, seldom for longer than the deadline.
    slow: usize,
    /// The write that starts it is lost.
    lost: usize,
    /// It says of a message to open that it is done, before it is.
    claim_undone: usize,
    lie_about_tag: usize,
    /// Number, outcome or length are not those of the request.
    lie: usize,
    /// The status is that of the request before, once more, for a while.
    stale: usize,
    die: usize,
    vanish: usize,
}

/// Registers of a device that has no memory at all.
struct Registers {
    device: Device,
    memory: Memory,
    random: Random,
    faults: Faults,
    life: Life,
    /// Ticks for which the device does nothing.
    waiting: u64,
    /// A request was started and not processed.
    started: Option<u32>,
    sizes: u32,
    opens: bool,
    /// Status and length that are shown instead of the device's.
    shown: Option<(u32, u32)>,
    /// The number of looks at the status that still see the one before.
    stale: (u32, u32),
    flipped: Option<(Register, u32)>,
    falsified: bool,
    lied: bool,
    broken: bool,
}

impl Registers {
    fn new(faults: Faults, seed: u64) -> Self {
        Self {
            device: Device::new(engine()),
            memory: Memory::new(0, 0),
            random: Random(seed),
            faults,
            life: Life::Alive,
            waiting: 0,
            started: None,
            sizes: 0,
            opens: false,
            shown: None,
            stale: (0, 0),
            flipped: None,
            falsified: false,
            lied: false,
            broken: false,
        }
    }

    /// A request is there: what will go wrong with it.
    fn start(&mut self, number: u32) {
        let faults = self.faults;
        (self.shown, self.flipped) = (None, None);
        (self.falsified, self.lied) = (false, false);
        self.stale.1 = self.device.read(Register::SHOT_STATUS);
        if self.random.chance(faults.lost) {
            self.broken = true;
            return;
        }
        self.device.write(Register::SHOT_START, number);
        self.started = Some(number);
        if self.random.chance(faults.slow) {
            let often = self.random.chance(900);
            self.waiting = 1 + self.random.below(if often { 40 } else { 400 }) as u64;
            // With as many looks at an old status behind it, that can be too late.
            self.broken |= self.waiting > DEADLINE / 2;
        }
        if self.random.chance(faults.claim_undone) && self.opens && self.sizes >> 8 != 0 {
            // Zeros in the place of a result, whose tag is no tag.
            let produced = self.random.below(64) as u32;
            let status = shot::status(Status::OK.0, number as u16);
            self.shown = Some((status, produced));
            self.falsified = true;
            self.broken = true;
        }
    }

    fn advance(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.life != Life::Alive || self.waiting > 0 {
            return;
        }
        let Some(number) = self.started.take() else {
            return;
        };
        let faults = self.faults;
        if self.random.chance(faults.vanish) {
            self.life = Life::Gone;
            self.broken = true;
            return;
        }
        if self.random.chance(faults.die) {
            self.life = Life::Dead;
            self.broken = true;
            return;
        }
        assert!(self.device.step(&mut self.memory));
        let (outcome, echo) = shot::halves(self.device.read(Register::SHOT_STATUS));
        // One that was claimed to be done is so now, if nobody has looked meanwhile.
        self.falsified = false;
        self.broken |= u32::from(echo) != number;
        let produced = self.device.read(Register::SHOT_PRODUCED);
        if self.random.chance(faults.stale) {
            self.stale.0 = self.random.below(20) as u32;
        }
        if self.random.chance(faults.lie) {
            (self.broken, self.lied) = (true, true);
            let other = 1 + self.random.below(60_000) as u16;
            self.shown = Some(match self.random.below(3) {
                0 => (shot::status(11 + other % 1000, echo), produced),
                1 if Status(outcome) == Status::OK => {
                    (shot::status(outcome, echo), produced + 1 + u32::from(other))
                }
                _ => (shot::status(outcome, echo ^ other.max(2)), produced),
            });
            let (status, _) = self.shown.unwrap();
            // That of the request before is only late.
            if shot::halves(status).1 == shot::halves(self.stale.1).1 {
                self.shown = Some((shot::status(999, echo), produced));
            }
        }
        let tag = self.sizes >> 8 & 0xff;
        if Status(outcome) == Status::OK && tag > 0 && self.random.chance(faults.lie_about_tag) {
            let byte = produced - 1 - self.random.below(tag as usize) as u32;
            let bit = 1 << (8 * (byte % 4) + self.random.below(8) as u32);
            self.flipped = Some((Register::shot_data(byte / 4).unwrap(), bit));
            self.falsified = true;
        }
    }
}

impl Transport for Registers {
    fn read_register(&mut self, register: Register) -> u32 {
        if self.life == Life::Gone {
            return u32::MAX;
        }
        match (register, self.shown, self.flipped) {
            (Register::SHOT_STATUS, ..) if self.stale.0 > 0 => {
                self.stale.0 -= 1;
                self.stale.1
            }
            (Register::SHOT_STATUS, Some((status, _)), _) => status,
            (Register::SHOT_PRODUCED, Some((_, produced)), _) => produced,
            (_, _, Some((word, bit))) if word == register => self.device.read(register) ^ bit,
            _ => self.device.read(register),
        }
    }

    fn write_register(&mut self, register: Register, value: u32) {
        match register {
            _ if self.life == Life::Gone => {}
            Register::SHOT_START => self.start(value),
            Register::SHOT_COMMAND if value == 0 => {
                // The driver has taken the result.
                self.shown = None;
                self.device.write(register, value);
            }
            _ => {
                if register == Register::SHOT_SIZES {
                    self.sizes = value;
                }
                if register == Register::SHOT_COMMAND {
                    self.opens = matches!(value.to_le_bytes()[0], 2 | 5);
                }
                self.device.write(register, value);
            }
        }
    }

    fn memory(&self) -> (u64, usize) {
        panic!("a single shot has no memory")
    }

    fn read_memory(&mut self, _: usize, _: &mut [u8]) -> bool {
        panic!("a single shot has no memory")
    }

    fn write_memory(&mut self, _: usize, _: &[u8]) -> bool {
        panic!("a single shot has no memory")
    }
}

type Shots = SingleShot<Registers>;
type Outcome = Result<Vec<u8>, RequestError>;

/// Waits for the end of the request that is under way.
fn finish(driver: &mut Shots, tick: &mut u64) -> Outcome {
    let begun = *tick;
    loop {
        if driver.poll_timeout().unwrap() <= at(*tick)
            && let Some(result) = driver.poll(at(*tick))
        {
            return result.map(|output| output.bytes.to_vec());
        }
        *tick += 1;
        assert!(*tick <= begun + DEADLINE, "it hangs");
        driver.transport_mut().advance();
    }
}

fn run(driver: &mut Shots, request: &Request<'_>) -> Outcome {
    let mut tick = 0;
    driver.submit(request, at(tick)).unwrap();
    finish(driver, &mut tick)
}

fn with_keys(faults: Faults, seed: u64) -> Shots {
    let mut driver = SingleShot::new(Registers::new(Faults::default(), seed), CONFIG);
    for (slot, (algorithm, length)) in (0..).zip(KEYS) {
        let key = key(slot, length);
        let request = Request::LoadKey {
            slot,
            algorithm,
            key: &key,
        };
        assert_eq!(run(&mut driver, &request), Ok(Vec::new()));
    }
    driver.transport_mut().faults = faults;
    driver
}

fn ecb(data: &[u8]) -> Request<'_> {
    Request::Encrypt {
        message: Message {
            algorithm: Algorithm::AES,
            mode: Mode::ECB,
            slot: 0,
            iv: &[],
            aad: &[],
            data,
        },
        tag_length: 0,
    }
}

#[test]
fn results_are_those_of_the_cores() {
    let (mut random, mut reference) = (Random(5), reference());
    let mut driver = with_keys(Faults::default(), 1);
    for _ in 0..300 {
        let planned = plan(&mut random, &mut reference);
        let result = run(&mut driver, &planned.request());
        let expected = planned.answer.clone();
        assert_eq!(
            result,
            expected.ok_or(RequestError::Authentication),
            "{planned:?}"
        );
    }
    assert_eq!(driver.completed(), 300 + KEYS.len() as u64);
}

#[test]
fn device_keeps_neither_source_nor_result() {
    let mut driver = with_keys(Faults::default(), 1);
    let data = |driver: &mut Shots| -> Vec<u32> {
        let words = (0..).map_while(Register::shot_data);
        let device = &driver.transport_mut().device;
        words.map(|word| device.read(word)).collect()
    };
    run(&mut driver, &ecb(&[7; 256])).unwrap();
    assert!(data(&mut driver).iter().all(|word| *word == 0));
    // A request for more than was written works on zeros, and not on what another one left.
    let device = &mut driver.transport_mut().device;
    for (register, value) in [
        (Register::SHOT_COMMAND, shot::command(1, 1, 1, 0)),
        (Register::SHOT_LENGTHS, shot::lengths(256, 0)),
        (Register::SHOT_SIZES, 0),
        (Register::SHOT_START, 77),
    ] {
        device.write(register, value);
    }
    assert!(device.step(&mut Memory::new(0, 0)));
    let left = data(&mut driver);
    let expected = run(&mut driver, &ecb(&[0; 256])).unwrap();
    let left: Vec<u8> = left.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(left[..256], expected);
    // A reset forgets keys and results.
    let mut driver = SingleShot::new(driver.into_registers(), CONFIG);
    assert!(data(&mut driver).iter().all(|word| *word == 0));
    let refused = Err(RequestError::Refused(Status::NO_KEY));
    assert_eq!(run(&mut driver, &ecb(&[0; 16])), refused);
}

/// The registers of a driver that is done with them.
trait IntoRegisters {
    fn into_registers(self) -> Registers;
}

impl IntoRegisters for Shots {
    fn into_registers(mut self) -> Registers {
        let registers = Registers::new(Faults::default(), 1);
        std::mem::replace(self.transport_mut(), registers)
    }
}

#[test]
fn requests_that_do_not_fit_are_not_submitted() {
    let mut driver = with_keys(Faults::default(), 1);
    let most = SHOT_MAX as usize;
    let data = vec![0; most + 16];
    let gcm = |len: usize| Request::Encrypt {
        message: Message {
            algorithm: Algorithm::AES,
            mode: Mode::GCM,
            slot: 0,
            iv: &[1; 12],
            aad: &[],
            data: &data[..len],
        },
        tag_length: 16,
    };
    // With the vector, or with the tag, it is one byte too long.
    for (request, fits) in [
        (ecb(&data[..most]), true),
        (ecb(&data[..most + 16]), false),
        (ecb(&[]), false),
        (gcm(most - 16), true),
        (gcm(most - 15), false),
        (gcm(most - 12), false),
    ] {
        let submitted = driver.submit(&request, at(0));
        assert_eq!(submitted.err(), (!fits).then_some(SubmitError::Length));
        if fits {
            let second = driver.submit(&request, at(0));
            assert_eq!(second, Err(SubmitError::Full));
            finish(&mut driver, &mut 0).unwrap();
        }
    }
    assert_eq!(driver.failure(), None);
}

/// A device's registers with some that read otherwise.
struct Altered(Registers, Vec<(Register, u32)>);

impl Transport for Altered {
    fn read_register(&mut self, register: Register) -> u32 {
        let altered = self.1.iter().find(|(altered, _)| *altered == register);
        altered.map_or_else(|| self.0.read_register(register), |(_, value)| *value)
    }

    fn write_register(&mut self, register: Register, value: u32) {
        self.0.write_register(register, value);
    }

    fn memory(&self) -> (u64, usize) {
        self.0.memory()
    }

    fn read_memory(&mut self, offset: usize, into: &mut [u8]) -> bool {
        self.0.read_memory(offset, into)
    }

    fn write_memory(&mut self, offset: usize, bytes: &[u8]) -> bool {
        self.0.write_memory(offset, bytes)
    }
}

#[test]
fn what_is_no_such_device_is_not_used() {
    let stale = shot::status(Status::OK.0, 7);
    let echo = Failure::Echo {
        expected: 0,
        found: 7,
    };
    let identity = Failure::Identity {
        register: "ID",
        value: 1,
    };
    for (register, value, expected) in [
        (Register::ID, u32::MAX, Failure::NoDevice),
        (Register::ID, 1, identity),
        (Register::CAPABILITIES, u32::MAX, Failure::NoDevice),
        (
            Register::CAPABILITIES,
            !capabilities::SINGLE_SHOT,
            Failure::NoSingleShot,
        ),
        (Register::SHOT_STATUS, u32::MAX, Failure::NoDevice),
        (Register::SHOT_STATUS, stale, echo),
    ] {
        let registers = Registers::new(Faults::default(), 1);
        let mut driver = SingleShot::new(Altered(registers, vec![(register, value)]), CONFIG);
        assert_eq!(driver.failure(), Some(expected), "{register:?}");
        let refused = driver.submit(&ecb(&[0; 16]), at(0));
        assert_eq!(refused, Err(SubmitError::Failed(expected)));
    }
}

fn some_faults(random: &mut Random) -> Faults {
    let mut faults = Faults::default();
    for chance in [&mut faults.slow, &mut faults.stale] {
        if random.chance(400) {
            *chance = random.below(500);
        }
    }
    for chance in [
        &mut faults.lost,
        &mut faults.claim_undone,
        &mut faults.lie,
        &mut faults.die,
        &mut faults.vanish,
    ] {
        if random.chance(120) {
            *chance = 30 + random.below(150);
        }
    }
    if random.chance(300) {
        faults.lie_about_tag = 100 + random.below(300);
    }
    faults
}

#[derive(Debug, Default)]
struct Tally {
    right: u64,
    unauthentic: u64,
    falsified: u64,
    failed: u64,
}

fn play(seed: u64, tally: &mut Tally) {
    let mut random = Random(seed);
    let faults = some_faults(&mut random);
    let mut driver = with_keys(faults, seed ^ 0x5eed);
    let mut reference = reference();
    let mut tick = 0;
    for _ in 0..20 {
        let planned = plan(&mut random, &mut reference);
        if let Err(error) = driver.submit(&planned.request(), at(tick)) {
            assert!(matches!(error, SubmitError::Failed(_)), "seed {seed}");
            assert!(driver.transport_mut().broken, "seed {seed}: {error}");
            tally.failed += 1;
            continue;
        }
        let result = finish(&mut driver, &mut tick);
        check(seed, &mut driver, &planned, result, tally);
    }
}

fn check(seed: u64, driver: &mut Shots, planned: &Planned, result: Outcome, tally: &mut Tally) {
    let device = driver.transport_mut();
    let (falsified, broken) = (device.falsified, device.broken);
    assert!(
        !device.lied || matches!(result, Err(RequestError::Failed(_))),
        "seed {seed}: {result:?}"
    );
    match result {
        Ok(bytes) if falsified => {
            // Only a sealed message or a tag can come out: its receiver notices.
            assert!(!planned.decrypt, "seed {seed}: opened with a false tag");
            assert_ne!(Some(bytes), planned.answer, "seed {seed}");
            tally.falsified += 1;
        }
        Ok(bytes) => {
            assert_eq!(Some(bytes), planned.answer, "seed {seed}: {planned:?}");
            tally.right += 1;
        }
        Err(RequestError::Authentication) => {
            assert!(falsified || planned.answer.is_none(), "seed {seed}");
            tally.unauthentic += 1;
        }
        Err(RequestError::Failed(failure)) => {
            assert!(broken, "seed {seed}: {failure} without a reason");
            assert_eq!(driver.failure(), Some(failure));
            tally.failed += 1;
        }
        Err(other) => panic!("seed {seed}: {other:?}"),
    }
}

fn play_all(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let mut tally = Tally::default();
    seeds.for_each(|seed| play(seed, &mut tally));
    assert!(
        tally.right > 5 * count && tally.failed > count / 2,
        "{tally:?}"
    );
    assert!(
        tally.unauthentic > count / 10 && tally.falsified > count / 10,
        "{tally:?}"
    );
}

#[test]
fn every_single_shot_ends_and_no_wrong_byte_comes_out() {
    play_all(0..400);
}

#[test]
#[ignore = "minutes: 100000 seeds"]
fn every_single_shot_ends_and_no_wrong_byte_comes_out_100000() {
    play_all(1_000_000..1_100_000);
}
