use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tunnel::config::StaticConfig;

use super::*;
use crate::policies::{self, policies};

/// A tunnel with manual keys.
const EXAMPLE: &str = include_str!("../../../tunnel/src/config/example.toml");

/// A kernel that remembers what it was state.
#[derive(Default)]
struct Told {
    log: Vec<String>,
    /// Usage of each installed association.
    sas: BTreeMap<u32, Usage>,
    policies: usize,
    /// The first line that is refused.
    refuse: Option<String>,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Told>>);

impl Fake {
    fn tell(&self, line: String) -> Result<(), XfrmError> {
        let mut state = self.0.borrow_mut();
        if state.refuse.as_ref() == Some(&line) {
            return Err(XfrmError::Exists(line));
        }
        state.log.push(line);
        Ok(())
    }

    /// Returns the calls since the last time.
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }

    fn used(&self, spi: u32, usage: Usage) {
        self.0.borrow_mut().sas.insert(spi, usage);
    }
}

impl Xfrm for Fake {
    fn add_sa(&mut self, sa: &Sa, if_id: Option<u32>) -> Result<(), XfrmError> {
        assert_eq!(if_id, Some(0x1002), "the first inbound SPI's, for ever");
        self.tell(format!("add {}", sa.spi))?;
        let before = self
            .0
            .borrow_mut()
            .sas
            .insert(sa.spi.get(), Usage::default());
        assert_eq!(before, None, "it was there");
        Ok(())
    }

    fn remove_sa(&mut self, sa: &Sa) -> Result<(), XfrmError> {
        self.tell(format!("remove {}", sa.spi))?;
        assert!(
            self.0.borrow_mut().sas.remove(&sa.spi.get()).is_some(),
            "it was not there"
        );
        Ok(())
    }

    fn add_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        self.tell(format!("policy {:?}", policy.direction))?;
        self.0.borrow_mut().policies += 1;
        Ok(())
    }

    fn set_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        panic!("manual keys change no policy: {policy:?}");
    }

    fn remove_policy(&mut self, _: &Policy) -> Result<(), XfrmError> {
        self.0.borrow_mut().policies -= 1;
        Ok(())
    }

    fn usage(&mut self, sa: &Sa) -> Result<Usage, XfrmError> {
        let gone = || XfrmError::Exists("nothing".into());
        self.0
            .borrow()
            .sas
            .get(&sa.spi.get())
            .copied()
            .ok_or_else(gone)
    }
}

/// The example with other SPIs.
fn config(outbound: u32, inbound: u32) -> StaticConfig {
    let text = EXAMPLE
        .replace("0x1001", &outbound.to_string())
        .replace("0x1002", &inbound.to_string());
    StaticConfig::parse(&format!("backend = \"kernel\"\n{text}")).unwrap()
}

fn pair(outbound: u32, inbound: u32) -> Pair {
    policies::pair(&config(outbound, inbound)).unwrap()
}

const TIMING: RekeyConfig = RekeyConfig {
    switch_after: Duration::from_secs(2),
    drain: Duration::from_secs(10),
};

fn install(kernel: &Fake) -> Result<Tables<Fake>, XfrmError> {
    let config = config(0x1001, 0x1002);
    let wanted = policies(&config).unwrap();
    Tables::install(
        kernel.clone(),
        pair(0x1001, 0x1002),
        wanted,
        Some(0x1002),
        TIMING,
    )
}

fn one_packet() -> Usage {
    Usage {
        packets: 1,
        bytes: 100,
        ..Usage::default()
    }
}

#[test]
fn install_puts_associations_before_policies_and_remove_leaves_nothing() {
    let kernel = Fake::default();
    let mut tables = install(&kernel).unwrap();
    let log = kernel.log();
    assert_eq!(log[..2], ["add 00001002", "add 00001001"]);
    // Both families: out, in, forward.
    assert_eq!(log.len(), 2 + 6);
    assert!(tables.is_stable());
    tables.remove().unwrap();
    let state = kernel.0.borrow();
    assert!(state.sas.is_empty() && state.policies == 0);
}

#[test]
fn install_refused_at_any_step_leaves_nothing() {
    for refused in [
        "add 00001002",
        "add 00001001",
        "policy Out",
        "policy Forward",
    ] {
        let kernel = Fake::default();
        kernel.0.borrow_mut().refuse = Some(refused.into());
        assert!(install(&kernel).is_err(), "{refused}");
        let state = kernel.0.borrow();
        assert!(state.sas.is_empty() && state.policies == 0, "{refused}");
    }
}

#[test]
fn new_keys_take_over_when_the_far_side_uses_them() {
    let kernel = Fake::default();
    let mut tables = install(&kernel).unwrap();
    kernel.log();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    tables.begin(pair(0x2001, 0x2002), start).unwrap();
    tables.poll(start);
    assert_eq!(kernel.log(), ["add 00002002"]);
    assert!(!tables.is_stable());
    kernel.used(0x2002, one_packet());
    tables.poll(at(1));
    assert_eq!(kernel.log(), ["add 00002001", "remove 00001001"]);
    tables.poll(at(10));
    assert_eq!(kernel.log(), [""; 0]);
    tables.poll(at(11));
    assert_eq!(kernel.log(), ["remove 00001002"]);
    assert!(tables.is_stable());
}

#[test]
fn new_keys_take_over_after_switch_time_without_traffic() {
    let kernel = Fake::default();
    let mut tables = install(&kernel).unwrap();
    kernel.log();
    let start = Instant::now();
    tables.begin(pair(0x2001, 0x2002), start).unwrap();
    tables.poll(start + TIMING.switch_after - Duration::from_millis(1));
    assert_eq!(kernel.log(), ["add 00002002"]);
    tables.poll(start + TIMING.switch_after);
    assert_eq!(kernel.log(), ["add 00002001", "remove 00001001"]);
    // Without a packet under the new key the old one stays.
    tables.poll(start + Duration::from_secs(3600));
    assert_eq!(kernel.log(), [""; 0]);
}

#[test]
fn spi_in_use_is_refused_and_changes_nothing() {
    let kernel = Fake::default();
    let mut tables = install(&kernel).unwrap();
    let now = Instant::now();
    tables.begin(pair(0x2001, 0x2002), now).unwrap();
    kernel.log();
    // Sending, waiting, receiving, on its way out.
    for (outbound, inbound) in [
        (0x1001, 0x3002),
        (0x2001, 0x3002),
        (0x3001, 0x2002),
        (0x3001, 0x1002),
    ] {
        let refused = tables.begin(pair(outbound, inbound), now);
        assert!(matches!(
            refused,
            Err(DataPlaneError::Rekey(RekeyError::SpiInUse(_)))
        ));
    }
    assert_eq!(kernel.log(), [""; 0]);
    kernel.0.borrow_mut().refuse = Some("add 00003002".into());
    assert!(tables.begin(pair(0x3001, 0x3002), now).is_err());
    tables.poll(now + TIMING.switch_after);
    assert_eq!(kernel.log(), ["add 00002001", "remove 00001001"]);
}

#[test]
fn old_associations_beyond_the_bound_are_removed() {
    let kernel = Fake::default();
    let mut tables = install(&kernel).unwrap();
    let now = Instant::now();
    for step in 2..20 {
        tables
            .begin(pair(step * 0x1000 + 1, step * 0x1000 + 2), now)
            .unwrap();
    }
    // The newest one, and outbound the first.
    assert_eq!(kernel.0.borrow().sas.len(), MAX_OLD + 2);
    tables.remove().unwrap();
    assert!(kernel.0.borrow().sas.is_empty());
}

#[test]
fn counters_survive_removal_of_their_association() {
    let kernel = Fake::default();
    let mut tables = install(&kernel).unwrap();
    kernel.used(0x1001, one_packet());
    let received = Usage {
        duplicate: 3,
        received: 7,
        ..one_packet()
    };
    kernel.used(0x1002, received);
    let start = Instant::now();
    tables.begin(pair(0x2001, 0x2002), start).unwrap();
    let mut state = Snapshot::default();
    tables.describe(&mut state);
    assert!(state.rekey_pending);
    kernel.used(0x2002, received);
    tables.poll(start);
    tables.poll(start + TIMING.drain);
    tables.describe(&mut state);
    assert_eq!((state.sent.packets, state.received.packets), (1, 2));
    assert_eq!(state.received.bytes, 200);
    let drops: Vec<_> = state
        .inbound_drops
        .iter()
        .map(|drop| (&*drop.cause, drop.packets))
        .collect();
    assert_eq!(drops, [("replay_duplicate", 6)]);
    let spis: Vec<_> = state
        .associations
        .iter()
        .map(|sa| (sa.spi.as_str(), sa.sequence))
        .collect();
    assert_eq!(spis, [("00002001", 0), ("00002002", 7)]);
    assert!(!state.rekey_pending);
}
