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
use crate::trial::Trial;

const OPERATIONS: usize = Operation::ALL.len();
/// A size that no message has: the device is not taken.
const NEVER: usize = usize::MAX;
/// Bytes of the moduli of RSA, each with costs of its own: they grow with the third power.
const MODULI: [usize; 3] = [256, 384, 512];

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

/// Requests of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Those that the device did.
    pub device: u64,
    /// Signatures, and messages of batches, that software did. Single messages are not counted: that would cost
    /// small ones more than the choice.
    pub software: u64,
}

#[derive(Default)]
struct Counted {
    device: AtomicU64,
    software: AtomicU64,
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

/// The engine for a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignWith {
    Software,
    Device,
    /// Both, to compare what they cost.
    Both,
}

struct State {
    selection: Selection,
    tables: [BreakEven; OPERATIONS],
    /// Costs of signatures, by [`MODULI`].
    signatures: [Trial; MODULI.len()],
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
    counted: [Counted; OPERATIONS],
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
                tables: Default::default(),
                signatures: Default::default(),
                quarantine: None,
            }),
            under_way: AtomicUsize::new(0),
            congested: AtomicBool::new(false),
            random: AtomicU64::new(u64::from_le_bytes(seed)),
            counted: Default::default(),
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

    /// A policy without a device.
    pub fn software() -> Arc<Self> {
        let settings = Settings {
            selection: Selection::Software,
            ..Settings::default()
        };
        Self::new(None, settings)
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
                Selection::Measured if operation == Operation::RsaPrivate => {
                    let signatures = MODULI.iter().zip(&state.signatures);
                    let mut quicker = signatures.filter(|(_, trial)| trial.choice.quicker);
                    quicker.next().map_or(NEVER, |(size, _)| *size)
                }
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

    /// The settings that it was made with.
    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
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

    /// What was measured for signatures, by bytes of the modulus.
    pub fn signature_costs(&self) -> [Cost; MODULI.len()] {
        let state = self.state();
        std::array::from_fn(|index| {
            let trial = state.signatures.get(index).copied().unwrap_or_default();
            Cost {
                size: MODULI.get(index).copied().unwrap_or_default(),
                software: trial.choice.software,
                device: trial.choice.device,
            }
        })
    }

    /// What was measured for an operation on messages, by size.
    pub fn costs(&self, operation: Operation) -> [Cost; SIZES.len()] {
        let state = self.state();
        let table = state.tables.get(operation.index());
        table.map_or_else(|| BreakEven::default().costs(), BreakEven::costs)
    }

    /// Counts since the start.
    pub fn counters(&self) -> Counters {
        Counters {
            device: Operation::ALL
                .iter()
                .map(|operation| self.requests(*operation).device)
                .sum(),
            busy: self.busy_count.load(Ordering::Relaxed),
            repeated: self.repeated_count.load(Ordering::Relaxed),
            checked: self.checked_count.load(Ordering::Relaxed),
        }
    }

    /// Requests of an operation since the start.
    pub fn requests(&self, operation: Operation) -> Requests {
        let counted = self.counted.get(operation.index());
        counted.map_or_else(Requests::default, |counted| Requests {
            device: counted.device.load(Ordering::Relaxed),
            software: counted.software.load(Ordering::Relaxed),
        })
    }

    /// Counts what software did, once for a batch.
    pub(crate) fn count_software(&self, operation: Operation, requests: usize) {
        if requests > 0
            && let Some(counted) = self.counted.get(operation.index())
        {
            let requests = u64::try_from(requests).unwrap_or(u64::MAX);
            counted.software.fetch_add(requests, Ordering::Relaxed);
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
        if state.quarantine.is_some() {
            // The first reason is the cause of what follows: of several requests under way, each may fail.
            return;
        }
        state.quarantine = Some(reason.clone());
        self.publish(&state);
        drop(state);
        if let Some(device) = &self.device {
            device.quarantined(&reason);
        }
    }

    /// A place at the device for so many requests of one caller; none if others have all places.
    fn enter(&self, requests: usize) -> Option<UnderWay<'_>> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let entered = UnderWay(self);
        let full = before >= self.settings.queue_full.max(1);
        if full {
            self.congested.store(true, Ordering::Relaxed);
        }
        if full || (before > 0 && self.congested.load(Ordering::Relaxed)) {
            let requests = u64::try_from(requests).unwrap_or(u64::MAX);
            self.busy_count.fetch_add(requests, Ordering::Relaxed);
            return None;
        }
        Some(entered)
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
        let Some(device) = self.device.as_ref().filter(|_| self.fits(request)) else {
            return Outcome::Software;
        };
        let Some(entered) = self.enter(1) else {
            return Outcome::Software;
        };
        let alone = self.under_way.load(Ordering::Relaxed) == 1;
        let started = Instant::now();
        let result = device.run(request);
        let took = started.elapsed();
        drop(entered);
        let outcome = self.settle(request, result, each, right);
        if alone && matches!(outcome, Outcome::Done(_)) {
            self.observe(request.operation, request.data.len(), took);
        }
        outcome
    }

    /// Offers requests of one key together, of which the device may have several under way; an outcome for each.
    #[cold]
    pub(crate) fn offer_batch(
        &self,
        requests: &[Request<'_>],
        software: &SoftwareKey,
    ) -> Vec<Outcome> {
        let Some(device) = &self.device else {
            return requests.iter().map(|_| Outcome::Software).collect();
        };
        let fit: Vec<bool> = requests.iter().map(|one| self.fits(one)).collect();
        let accepted = requests.iter().zip(&fit).filter(|(_, fits)| **fits);
        let accepted: Vec<Request<'_>> = accepted.map(|(one, _)| *one).collect();
        // A batch is one caller's, and takes one place.
        let Some(entered) = self.enter(accepted.len()) else {
            return requests.iter().map(|_| Outcome::Software).collect();
        };
        let alone = self.under_way.load(Ordering::Relaxed) == 1;
        let started = Instant::now();
        let mut results = device.run_batch(&accepted).into_iter();
        let took = started.elapsed();
        drop(entered);
        let outcomes: Vec<Outcome> = requests
            .iter()
            .zip(fit)
            .map(|(request, fits)| {
                let result = if fits { results.next() } else { None };
                let right = |bytes: &[u8]| agrees(request, software, bytes);
                result.map_or(Outcome::Software, |result| {
                    self.settle(request, result, false, right)
                })
            })
            .collect();
        let all = outcomes.iter().all(|one| matches!(one, Outcome::Done(_)));
        if let (true, true, Some((first, count))) = (alone, all, alike(requests)) {
            self.observe(first.operation, first.data.len(), took / count);
        }
        outcomes
    }

    /// Whether a request can be one for the device.
    fn fits(&self, request: &Request<'_>) -> bool {
        let len = request.data.len();
        let total = len.checked_add(request.aad.len());
        let most = self.device.as_ref().map_or(0, |device| device.max_len());
        len != 0 && total.is_some_and(|total| total <= most) && self.state().quarantine.is_none()
    }

    /// What the caller gets of a device's result.
    fn settle(
        &self,
        request: &Request<'_>,
        result: Result<Zeroizing<Vec<u8>>, DeviceError>,
        each: bool,
        right: impl FnOnce(&[u8]) -> bool,
    ) -> Outcome {
        let operation = request.operation;
        let reason = match result {
            Ok(bytes) => match self.accept(request, each, right, bytes) {
                Ok(bytes) => {
                    if let Some(counted) = self.counted.get(operation.index()) {
                        counted.device.fetch_add(1, Ordering::Relaxed);
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

    /// The engine for a signature with a modulus of `size` bytes that begins now.
    pub(crate) fn sign_with(&self, size: usize, now: Instant) -> SignWith {
        let mut state = self.state();
        if self.device.is_none() || state.quarantine.is_some() {
            return SignWith::Software;
        }
        let index = MODULI.iter().position(|modulus| *modulus == size);
        let trial = index.and_then(|index| state.signatures.get_mut(index));
        let quicker = trial.as_ref().is_some_and(|trial| trial.choice.quicker);
        match (state.selection, index) {
            (Selection::Software, _) | (_, None) => SignWith::Software,
            (Selection::From(_), _) => SignWith::Device,
            (Selection::Measured, Some(index)) => {
                let trial = state.signatures.get_mut(index);
                match trial.is_some_and(|trial| trial.begin(now)) {
                    true => SignWith::Both,
                    false if quicker => SignWith::Device,
                    false => SignWith::Software,
                }
            }
        }
    }

    /// Takes over what a signature with a modulus of `size` bytes cost with both engines.
    pub(crate) fn signed_with_both(&self, size: usize, software: Duration, device: Duration) {
        self.change_signature(size, |trial| trial.end(software, device));
    }

    fn change_signature(&self, size: usize, change: impl FnOnce(&mut Trial)) {
        let mut state = self.state();
        let trials = MODULI.iter().zip(&mut state.signatures);
        let mut trials = trials.filter(|(modulus, _)| **modulus == size);
        if let Some((_, trial)) = trials.next() {
            change(trial);
        }
        self.publish(&state);
    }

    /// Takes over what a message of one of the measured sizes costs with both engines.
    pub(crate) fn measured(
        &self,
        operation: Operation,
        index: usize,
        (software, device): (Duration, Duration),
    ) {
        let mut state = self.state();
        if let Some(table) = state.tables.get_mut(operation.index()) {
            table.measured(index, software, device);
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
        if operation == Operation::RsaPrivate {
            return self.change_signature(len, |trial| trial.choice.observe(took));
        }
        let mut state = self.state();
        if state.selection != Selection::Measured {
            return;
        }
        if let Some(table) = state.tables.get_mut(operation.index()) {
            table.observe(len, took);
        }
        self.publish(&state);
    }
}

/// The first request and their number, if none is much longer or shorter than the first.
fn alike<'a, 'b>(requests: &'a [Request<'b>]) -> Option<(&'a Request<'b>, u32)> {
    let first = requests.first()?;
    let len = first.data.len();
    let near = |one: &Request<'_>| (len / 2..=len.saturating_mul(2)).contains(&one.data.len());
    let count = u32::try_from(requests.len()).ok()?;
    requests.iter().all(near).then_some((first, count))
}

/// Compares a device's result with software's.
fn agrees(request: &Request<'_>, software: &SoftwareKey, bytes: &[u8]) -> bool {
    software
        .result(request)
        .is_some_and(|expected| bool::from(expected.ct_eq(bytes)))
}
