//! The machine and the versions of programs.

use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use crate::process::Call;
use crate::program::Program;
use crate::record::Host;

/// Instruction sets that change what a cipher costs.
const FLAGS: [&str; 18] = [
    "aes",
    "pclmulqdq",
    "ssse3",
    "avx",
    "avx2",
    "bmi2",
    "adx",
    "sha_ni",
    "gfni",
    "vaes",
    "vpclmulqdq",
    "avx512f",
    "avx512vl",
    "avx512_vbmi",
    "avx512ifma",
    "asimd",
    "sha2",
    "pmull",
];

pub(crate) fn describe() -> Host {
    let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let flags = field("flags").or_else(|| field("Features"));
    let flags = flags.unwrap_or_default();
    let release = read_to_string("/etc/os-release").unwrap_or_default();
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    Host {
        cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cpu_flags: flags
            .split_whitespace()
            .filter(|flag| FLAGS.contains(flag))
            .map(str::to_owned)
            .collect(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory_mib(),
        kernel: read_to_string("/proc/sys/kernel/osrelease")
            .map_or_else(|_| String::new(), |text| format!("Linux {}", text.trim())),
        system: release
            .lines()
            .find_map(|line| line.strip_prefix("PRETTY_NAME="))
            .map_or_else(String::new, |name| name.trim_matches('"').to_owned()),
        load: load
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or_default(),
    }
}

fn memory_mib() -> u64 {
    memory_kib("MemTotal:") / 1024
}

/// A line of what the kernel says about memory, in KiB.
fn memory_kib(name: &str) -> u64 {
    let text = read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or_default()
}

/// Number of inotify instances that a user's programs may have.
pub(crate) fn watched_folders() -> usize {
    let text = read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

/// Bytes that files in `folder`, which is in memory, and programs can still take.
pub(crate) fn room(folder: &Path) -> u64 {
    let free = rustix::fs::statvfs(folder).map_or(0, |system| system.f_bavail * system.f_frsize);
    free.min(memory_kib("MemAvailable:") * 1024)
}

/// The line of a program's answer that has a version in it; nothing if it gives none.
pub(crate) fn version(program: &Program) -> Option<String> {
    let done = Call::new(program.path()?)
        .args(program.version)
        .limit(Duration::from_secs(10))
        .any_exit()
        .run()
        .ok()?;
    let text = format!("{}\n{}", done.stdout, done.stderr);
    let line = text
        .lines()
        .find(|line| line.bytes().any(|b| b.is_ascii_digit()))?;
    Some(line.trim().chars().take(100).collect())
}
