//! A bus on which things go wrong.

use std::sync::Arc;
use std::time::Duration;

use accel_abi::Register;
use accel_driver::{Config, ShotConfig, Transport};
use accel_engine::{Accelerator, Bus};
use accel_simulation::{MODEL_CONFIG, MODEL_SHOT, ModelBus};
use offload_policy::{Policy, Selection, Settings};

/// Fault of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    /// Results: the last byte of each has an inverted bit.
    LastByte,
    /// Results: the first byte of each has an inverted bit.
    FirstByte,
    /// The status word of completions has an inverted bit.
    Status,
    /// The doorbell does nothing.
    Doorbell,
    /// Registers read as all ones.
    Vanished,
}

pub(crate) struct FaultyBus {
    bus: ModelBus,
    pub(crate) fault: Fault,
    /// The fault that begins after so many doorbells.
    later: Option<(usize, Fault)>,
}

impl FaultyBus {
    pub(crate) fn over(bus: ModelBus) -> Self {
        Self {
            bus,
            fault: Fault::Nothing,
            later: None,
        }
    }

    /// Has a fault begin after so many doorbells.
    pub(crate) fn after(&mut self, doorbells: usize, fault: Fault) {
        self.later = Some((doorbells, fault));
    }
}

/// Settings with a deadline that a test can wait for.
pub(crate) const CONFIG: Config = Config {
    deadline: Duration::from_millis(300),
    ..MODEL_CONFIG
};

impl Transport for FaultyBus {
    fn read_register(&mut self, register: Register) -> u32 {
        match self.fault {
            Fault::Vanished => u32::MAX,
            Fault::Status if register == Register::SHOT_STATUS => {
                self.bus.read_register(register) ^ 0x40
            }
            Fault::FirstByte if register == Register::SHOT_DATA => {
                self.bus.read_register(register) ^ 0x10
            }
            _ => self.bus.read_register(register),
        }
    }

    fn write_register(&mut self, register: Register, value: u32) {
        let doorbell = matches!(register, Register::PRODUCER | Register::SHOT_START);
        self.later = match self.later {
            Some((0, fault)) if doorbell => {
                self.fault = fault;
                None
            }
            Some((left, fault)) if doorbell => Some((left - 1, fault)),
            later => later,
        };
        if !doorbell || self.fault != Fault::Doorbell {
            self.bus.write_register(register, value);
        }
    }

    fn memory(&self) -> (u64, usize) {
        self.bus.memory()
    }

    fn read_memory(&mut self, offset: usize, into: &mut [u8]) -> bool {
        let read = self.bus.read_memory(offset, into);
        let descriptors = CONFIG.ring_size as usize * 128;
        let result = offset >= descriptors && !into.is_empty();
        match self.fault {
            Fault::LastByte if result => *into.last_mut().unwrap() ^= 0x10,
            Fault::FirstByte if result => into[0] ^= 0x10,
            // The status and the echo are read together.
            Fault::Status if into.len() == 8 => into[0] ^= 0x40,
            _ => {}
        }
        read
    }

    fn write_memory(&mut self, offset: usize, bytes: &[u8]) -> bool {
        self.bus.write_memory(offset, bytes)
    }
}

impl Bus for FaultyBus {
    fn wait(&mut self, at_most: Duration) -> bool {
        if self.fault == Fault::Doorbell {
            std::thread::sleep(at_most.min(Duration::from_millis(1)));
        }
        self.bus.wait(at_most)
    }
}

pub(crate) fn faulty() -> Arc<Accelerator<FaultyBus>> {
    let bus = FaultyBus::over(ModelBus::new(&CONFIG).unwrap());
    Arc::new(Accelerator::new("faulty", bus, CONFIG).unwrap())
}

pub(crate) fn faulty_shots() -> Arc<Accelerator<FaultyBus>> {
    let bus = FaultyBus::over(ModelBus::new(&CONFIG).unwrap());
    let config = ShotConfig {
        deadline: CONFIG.deadline,
        ..MODEL_SHOT
    };
    Arc::new(Accelerator::single_shot("faulty", bus, config))
}

pub(crate) fn settings(check_one_in: u32) -> Settings {
    Settings {
        selection: Selection::From(0),
        check_one_in,
        ..Settings::default()
    }
}

pub(crate) fn software() -> Arc<Policy> {
    Policy::new(None, settings(0))
}

/// `SplitMix64`: tests need numbers that are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
