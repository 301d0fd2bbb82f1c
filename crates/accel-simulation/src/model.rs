//! A device in this process.

use std::time::{Duration, Instant};

use crate::cores::{AesCore, Cores, Engine, HmacCore};
use crate::device::{Device, Memory, Region};
use accel_abi::Register;
use accel_driver::{Completion, Config, ShotConfig, Transport};
use accel_engine::{Accelerator, Bus};

/// Device address of the memory.
const BASE: u64 = 0x8000_0000;

/// Settings for a driver of the model.
///
/// The deadline is long, as a model computes at the rate of a simulation.
pub const MODEL_CONFIG: Config = Config {
    ring_size: 4,
    buffer: 65_536 + 4096,
    completion: Completion::Polling,
    deadline: Duration::from_secs(5),
    watchdog: Duration::from_millis(1),
    poll_interval: Duration::ZERO,
    first_sequence: 0x0ACC_0000,
};

/// Settings for a driver of the model that takes requests in registers.
pub const MODEL_SHOT: ShotConfig = ShotConfig {
    deadline: MODEL_CONFIG.deadline,
    poll_interval: Duration::ZERO,
    number: 0x0ACC,
};

/// Settings for which no memory can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusError;

impl std::fmt::Display for BusError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the driver's settings are out of bounds")
    }
}

impl std::error::Error for BusError {}

/// Registers and memory of the accelerator's model, which computes at the doorbell.
pub struct ModelBus {
    device: Device,
    memory: Memory,
    simulating: Duration,
    accesses: u64,
}

impl ModelBus {
    /// A device with the cores for AES and HMAC, and memory for a driver with these settings.
    ///
    /// # Errors
    /// [`BusError`].
    pub fn new(config: &Config) -> Result<Self, BusError> {
        let cores = Cores {
            aes: Some(Box::new(AesCore::new())),
            hmac: Some(Box::new(HmacCore::new())),
            ..Cores::default()
        };
        Self::with_cores(config, cores)
    }

    /// A device with these cores, which may be simulated ones.
    ///
    /// # Errors
    /// [`BusError`].
    pub fn with_cores(config: &Config, cores: Cores) -> Result<Self, BusError> {
        let length = config.memory().ok_or(BusError)?;
        let mut memory = Memory::new(BASE, length);
        memory.register(Region {
            addresses: BASE..BASE + length as u64,
            writable: true,
        });
        Ok(Self {
            device: Device::new(Engine::new(cores)),
            memory,
            simulating: Duration::ZERO,
            accesses: 0,
        })
    }

    /// Accesses to registers so far, each of which is a transaction on a real bus.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Time for which this process has computed what a device would have.
    pub fn simulating(&self) -> Duration {
        self.simulating
    }
}

impl Transport for ModelBus {
    fn read_register(&mut self, register: Register) -> u32 {
        self.accesses += 1;
        self.device.read(register)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "it measures how long the models compute"
    )]
    fn write_register(&mut self, register: Register, value: u32) {
        self.accesses += 1;
        self.device.write(register, value);
        if matches!(register, Register::PRODUCER | Register::SHOT_START) {
            let started = Instant::now();
            while self.device.step(&mut self.memory) {}
            self.simulating += started.elapsed();
        }
    }

    fn memory(&self) -> (u64, usize) {
        (BASE, self.memory.as_slice().len())
    }

    fn read_memory(&mut self, offset: usize, into: &mut [u8]) -> bool {
        let source = self.memory.as_slice().get(offset..);
        let source = source.and_then(|rest| rest.get(..into.len()));
        source.map(|source| into.copy_from_slice(source)).is_some()
    }

    fn write_memory(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let target = self.memory.as_mut_slice().get_mut(offset..);
        let target = target.and_then(|rest| rest.get_mut(..bytes.len()));
        target.map(|target| target.copy_from_slice(bytes)).is_some()
    }
}

impl Bus for ModelBus {
    fn wait(&mut self, _at_most: Duration) -> bool {
        // It has computed already; only an interrupt may be left to take.
        self.device.take_interrupt()
    }
}

/// The model with its driver.
///
/// # Errors
/// [`BusError`] for settings out of bounds.
pub fn model(config: Config) -> Result<Accelerator<ModelBus>, BusError> {
    Accelerator::new("accelerator model", ModelBus::new(&config)?, config).ok_or(BusError)
}

/// The model with its driver without descriptors.
///
/// # Errors
/// None with these settings; as for [`model`].
pub fn single_shot_model() -> Result<Accelerator<ModelBus>, BusError> {
    let bus = ModelBus::new(&MODEL_CONFIG)?;
    Ok(Accelerator::single_shot("single shot", bus, MODEL_SHOT))
}
