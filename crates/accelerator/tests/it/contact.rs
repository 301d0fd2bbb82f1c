//! Devices of a configuration that are none, or do not answer: software does the work, and soon.

use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use accel_abi::{ID, Register, VERSION};
use accel_transport::ivshmem::Listener;
use accelerator::{Accelerator, AcceleratorConfig, State};
use sys::shared::Mapping;

/// A second for the greeting and one for the registers, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(5);
const MEMORY: u64 = 1 << 20;

/// A folder that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("accelerator-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Opens what the setting `kind` names, which must be no device; the reason. The deadline of requests is no
/// bound of the start.
fn refused(kind: &str, path: &Path) -> String {
    let text = format!("{kind} = {path:?}\ndeadline_ms = 60000");
    let config: AcceleratorConfig = toml::from_str(&text).unwrap();
    let began = Instant::now();
    let accelerator = Accelerator::open(Some(&config), |wait| wait());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(accelerator.packets().is_none());
    let status = accelerator.status().unwrap();
    assert_eq!(status.state, State::Unreachable);
    status.reason.unwrap()
}

#[test]
fn a_socket_that_says_nothing_is_left_after_a_second() {
    let folder = Folder::new("mute");
    let path = folder.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    assert!(refused("socket", &path).contains("timed out"));
    // It was there: the connection waits to be taken.
    drop(listener.accept().unwrap());
}

#[test]
fn a_socket_whose_queue_is_full_is_left_after_a_second() {
    let folder = Folder::new("full");
    let path = folder.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    // Others wait already, as many as the system lets wait.
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = UnixStream::connect(&path).unwrap();
    assert!(refused("socket", &path).contains("timed out"));
    drop(waiting);
}

#[test]
fn a_socket_that_goes_on_about_other_peers_is_left_after_a_second() {
    let folder = Folder::new("talk");
    let path = folder.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let talk = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // Version 0, and the number 1 for the client; then news of peer 7, each long before the last is old.
        for number in [0_i64, 1].into_iter().chain(std::iter::repeat(7)) {
            if socket.write_all(&number.to_le_bytes()).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert!(refused("socket", &path).contains("timed out"));
    talk.join().unwrap();
}

/// Greets a client and shows it these registers, whatever it does then.
fn greeted(name: &str, registers: &[(Register, u32)]) -> String {
    let folder = Folder::new(name);
    let path = folder.path("socket");
    let listener = Listener::new(&path).unwrap();
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let peer = listener.accept(MEMORY).unwrap();
            let length = usize::try_from(MEMORY).unwrap();
            let shared = Arc::new(Mapping::new(peer.memory(), 0, length).unwrap());
            for (register, value) in registers {
                shared.store(register.0 as usize, *value);
            }
            peer.greet().unwrap();
            peer
        });
        let reason = refused("socket", &path);
        drop(peer.join().unwrap());
        reason
    })
}

#[test]
fn what_greets_and_is_no_accelerator_or_takes_no_register_is_none() {
    let reason = greeted("zeros", &[]);
    assert!(reason.contains("register ID reads 0x00000000"), "{reason}");
    let other = VERSION + 1;
    let reason = greeted("other", &[(Register::ID, ID), (Register::VERSION, other)]);
    assert!(reason.contains("register VERSION reads"), "{reason}");
    let known = [(Register::ID, ID), (Register::VERSION, VERSION)];
    let reason = greeted("frozen", &known);
    assert!(reason.contains("no device answers"), "{reason}");
}

#[test]
fn files_of_other_kinds_are_no_devices() {
    let folder = Folder::new("kinds");
    let (file, fifo, link) = (
        folder.path("file"),
        folder.path("fifo"),
        folder.path("link"),
    );
    std::fs::write(&file, "text").unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    std::os::unix::fs::symlink(folder.path("socket"), &link).unwrap();
    for path in [&file, &fifo, &link, &folder.0, &folder.path("none")] {
        assert!(refused("socket", path).contains("cannot be reached"));
    }
    let far = folder.path(&"a".repeat(200));
    assert!(refused("socket", &far).contains("cannot be reached"));
    for path in [&file, &fifo, Path::new("/dev/null")] {
        let reason = refused("uio", path);
        assert!(reason.contains("cordon_accel"), "{path:?}: {reason}");
    }
    assert!(refused("uio", &folder.0).contains("cannot be reached"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
}
