//! The choice, and what is known about the device.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::break_even::{BreakEven, Cost, SIZES};
use crate::device::{Device, DeviceError, DeviceKey, Request};
use crate::operation::Operation;
use crate::settings::{Selection, Settings};
use crate::software::SoftwareKey;

const OPERATIONS: usize = Operation::ALL.len();
/// A size that no message has: the device is not taken.
const NEVER: usize = usize::MAX;
/// Bytes of the keys with which a device is measured: all operations have such keys.
const MEASURED_KEY: usize = 16;
/// Computations of which the quickest counts when a cost is measured: others were interrupted.
const REPETITIONS: u32 = 3;

/// The reason for which a device is used no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Quarantine {
    /// The device or its driver failed; a missed deadline is among these.
    #[error("{0}")]
    Failed(String),
    /// The device computed another tag than the one that is right for the message.
    #[error("{}: a wrong tag", .0.name())]
    Tag(Operation),
    /// A second computation gave another result.
    #[error("{}: another result than software's", .0.name())]
    Result(Operation),
    /// A result had a wrong length.
    #[error("{}: a result of {found} bytes, expected {expected}", .operation.name())]
    Length {
        /// The operation.
        operation: Operation,
        /// Bytes that it should have had.
        expected: usize,
        /// Bytes that it had.
        found: usize,
    },
}

/// Numbers for whoever watches a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that the device did.
    pub device: u64,
    /// Requests that went to software because the device was busy.
    pub busy: u64,
    /// Requests that software did again after the device had failed at them.
    pub repeated: u64,
    /// Results of the device that were computed a second time.
    pub checked: u64,
}

struct State {
    selection: Selection,
    tables: [BreakEven; OPERATIONS],
    quarantine: Option<Quarantine>,
}

/// The result of a look at the device.
pub(crate) enum Outcome {
    /// The device has done it: the result, of the right length.
    Done(Zeroizing<Vec<u8>>),
    /// Software has to do it.
    Software,
    /// Software has to do it, and the device is wrong if the tag turns out to be right.
    WrongTag,
}

/// Chooses for all streams of a process.
pub struct Policy {
    settings: Settings,
    device: Option<Arc<dyn Device>>,
    /// The least size that goes to the device, for each operation. All that a message costs which
    /// stays with software is a look at one of these.
    from: [AtomicUsize; OPERATIONS],
    state: Mutex<State>,
    under_way: AtomicUsize,
    congested: AtomicBool,
    random: AtomicU64,
    device_count: AtomicU64,
    busy_count: AtomicU64,
    repeated_count: AtomicU64,
    checked_count: AtomicU64,
}

/// A request at the device.
struct UnderWay<'a>(&'a Policy);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let left = self.0.under_way.fetch_sub(1, Ordering::Relaxed) - 1;
        if left <= self.0.settings.queue_free {
            self.0.congested.store(false, Ordering::Relaxed);
        }
    }
}

impl Policy {
    /// A policy over a device, measured at once where the selection wants it.
    pub fn new(device: Option<Arc<dyn Device>>, settings: Settings) -> Arc<Self> {
        let mut seed = [0; 8];
        // Without random bytes the sample can be foreseen, which is better than no sample.
        let _ = aws_lc_rs::rand::fill(&mut seed);
        let policy = Self {
            settings,
            device,
            from: std::array::from_fn(|_| AtomicUsize::new(NEVER)),
            state: Mutex::new(State {
                selection: settings.selection,
                tables: std::array::from_fn(|_| BreakEven::new()),
                quarantine: None,
            }),
            under_way: AtomicUsize::new(0),
            congested: AtomicBool::new(false),
            random: AtomicU64::new(u64::from_le_bytes(seed)),
            device_count: AtomicU64::new(0),
            busy_count: AtomicU64::new(0),
            repeated_count: AtomicU64::new(0),
            checked_count: AtomicU64::new(0),
        };
        if settings.selection == Selection::Measured {
            policy.measure();
        }
        policy.publish(&policy.state());
        Arc::new(policy)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What it guards is consistent after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the sizes from which the device is taken.
    fn publish(&self, state: &State) {
        let tables = Operation::ALL.into_iter().zip(&state.tables);
        for (from, (operation, table)) in self.from.iter().zip(tables) {
            let size = match state.selection {
                _ if state.quarantine.is_some() || self.device.is_none() => NEVER,
                Selection::Software => NEVER,
                // One operation of RSA is worth more than any message of a cipher.
                Selection::From(_) if operation == Operation::RsaPrivate => 0,
                Selection::From(size) => size,
                Selection::Measured => table.from().unwrap_or(NEVER),
            };
            from.store(size, Ordering::Relaxed);
        }
    }

    /// Chooses another way from the next message on. The costs that were measured stay.
    pub fn select(&self, selection: Selection) {
        let mut state = self.state();
        state.selection = selection;
        self.publish(&state);
    }

    /// The device, if there is one.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// The reason for which the device is used no more; none while it is in use.
    pub fn quarantine(&self) -> Option<Quarantine> {
        self.state().quarantine.clone()
    }

    /// The least size that goes to the device; none if no message does.
    pub fn break_even(&self, operation: Operation) -> Option<usize> {
        let from = self.from.get(operation.index())?.load(Ordering::Relaxed);
        (from != NEVER).then_some(from)
    }

    /// What was measured for an operation, by size.
    pub fn costs(&self, operation: Operation) -> [Cost; SIZES.len()] {
        let state = self.state();
        let table = state.tables.get(operation.index());
        table.map_or_else(|| BreakEven::new().costs(), BreakEven::costs)
    }

    /// Counts since the start.
    pub fn counters(&self) -> Counters {
        Counters {
            device: self.device_count.load(Ordering::Relaxed),
            busy: self.busy_count.load(Ordering::Relaxed),
            repeated: self.repeated_count.load(Ordering::Relaxed),
            checked: self.checked_count.load(Ordering::Relaxed),
        }
    }

    /// A key for the device; none if it does not have the operation.
    pub(crate) fn device_key(&self, operation: Operation, key: &[u8]) -> Option<DeviceKey> {
        let device = self.device.as_ref()?;
        let supported = device.supports(operation, key.len());
        supported.then(|| DeviceKey::new(Arc::clone(device), key))
    }

    /// The least size of a message that should be offered to the device, as it is now: one relaxed load, with
    /// which a whole batch can be decided.
    #[inline]
    pub(crate) fn from(&self, operation: Operation) -> usize {
        let from = self.from.get(operation.index());
        from.map_or(NEVER, |from| from.load(Ordering::Relaxed))
    }

    pub(crate) fn set_aside(&self, reason: Quarantine) {
        let mut state = self.state();
        // The first reason is the cause of what follows.
        let reason = state.quarantine.get_or_insert(reason).clone();
        self.publish(&state);
        drop(state);
        if let Some(device) = &self.device {
            device.quarantined(&reason);
        }
    }

    fn enter(&self) -> Option<UnderWay<'_>> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let entered = UnderWay(self);
        if before >= self.settings.queue_full.max(1) {
            self.congested.store(true, Ordering::Relaxed);
            return None;
        }
        (before == 0 || !self.congested.load(Ordering::Relaxed)).then_some(entered)
    }

    /// Offers a request to the device. Nothing of the caller's is changed.
    #[cold]
    pub(crate) fn offer(&self, request: &Request<'_>, software: &SoftwareKey) -> Outcome {
        self.offer_checked(request, false, |bytes| agrees(request, software, bytes))
    }

    /// The same with another way to check a result: a sample of them, or each.
    #[cold]
    pub(crate) fn offer_checked(
        &self,
        request: &Request<'_>,
        each: bool,
        right: impl FnOnce(&[u8]) -> bool,
    ) -> Outcome {
        let Some(device) = &self.device else {
            return Outcome::Software;
        };
        let len = request.data.len();
        let fits = len
            .checked_add(request.aad.len())
            .is_some_and(|total| total <= device.max_len());
        if len == 0 || !fits || self.state().quarantine.is_some() {
            return Outcome::Software;
        }
        let Some(entered) = self.enter() else {
            self.busy_count.fetch_add(1, Ordering::Relaxed);
            return Outcome::Software;
        };
        let alone = self.under_way.load(Ordering::Relaxed) == 1;
        let started = Instant::now();
        let result = device.run(request);
        let took = started.elapsed();
        drop(entered);
        let operation = request.operation;
        let reason = match result {
            Ok(bytes) => match self.accept(request, each, right, bytes) {
                Ok(bytes) => {
                    self.device_count.fetch_add(1, Ordering::Relaxed);
                    if alone {
                        self.observe(operation, len, took);
                    }
                    return Outcome::Done(bytes);
                }
                Err(reason) => reason,
            },
            Err(DeviceError::Busy) => {
                self.busy_count.fetch_add(1, Ordering::Relaxed);
                return Outcome::Software;
            }
            Err(DeviceError::Tag) if operation == Operation::GcmOpen => {
                self.repeated_count.fetch_add(1, Ordering::Relaxed);
                return Outcome::WrongTag;
            }
            Err(DeviceError::Tag) => Quarantine::Tag(operation),
            Err(DeviceError::Failed(error)) => Quarantine::Failed(error.to_string()),
        };
        self.repeated_count.fetch_add(1, Ordering::Relaxed);
        self.set_aside(reason);
        Outcome::Software
    }

    /// Holds a result against its length and, as a sample, against a second computation.
    fn accept(
        &self,
        request: &Request<'_>,
        each: bool,
        right: impl FnOnce(&[u8]) -> bool,
        bytes: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, Quarantine> {
        let operation = request.operation;
        let (expected, found) = (operation.result_len(request.data.len()), bytes.len());
        if expected != found {
            return Err(Quarantine::Length {
                operation,
                expected,
                found,
            });
        }
        // Drawn only now: the device cannot know which of its results will be looked at.
        if each || self.draws() {
            self.checked_count.fetch_add(1, Ordering::Relaxed);
            if !right(&bytes) {
                return Err(Quarantine::Result(operation));
            }
        }
        Ok(bytes)
    }

    /// True while nothing is known about the cost of an operation that is measured with its first key.
    pub(crate) fn measures(&self, operation: Operation) -> bool {
        let state = self.state();
        let table = state.tables.get(operation.index());
        state.selection == Selection::Measured
            && state.quarantine.is_none()
            && table.is_some_and(|table| table.costs().iter().all(|cost| cost.device.is_none()))
    }

    /// Takes over what an operation costs that has one size only.
    pub(crate) fn measured(&self, operation: Operation, software: Duration, device: Duration) {
        let mut state = self.state();
        if let Some(table) = state.tables.get_mut(operation.index()) {
            (0..SIZES.len()).for_each(|index| table.measured(index, software, device));
        }
        self.publish(&state);
    }

    /// True for one call in so many as the settings say.
    fn draws(&self) -> bool {
        // The increment of SplitMix64 walks through all numbers, its mixing makes them look random.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        if self.settings.check_one_in == 0 {
            return false;
        }
        let mut z = self.random.fetch_add(STEP, Ordering::Relaxed);
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31).is_multiple_of(u64::from(self.settings.check_one_in))
    }

    fn observe(&self, operation: Operation, len: usize, took: Duration) {
        let mut state = self.state();
        if state.selection != Selection::Measured {
            return;
        }
        if let Some(table) = state.tables.get_mut(operation.index()) {
            table.observe(len, took);
        }
        self.publish(&state);
    }

    /// Measures what device and software cost, and chooses by that.
    ///
    /// Takes no longer than the settings allow, and the request that is then under way. Sizes that
    /// were not reached count as slower with the device. Other threads may go on meanwhile, and make
    /// the figures worse.
    pub fn measure(&self) {
        let Some(device) = &self.device else { return };
        let end = Instant::now() + self.settings.measuring;
        let data = vec![0x5a; SIZES.iter().copied().max().unwrap_or(0)];
        let mut key = [0; MEASURED_KEY];
        let _ = aws_lc_rs::rand::fill(&mut key);
        let keys: Vec<_> = Operation::MESSAGES
            .into_iter()
            .filter_map(|operation| {
                let on_device = self.device_key(operation, &key)?;
                Some((operation, SoftwareKey::new(operation, &key)?, on_device))
            })
            .collect();
        for (index, size) in SIZES.into_iter().enumerate() {
            for (operation, software, key) in &keys {
                let Some(data) = data.get(..size).filter(|_| size <= device.max_len()) else {
                    continue;
                };
                if Instant::now() >= end || self.quarantine().is_some() {
                    return;
                }
                self.measure_one(index, *operation, software, key, data, end);
            }
        }
    }

    fn measure_one(
        &self,
        index: usize,
        operation: Operation,
        software: &SoftwareKey,
        key: &DeviceKey,
        data: &[u8],
        end: Instant,
    ) {
        let iv = [0x1f; 16];
        let iv = match operation {
            Operation::GcmSeal | Operation::GcmOpen => iv.get(..12),
            Operation::HmacSha1 | Operation::HmacSha256 => Some(&[][..]),
            _ => Some(&iv[..]),
        };
        let (Some(iv), Some(device)) = (iv, &self.device) else {
            return;
        };
        let mut request = Request {
            operation,
            key,
            iv,
            aad: &[],
            data,
            tag: &[],
        };
        // A message to open is one that was sealed before.
        let sealed;
        if operation == Operation::GcmOpen {
            let seal = Request {
                operation: Operation::GcmSeal,
                ..request
            };
            let Some(bytes) = software.result(&seal) else {
                return;
            };
            sealed = bytes;
            let Some((data, tag)) = sealed.split_at_checked(data.len()) else {
                return;
            };
            request = Request {
                data,
                tag,
                ..request
            };
        }
        let mut best = (Duration::MAX, Duration::MAX);
        for round in 0..REPETITIONS {
            if round > 0 && Instant::now() >= end {
                break;
            }
            let started = Instant::now();
            let expected = software.result(&request);
            best.0 = best.0.min(started.elapsed());
            let started = Instant::now();
            let result = device.run(&request);
            best.1 = best.1.min(started.elapsed());
            match (result, expected) {
                (Ok(bytes), Some(expected)) if bool::from(bytes.ct_eq(&expected)) => {}
                (Ok(_), _) => return self.set_aside(Quarantine::Result(operation)),
                (Err(DeviceError::Busy), _) => return,
                (Err(DeviceError::Tag), _) => return self.set_aside(Quarantine::Tag(operation)),
                (Err(DeviceError::Failed(error)), _) => {
                    return self.set_aside(Quarantine::Failed(error.to_string()));
                }
            }
        }
        let mut state = self.state();
        if let Some(table) = state.tables.get_mut(operation.index()) {
            table.measured(index, best.0, best.1);
        }
        self.publish(&state);
    }
}

/// Compares a device's result with software's.
fn agrees(request: &Request<'_>, software: &SoftwareKey, bytes: &[u8]) -> bool {
    software
        .result(request)
        .is_some_and(|expected| bool::from(expected.ct_eq(bytes)))
}
