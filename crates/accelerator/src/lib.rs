#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! The accelerator that a configuration names, for whichever service has work for it.
//!
//! [`Accelerator::open`] makes a policy ([`offload_policy::Policy`]) of the section `[accelerator]`
//! ([`AcceleratorConfig`]): keys and packets under it go to the device where it is quicker, and to
//! software otherwise. Without the section everything is software's. [`Status`] is what people and
//! metrics see of it.
//!
//! A device that is missing or broken stops nobody's work: its user goes on in software, and says so.

mod config;
mod metrics;
mod status;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use accel_driver::{Completion, Config, Failure};
use accel_transport::{Link, LinkError};
use error_report::Report;
use offload_policy::{
    Device, DeviceError, Operation, PacketEngine, Policy, Quarantine, Request, Selection, Settings,
};
use zeroize::Zeroizing;

pub use crate::config::{AcceleratorConfig, CompletionConfig, ConfigError, FromConfig};
pub use crate::metrics::register;
pub use crate::status::{OperationStatus, State, Status};

// Our choices.
/// Longest time in which a device has to take what is written into a register at the start: whoever has a
/// device that does not answer waits for its service so long.
const START: Duration = Duration::from_secs(1);
/// Bytes of the largest message: a chunk of a sealed block with its associated data.
const MESSAGE: usize = 64 * 1024 + 512;
/// Fewest bytes of a message with which a device is of use: a packet.
const LEAST_MESSAGE: usize = 2048;
/// Requests under way at once at most: more would wait only, as a device has one core of a kind.
const RING: u32 = 16;
/// Share of the deadline after which the driver looks without an interrupt.
const WATCHDOGS: u32 = 16;
/// Pause between two looks while polling.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
/// Requests that take less on average are polled for, with `completion = "adaptive"`.
const WORTH_POLLING: Duration = Duration::from_micros(100);

/// A device that cannot be used.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("no way to the device")]
    Link(#[from] LinkError),
    #[error("the device's memory of {0} bytes is too small")]
    Memory(usize),
    #[error("the device does not start")]
    Device(#[from] Failure),
}

/// The way in which a service has a thread wait for the device: calls what it is given, once. Threads on which others'
/// work waits as well may hand that to another thread before.
pub type Waiting = fn(&mut dyn FnMut());

/// A policy, and what is known of the device behind it.
#[derive(Clone)]
pub struct Accelerator {
    policy: Arc<Policy>,
    device: Option<Arc<Named>>,
}

/// The device of a configuration.
struct Named {
    path: PathBuf,
    /// The reason for which it was not taken at the start.
    unreachable: Option<String>,
}

impl Default for Accelerator {
    fn default() -> Self {
        Self::software()
    }
}

impl std::fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accelerator").finish_non_exhaustive()
    }
}

impl Accelerator {
    /// No device.
    pub fn software() -> Self {
        Self {
            policy: Policy::software(),
            device: None,
        }
    }

    /// The device of a configuration, measured where its settings want that.
    ///
    /// One that cannot be reached is reported, in the log and by [`Self::status`], and software does its work. Whoever uses
    /// it waits for it by `waiting`.
    pub fn open(config: Option<&AcceleratorConfig>, waiting: Waiting) -> Self {
        let Some(config) = config else {
            return Self::software();
        };
        let path = config.device.path().to_owned();
        let (policy, unreachable) = match device(config, waiting) {
            Ok(device) => {
                let policy = Policy::new(Some(Arc::new(device)), settings(config));
                (policy, None)
            }
            Err(error) => {
                let reason = Report(&error).to_string();
                tracing::error!(device = %path.display(), %reason, "accelerator: software does its work");
                (Policy::software(), Some(reason))
            }
        };
        Self {
            policy,
            device: Some(Arc::new(Named { path, unreachable })),
        }
    }

    /// The policy, for keys and messages.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The engine for packets of tunnels; none without a device.
    pub fn packets(&self) -> Option<Arc<dyn offload::Accelerator>> {
        self.policy.device()?;
        Some(Arc::new(PacketEngine::new(&self.policy)))
    }

    /// The state of the device that the configuration names; none if it names none.
    pub fn status(&self) -> Option<Status> {
        let named = self.device.as_ref()?;
        let (state, reason) = match (&named.unreachable, self.policy.quarantine()) {
            (Some(reason), _) => (State::Unreachable, Some(reason.clone())),
            (None, Some(reason)) => (State::Quarantine, Some(reason.to_string())),
            (None, None) => (State::InUse, None),
        };
        let counters = self.policy.counters();
        Some(Status {
            device: named.path.display().to_string(),
            state,
            reason,
            operations: Operation::ALL
                .iter()
                .map(|operation| OperationStatus::of(&self.policy, *operation))
                .collect(),
            busy: counters.busy,
            repeated: counters.repeated,
            checked: counters.checked,
        })
    }
}

fn settings(config: &AcceleratorConfig) -> Settings {
    Settings {
        selection: match config.from {
            FromConfig::Measured => Selection::Measured,
            FromConfig::Bytes(bytes) => Selection::From(bytes),
        },
        check_one_in: config.check,
        ..Settings::default()
    }
}

/// The driver's settings for a device with so much memory; none if that is too little.
fn driver(config: &AcceleratorConfig, memory: usize, first_sequence: u32) -> Option<Config> {
    let deadline = config.deadline();
    let fitting = |ring_size, buffer| {
        let config = Config {
            ring_size,
            buffer,
            completion: match config.completion {
                CompletionConfig::Interrupt => Completion::Interrupt,
                CompletionConfig::Polling => Completion::Polling,
                CompletionConfig::Adaptive => Completion::Adaptive(WORTH_POLLING),
            },
            deadline,
            watchdog: deadline / WATCHDOGS,
            poll_interval: POLL_INTERVAL,
            first_sequence,
        };
        let needed = config.memory()?;
        (needed <= memory).then_some(config)
    };
    let rings =
        || std::iter::successors(Some(RING), |ring| Some(ring / 2)).take_while(|ring| *ring >= 2);
    // Large messages are worth more than many at once.
    let buffers = std::iter::successors(Some(MESSAGE), |buffer| Some(buffer / 2));
    buffers
        .take_while(|buffer| *buffer >= LEAST_MESSAGE)
        .find_map(|buffer| rings().find_map(|ring| fitting(ring, buffer)))
}

fn device(config: &AcceleratorConfig, waiting: Waiting) -> Result<Configured, OpenError> {
    let mut link = match &config.device {
        config::DeviceConfig::Socket(path) => Link::connect(path),
        config::DeviceConfig::Uio(path) => Link::uio(path),
    }?;
    link.set_patience(config.deadline().min(START));
    let (_, memory) = accel_driver::Transport::memory(&link);
    let mut number = [0; 4];
    // Without random numbers a completion of the driver before this one could count, if it came so late.
    let _ = aws_lc_rs::rand::fill(&mut number);
    let driver = driver(config, memory, u32::from_le_bytes(number));
    let driver = driver.ok_or(OpenError::Memory(memory))?;
    let device = accel_engine::Accelerator::new("accelerator", link, driver);
    let device = device.ok_or(OpenError::Memory(memory))?;
    if let Some(failure) = device.failure() {
        return Err(failure.into());
    }
    // A write waits behind requests under way.
    device.with_bus(|link| link.set_patience(config.deadline()));
    Ok(Configured { device, waiting })
}

/// The device of a service, which waits for it in its own way and writes its end into the log.
struct Configured {
    device: accel_engine::Accelerator<Link>,
    waiting: Waiting,
}

impl Configured {
    fn wait<R>(&self, work: impl Fn() -> R) -> R {
        let mut done = None;
        (self.waiting)(&mut || done = Some(work()));
        // A service that does not call it has waited for nothing.
        done.unwrap_or_else(work)
    }
}

impl Device for Configured {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn supports(&self, operation: Operation, key_len: usize) -> bool {
        self.device.supports(operation, key_len)
    }

    fn max_len(&self) -> usize {
        self.device.max_len()
    }

    fn run(&self, request: &Request<'_>) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        self.wait(|| self.device.run(request))
    }

    fn run_batch(&self, requests: &[Request<'_>]) -> Vec<Result<Zeroizing<Vec<u8>>, DeviceError>> {
        self.wait(|| self.device.run_batch(requests))
    }

    fn forget(&self, id: u64) {
        self.wait(|| self.device.forget(id));
    }

    fn quarantined(&self, reason: &Quarantine) {
        tracing::error!(%reason, "accelerator: set aside, software does its work until the next start");
    }
}
