//! Two sides in virtual time, and nothing but a function between them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;

use std::os::unix::fs::PermissionsExt as _;

use keyhost::KeyHost;
use tunnel::child_sa::ChildSa;
use tunnel::children::Install;
use tunnel::counters::Snapshot;
use tunnel::data_plane::{Capabilities, DataPlane, Refusal};

use super::super::*;
use crate::command::{Command, Reply};
use crate::resolve::ResolvedConfig;
use crate::signature;
use crate::trust::{Authorities, Refused, verify_key};

pub(super) const CAMERA: &str = r#"
status = "s"
interface = { name = "t" }
[[connection]]
name = "headquarters"
remote = "192.0.2.1"
local_id = "camera-17.example.org"
remote_id = "gateway.example.org"
psk_file = "psk"
start = "start"
lifetime = 300.0
[[connection.child]]
name = "net"
local = ["10.5.1.0/24"]
remote = ["10.5.2.0/24"]
lifetime = 60.0
"#;

pub(super) const GATEWAY: &str = r#"
status = "s"
interface = { name = "t" }
[[connection]]
name = "cameras"
local_id = "gateway.example.org"
remote_id = "camera-17.example.org"
psk_file = "psk"
[[connection.child]]
name = "net"
local = ["10.5.2.0/24"]
remote = ["10.5.1.0/24"]
"#;

pub(super) struct Seeded(u64);

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            // SplitMix64: no secret depends on it here.
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            *byte = (z ^ (z >> 31)).to_le_bytes()[0];
        }
    }
}

/// A data plane that builds associations as one worker does, and notes what is installed.
#[derive(Default)]
pub(super) struct FakePlane {
    pub(super) installed: Arc<Mutex<Vec<u32>>>,
}

impl DataPlane for FakePlane {
    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn stop(&self) {}
}

impl NegotiatedKeying for FakePlane {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            workers: 1,
            moves: true,
            same_spi: true,
        }
    }

    fn prepare(&self, child: &ChildSa, now: Instant) -> Result<PreparedChild, Refusal> {
        let made = Install::for_workers(child, now, NonZeroUsize::MIN, None)?;
        let installed = Arc::clone(&self.installed);
        Ok(PreparedChild::new(move || {
            let spis = made.iter().map(|install| install.spi().get());
            installed.lock().unwrap().extend(spis);
        }))
    }

    fn handle(&self, _: ChildCommand) {}
}

/// Effects of a side on its packet path, routes and journal.
#[derive(Default)]
pub(super) struct Done {
    pub(super) installed: Arc<Mutex<Vec<u32>>>,
    pub(super) removed: Vec<(u32, Duration)>,
    pub(super) moved: usize,
    pub(super) links: Vec<LinkCommand>,
    pub(super) audit: Vec<AuditEvent>,
}

pub(super) struct Side {
    pub(super) control: Control,
    pub(super) done: Done,
    pub(super) trust: Authorities,
    pub(super) keys: BTreeMap<String, Vec<Key>>,
    /// Certificates that were verified, and those that were reviewed.
    pub(super) seen: (usize, usize),
}

impl Side {
    pub(super) fn new(text: &str, folder: &std::path::Path, number: usize, start: Instant) -> Self {
        Self::with_seed(text, folder, number, number as u64, start)
    }

    /// One that is started again chooses other numbers than before.
    pub(super) fn with_seed(
        text: &str,
        folder: &std::path::Path,
        number: usize,
        seed: u64,
        start: Instant,
    ) -> Self {
        let mut loaded =
            ResolvedConfig::read(text, folder, &KeyHost::in_thread().unwrap()).unwrap();
        let trust = std::mem::take(&mut loaded.trust);
        let own: IpAddr = match number {
            0 => [192, 0, 2, 7].into(),
            other => [192, 0, 2, u8::try_from(other).unwrap()].into(),
        };
        let now = Now::since(start, start);
        let random = Box::new(Seeded(seed));
        let host = Host {
            source_of: Box::new(move |_| Some(own)),
            connected: Box::new(|| Ok(vec!["10.6.0.1/16".parse().unwrap()])),
            tcp: None,
        };
        let path = loaded.config.path.clone();
        let plane = Arc::new(FakePlane::default());
        let installed = Arc::clone(&plane.installed);
        let mut control = Control::new(path, plane, random, host, now);
        control.begin(loaded.connections, &loaded.config, now);
        let done = Done {
            installed,
            ..Done::default()
        };
        Self {
            control,
            done,
            trust,
            keys: BTreeMap::new(),
            seen: (0, 0),
        }
    }

    /// Does the work of other threads: signing, and looking at certificates.
    pub(super) fn serve(&mut self, effect: Effect, now: Now) {
        match effect {
            Effect::SetKeys(name, keys) => drop(self.keys.insert(name, keys)),
            Effect::Sign(pending, (name, index), scheme, message) => {
                let signed = signature::sign(&self.keys[&name][index], scheme, &message);
                self.control
                    .signed(pending, signed.map_err(|error| error.to_string()), now);
            }
            Effect::Review(pending, connection, accepted) => {
                self.seen.1 += 1;
                let trust = self.trust.of(&connection).unwrap();
                let reviewed = trust.review(&accepted, time::OffsetDateTime::now_utc());
                let refused =
                    |error: pki::path::PathError| Refused::Unacceptable(error.to_string().into());
                let result = reviewed.map(|()| accepted).map_err(refused);
                self.control.reviewed(pending, result, now);
            }
            Effect::Verify(pending, shown, id) => {
                self.seen.0 += 1;
                let utc = time::OffsetDateTime::now_utc();
                let requirement = &shown.requirement;
                let result = match requirement.without_chain {
                    true => verify_key(&shown.chain[0], &id, requirement, utc),
                    false => {
                        let trust = self.trust.of(&shown.connection).unwrap();
                        trust.verify(&shown.chain, &[], &id, requirement, utc)
                    }
                };
                self.control
                    .verified(pending, result.map_err(Refused::from), now);
            }
            other => self.done.take(other),
        }
    }
}

pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    pub(super) start: Instant,
    pub(super) elapsed: Duration,
    pub(super) sides: [Side; 2],
    pub(super) cut: bool,
}

impl World {
    pub(super) fn new(camera: &str, gateway: &str) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), camera, gateway)
    }

    pub(super) fn in_folder(folder: tempfile::TempDir, camera: &str, gateway: &str) -> Self {
        let secret = folder.path().join("psk");
        std::fs::write(&secret, "a secret for this test only").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let start = Instant::now();
        let side = |text: &str, number: usize| Side::new(text, folder.path(), number, start);
        let sides = [side(camera, 0), side(gateway, 1)];
        Self {
            start,
            elapsed: Duration::ZERO,
            sides,
            cut: false,
            folder,
        }
    }

    pub(super) fn now(&self) -> Now {
        Now::since(self.start, self.start + self.elapsed)
    }

    /// Lets time pass, and everything happen that happens in it.
    pub(super) fn run(&mut self, duration: Duration) {
        let end = self.elapsed + duration;
        loop {
            self.exchange();
            let next = self
                .sides
                .iter()
                .filter_map(|side| side.control.poll_timeout());
            let next = next.map(Timestamp::since_start).min();
            match next.filter(|at| *at <= end) {
                Some(at) => self.elapsed = self.elapsed.max(at),
                None => break,
            }
            let now = self.now();
            self.sides
                .iter_mut()
                .for_each(|side| side.control.tick(now));
        }
        self.elapsed = end;
    }

    pub(super) fn exchange(&mut self) {
        let now = self.now();
        loop {
            let mut quiet = true;
            for at in 0..2 {
                while let Some(effect) = self.sides[at].control.poll_effect() {
                    self.sides[at].serve(effect, now);
                }
                while let Some(transmit) = self.sides[at].control.poll_transmit() {
                    quiet = false;
                    if !self.cut {
                        let other = &mut self.sides[1 - at].control;
                        other.message(
                            Path::udp(transmit.remote, transmit.local),
                            &transmit.payload,
                            now,
                        );
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    pub(super) fn command(&mut self, at: usize, command: Command) -> Reply {
        let now = self.now();
        self.sides[at].control.handle(command, now)
    }

    pub(super) fn status(&mut self, at: usize) -> crate::report::IkeStatus {
        match self.command(at, Command::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn reasons(&mut self, at: usize) -> Vec<String> {
        match self.command(at, Command::Explain) {
            Reply::Explanations(all) => all.into_iter().map(|one| one.reason).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Every side has one child, and they are the two ends of the same.
    pub(super) fn check_up(&mut self) {
        let ends = [0, 1].map(|at| {
            let status = self.status(at);
            let children: Vec<_> = status
                .sas
                .iter()
                .flat_map(|sa| sa.children.clone())
                .collect();
            assert_eq!((status.sas.len(), children.len()), (1, 1), "side {at}");
            (children[0].spi_in.clone(), children[0].spi_out.clone())
        });
        assert_eq!((&ends[0].0, &ends[0].1), (&ends[1].1, &ends[1].0));
    }
}

impl Done {
    pub(super) fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Install(child) => child.install(),
            Effect::Child(ChildCommand::Remove(spi, drain)) => {
                self.removed.push((spi.get(), drain))
            }
            Effect::Child(ChildCommand::Move(..)) => self.moved += 1,
            Effect::Link(command) => self.links.push(command),
            Effect::Audit(event) => self.audit.push(event),
            _ => {}
        }
    }

    pub(super) fn actions(&self) -> Vec<&'static str> {
        self.audit
            .iter()
            .map(|event| event.action.action())
            .collect()
    }
}
