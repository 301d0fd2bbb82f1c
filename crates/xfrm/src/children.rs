//! Child SAs of many peers in the kernel: which association protects what, and how new ones take over.
//!
//! The order of things is that of [`tunnel::children`]. All are for the packets of one XFRM interface.
//! The kernel finds an association by the addresses in a policy's template and by a number, which is
//! each Child SA's own and goes on to its successor: two peers behind one address are told apart by it.
//! Several Child SAs may want the same packets; the policy shows the one that came last.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use ipsec::lifetime::Expiry;
use ipsec::sa::{DEFAULT_REPLAY_WINDOW, Mode, SaParameters, Spi};
use ipsec::selector::{PortMatch, Selector as Wanted};
use ipsec::tunnel::Dscp;
use tunnel::child_sa::{ChildCommand, ChildEvent, ChildSa, EventSink};
use tunnel::config::Prefix;
use tunnel::counters::Snapshot;

use crate::error::XfrmError;
use crate::message::{Direction, Policy, Sa, Selector, Template, Usage};
use crate::tables::{LOOK, Xfrm, add, amount, drops_of, state};

/// Interval between looks at sequence numbers of 32 bits.
const LOOK_AT_SEQUENCE: Duration = Duration::from_secs(5);
/// Policies of one Child SA at most: each range of addresses may be many networks.
const POLICIES: usize = 512;

/// Why a Child SA cannot be in the kernel.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// A selector is for some ports of many.
    #[error("the kernel's policies know one port or all, and the selectors name a range")]
    Ports,
    #[error("the selectors are more than {POLICIES} policies")]
    Many,
    /// The two hosts themselves.
    #[error("the kernel's IPsec is for tunnel mode here")]
    Transport,
}

/// Both directions of a Child SA.
pub(crate) struct KernelChild {
    inbound: Sa,
    outbound: Sa,
    /// Local and remote side.
    selectors: Vec<Pair>,
    /// The Child SA whose place it takes.
    replaces: Option<Spi>,
    send_now: bool,
    /// Number sent from which on new keys are due.
    worn: Option<u64>,
}

/// Our side and the peer's of one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    ours: (std::net::IpAddr, u8),
    theirs: (std::net::IpAddr, u8),
    protocol: Option<u8>,
    ports: [Option<u16>; 2],
}

impl KernelChild {
    /// A Child SA in the kernel's terms.
    ///
    /// # Errors
    /// [`Unfit`].
    pub(crate) fn new(child: &ChildSa) -> Result<Self, Unfit> {
        let pairs: Vec<Pair> = child
            .selectors
            .iter()
            .map(pairs)
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        if pairs.len() > POLICIES {
            return Err(Unfit::Many);
        }
        Ok(Self {
            worn: child.outbound.lifetime.soft.packets,
            inbound: association(&child.inbound, None)?,
            outbound: association(&child.outbound, Some(child))?,
            selectors: pairs,
            replaces: child.replaces,
            send_now: child.send_now,
        })
    }
}

/// An association, outbound where it is of a child.
fn association(parameters: &SaParameters, child: Option<&ChildSa>) -> Result<Sa, Unfit> {
    let outbound = child.is_some();
    let Mode::Tunnel(tunnel) = &parameters.mode else {
        return Err(Unfit::Transport);
    };
    let (ours, theirs) = (tunnel.local, tunnel.remote);
    let ports = parameters.encapsulation.map(|udp| match outbound {
        true => [udp.local, udp.remote],
        false => [udp.remote, udp.local],
    });
    Ok(Sa {
        source: if outbound { ours } else { theirs },
        destination: if outbound { theirs } else { ours },
        spi: parameters.spi,
        protocol: parameters.protocol,
        transport: false,
        // Set when it is installed.
        reqid: 0,
        in_udp: ports,
        extended_sequence: parameters.extended_sequence,
        window: DEFAULT_REPLAY_WINDOW,
        copy_dscp: tunnel.dscp == Dscp::Copy,
        tfc_padding: child.and_then(|child| child.tfc_padding),
        // With nobody left to remove it, it still goes.
        hard_seconds: parameters.lifetime.hard.age.map(|age| age.as_secs()),
        encryption_key: parameters.keys.encryption.clone(),
        integrity_key: parameters.keys.integrity.clone(),
    })
}

/// A selector as the kernel has them: networks and single ports.
fn pairs(wanted: &Wanted) -> Result<Vec<Pair>, Unfit> {
    let port = |ports: PortMatch| match ports {
        PortMatch::Any => Ok(None),
        PortMatch::Range(first, last) if first == last => Ok(Some(first)),
        PortMatch::Range(..) | PortMatch::Opaque => Err(Unfit::Ports),
    };
    let ports = [port(wanted.local_ports)?, port(wanted.remote_ports)?];
    let (ours, theirs) = (wanted.local.networks(), wanted.remote.networks());
    let pair = |ours, theirs| Pair {
        ours,
        theirs,
        protocol: wanted.protocol,
        ports,
    };
    let all = ours
        .iter()
        .flat_map(|ours| theirs.iter().map(move |theirs| (*ours, *theirs)));
    Ok(all.map(|(ours, theirs)| pair(ours, theirs)).collect())
}

/// Command to the thread of the kernel's Child SAs.
pub(crate) enum Command {
    Install(Box<KernelChild>),
    Child(ChildCommand),
    /// Answers with the state.
    Snapshot(SyncSender<Snapshot>),
    /// Removes everything and ends.
    Stop,
}

struct Child {
    inbound: Sa,
    outbound: Sa,
    selectors: Vec<Pair>,
    /// Whether the outbound association is installed.
    sends: bool,
    /// Whether another one sends in its place for good: installed again it would repeat its sequence numbers.
    silenced: bool,
    worn: Option<u64>,
}

/// Everything that the daemon has in the kernel.
pub(crate) struct KernelChildren<X> {
    kernel: X,
    if_id: u32,
    table: BTreeMap<Spi, Child>,
    /// Protecting SPIs by pair; the last one is in force.
    owners: BTreeMap<Pair, Vec<Spi>>,
    awaited: Vec<Spi>,
    draining: VecDeque<(Instant, Sa)>,
    next_reqid: u32,
    look_again: Instant,
    past: [Usage; 2],
    snapshot: Snapshot,
    sink: EventSink,
}

impl<X: Xfrm> KernelChildren<X> {
    pub(crate) fn new(kernel: X, if_id: u32, snapshot: Snapshot, sink: EventSink) -> Self {
        Self {
            kernel,
            if_id,
            table: BTreeMap::new(),
            owners: BTreeMap::new(),
            awaited: Vec::new(),
            draining: VecDeque::new(),
            next_reqid: 1,
            look_again: Instant::now(),
            past: [Usage::default(); 2],
            snapshot,
            sink,
        }
    }

    /// Works until it is told to stop, and then removes everything.
    ///
    /// # Errors
    /// What could not be removed.
    pub(crate) fn run(&mut self, commands: &Receiver<Command>) -> Result<(), XfrmError> {
        loop {
            let wait = match self.awaited.is_empty() && self.draining.is_empty() {
                true => LOOK_AT_SEQUENCE,
                false => LOOK,
            };
            match commands.recv_timeout(wait) {
                Ok(Command::Install(child)) => self.install(*child),
                Ok(Command::Child(command)) => self.handle(command),
                Ok(Command::Snapshot(answer)) => {
                    self.describe();
                    // Nobody waiting any more is no trouble.
                    let _ = answer.try_send(self.snapshot.clone());
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return self.remove_all();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.poll(Instant::now());
        }
    }

    fn handle(&mut self, command: ChildCommand) {
        match command {
            ChildCommand::Switch(spi) => self.send_with(spi),
            ChildCommand::Remove(spi, drain) => self.remove(spi, Instant::now() + drain),
            // New keys take the place of those at an old address, and traps are refused where the file is read.
            ChildCommand::Move(..)
            | ChildCommand::Trap(..)
            | ChildCommand::Rearm(_)
            | ChildCommand::Untrap(_) => {}
        }
    }

    fn install(&mut self, mut child: KernelChild) {
        let spi = child.inbound.spi;
        let old = child.replaces.and_then(|old| self.table.get(&old));
        let old = old.or_else(|| self.beside(&child));
        let reqid = old.map_or(self.next_reqid, |old| old.outbound.reqid);
        if old.is_none() {
            // After four thousand million it begins anew; nobody of then is there any more.
            self.next_reqid = self.next_reqid.checked_add(1).unwrap_or(1);
        }
        (child.inbound.reqid, child.outbound.reqid) = (reqid, reqid);
        if let Err(error) = self.kernel.add_sa(&child.inbound, Some(self.if_id)) {
            self.give_up(spi, &error);
            return;
        }
        let send_now = child.send_now;
        let child = Child {
            inbound: child.inbound,
            outbound: child.outbound,
            selectors: child.selectors,
            sends: false,
            silenced: false,
            worn: child.worn,
        };
        // Packets under the new keys are let in from now on.
        for pair in child.selectors.clone() {
            self.owners.entry(pair).or_default().push(spi);
            self.show(&child, &pair, &[Direction::In, Direction::Forward]);
        }
        self.table.insert(spi, child);
        match send_now {
            true => self.send_with(spi),
            false => self.awaited.push(spi),
        }
    }

    /// A Child SA of the same two hosts for the same packets, as a peer has that authenticates anew. With the same
    /// number the kernel's policies take packets of both.
    fn beside(&self, child: &KernelChild) -> Option<&Child> {
        let owner = self.owners.get(child.selectors.first()?)?.last()?;
        let hosts = |sa: &Sa| (sa.source, sa.destination);
        self.table.get(owner).filter(|other| {
            other.selectors == child.selectors && hosts(&other.outbound) == hosts(&child.outbound)
        })
    }

    /// Without an association in the kernel the Child SA is none: it is to be closed.
    fn give_up(&mut self, spi: Spi, error: &XfrmError) {
        tracing::error!(esp_spi = %spi, %error, "the kernel takes no association");
        (self.sink)(ChildEvent::Expired(spi, Expiry::Hard));
    }

    fn send_with(&mut self, spi: Spi) {
        self.awaited.retain(|awaited| *awaited != spi);
        let Some(child) = self.table.get(&spi).filter(|child| !child.silenced) else {
            return;
        };
        if child.sends {
            return self.prefer(spi);
        }
        let Some(mut child) = self.table.remove(&spi) else {
            return;
        };
        match self.kernel.add_sa(&child.outbound, Some(self.if_id)) {
            Ok(()) => child.sends = true,
            Err(error) => self.give_up(spi, &error),
        }
        for pair in child.selectors.clone() {
            self.show(&child, &pair, &[Direction::Out]);
        }
        // Of several with one number the kernel takes the newest.
        self.table.insert(spi, child);
    }

    /// Puts a Child SA that sends before the others that want the same packets.
    fn prefer(&mut self, spi: Spi) {
        let Some(child) = self.table.remove(&spi) else {
            return;
        };
        for pair in &child.selectors {
            let owners = self.owners.entry(*pair).or_default();
            owners.retain(|owner| *owner != spi);
            owners.push(spi);
            self.show(&child, pair, &ALL);
        }
        // Of several with one number the kernel takes the newest, so that those must go.
        let same = |other: &Child| other.sends && other.outbound.reqid == child.outbound.reqid;
        let others = self.table.iter_mut().filter(|(_, other)| same(other));
        let others = others.map(|(spi, other)| {
            other.silenced = true;
            *spi
        });
        for other in others.collect::<Vec<Spi>>() {
            self.silence(other);
        }
        self.table.insert(spi, child);
    }

    /// Takes the outbound association away.
    fn silence(&mut self, spi: Spi) {
        let Some(child) = self.table.get_mut(&spi).filter(|child| child.sends) else {
            return;
        };
        child.sends = false;
        let outbound = child.outbound.clone();
        self.retire(&outbound, OUT);
    }

    fn remove(&mut self, spi: Spi, until: Instant) {
        self.awaited.retain(|awaited| *awaited != spi);
        self.silence(spi);
        let Some(child) = self.table.remove(&spi) else {
            return;
        };
        for pair in &child.selectors {
            self.hand_over(spi, &child, pair);
        }
        self.draining.push_back((until, child.inbound));
    }

    /// A policy gets its next owner, or goes.
    fn hand_over(&mut self, spi: Spi, child: &Child, pair: &Pair) {
        let Some(owners) = self.owners.get_mut(pair) else {
            return;
        };
        let shown = owners.last() == Some(&spi);
        owners.retain(|owner| *owner != spi);
        let successor = owners.last().copied();
        if successor.is_none() {
            self.owners.remove(pair);
            for direction in ALL {
                let policy = self.policy(child, pair, direction);
                match self.kernel.remove_policy(&policy) {
                    Err(error) if !error.is_gone() => {
                        tracing::warn!(%error, "a policy of an old Child SA");
                    }
                    _ => {}
                }
            }
        } else if shown
            && let Some(successor) =
                successor.and_then(|successor| self.table.remove_entry(&successor))
        {
            let directions = if successor.1.sends {
                &ALL[..]
            } else {
                &ALL[1..]
            };
            self.show(&successor.1, pair, directions);
            self.table.insert(successor.0, successor.1);
        }
    }

    fn policy(&self, child: &Child, pair: &Pair, direction: Direction) -> Policy {
        let prefix = |(address, bits)| Prefix { address, bits };
        let (ours, theirs) = (prefix(pair.ours), prefix(pair.theirs));
        let [our_port, their_port] = pair.ports;
        let out = direction == Direction::Out;
        let sa = if out { &child.outbound } else { &child.inbound };
        Policy {
            direction,
            selector: Selector {
                source: if out { ours } else { theirs },
                destination: if out { theirs } else { ours },
                protocol: pair.protocol,
                ports: match out {
                    true => [our_port, their_port],
                    false => [their_port, our_port],
                },
            },
            template: Some(Template {
                source: sa.source,
                destination: sa.destination,
                protocol: sa.protocol,
                transport: false,
                reqid: sa.reqid,
            }),
            if_id: Some(self.if_id),
        }
    }

    /// Lets policies show this Child SA.
    fn show(&mut self, child: &Child, pair: &Pair, directions: &[Direction]) {
        for direction in directions {
            let policy = self.policy(child, pair, *direction);
            if let Err(error) = self.kernel.set_policy(&policy) {
                tracing::error!(%error, "the kernel takes no policy");
            }
        }
    }

    /// Removes an association and keeps what it did.
    fn retire(&mut self, sa: &Sa, way: usize) {
        if let (Ok(usage), Some(past)) = (self.kernel.usage(sa), self.past.get_mut(way)) {
            add(past, &usage);
        }
        match self.kernel.remove_sa(sa) {
            Err(error) if !error.is_gone() => {
                tracing::warn!(spi = %sa.spi, %error, "an old association");
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant) {
        let mut waiting = VecDeque::new();
        for (until, sa) in std::mem::take(&mut self.draining) {
            if until <= now {
                self.retire(&sa, IN);
            } else {
                waiting.push_back((until, sa));
            }
        }
        self.draining = waiting;
        for spi in self.awaited.clone() {
            let Some(child) = self.table.get(&spi) else {
                continue;
            };
            let usage = self.kernel.usage(&child.inbound);
            if usage.is_ok_and(|usage| usage.packets > 0) {
                self.awaited.retain(|awaited| *awaited != spi);
                (self.sink)(ChildEvent::FirstInbound(spi));
            }
        }
        if now >= self.look_again {
            self.look_again = now + LOOK_AT_SEQUENCE;
            self.look_at_sequence();
        }
    }

    /// Tells of associations whose short sequence numbers are nearly used up, once.
    fn look_at_sequence(&mut self) {
        let mut worn = Vec::new();
        for (spi, child) in &self.table {
            let Some(most) = child.worn.filter(|_| child.sends) else {
                continue;
            };
            let usage = self.kernel.usage(&child.outbound);
            if usage.is_ok_and(|usage| usage.sent >= most) {
                worn.push(*spi);
            }
        }
        for spi in worn {
            if let Some(child) = self.table.get_mut(&spi) {
                child.worn = None;
            }
            (self.sink)(ChildEvent::Expired(spi, Expiry::Soft));
        }
    }

    fn describe(&mut self) {
        let [mut sent, mut received] = self.past;
        self.snapshot.associations.clear();
        for child in self.table.values() {
            if child.sends {
                let usage = self.kernel.usage(&child.outbound).unwrap_or_default();
                add(&mut sent, &usage);
                let row = state(&child.outbound, "out", &usage, usage.sent);
                self.snapshot.associations.push(row);
            }
            let usage = self.kernel.usage(&child.inbound).unwrap_or_default();
            add(&mut received, &usage);
            let row = state(&child.inbound, "in", &usage, usage.received);
            self.snapshot.associations.push(row);
        }
        self.snapshot.sent = amount(&sent);
        self.snapshot.received = amount(&received);
        self.snapshot.inbound_drops = drops_of(&received);
    }

    fn remove_all(&mut self) -> Result<(), XfrmError> {
        let all: Vec<Spi> = self.table.keys().copied().collect();
        let now = Instant::now();
        for spi in all {
            self.remove(spi, now);
        }
        for (_, sa) in std::mem::take(&mut self.draining) {
            match self.kernel.remove_sa(&sa) {
                Err(error) if !error.is_gone() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

const OUT: usize = 0;
const IN: usize = 1;
const ALL: [Direction; 3] = [Direction::Out, Direction::In, Direction::Forward];

#[cfg(test)]
mod tests;
