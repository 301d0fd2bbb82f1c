//! Seeded runs: both sides do things at random moments while the network loses, repeats and reorders,
//! NATs change their minds, clocks go wrong, daemons restart and one side moves to other addresses.
//!
//! A failing seed is added to `tests/seeds.txt`, which the normal tests replay;
//! `SEED=n cargo test -p ikev2 --test it one_seed -- --ignored` repeats one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ikev2::crypto::Group;
use ikev2::{Connection, Limits, TicketKeys};
use zeroize::Zeroizing;

use crate::support::{
    Clock, Seeded, Weather, World, certify, connection, key_of, resources_of, with_resources,
};

/// What a seed chose.
struct Plan {
    connections: [Connection; 2],
    limits: Limits,
    nat: bool,
    clocks: [Clock; 2],
    /// Which side starts anew, and before which action.
    restart: Option<(usize, u64)>,
    /// Whether side 0 changes its address now and then.
    moves: bool,
    /// Whether both have certificates, and resume their sessions.
    resumes: bool,
    /// Resources of each side.
    resources: [usize; 2],
}

const ACTIONS: u64 = 10;

impl Plan {
    fn new(random: &mut Seeded) -> Self {
        let mut connections = [connection(0), connection(1)];
        let nat = random.below(4) == 0;
        // A key exchange costs more than all the rest, and changes nothing in who wins.
        let plain = random.below(4) != 0;
        for connection in &mut connections {
            if plain {
                connection.children[0].esp[0].groups.clear();
            }
            if random.below(2) == 0 {
                let after = Duration::from_secs(60 + random.below(60));
                connection.children[0].rekey_after = Some(after);
            }
            if random.below(2) == 0 {
                connection.rekey_after = Some(Duration::from_secs(120 + random.below(120)));
            }
            if random.below(2) == 0 {
                connection.liveness = Some(Duration::from_secs(30));
            }
        }
        if nat {
            // Only side 0 can tell side 1 where it is now.
            connections[0].liveness = Some(Duration::from_secs(10));
        }
        let restart = (random.below(4) == 0)
            .then(|| (random.below(2) as usize, 1 + random.below(ACTIONS - 2)));
        if restart.is_some() {
            // Nobody else tells side 0 that the other side has forgotten it.
            connections[0].liveness = Some(Duration::from_secs(10));
        }
        let mut clocks = [Clock::default(); 2];
        if random.below(2) == 0 {
            clocks = clocks.map(|_| Clock {
                ahead: Duration::from_secs(random.below(1_000_000)),
                permille: 950 + random.below(101) as u32,
            });
        }
        // Enough transmissions that a tenth of loss does not look like a dead peer.
        let limits = Limits {
            transmissions: 12,
            ..Limits::default()
        };
        Self {
            connections,
            limits,
            nat,
            clocks,
            restart,
            moves: false,
            resumes: false,
            resources: [1; 2],
        }
    }

    /// The same once more, for what came after that.
    fn extend_again(&mut self, random: &mut Seeded) {
        self.resumes = random.below(3) == 0;
        for (side, connection) in self.connections.iter_mut().enumerate() {
            if self.resumes {
                certify(connection, side);
            }
        }
    }

    /// What a side has besides its connection, from the beginning and after a restart.
    fn set_up(&self, world: &mut World, side: usize) {
        if !self.resumes {
            return;
        }
        let own = &mut world.sides[side];
        own.key = Some(key_of(side));
        own.resumption = Some(vec![side as u8]);
        let keys = TicketKeys::new(&[Zeroizing::new([7; 32])], Duration::from_secs(3600), 0);
        own.endpoint.set_ticket_keys(keys);
    }

    /// Chooses what came later, from numbers of its own, so that half of the seeds mean what they meant.
    fn extend(&mut self, random: &mut Seeded) {
        if random.below(2) == 0 {
            return;
        }
        // One further key exchange or two, in one of the SAs or both; or each side prefers another way.
        let further = [vec![Group::MlKem768], vec![Group::P256]];
        let count = 1 + random.below(2) as usize;
        let (ike, esp) = (random.below(4), random.below(4));
        for (side, connection) in self.connections.iter_mut().enumerate() {
            let child = &mut connection.children[0];
            if ike != 0 {
                let mut several = connection.ike[0].clone();
                several.additional = further[..count].to_vec();
                let place = if ike == 1 { side } else { 0 };
                connection.ike.insert(place, several);
            }
            if esp != 0 {
                let mut several = child.esp[0].clone();
                several.groups = vec![Group::X25519];
                several.additional = further[..count].to_vec();
                let place = if esp == 1 { side } else { 0 };
                child.esp.insert(place, several);
            }
        }
        self.moves = !self.nat && random.below(2) == 0;
        for connection in &mut self.connections {
            connection.mobility = self.moves;
        }
    }
}

/// One run: some ten minutes of virtual time with about fifteen rekeyings, started by both sides,
/// often at once.
fn run(seed: u64) {
    let mut random = Seeded(seed.wrapping_mul(0x9e37_79b9));
    let mut plan = Plan::new(&mut random);
    let mut others = Seeded(seed.wrapping_mul(0xa076_1d65) ^ 0x0b5e);
    plan.extend(&mut others);
    plan.extend_again(&mut Seeded(seed.wrapping_mul(0xd6e8_feb8) ^ 0x71c4));
    plan.resources = resources_of(seed);
    let limits = [0, 1].map(|side| with_resources(&plan.limits, plan.resources[side]));
    let mut world = World::with_clocks(plan.connections.clone(), limits, seed, plan.clocks);
    for side in [0, 1] {
        plan.set_up(&mut world, side);
    }
    let address = plan.nat.then(|| "203.0.113.9".parse().unwrap());
    world.weather = Weather {
        nat: address,
        nat_port: 4711,
        jitter: 20,
        ..Weather::default()
    };
    world.initiate();
    world.run(Duration::from_secs(5));
    world.assert_up();
    world.watch = true;
    world.weather.loss = random.below(15);
    world.weather.duplication = random.below(15);
    world.weather.jitter = 1 + random.below(800);
    for action in 0..ACTIONS {
        let both = random.below(3) == 0;
        let side = random.below(2) as usize;
        act(&mut world, side, &mut random);
        if both {
            act(&mut world, 1 - side, &mut random);
        }
        if plan.moves && others.below(3) == 0 {
            depart(&mut world, action);
        }
        if plan.nat && random.below(4) == 0 {
            world.weather.nat_port = 1024 + random.below(1000) as u16;
        }
        if let Some((side, at)) = plan.restart
            && at == action
        {
            world.run(Duration::from_millis(random.below(2000)));
            restart(&mut world, &plan, side, seed ^ random.next());
        }
        world.run(Duration::from_millis(random.below(45_000)));
    }
    world.weather.loss = 0;
    world.weather.duplication = 0;
    // Long enough that everything waiting for a lost datagram is over, timers apart.
    world.run(Duration::from_secs(300));
    world.assert_up();
}

/// Side 0 is at another address from now on, and its old one is dead.
fn depart(world: &mut World, action: u64) {
    let old = world.sides[0].address;
    let new = SocketAddr::new([192, 0, 2, 100 + action as u8].into(), 500);
    let local = SocketAddr::new(new.ip(), 4500);
    let remote = SocketAddr::new(world.sides[1].address.ip(), 4500);
    let now = world.sides[0].clock.local(world.now);
    let Some((ike, _)) = world.sides[0].endpoint.established().next() else {
        return;
    };
    if world.sides[0]
        .endpoint
        .change_path(now, ike, local, remote)
        .is_ok()
    {
        world.sides[0].address = new;
        world.dead.insert(old.ip());
    }
    world.collect();
}

/// One side forgets everything. Side 0, which can reach the other, tries until the tunnel is up; it
/// must be within ten minutes. As the daemon does it tries again only when the last attempt is over: of two
/// at once the second ends the first (INITIAL_CONTACT).
fn restart(world: &mut World, plan: &Plan, side: usize, seed: u64) {
    world.watch = false;
    let (connection, limits) = (
        plan.connections[side].clone(),
        with_resources(&plan.limits, plan.resources[side]),
    );
    world.restart(side, connection, limits, seed);
    plan.set_up(world, side);
    for _ in 0..60 {
        if world.sides[0].endpoint.is_empty() {
            world.initiate();
        }
        world.run(Duration::from_secs(10));
        let up = |index: usize| world.sides[index].endpoint.established().count() == 1;
        let remembered = world.sides[side].saw("up FQDN") > 0;
        if remembered && up(0) && up(1) && both_are_one(world) {
            world.watch = true;
            world.collect();
            return;
        }
    }
    panic!(
        "no tunnel after a restart of side {side}\n{:#?}\n{:#?}",
        world.sides[0].log, world.sides[1].log
    );
}

/// Whether each side can send to the other. After a restart one may still hold what the other forgot.
fn both_are_one(world: &World) -> bool {
    [0, 1].iter().all(|side| {
        let outbound = world.sides[*side].outbound();
        outbound.is_some_and(|child| world.sides[1 - side].receives(child.spi_out, world.now))
    })
}

fn act(world: &mut World, side: usize, random: &mut Seeded) {
    let now = world.sides[side].clock.local(world.now);
    let Some((ike, children)) = world.sides[side].endpoint.established().next() else {
        return;
    };
    let endpoint = &mut world.sides[side].endpoint;
    // Any of them, and without a random number, so that older seeds mean what they meant.
    let moment = now.since_start().as_millis() as usize;
    let child = children.get(moment % children.len().max(1));
    let child = child.map(|(spi, _)| *spi);
    // What is replaced at this moment may refuse: that is not what is tested here.
    let _ = match (random.below(3), child) {
        (0 | 1, Some(child)) => endpoint.rekey_child(now, ike, child),
        (2, _) => endpoint.rekey_ike(now, ike),
        _ => endpoint.probe(now, ike),
    };
    world.collect();
}

#[test]
fn four_hundred_seeds_keep_the_tunnel() {
    for seed in 0..400 {
        assert!(passes(seed), "seed {seed}");
    }
}

/// Seeds that once failed, and some that meet everything at once.
const SAVED: &str = include_str!("../seeds.txt");

#[test]
fn saved_seeds_keep_the_tunnel() {
    replay(SAVED, passes);
}

/// Runs the seeds of a file, of which there is one in a line.
pub(crate) fn replay(saved: &str, passes: fn(u64) -> bool) {
    let lines = saved.lines().filter(|line| !line.starts_with('#'));
    let seeds: Vec<u64> = lines
        .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
        .collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        assert!(passes(seed), "seed {seed}");
    }
}

fn passes(seed: u64) -> bool {
    std::panic::catch_unwind(|| run(seed)).is_ok()
}

#[test]
#[ignore = "takes as long as one likes: FROM=n COUNT=n THREADS=n choose the seeds"]
fn many_seeds_keep_the_tunnel() {
    try_many(passes, "seeds.txt");
}

/// Tries the seeds that the environment names, and saves those that fail in a file beside the tests.
pub(crate) fn try_many(passes: fn(u64) -> bool, file: &str) {
    let number =
        |name, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let from = number("FROM", 0);
    let to = from + number("COUNT", 10_000);
    let (next, failures) = (AtomicU64::new(from), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..number("THREADS", 1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        return;
                    }
                    if !passes(seed) {
                        failures.fetch_add(1, Ordering::Relaxed);
                        save(seed, file);
                    }
                    if seed % 100_000 == 99_999 {
                        eprintln!("seed {seed} is done");
                    }
                }
            });
        }
    });
    let failures = failures.into_inner();
    assert_eq!(failures, 0, "seeds that failed; they are in tests/{file}");
}

fn save(seed: u64, file: &str) {
    use std::io::Write;
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let path = path.join(file);
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    writeln!(file, "{seed} failed").unwrap();
}

#[test]
#[ignore = "repeats the run named by SEED"]
fn one_seed() {
    run(std::env::var("SEED").unwrap().parse().unwrap());
}
