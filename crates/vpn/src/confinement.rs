//! What the tunnels' processes cannot do, whoever has taken them over: write outside of their folders, read
//! people's files, start programs, look into other processes, load code into the kernel.
//!
//! The kernel enforces it (Landlock for files, seccomp for system calls), and nothing takes it back.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Folders of the system that programs read: libraries, names of hosts, time zones, trusted roots.
const SYSTEM: [&str; 9] = [
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/run",
];
/// Devices that are used.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/urandom", "/dev/net/tun", "/dev/pts"];
/// Settings of the kernel that are written.
const SETTINGS: &str = "/proc/sys/net";

/// Why a process is not confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// The kernel does not do it.
    #[error("confining to files: {0}")]
    Files(#[from] landlock::RulesetError),
    /// The kernel has no Landlock.
    #[error("the kernel does not confine processes to files: it has no Landlock")]
    NoLandlock,
    /// The filter of system calls.
    #[error("confining to system calls: {0}")]
    Calls(String),
}

/// Files that a process may reach.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Folders, with all that is below, to read.
    pub read: Vec<PathBuf>,
    /// Folders to write.
    pub write: Vec<PathBuf>,
    /// Programs to start, wherever they lie.
    pub programs: Vec<PathBuf>,
    /// Also what a daemon takes: the system's folders to read and to start programs from, the devices for
    /// tunnels, the kernel's settings of the network.
    pub system: bool,
}

/// Confines the calling thread, and all threads and processes that it starts, to files. Folders that do
/// not exist are left out.
///
/// # Errors
/// [`ConfinementError::NoLandlock`] where the kernel has none.
pub fn restrict_files(files: &Files) -> Result<(), ConfinementError> {
    // The newest of which all rights are known; older kernels enforce what they know.
    let abi = ABI::V5;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let everything = AccessFs::from_all(abi);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .create()?;
    let mut allow = |path: &Path, rights: landlock::BitFlags<AccessFs>| {
        // What is not there cannot be allowed; if it comes later, it is refused.
        let Ok(open) = PathFd::new(path) else {
            return Ok(());
        };
        // Landlock refuses rights of folders for a file.
        let rights = match path.is_dir() {
            true => rights,
            false => rights & AccessFs::from_file(abi),
        };
        (&mut rules)
            .add_rule(PathBeneath::new(open, rights))
            .map(drop)
    };
    if files.system {
        for folder in SYSTEM {
            allow(Path::new(folder), read | AccessFs::Execute)?;
        }
        for device in DEVICES {
            let rights = read | AccessFs::WriteFile | AccessFs::IoctlDev;
            allow(Path::new(device), rights)?;
        }
        allow(Path::new(SETTINGS), read | AccessFs::WriteFile)?;
    }
    for program in &files.programs {
        allow(program, AccessFs::ReadFile | AccessFs::Execute)?;
    }
    for folder in &files.read {
        allow(folder, read)?;
    }
    for folder in &files.write {
        // What can be written must not be started.
        allow(folder, everything & !AccessFs::Execute)?;
    }
    match rules.restrict_self()?.ruleset {
        // Partly is what older kernels can; not at all is no confinement.
        RulesetStatus::NotEnforced => Err(ConfinementError::NoLandlock),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// Lets all threads of the process make only the system calls that moving packets, files and starting `nft`
/// take; others fail with EPERM.
///
/// # Errors
/// [`ConfinementError::Calls`].
pub fn restrict_calls() -> Result<(), ConfinementError> {
    let failed = |error: &dyn std::fmt::Display| ConfinementError::Calls(error.to_string());
    let filter = filter().map_err(|error| failed(&error))?;
    // A thread without the filter could do for the others what they may not.
    seccompiler::apply_filter_all_threads(&filter).map_err(|error| failed(&error))
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let allowed = COMMON.iter().chain(OF_ARCHITECTURE);
    let filter = SeccompFilter::new(
        allowed.map(|number| (*number, vec![])).collect(),
        SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap_or(1)),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into()
}

/// By subject; within a subject by name.
const COMMON: &[libc::c_long] = &[
    // Files.
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // The network.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Time and chance.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    // Threads and processes, which may give up more: `nft`, the fetcher.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_get_robust_list,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_kill,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// Older calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const OF_ARCHITECTURE: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_fork,
    libc::SYS_getpgrp,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_unlink,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_ARCHITECTURE: &[libc::c_long] = &[];

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn seccomp_filter_of_the_daemon_compiles() {
        assert!(!filter().unwrap().is_empty());
        let mut all: Vec<_> = COMMON.iter().chain(OF_ARCHITECTURE).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), COMMON.len() + OF_ARCHITECTURE.len());
    }

    #[test]
    fn confined_process_reaches_no_other_files() {
        let inside = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("key"), "secret").unwrap();
        // On a thread of its own, so that other tests keep what they have.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let files = Files {
                    write: vec![inside.path().to_owned()],
                    system: true,
                    ..Files::default()
                };
                restrict_files(&files).unwrap();
                std::fs::write(inside.path().join("state"), "1").unwrap();
                for name in ["key", "new"] {
                    let refused = std::fs::write(outside.path().join(name), "2").unwrap_err();
                    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
                }
                let refused = std::fs::read(outside.path().join("key")).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
                let started = std::process::Command::new("/bin/true").status();
                assert!(started.unwrap().success());
                let copy = inside.path().join("true");
                std::fs::copy("/bin/true", &copy).unwrap();
                let refused = std::process::Command::new(copy).status().unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            });
        });
        assert_eq!(
            std::fs::read(outside.path().join("key")).unwrap(),
            b"secret"
        );
    }
}
