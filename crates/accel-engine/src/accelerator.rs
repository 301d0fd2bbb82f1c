//! A driver with a clock and a lock, for several threads.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use accel_abi::register::capabilities;
use accel_abi::{AAD_MAX, Algorithm, KEY_SLOTS, Mode, Register, SHOT_MAX};
use accel_driver::{
    Completed, Config, Driver, Failure, Message, Output, Request, RequestError, ShotConfig,
    SingleShot, Statistics, SubmitError, Ticket, Timestamp, Transport,
};
use offload_policy::{Device, DeviceError, DeviceKey, Operation};
use zeroize::Zeroizing;

/// Most bytes of a message and its associated data in a single shot, beside vector and tag.
const SHOT_LEN: usize = SHOT_MAX as usize - 64;

/// A way to a device on which a thread can wait.
pub trait Bus: Transport + Send {
    /// Waits for an interrupt, at most so long; true if one came.
    fn wait(&mut self, at_most: Duration) -> bool;
}

/// Numbers for whoever watches an accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests that the device did, those for keys left out.
    pub requests: u64,
    /// Keys put into a slot.
    pub key_loads: u64,
    /// Cycles that the device says its cores took for these requests, those for keys left out.
    pub cycles: u64,
}

impl Usage {
    /// Counts a request, and gives its result.
    fn done(&mut self, output: Output) -> Zeroizing<Vec<u8>> {
        self.requests += 1;
        self.cycles += output.cycles;
        output.bytes
    }
}

/// A key in a slot of the device.
#[derive(Clone, Copy)]
struct Loaded {
    id: u64,
    algorithm: Algorithm,
    /// Number of the request that used it last.
    used: u64,
}

/// The driver: by the ring, or without it.
enum Driving<B: Bus> {
    Ring(Box<Driver<B>>),
    SingleShot(Box<SingleShot<B>>),
}

struct State<B: Bus> {
    driver: Driving<B>,
    slots: [Option<Loaded>; KEY_SLOTS as usize],
    usage: Usage,
    requests: u64,
}

/// An accelerator that does one request at a time.
pub struct Accelerator<B: Bus> {
    name: &'static str,
    capabilities: u32,
    max_len: usize,
    started: Instant,
    state: Mutex<State<B>>,
}

impl<B: Bus> Accelerator<B> {
    /// Starts the driver; none if its settings are out of bounds or do not fit the memory.
    ///
    /// A device that does not answer has failed already: [`Self::failure`].
    pub fn new(name: &'static str, mut bus: B, config: Config) -> Option<Self> {
        let started = Instant::now();
        let capabilities = capabilities(&mut bus);
        let driver = Driver::new(bus, config, Timestamp::default())?;
        let driver = Driving::Ring(Box::new(driver));
        let max_len = config.buffer / 16 * 16;
        Some(Self::with(name, capabilities, max_len, started, driver))
    }

    /// Starts the driver without descriptors, for messages of at most 960 bytes; keys of RSA with more than 2048 bits stay
    /// with software.
    ///
    /// A device that does not answer, or has no single shots, has failed already: [`Self::failure`].
    pub fn single_shot(name: &'static str, mut bus: B, config: ShotConfig) -> Self {
        let started = Instant::now();
        let capabilities = capabilities(&mut bus);
        let driver = SingleShot::new(bus, config);
        let driver = Driving::SingleShot(Box::new(driver));
        Self::with(name, capabilities, SHOT_LEN, started, driver)
    }

    fn with(
        name: &'static str,
        capabilities: u32,
        max_len: usize,
        started: Instant,
        driver: Driving<B>,
    ) -> Self {
        Self {
            name,
            capabilities,
            max_len,
            started,
            state: Mutex::new(State {
                driver,
                slots: [None; KEY_SLOTS as usize],
                usage: Usage::default(),
                requests: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        // A driver whose user panicked is complete: it has its own record of what is under way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts since the start.
    pub fn usage(&self) -> Usage {
        self.state().usage
    }

    /// The driver's counts, requests for keys included.
    pub fn statistics(&self) -> Statistics {
        match &self.state().driver {
            Driving::Ring(driver) => driver.statistics(),
            Driving::SingleShot(driver) => Statistics {
                completed: driver.completed(),
                ..Statistics::default()
            },
        }
    }

    /// The reason for which the driver has given the device up.
    pub fn failure(&self) -> Option<Failure> {
        match &self.state().driver {
            Driving::Ring(driver) => driver.failure(),
            Driving::SingleShot(driver) => driver.failure(),
        }
    }

    /// Lets a caller look at the bus between two requests.
    pub fn with_bus<R>(&self, look: impl FnOnce(&mut B) -> R) -> R {
        look(match &mut self.state().driver {
            Driving::Ring(driver) => driver.transport_mut(),
            Driving::SingleShot(driver) => driver.transport_mut(),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::new(self.started.elapsed())
    }

    /// Submits a request and waits for its end, which the driver's deadline bounds.
    fn complete(&self, state: &mut State<B>, request: &Request<'_>) -> Result<Output, DeviceError> {
        match &mut state.driver {
            Driving::Ring(driver) => self.by_ring(driver, request),
            Driving::SingleShot(driver) => self.by_single_shot(driver, request),
        }
    }

    fn by_ring(
        &self,
        driver: &mut Driver<B>,
        request: &Request<'_>,
    ) -> Result<Output, DeviceError> {
        let ticket = driver.submit(request, self.now()).map_err(not_submitted)?;
        self.await_ticket(driver, ticket)
    }

    /// Waits for the end of a request, which the driver's deadline bounds. Results of others before it are dropped: of
    /// callers that panicked.
    fn await_ticket(&self, driver: &mut Driver<B>, ticket: Ticket) -> Result<Output, DeviceError> {
        loop {
            while let Some(Completed { ticket: of, result }) = driver.poll_completion() {
                if of == ticket {
                    return result.map_err(not_done);
                }
            }
            let now = self.now();
            let until = driver.poll_timeout().unwrap_or(now);
            let interrupt = driver.transport_mut().wait(until.since(now));
            let now = self.now();
            if interrupt {
                driver.handle_interrupt(now);
            } else {
                driver.handle_timeout(now);
            }
        }
    }

    /// Keeps the ring full until all requests have ended; the results, in their order.
    fn all_by_ring(
        &self,
        driver: &mut Driver<B>,
        requests: &[Request<'_>],
    ) -> Vec<Result<Output, DeviceError>> {
        let mut results = Vec::with_capacity(requests.len());
        let mut under_way = VecDeque::new();
        let mut waiting = requests.iter().peekable();
        loop {
            while let Some(request) = waiting.peek() {
                match driver.submit(request, self.now()) {
                    Ok(ticket) => under_way.push_back(Ok(ticket)),
                    Err(SubmitError::Full) if !under_way.is_empty() => break,
                    Err(error) => under_way.push_back(Err(not_submitted(error))),
                }
                waiting.next();
            }
            match under_way.pop_front() {
                Some(Ok(ticket)) => results.push(self.await_ticket(driver, ticket)),
                Some(Err(error)) => results.push(Err(error)),
                None => return results,
            }
        }
    }

    fn by_single_shot(
        &self,
        driver: &mut SingleShot<B>,
        request: &Request<'_>,
    ) -> Result<Output, DeviceError> {
        driver.submit(request, self.now()).map_err(not_submitted)?;
        loop {
            if let Some(result) = driver.poll(self.now()) {
                return result.map_err(not_done);
            }
            let now = self.now();
            let until = driver.poll_timeout().unwrap_or(now);
            // There is no interrupt for it; one of the ring's is none of this driver's.
            let _ = driver.transport_mut().wait(until.since(now));
        }
    }

    /// Slot of a key, which is loaded if the device does not have it.
    fn slot(
        &self,
        state: &mut State<B>,
        key: &DeviceKey,
        algorithm: Algorithm,
    ) -> Result<u8, DeviceError> {
        state.requests += 1;
        let used = state.requests;
        let loaded = Loaded {
            id: key.id(),
            algorithm,
            used,
        };
        let slots = (0..KEY_SLOTS).zip(&mut state.slots);
        let same = |slot: &Loaded| (slot.id, slot.algorithm) == (key.id(), algorithm);
        let mut oldest = (u64::MAX, 0);
        for (slot, place) in slots {
            if place.as_ref().is_some_and(same) {
                *place = Some(loaded);
                return Ok(slot);
            }
            let last = place.map_or(0, |place| place.used);
            oldest = oldest.min((last, slot));
        }
        let (_, slot) = oldest;
        // Until the device has the key, the slot holds nobody's.
        if let Some(place) = state.slots.get_mut(usize::from(slot)) {
            *place = None;
        }
        let request = Request::LoadKey {
            slot,
            algorithm,
            key: key.bytes(),
        };
        self.complete(state, &request)?;
        state.usage.key_loads += 1;
        if let Some(place) = state.slots.get_mut(usize::from(slot)) {
            *place = Some(loaded);
        }
        Ok(slot)
    }
}

fn not_submitted(error: SubmitError) -> DeviceError {
    match error {
        SubmitError::Full => DeviceError::Busy,
        error => DeviceError::Failed(Box::new(error)),
    }
}

fn not_done(error: RequestError) -> DeviceError {
    match error {
        RequestError::Authentication => DeviceError::Tag,
        error => DeviceError::Failed(Box::new(error)),
    }
}

/// Cores of a device. Whoever supports nothing is never asked; all ones mean that no device answers.
fn capabilities(bus: &mut impl Bus) -> u32 {
    match bus.read_register(Register::CAPABILITIES) {
        u32::MAX => 0,
        bits => bits,
    }
}

fn algorithm(operation: Operation) -> Algorithm {
    match operation {
        Operation::HmacSha1 => Algorithm::HMAC_SHA_1,
        Operation::HmacSha256 => Algorithm::HMAC_SHA_256,
        Operation::RsaPrivate => Algorithm::RSA,
        _ => Algorithm::AES,
    }
}

/// Says whether a device with these cores ([`Register::CAPABILITIES`]) has an operation with a key of `key_len` bytes.
pub fn supports(cores: u32, operation: Operation, key_len: usize) -> bool {
    let algorithm = algorithm(operation);
    let core = match algorithm {
        Algorithm::AES => capabilities::AES,
        Algorithm::RSA => capabilities::MODULAR,
        _ => capabilities::HMAC,
    };
    cores & core != 0 && algorithm.takes_key(key_len)
}

/// A request in the driver's terms, with its key in a slot.
fn translated<'a>(request: &offload_policy::Request<'a>, slot: u8) -> Request<'a> {
    let algorithm = algorithm(request.operation);
    let message = |mode| Message {
        algorithm,
        mode,
        slot,
        iv: request.iv,
        aad: request.aad,
        data: request.data,
    };
    let encrypt = |mode, tag_length| Request::Encrypt {
        message: message(mode),
        tag_length,
    };
    let decrypt = |mode, tag| Request::Decrypt {
        message: message(mode),
        tag,
    };
    let authenticate = |tag_length| Request::Authenticate {
        slot,
        algorithm,
        data: request.data,
        tag_length,
    };
    match request.operation {
        Operation::GcmSeal => encrypt(Mode::GCM, 16),
        Operation::GcmOpen => decrypt(Mode::GCM, request.tag),
        Operation::CbcEncrypt => encrypt(Mode::CBC, 0),
        Operation::CbcDecrypt => decrypt(Mode::CBC, &[]),
        Operation::Ctr => encrypt(Mode::CTR, 0),
        Operation::HmacSha1 => authenticate(20),
        Operation::HmacSha256 => authenticate(32),
        Operation::RsaPrivate => Request::RsaPrivate {
            slot,
            input: request.data,
        },
    }
}

impl<B: Bus> Device for Accelerator<B> {
    fn name(&self) -> &str {
        self.name
    }

    fn supports(&self, operation: Operation, key_len: usize) -> bool {
        supports(self.capabilities, operation, key_len) && key_len <= self.max_len
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn run(
        &self,
        request: &offload_policy::Request<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        if request.aad.len() > AAD_MAX as usize {
            // A bound of the device's, and no fault of it.
            return Err(DeviceError::Busy);
        }
        let mut state = self.state();
        let state = &mut *state;
        let slot = self.slot(state, request.key, algorithm(request.operation))?;
        let output = self.complete(state, &translated(request, slot))?;
        Ok(state.usage.done(output))
    }

    fn run_batch(
        &self,
        requests: &[offload_policy::Request<'_>],
    ) -> Vec<Result<Zeroizing<Vec<u8>>, DeviceError>> {
        let one_by_one = || requests.iter().map(|request| self.run(request)).collect();
        let Some(first) = requests.first() else {
            return Vec::new();
        };
        // One slot for all: another key could displace it while they are under way.
        let alike = |one: &offload_policy::Request<'_>| {
            one.key.id() == first.key.id()
                && one.operation == first.operation
                && one.aad.len() <= AAD_MAX as usize
        };
        if requests.len() == 1 || !requests.iter().all(alike) {
            return one_by_one();
        }
        let mut guard = self.state();
        let state = &mut *guard;
        if matches!(state.driver, Driving::SingleShot(_)) {
            drop(guard);
            return one_by_one();
        }
        let slot = match self.slot(state, first.key, algorithm(first.operation)) {
            Ok(slot) => slot,
            Err(error) => {
                let mut results = vec![Err(error)];
                // The reason is the first one's; no other was begun.
                results.resize_with(requests.len(), || Err(DeviceError::Busy));
                return results;
            }
        };
        let translated: Vec<_> = requests.iter().map(|one| translated(one, slot)).collect();
        let results = match &mut state.driver {
            Driving::Ring(driver) => self.all_by_ring(driver, &translated),
            Driving::SingleShot(_) => Vec::new(),
        };
        let done = |result: Result<Output, _>| result.map(|output| state.usage.done(output));
        results.into_iter().map(done).collect()
    }

    fn forget(&self, id: u64) {
        let mut state = self.state();
        let state = &mut *state;
        for slot in 0..KEY_SLOTS {
            let Some(place) = state.slots.get_mut(usize::from(slot)) else {
                continue;
            };
            if place.is_some_and(|loaded| loaded.id == id) {
                *place = None;
                // A driver that has failed has reset its device, which overwrites all keys.
                let _ = self.complete(state, &Request::ZeroiseKey { slot });
            }
        }
    }
}
