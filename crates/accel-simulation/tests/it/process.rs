//! A device in another process: results, faults, and its end.

use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use accel_driver::{Completion, Config, ShotConfig};
use accel_engine::{Accelerator, Bus};
use accel_transport::Link;
use offload_policy::{AesCbc, AesGcm, Direction, Policy, Quarantine, Selection, Settings};

/// A device process with its folder; both go with it.
struct Served {
    folder: PathBuf,
    process: Child,
}

impl Served {
    fn new(name: &str) -> Self {
        let name = format!("accel-transport-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_accel_serve"))
            .arg(folder.join("socket"))
            .arg("--conduct")
            .arg(folder.join("conduct"))
            .arg("--counts")
            .arg(folder.join("counts"))
            .spawn()
            .unwrap();
        Self { folder, process }
    }

    fn link(&self) -> Link {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            match Link::connect(&self.folder.join("socket")) {
                Ok(link) => return link,
                Err(error) => assert!(Instant::now() < end, "{error:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn behave(&self, conduct: &str) {
        let new = self.folder.join("new");
        std::fs::write(&new, conduct).unwrap();
        std::fs::rename(new, self.folder.join("conduct")).unwrap();
        self.says(&format!("\"conduct\": \"{conduct}\""));
    }

    fn accelerator(&self, completion: Completion, deadline: u64) -> Arc<Accelerator<Link>> {
        let config = Config {
            ring_size: 4,
            buffer: 16384,
            completion,
            deadline: Duration::from_millis(deadline),
            watchdog: Duration::from_millis(deadline / 4),
            poll_interval: Duration::from_micros(50),
            first_sequence: 1000,
        };
        Arc::new(Accelerator::new("process", self.link(), config).unwrap())
    }

    /// Waits until the device says this of itself.
    fn says(&self, what: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let said = std::fs::read_to_string(self.folder.join("counts")).unwrap_or_default();
            if said.contains(what) {
                return;
            }
            assert!(Instant::now() < end, "{what} is not in {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn settings(selection: Selection) -> Settings {
    Settings {
        selection,
        check_one_in: 0,
        ..Settings::default()
    }
}

/// Encrypts, authenticates and opens messages of several sizes; panics at a wrong byte.
fn exchange(policy: &Arc<Policy>) {
    let software = Policy::new(None, settings(Selection::Software));
    for size in [16, 1024, 16000] {
        let data: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let (mut ours, mut theirs) = (data.clone(), data.clone());
        let cbc = |policy| AesCbc::new(policy, Direction::Encrypt, &[1; 16], [2; 16]).unwrap();
        cbc(policy).process(&mut ours).unwrap();
        cbc(&software).process(&mut theirs).unwrap();
        assert_eq!(ours, theirs);
        let gcm = |policy| AesGcm::new(policy, &[3; 32]).unwrap();
        let tag = gcm(&software).seal([4; 12], b"aad", &mut theirs).unwrap();
        gcm(policy)
            .open([4; 12], b"aad", &mut theirs, &tag)
            .unwrap();
        assert_eq!(theirs, ours);
    }
}

#[test]
fn both_ways_to_hear_of_completions_give_the_same_bytes_as_software() {
    for (name, completion) in [
        ("interrupt", Completion::Interrupt),
        ("polling", Completion::Polling),
    ] {
        let served = Served::new(name);
        let device = served.accelerator(completion, 60_000);
        let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
        exchange(&policy);
        assert_eq!(policy.quarantine(), None);
        let statistics = device.statistics();
        let interrupts = match completion {
            Completion::Polling => 0,
            _ => statistics.completed,
        };
        assert!(
            statistics.completed >= 18,
            "{statistics:?} {:?}",
            policy.counters()
        );
        assert_eq!(device.with_bus(|bus| bus.interrupts()), interrupts);
        let requests = statistics.completed;
        served.says(&format!(
            "\"requests\": {requests}, \"interrupts\": {interrupts},"
        ));
    }
}

#[test]
fn single_shots_through_another_process_have_the_bytes_of_software() {
    let mut served = Served::new("shot");
    let config = ShotConfig {
        deadline: Duration::from_secs(60),
        poll_interval: Duration::from_micros(50),
        number: 1000,
    };
    let device = Accelerator::single_shot("process", served.link(), config);
    let device = Arc::new(device);
    let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
    exchange(&policy);
    assert_eq!(policy.quarantine(), None);
    // The larger ones are cut into pieces, or stay with software.
    let completed = device.statistics().completed;
    assert!(completed > 16_000 / 960, "{completed}");
    // The device has read and written nothing but registers, and interrupted nobody.
    assert_eq!(device.with_bus(|bus| bus.interrupts()), 0);
    served.says("\"requests\": 0, \"interrupts\": 0,");
    served.process.kill().unwrap();
    served.process.wait().unwrap();
    exchange(&policy);
    assert!(policy.quarantine().is_some());
}

/// Runs `work` as the user `nobody`; gives nothing where this process may not become another user.
fn as_nobody<R: Send>(work: impl FnOnce() -> R + Send) -> Option<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65_534);
            let changed = rustix::thread::set_thread_uid(nobody).is_ok();
            changed.then(work)
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_stranger_gets_nothing_from_the_device_and_does_not_keep_it_busy() {
    let served = Served::new("stranger");
    let socket = served.folder.join("socket");
    let end = Instant::now() + Duration::from_secs(30);
    while !socket.exists() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(10));
    }
    for path in [&served.folder, &socket] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, mode).unwrap();
    }
    let mut kept = Vec::new();
    for _ in 0..3 {
        let said = as_nobody(|| {
            let mut stranger = UnixStream::connect(&socket).unwrap();
            let mut said = Vec::new();
            let read = stranger.read_to_end(&mut said);
            (stranger, read.is_ok() && said.is_empty())
        });
        let Some((stranger, nothing)) = said else {
            eprintln!("not run: only root can become another user");
            return;
        };
        assert!(nothing);
        kept.push(stranger);
    }
    drop(served.link());
}

#[test]
fn a_socket_that_somebody_else_has_made_is_no_device() {
    let folder = std::env::temp_dir().join(format!("accel-impostor-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&folder, mode).unwrap();
    let path = folder.join("socket");
    // Who listens is whose process it was when it began to.
    let socket = as_nobody(|| UnixListener::bind(&path).unwrap());
    if let Some(socket) = socket {
        let refused = Link::connect(&path).unwrap_err();
        let refused = std::error::Error::source(&refused).unwrap().to_string();
        assert!(refused.contains("permission denied"), "{refused}");
        drop(socket);
    } else {
        eprintln!("not run: only root can become another user");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn device_that_does_not_do_what_it_should_is_given_up_and_every_byte_is_right() {
    for conduct in [
        "lie-about-tag",
        "die",
        "wrong-echo",
        "wrong-length",
        "wrong-outcome",
        "late",
    ] {
        let served = Served::new(conduct);
        let device = served.accelerator(Completion::Interrupt, 1000);
        let policy = Policy::new(Some(device), settings(Selection::From(0)));
        exchange(&policy);
        assert_eq!(policy.quarantine(), None, "{conduct}");
        served.behave(conduct);
        exchange(&policy);
        let quarantine = policy.quarantine().expect(conduct);
        let tag = matches!(quarantine, Quarantine::Tag(_));
        assert_eq!(tag, conduct == "lie-about-tag", "{quarantine}");
        served.behave("proper");
        exchange(&policy);
    }
}

#[test]
fn lost_and_doubled_interrupts_cost_time_only() {
    for conduct in ["lose-interrupts", "double-interrupts"] {
        let served = Served::new(conduct);
        let device = served.accelerator(Completion::Interrupt, 400);
        let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
        served.behave(conduct);
        exchange(&policy);
        assert_eq!(policy.quarantine(), None, "{conduct}");
        let missed = device.statistics().missed_interrupts;
        assert_eq!(missed > 0, conduct == "lose-interrupts");
    }
}

#[test]
fn two_hundred_devices_one_after_another_leave_nothing_behind() {
    let held = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mapped = std::fs::read_to_string("/proc/self/maps").unwrap();
        (files, mapped.matches("memfd:accelerator").count())
    };
    let (mut least, mut most) = ((usize::MAX, usize::MAX), (0, 0));
    for number in 0..200 {
        let mut served = Served::new(&format!("again-{number}"));
        let device = served.accelerator(Completion::Interrupt, 10_000);
        let policy = Policy::new(Some(device), settings(Selection::From(0)));
        let mut data = [7; 64];
        let stream = AesCbc::new(&policy, Direction::Encrypt, &[1; 16], [2; 16]);
        stream.unwrap().process(&mut data).unwrap();
        assert_eq!(policy.counters().device, 1);
        if number % 2 == 0 {
            // Half of them end before their driver does.
            served.process.kill().unwrap();
            served.process.wait().unwrap();
        }
        drop(policy);
        let (files, mapped) = held();
        least = (least.0.min(files), least.1.min(mapped));
        most = (most.0.max(files), most.1.max(mapped));
    }
    // Other tests of this process come and go.
    assert!(
        most.0 - least.0 < 100 && most.1 - least.1 < 20,
        "{least:?} {most:?}"
    );
}

#[test]
fn killed_device_process_ends_requests_by_their_deadline() {
    let mut served = Served::new("killed");
    let device = served.accelerator(Completion::Interrupt, 500);
    let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
    exchange(&policy);
    served.process.kill().unwrap();
    served.process.wait().unwrap();
    let started = Instant::now();
    exchange(&policy);
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(
        policy.quarantine().is_some(),
        "{:?} {:?}",
        policy.counters(),
        device.statistics()
    );
    assert!(!device.with_bus(|bus| bus.wait(Duration::ZERO)));
}
