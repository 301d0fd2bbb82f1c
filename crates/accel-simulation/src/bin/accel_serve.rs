//! Serves an accelerator to QEMU (`-device ivshmem-doorbell`) or to a process of this machine.
//!
//! ```text
//! accel_serve SOCKET [--ram FILE] [--aes PROGRAM] [--hmac PROGRAM] [--conduct FILE] [--counts FILE]
//! ```
//!
//! `--ram` is the guest's memory, which QEMU shares by a file, from its address zero on; without
//! it, memory behind the register window is registered. Cores are models unless a PROGRAM of
//! `scripts/hw cores` simulates them. `--conduct` names a file with the way in which the device is
//! to behave, looked at before each request; `--counts` one that is kept up to date.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a program waits")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use accel_abi::register::PAGE;
use accel_simulation::cores::{AesCore, Core, Cores, Engine, HmacCore, MontCore, Verilated};
use accel_simulation::device::Device;
use accel_simulation::{Conduct, Endpoint, Faulty, MappedDma};
use accel_transport::ivshmem::{Listener, Peer, Woken};
use sys::shared::Mapping;

/// Bytes of the memory that is shared by the protocol: window and, without `--ram`, data.
const SHARED: u64 = 1 << 20;

/// Bytes of the file with the counts, without the line's end.
const COUNTS: usize = 119;

#[derive(Default)]
struct Options {
    socket: PathBuf,
    ram: Option<PathBuf>,
    aes: Option<PathBuf>,
    hmac: Option<PathBuf>,
    conduct: Option<PathBuf>,
    counts: Option<PathBuf>,
}

fn options() -> Option<Options> {
    let mut options = Options::default();
    let mut arguments = std::env::args_os().skip(1);
    options.socket = arguments.next()?.into();
    while let Some(name) = arguments.next() {
        let place = match name.to_str()? {
            "--ram" => &mut options.ram,
            "--aes" => &mut options.aes,
            "--hmac" => &mut options.hmac,
            "--conduct" => &mut options.conduct,
            "--counts" => &mut options.counts,
            _ => return None,
        };
        *place = Some(arguments.next()?.into());
    }
    Some(options)
}

/// A simulated core, or its model.
fn core(program: Option<&Path>, model: impl Core + 'static) -> io::Result<Box<dyn Core>> {
    match program {
        Some(program) => Ok(Box::new(
            Verilated::start(program).map_err(io::Error::other)?,
        )),
        None => Ok(Box::new(model)),
    }
}

fn device(options: &Options) -> io::Result<Device> {
    let modular = MontCore::new(32).map(|core| Box::new(core) as Box<dyn Core>);
    Ok(Device::new(Engine::new(Cores {
        aes: Some(core(options.aes.as_deref(), AesCore::new())?),
        hmac: Some(core(options.hmac.as_deref(), HmacCore::new())?),
        modular,
        ibc: None,
    })))
}

/// Counts of what the device did, for whoever compares it with what the driver says.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    requests: u64,
    interrupts: u64,
    /// The conduct that the next request meets.
    conduct: Conduct,
}

impl Counts {
    fn write(self, path: &Path) -> io::Result<()> {
        let (requests, interrupts) = (self.requests, self.interrupts);
        let conduct = self.conduct.name();
        let text = format!(
            "{{\"requests\": {requests}, \"interrupts\": {interrupts}, \"conduct\": \"{conduct}\"}}"
        );
        let new = path.with_extension("new");
        // Always as long: a guest that has seen it longer, over 9p, reads on for ever (Linux 6.12).
        std::fs::write(&new, format!("{text:COUNTS$}\n"))?;
        std::fs::rename(new, path)
    }
}

/// The conduct that the file asks for; a file that is not there asks for nothing.
fn conduct(path: Option<&Path>) -> io::Result<Conduct> {
    let Some(path) = path else {
        return Ok(Conduct::Proper);
    };
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(Conduct::Proper),
        Ok(text) => Conduct::named(text.trim())
            .ok_or_else(|| io::Error::other(format!("no conduct is named {}", text.trim()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Conduct::Proper),
        Err(error) => Err(error),
    }
}

/// Serves one client until it goes.
fn serve(peer: &Peer, options: &Options) -> io::Result<()> {
    let shared = Arc::new(Mapping::new(peer.memory(), 0, shared_length())?);
    let dma = match &options.ram {
        Some(path) => {
            let file = File::options().read(true).write(true).open(path)?;
            let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
            MappedDma::new(Arc::new(Mapping::new(&file, 0, length)?), 0)
        }
        None => MappedDma::new(Arc::clone(&shared), PAGE as usize),
    };
    let mut dma = Faulty::new(dma);
    let mut endpoint = Endpoint::new(device(options)?, shared);
    peer.greet()?;
    let (mut counts, mut written) = (Counts::default(), None);
    loop {
        dma.conduct = conduct(options.conduct.as_deref())?;
        counts.conduct = dma.conduct;
        if dma.is_dead() && dma.conduct != Conduct::Die {
            dma.revive();
        }
        let mut worked = false;
        if !dma.is_dead() {
            let turn = endpoint.turn(&mut dma);
            worked = turn.worked;
            counts.requests = dma.completed();
            let times = match dma.conduct {
                _ if !turn.interrupt || dma.is_dead() => 0,
                Conduct::LoseInterrupts => 0,
                Conduct::DoubleInterrupts => 2,
                _ => 1,
            };
            for number in 0..times {
                if number > 0 {
                    // Not at once: two that come together are one.
                    std::thread::sleep(Duration::from_millis(20));
                }
                // Counted first: whoever is interrupted may look.
                counts.interrupts += 1;
                peer.interrupt()?;
            }
        }
        if worked {
            continue;
        }
        if let Some(path) = &options.counts
            && written != Some(counts)
        {
            counts.write(path)?;
            written = Some(counts);
        }
        if peer.wait(Duration::from_millis(100))? == Woken::Closed {
            return Ok(());
        }
    }
}

fn shared_length() -> usize {
    usize::try_from(SHARED).unwrap_or(usize::MAX)
}

fn run(options: &Options) -> io::Result<()> {
    let listener = Listener::new(&options.socket)?;
    let peer = listener.accept(SHARED)?;
    serve(&peer, options)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!(
            "usage: accel_serve SOCKET [--ram FILE] [--aes PROGRAM] [--hmac PROGRAM] [--conduct FILE] [--counts FILE]"
        );
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("accel_serve: {error}");
            ExitCode::FAILURE
        }
    }
}
