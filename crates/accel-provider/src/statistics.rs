//! A file of counters for each process, for whoever wants to know what went through the device.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use accel_engine::Usage;
use offload_policy::{Operation, Request};

/// Counters of one process.
pub(crate) struct Statistics {
    file: Option<Mutex<File>>,
    requests: [AtomicU64; Operation::ALL.len()],
    bytes: [AtomicU64; Operation::ALL.len()],
    quarantine: OnceLock<String>,
}

impl Statistics {
    /// Counters with a file in `folder`, if there is one and it can be written: a program that is not allowed to keeps its
    /// counters to itself.
    pub(crate) fn new(folder: Option<&Path>, process: u32) -> Self {
        let path: Option<PathBuf> = folder.map(|f| f.join(format!("cordon_accel.{process}")));
        let file = path.and_then(|path| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o644);
            options.open(path).ok()
        });
        Self {
            file: file.map(Mutex::new),
            requests: Default::default(),
            bytes: Default::default(),
            quarantine: OnceLock::new(),
        }
    }

    /// Counts a request that the device did.
    pub(crate) fn count(&self, request: &Request<'_>) {
        let index = Operation::ALL
            .iter()
            .position(|operation| *operation == request.operation);
        let Some(index) = index else { return };
        let places = self.requests.get(index).zip(self.bytes.get(index));
        if let Some((requests, bytes)) = places {
            requests.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(request.data.len() as u64, Ordering::Relaxed);
        }
    }

    /// Takes the reason over for which the device is used no more.
    pub(crate) fn quarantined(&self, reason: String) {
        // The first one is the cause of all others.
        let _ = self.quarantine.set(reason);
    }

    /// Writes all numbers: a line for each operation that the device did, then what the device says of itself, then why it
    /// is used no more if so it is.
    pub(crate) fn write(&self, usage: Usage) {
        let Some(file) = &self.file else { return };
        let mut text = String::new();
        let counts = self.requests.iter().zip(&self.bytes);
        for (operation, (requests, bytes)) in Operation::ALL.iter().zip(counts) {
            let requests = requests.load(Ordering::Relaxed);
            if requests > 0 {
                let name = operation.name();
                let bytes = bytes.load(Ordering::Relaxed);
                let _ = writeln!(text, "{name}: {requests} requests, {bytes} bytes");
            }
        }
        let Usage {
            requests,
            key_loads,
            cycles,
        } = usage;
        let _ = writeln!(
            text,
            "device: {requests} requests, {key_loads} keys, {cycles} cycles"
        );
        if let Some(reason) = self.quarantine.get() {
            let _ = writeln!(text, "quarantine: {reason}");
        }
        if let Ok(file) = file.lock() {
            // Counters are no reason to refuse a message.
            let _ = file.write_all_at(text.as_bytes(), 0);
            let _ = file.set_len(text.len() as u64);
        }
    }
}
