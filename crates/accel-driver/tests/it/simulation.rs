//! Random requests over a bus with faults: every request ends, and what is handed out is right.

use std::time::Duration;

use accel_abi::{Algorithm, Mode, Status};
use accel_driver::{
    Completed, Completion, Config, Driver, Message, Request, RequestError, Statistics, SubmitError,
    Timestamp,
};
use accel_simulation::cores::{Engine, Job};

use crate::world::{Faults, Random, World, engine};

pub(crate) const BUFFER: usize = 256;
/// Ticks after which a simulation counts as hanging: deadlines are 1000 ticks, and a failed driver
/// ends everything at once.
const TICKS_MAX: u64 = 20_000;

pub(crate) fn config(ring_size: u32, completion: Completion) -> Config {
    Config {
        ring_size,
        buffer: BUFFER,
        completion,
        deadline: Duration::from_millis(1000),
        watchdog: Duration::from_millis(50),
        poll_interval: Duration::from_millis(2),
        first_sequence: u32::MAX - 3,
    }
}

pub(crate) fn at(tick: u64) -> Timestamp {
    Timestamp::new(Duration::from_millis(tick))
}

/// Registered memory that is enough for every configuration here.
pub(crate) const REGISTERED: usize = 16 * (128 + 128 + 2 * 320);

/// Work that is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cipher,
    Authenticate,
    /// The modulus is in `aad`, the exponent in `iv`.
    Power,
}

/// A message with its own bytes.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) kind: Kind,
    pub(crate) decrypt: bool,
    pub(crate) algorithm: Algorithm,
    pub(crate) mode: Mode,
    pub(crate) slot: u8,
    pub(crate) iv: Vec<u8>,
    pub(crate) aad: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) tag: Vec<u8>,
    /// The right answer; none if the tag is wrong on purpose.
    pub(crate) answer: Option<Vec<u8>>,
}

pub(crate) const KEYS: [(Algorithm, usize); 4] = [
    (Algorithm::AES, 16),
    (Algorithm::AES, 32),
    (Algorithm::IBC_192, 24),
    (Algorithm::HMAC_SHA_256, 20),
];

pub(crate) fn key(slot: u8, length: usize) -> Vec<u8> {
    (0..length as u8)
        .map(|n| n.wrapping_mul(29) ^ slot)
        .collect()
}

/// An engine with the keys that every simulation uses.
pub(crate) fn reference() -> Engine {
    let mut engine = engine();
    for (slot, (algorithm, length)) in (0..).zip(KEYS) {
        engine
            .load_key(slot, algorithm, &key(slot, length))
            .unwrap();
    }
    engine
}

pub(crate) fn plan(random: &mut Random, reference: &mut Engine) -> Planned {
    if random.chance(200) {
        return plan_tag_or_power(random, reference);
    }
    let ibc = random.chance(80);
    let mode = if ibc {
        [Mode::ECB, Mode::CBC, Mode::CTR][random.below(3)]
    } else if random.chance(400) {
        [Mode::GCM, Mode::CCM][random.below(2)]
    } else {
        Mode(1 + random.below(8) as u8)
    };
    let sealing = matches!(mode, Mode::GCM | Mode::CCM);
    let slot = if ibc { 2 } else { random.below(2) as u8 };
    let length = match mode {
        Mode::ECB | Mode::CBC => 32 * (1 + random.below(3)),
        Mode::CTS => 17 + random.below(100),
        _ => 1 + random.below(150),
    };
    let iv_length = match mode {
        Mode::ECB => 0,
        _ if sealing => 12,
        _ => 16,
    };
    let aad_length = if sealing { random.below(40) } else { 0 };
    let mut planned = Planned {
        kind: Kind::Cipher,
        decrypt: random.chance(500),
        algorithm: KEYS[usize::from(slot)].0,
        mode,
        slot,
        iv: random.bytes(iv_length),
        aad: random.bytes(aad_length),
        data: random.bytes(length),
        tag: vec![0; if sealing { 16 } else { 0 }],
        answer: None,
    };
    let plain = planned.data.clone();
    let sealed = seal(reference, &planned);
    if planned.decrypt {
        let (data, tag) = sealed.split_at(length);
        planned.data = data.to_vec();
        planned.tag = tag.to_vec();
        planned.answer = Some(plain);
        if sealing && random.chance(100) {
            planned.spoil_tag(random);
        }
    } else {
        planned.answer = Some(sealed);
    }
    planned
}

fn plan_tag_or_power(random: &mut Random, reference: &mut Engine) -> Planned {
    let length = 1 + random.below(100);
    let mut planned = Planned {
        kind: Kind::Authenticate,
        decrypt: random.chance(500),
        algorithm: Algorithm::HMAC_SHA_256,
        mode: Mode(0),
        slot: 3,
        iv: Vec::new(),
        aad: Vec::new(),
        data: random.bytes(length),
        tag: vec![0; 16 + random.below(17)],
        answer: None,
    };
    if random.chance(400) {
        let length = 1 + random.below(48);
        planned.kind = Kind::Power;
        planned.decrypt = false;
        planned.tag = Vec::new();
        let exponent = 1 + random.below(3);
        planned.iv = random.bytes(exponent);
        planned.aad = random.bytes(length);
        planned.aad[0] |= 1;
        planned.aad[length - 1] |= 3;
        planned.data = random.bytes(length);
        // Less than the modulus.
        planned.data[0] = 0;
        planned.data[length - 1] &= if length == 1 { 0 } else { 0xff };
        let result = reference.exponentiate(&planned.aad, &planned.data, &planned.iv);
        planned.answer = Some(result.unwrap().to_vec());
        return planned;
    }
    let length = planned.tag.len();
    let tag = reference.authenticate(planned.algorithm, 3, &planned.data, length);
    let tag = tag.unwrap().to_vec();
    if planned.decrypt {
        planned.tag = tag;
        planned.answer = Some(Vec::new());
        if random.chance(100) {
            planned.spoil_tag(random);
        }
    } else {
        planned.answer = Some(tag);
    }
    planned
}

/// Encrypts with the reference.
fn seal(reference: &mut Engine, planned: &Planned) -> Vec<u8> {
    let job = Job {
        decrypt: false,
        algorithm: planned.algorithm,
        mode: planned.mode,
        slot: planned.slot,
        iv: &planned.iv,
        aad: &planned.aad,
        data: &planned.data,
        tag_length: planned.tag.len(),
    };
    reference.run(&job).unwrap().to_vec()
}

impl Planned {
    /// Two bits: a device that falsifies one cannot make it right again by chance.
    fn spoil_tag(&mut self, random: &mut Random) {
        self.tag[random.below(8)] ^= 1 << random.below(8);
        self.tag[8 + random.below(8)] ^= 1 << random.below(8);
        self.answer = None;
    }

    /// The request of a tag or a power.
    fn other_request(&self) -> Request<'_> {
        let (slot, algorithm, data) = (self.slot, self.algorithm, &self.data);
        match self.kind {
            Kind::Power => Request::Power {
                modulus: &self.aad,
                base: data,
                exponent: &self.iv,
            },
            _ if self.decrypt => Request::VerifyTag {
                slot,
                algorithm,
                data,
                tag: &self.tag,
            },
            _ => Request::Authenticate {
                slot,
                algorithm,
                data,
                tag_length: self.tag.len() as u8,
            },
        }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let message = Message {
            algorithm: self.algorithm,
            mode: self.mode,
            slot: self.slot,
            iv: &self.iv,
            aad: &self.aad,
            data: &self.data,
        };
        if self.kind != Kind::Cipher {
            self.other_request()
        } else if self.decrypt {
            Request::Decrypt {
                message,
                tag: &self.tag,
            }
        } else {
            let tag_length = self.tag.len() as u8;
            Request::Encrypt {
                message,
                tag_length,
            }
        }
    }

    pub(crate) fn submit(
        &self,
        driver: &mut Driver<World>,
        now: Timestamp,
    ) -> Result<(), SubmitError> {
        driver.submit(&self.request(), now).map(drop)
    }
}

fn some_faults(random: &mut Random) -> Faults {
    let mut faults = Faults {
        idle: [0, 300, 900][random.below(3)],
        ..Faults::default()
    };
    if random.chance(700) {
        faults.lost = random.below(400);
        faults.doubled = random.below(400);
        faults.late = random.below(400);
        faults.spurious = random.below(60);
    }
    // Faults that end the device are rare enough for some requests to be done before.
    for chance in [
        &mut faults.descriptor,
        &mut faults.list,
        &mut faults.lie,
        &mut faults.claim_undone,
        &mut faults.die,
        &mut faults.vanish,
    ] {
        if random.chance(120) {
            *chance = 40 + random.below(200);
        }
    }
    if random.chance(250) {
        faults.lie_about_tag = 100 + random.below(300);
    }
    faults
}

/// Totals over simulations, against simulations that prove nothing.
#[derive(Debug, Default)]
struct Tally {
    right: u64,
    unauthentic: u64,
    failed: u64,
    falsified: u64,
    lost: u64,
    missed: u64,
    spurious: u64,
}

/// Plays one seed to its end.
fn play(seed: u64, tally: &mut Tally) {
    let mut random = Random(seed);
    let faults = some_faults(&mut random);
    let ring_size = [2, 4, 16][random.below(3)];
    let adaptive = Completion::Adaptive(Duration::from_millis(5));
    let completion = [Completion::Interrupt, Completion::Polling, adaptive][random.below(3)];
    let world = World::new(REGISTERED, faults, seed ^ 0x5eed);
    let mut driver = Driver::new(world, config(ring_size, completion), at(0)).unwrap();

    let mut reference = reference();
    let count = 3 + random.below(12);
    let plans: Vec<Planned> = (0..count)
        .map(|_| plan(&mut random, &mut reference))
        .collect();
    let (mut submitted, mut ended, mut tick) = (0, 0, 0);
    let total = KEYS.len() + count;
    while ended < total {
        tick += 1;
        assert!(
            tick < TICKS_MAX,
            "seed {seed}: hangs with {ended} of {total} done, {faults:?}"
        );
        let now = at(tick);
        for _ in 0..driver.transport_mut().advance() {
            driver.handle_interrupt(now);
        }
        if driver.poll_timeout().is_some_and(|timeout| timeout <= now) {
            driver.handle_timeout(now);
        }
        while submitted < total {
            let done = match KEYS.get(submitted) {
                Some(&(algorithm, length)) => {
                    let slot = submitted as u8;
                    let key = key(slot, length);
                    let request = Request::LoadKey {
                        slot,
                        algorithm,
                        key: &key,
                    };
                    driver.submit(&request, now).map(drop)
                }
                None => plans[submitted - KEYS.len()].submit(&mut driver, now),
            };
            match done {
                Ok(()) => submitted += 1,
                Err(SubmitError::Full) => break,
                Err(SubmitError::Failed(_)) => {
                    // Nothing is accepted any more: what was not submitted ends here.
                    assert!(
                        driver.transport_mut().broken,
                        "seed {seed}: gave up without a reason"
                    );
                    tally.failed += (total - submitted) as u64;
                    ended += total - submitted;
                    submitted = total;
                }
                Err(SubmitError::Length) => panic!("seed {seed}: refused"),
            }
        }
        while let Some(completed) = driver.poll_completion() {
            assert!(completed.ticket.0 < submitted as u64);
            let plan = (completed.ticket.0 as usize).checked_sub(KEYS.len());
            check(
                seed,
                &mut driver,
                plan.map(|index| &plans[index]),
                &completed,
                tally,
            );
            ended += 1;
        }
    }
    let Statistics {
        missed_interrupts,
        spurious_interrupts,
        ..
    } = driver.statistics();
    tally.missed += missed_interrupts;
    tally.spurious += spurious_interrupts;
    let world = driver.transport_mut();
    tally.lost += world.interrupts_lost;
    assert!(
        world.margins_untouched(),
        "seed {seed}: memory outside of what is registered changed"
    );
}

/// Holds a result against the plan; without one it is a key.
fn check(
    seed: u64,
    driver: &mut Driver<World>,
    plan: Option<&Planned>,
    completed: &Completed,
    tally: &mut Tally,
) {
    let sequence = (completed.ticket.0 as u32).wrapping_add(u32::MAX - 3);
    let world = driver.transport_mut();
    let falsified = world.falsified.contains(&sequence);
    match (&completed.result, plan) {
        (Ok(output), None) => assert!(output.bytes.is_empty()),
        (Ok(output), Some(plan)) if falsified => {
            // Only a sealed message can come out: its receiver notices.
            assert!(!plan.decrypt, "seed {seed}: opened with a false tag");
            assert_ne!(Some(output.bytes.to_vec()), plan.answer);
            tally.falsified += 1;
        }
        (Ok(output), Some(plan)) => {
            assert_eq!(
                Some(output.bytes.to_vec()),
                plan.answer,
                "seed {seed}: {plan:?}"
            );
            tally.right += 1;
        }
        (Err(RequestError::Authentication), Some(plan)) => {
            assert!(falsified || plan.answer.is_none(), "seed {seed}: {plan:?}");
            tally.unauthentic += 1;
        }
        (Err(RequestError::Failed(_)), _) => {
            assert!(world.broken, "seed {seed}: failed without a reason");
            tally.failed += 1;
        }
        (Err(RequestError::Refused(Status::BAD_LENGTH | Status::NO_KEY)), _) => {
            panic!("seed {seed}: {completed:?}")
        }
        (Err(other), _) => panic!("seed {seed}: {other:?}"),
    }
}

fn play_all(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let mut tally = Tally::default();
    for seed in seeds {
        play(seed, &mut tally);
    }
    // Of the order of what was measured: if the faults no longer happen, this notices.
    assert!(tally.right > 4 * count && tally.failed > count, "{tally:?}");
    let rare = [
        tally.unauthentic,
        tally.falsified,
        tally.lost,
        tally.missed,
        tally.spurious,
    ];
    assert!(rare.iter().all(|&n| n > count / 50), "{tally:?}");
}

#[test]
fn every_request_ends_and_no_wrong_byte_comes_out() {
    play_all(0..400);
}

#[test]
#[ignore = "minutes: 100000 seeds"]
fn every_request_ends_and_no_wrong_byte_comes_out_100000() {
    play_all(1_000_000..1_100_000);
}
