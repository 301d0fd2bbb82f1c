//! The device as the policy sees it: one for each process.
//!
//! Programs load the provider and then fork. A simulated core is a process with a connection, and its state belongs to
//! whoever talks to it: two processes on one connection would get each other's bytes. So each process starts an
//! accelerator of its own when its first request comes, and leaves alone what its parents have.

use std::path::Path;
use std::sync::OnceLock;

use accel_abi::register::capabilities;
use accel_driver::Config;
use accel_engine::Accelerator;
use accel_simulation::cores::{AesCore, Core, CoreError, Cores, HmacCore, MontCore, Verilated};
use accel_simulation::{BusError, MODEL_CONFIG, ModelBus};
use offload_policy::{Device, DeviceError, Operation, Quarantine, Request};
use zeroize::Zeroizing;

use crate::settings::{Engine, Settings};
use crate::statistics::Statistics;

/// A simulation of RSA takes seconds, and more on a busy machine.
const CONFIG: Config = Config {
    deadline: std::time::Duration::from_secs(60),
    ..MODEL_CONFIG
};
/// The kernel's account of this process, its confinement in it.
const STATUS: &str = "/proc/self/status";
/// Bits of a word of the model for modular arithmetic, as the simulated core has it.
const WORD: usize = 32;

/// The reason why there is no accelerator.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("a simulated core cannot be started")]
    Core(#[source] CoreError),
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// The accelerator of a process, or the reason why it has none.
enum Started {
    Accelerator(Box<Accelerator<ModelBus>>),
    Failed(StartError),
    /// The process is confined: to start another one would end it.
    Confined,
}

struct Link {
    process: u32,
    started: Option<Started>,
    /// True for a device that is a process of its own.
    outside: bool,
    statistics: Statistics,
    /// Those of a child of this process, in that child.
    child: OnceLock<Box<Self>>,
}

impl Link {
    /// The accelerator, if this process has one and may talk to it.
    ///
    /// A program can confine itself after its core was started, as sshd does before it hears a stranger: then the core
    /// stays where it is, and software does the rest.
    fn accelerator(&self) -> Option<&Accelerator<ModelBus>> {
        match &self.started {
            Some(Started::Accelerator(accelerator)) if !(self.outside && confined(STATUS)) => {
                Some(accelerator)
            }
            _ => None,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.process != std::process::id() || self.accelerator().is_none() {
            // A parent's, where its core is in use; or out of reach.
            std::mem::forget(self.started.take());
        }
    }
}

/// The device of the process that asks.
pub(crate) struct PerProcess {
    settings: Settings,
    first: OnceLock<Box<Link>>,
}

impl Drop for PerProcess {
    fn drop(&mut self) {
        // Closing a file is a system call as well, and with some builds more than one.
        if confined(STATUS) {
            std::mem::forget(self.first.take());
        }
    }
}

impl PerProcess {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            first: OnceLock::new(),
        }
    }

    fn start(&self) -> Box<Link> {
        let outside = matches!(self.settings.engine, Engine::Verilated { .. });
        let started = match () {
            () if outside && confined(STATUS) => Started::Confined,
            () => match accelerator(&self.settings.engine) {
                Ok(accelerator) => Started::Accelerator(Box::new(accelerator)),
                Err(error) => Started::Failed(error),
            },
        };
        let process = std::process::id();
        Box::new(Link {
            process,
            started: Some(started),
            outside,
            statistics: Statistics::new(self.settings.statistics.as_deref(), process),
            child: OnceLock::new(),
        })
    }

    /// This process's link of the chain; made if there is none and `wanted`.
    fn link(&self, wanted: bool) -> Option<&Link> {
        let process = std::process::id();
        let mut place = &self.first;
        loop {
            let link = match place.get() {
                Some(link) => link,
                None if wanted => place.get_or_init(|| self.start()),
                None => return None,
            };
            if link.process == process {
                return Some(link);
            }
            place = &link.child;
        }
    }
}

/// Says whether the process may have no children: a filter of system calls may end it for trying. A process that does not
/// see its own state is confined as well.
fn confined(status: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(status) else {
        return true;
    };
    let mut lines = text.lines();
    let mode = lines.find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

fn accelerator(engine: &Engine) -> Result<Accelerator<ModelBus>, StartError> {
    let cores = match engine {
        Engine::Library => Cores::default(),
        Engine::Model => Cores {
            aes: Some(Box::new(AesCore::new())),
            hmac: Some(Box::new(HmacCore::new())),
            modular: MontCore::new(WORD).map(|core| Box::new(core) as _),
            ..Cores::default()
        },
        Engine::Verilated { aes, hmac, modular } => Cores {
            aes: simulated(aes.as_deref())?,
            hmac: simulated(hmac.as_deref())?,
            modular: simulated(modular.as_deref())?,
            ..Cores::default()
        },
    };
    let bus = ModelBus::with_cores(&CONFIG, cores)?;
    Ok(Accelerator::new("accelerator", bus, CONFIG).ok_or(BusError)?)
}

fn simulated(program: Option<&Path>) -> Result<Option<Box<dyn Core>>, StartError> {
    let Some(program) = program else {
        return Ok(None);
    };
    let core = Verilated::start(program).map_err(StartError::Core)?;
    Ok(Some(Box::new(core)))
}

impl Device for PerProcess {
    fn name(&self) -> &str {
        "accelerator"
    }

    fn supports(&self, operation: Operation, key_len: usize) -> bool {
        let cores = match &self.settings.engine {
            Engine::Library => 0,
            Engine::Model => capabilities::AES | capabilities::HMAC | capabilities::MODULAR,
            Engine::Verilated { aes, hmac, modular } => {
                let core = |program: &Option<_>, bit| program.as_ref().map_or(0, |_| bit);
                core(aes, capabilities::AES)
                    | core(hmac, capabilities::HMAC)
                    | core(modular, capabilities::MODULAR)
            }
        };
        accel_engine::supports(cores, operation, key_len)
    }

    fn max_len(&self) -> usize {
        CONFIG.buffer / 16 * 16
    }

    fn run(&self, request: &Request<'_>) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        let link = self.link(true).ok_or(DeviceError::Busy)?;
        if let Some(Started::Failed(error)) = &link.started {
            return Err(DeviceError::Failed(error.to_string().into()));
        }
        let accelerator = link.accelerator().ok_or(DeviceError::Busy)?;
        let result = accelerator.run(request);
        if result.is_ok() {
            link.statistics.count(request);
        }
        link.statistics.write(accelerator.usage());
        result
    }

    fn forget(&self, id: u64) {
        let link = self.link(false);
        if let Some(accelerator) = link.and_then(Link::accelerator) {
            accelerator.forget(id);
        }
    }

    fn quarantined(&self, reason: &Quarantine) {
        let Some(link) = self.link(false) else { return };
        link.statistics.quarantined(reason.to_string());
        let usage = link.accelerator().map(Accelerator::usage);
        link.statistics.write(usage.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confinement_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status");
        let file = file.to_str().unwrap();
        assert!(confined(file), "without a look at it");
        for (text, expected) in [
            ("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n", false),
            ("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n", true),
            ("Name:\tx\n", false),
        ] {
            std::fs::write(file, text).unwrap();
            assert_eq!(confined(file), expected, "{text:?}");
        }
    }
}
