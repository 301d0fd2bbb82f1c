//! What runs and what waits in an established IKE SA, and what happens when both sides start at once.
//!
//! The peer's request while a request of ours is out (RFC 7296 §2.25; rows: peer, columns: ours):
//!
//! | | create | rekey child C | delete child C | rekey IKE | delete IKE |
//! |---|---|---|---|---|---|
//! | create | ok | ok | ok | later | later |
//! | rekey child C | ok | ok, nonces decide | later | later | later |
//! | delete child C | ok | ok, ours gives up | ok, without C | ok | ok |
//! | rekey IKE | later | later | later | ok, nonces decide | later |
//! | delete IKE | ok | ok | ok | ok | ok |
//!
//! "Later" is TEMPORARY_FAILURE; whoever gets it tries again after a pause with a random part. For a
//! child other than C, deleting and rekeying are independent of each other. With several key exchanges
//! (`followup.rs`) a request is out from CREATE_CHILD_SA to the last IKE_FOLLOWUP_KE.
//!
//! A Child SA that is rekeyed receives from the start on both sides. The one who asked for it sends
//! with it once the response is there; the other once the old one is deleted, or the caller reports
//! that packets came ([`crate::Endpoint::note_inbound`]). So at every instant each side
//! can open what the other sends.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::child::{ChildSa, ChildState};
use super::core::{Core, Transfer};
use super::followup::Promise;
use super::mobility::{Mobility, Path};
use super::nat::Nat;
use super::rekey_child::ChildRequest;
use super::rekey_ike::IkeRequest;
use super::{IkeId, IkeSa, Phase};
use crate::auth::Authenticated;
use crate::config::Connection;
use crate::crash::PeerToken;
use crate::crypto::IkeKeys;
use crate::event::{Event, Reason};
use crate::time::Timestamp;

/// Something to be done when its turn comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Make a Child SA by its index in the configuration.
    CreateChild(usize),
    /// Replace the Child SA with this inbound SPI.
    RekeyChild(u32),
    /// Delete the Child SA with this inbound SPI.
    DeleteChild(u32, Reason),
    /// Delete at the peer what it made for this SPI of ours and we could not accept.
    Disown(u32),
    /// Replace the IKE SA.
    RekeyIke,
    /// Close the IKE SA.
    DeleteIke(Reason),
    /// Tell the peer where we are.
    UpdateAddresses,
    /// See whether the peer receives at its new address.
    CheckPath,
    /// Tell the peer where else it can reach us.
    AnnounceAddresses,
    /// Tell the peer that it sends with this SPI, which we do not know.
    TellInvalidSpi(u32),
    /// Give the peer the token of an IKE SA whose SPIs it chose last.
    GiveCrashToken,
    /// See whether the peer lives.
    Liveness,
}

#[derive(Clone, Debug)]
pub(crate) struct Queued {
    intent: Intent,
    not_before: Timestamp,
}

/// Our request that is out.
pub(crate) enum Request {
    Child(Box<ChildRequest>),
    DeleteChild(u32, Reason),
    Disown(u32),
    RekeyIke(Box<IkeRequest>),
    DeleteIke(Reason),
    UpdateAddresses(Path),
    /// Cookie and path.
    CheckPath([u8; 16], Path),
    /// Its answer says no more than that it was heard.
    Notice,
    Liveness,
}

/// What an IKE SA is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It carries the Child SAs.
    Live,
    /// Made by the peer while we were rekeying too: not decided yet.
    Limbo,
    /// Replaced; whoever replaced it deletes it.
    Replaced,
    /// Ours lost against the peer's; we delete it.
    Redundant,
}

/// What a successor takes over.
pub(crate) struct Estate {
    pub(crate) path: Path,
    pub(crate) nat: Nat,
    pub(crate) mobility: Mobility,
    pub(crate) children: BTreeMap<u32, ChildSa>,
    pub(crate) queue: VecDeque<Queued>,
}

impl Estate {
    /// There is no successor any more: the Child SAs end.
    pub(crate) fn release(self, core: &mut Core, ike: IkeId) {
        for (spi_in, child) in self.children {
            core.free_esp_spi(spi_in);
            let (spi_out, reason) = (child.spi_out, Reason::Peer);
            core.event(Event::ChildDown {
                ike,
                spi_in,
                spi_out,
                reason,
            });
        }
        core.event(Event::IkeDown {
            ike,
            connection: None,
            reason: Reason::Peer,
        });
    }
}

pub(crate) struct Established {
    pub(crate) auth: Authenticated,
    pub(crate) keys: IkeKeys,
    pub(crate) children: BTreeMap<u32, ChildSa>,
    pub(crate) request: Option<Request>,
    /// What the peer gets after its further key exchanges.
    pub(crate) promise: Option<Box<Promise>>,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) role: Role,
    pub(crate) mobility: Mobility,
    /// By what the peer can show that it has lost this IKE SA.
    pub(crate) crash_token: Option<PeerToken>,
    /// A successor made by the peer that takes over once the answer is out.
    pub(crate) heir: Option<IkeId>,
    pub(crate) rekey_at: Option<Timestamp>,
    /// When it ends if it is not replaced.
    pub(crate) ends_at: Option<Timestamp>,
}

impl Established {
    pub(crate) fn new(
        core: &mut Core,
        ike: IkeId,
        connection: &Connection,
        auth: Authenticated,
        keys: IkeKeys,
    ) -> Self {
        let rekey_at = rekey_time(core, connection.rekey_after);
        let ends_at = end_time(core, connection.rekey_after);
        core.transfers.push(Transfer::Holds {
            ike,
            holder: auth.authorization().holder().clone(),
            most: auth.authorization().rates().ike_sas,
        });
        Self {
            auth,
            keys,
            children: BTreeMap::new(),
            request: None,
            promise: None,
            queue: VecDeque::new(),
            role: Role::Live,
            mobility: Mobility::default(),
            crash_token: None,
            heir: None,
            rekey_at,
            ends_at,
        }
    }

    /// Inbound SPIs of the Child SAs without one, which is replaced.
    pub(crate) fn others(&self, replaced: Option<u32>) -> Vec<u32> {
        let counts = |child: &&ChildSa| child.is_live() && Some(child.spi_in) != replaced;
        let live = self.children.values().filter(counts);
        live.map(|child| child.spi_in).collect()
    }

    pub(crate) fn spis_out(&self) -> Vec<u32> {
        self.children.values().map(|child| child.spi_out).collect()
    }

    pub(crate) fn child_by_outbound(&self, spi_out: u32) -> Option<&ChildSa> {
        self.children
            .values()
            .find(|child| child.spi_out == spi_out)
    }

    /// A new request of the peer shows that it has our last response, since it has one request out at
    /// a time.
    pub(crate) fn confirm(&mut self) {
        for child in self.children.values_mut() {
            child.unconfirmed = None;
        }
    }

    /// When a Child SA is to end. Not before the peer has shown that it has the successor: without it, and
    /// without the old one, it would be left with none.
    fn ends_at(&self, child: &ChildSa) -> Option<Timestamp> {
        let waits = match child.state {
            ChildState::Replaced(new) => self.children.get(&new),
            ChildState::Live | ChildState::Redundant => None,
        };
        let waits = waits.is_some_and(|successor| successor.unconfirmed.is_some());
        child.ends_at.filter(|_| !waits)
    }

    /// Replaces the Child SAs whose time it is, and deletes those that are over.
    fn tick_children(&mut self, core: &Core) {
        let (mut rekey, mut over) = (Vec::new(), Vec::new());
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= core.now);
        for child in self.children.values() {
            if due(self.ends_at(child)) {
                over.push(child.spi_in);
            } else if due(child.rekey_at) {
                rekey.push(child.spi_in);
            }
        }
        for spi_in in rekey {
            if let Some(child) = self.children.get_mut(&spi_in) {
                child.rekey_at = None;
                self.enqueue(core, Intent::RekeyChild(spi_in), core.now);
            }
        }
        for spi_in in over {
            if let Some(child) = self.children.get_mut(&spi_in) {
                child.ends_at = None;
                let intent = Intent::DeleteChild(spi_in, child.end_reason());
                self.enqueue(core, intent, core.now);
            }
        }
    }

    /// When an intention may start.
    fn ready_at(&self, queued: &Queued) -> Timestamp {
        let child = match &queued.intent {
            Intent::RekeyChild(spi_in) | Intent::DeleteChild(spi_in, _) => {
                self.children.get(spi_in)
            }
            _ => None,
        };
        let unconfirmed = child.and_then(|child| child.unconfirmed);
        let promise = self.promise.as_ref();
        let promised = promise.filter(|promise| promise.blocks(&queued.intent));
        let promised = promised.map(|promise| promise.expires);
        let waits = unconfirmed.max(promised).unwrap_or_default();
        waits.max(queued.not_before)
    }

    /// Adds an intention, unless it is there already. Beyond [`crate::Limits::queue`] it is dropped:
    /// timers and callers come back with it.
    pub(crate) fn enqueue(&mut self, core: &Core, intent: Intent, not_before: Timestamp) {
        let known = self.queue.iter().any(|queued| queued.intent == intent);
        if !known && self.queue.len() < core.limits.queue {
            self.queue.push_back(Queued { intent, not_before });
        }
    }

    /// Hands children and intentions over; intentions about the IKE SA itself stay.
    pub(crate) fn give_away(&mut self, path: Path, nat: Nat) -> Estate {
        let children = std::mem::take(&mut self.children);
        let queue = std::mem::take(&mut self.queue);
        let (own, mut rest): (VecDeque<_>, VecDeque<_>) = queue.into_iter().partition(|queued| {
            matches!(
                queued.intent,
                Intent::RekeyIke | Intent::Liveness | Intent::GiveCrashToken
            )
        });
        drop(own);
        let at_once = |intent| Queued {
            intent,
            not_before: Timestamp::default(),
        };
        // The answer to these would come to the old one.
        match self.request {
            Some(Request::UpdateAddresses(_)) => rest.push_back(at_once(Intent::UpdateAddresses)),
            Some(Request::CheckPath(..)) => rest.push_back(at_once(Intent::CheckPath)),
            _ => {}
        }
        // The peer may still wait at our old address for the answer that made the successor.
        let moved = |queued: &Queued| queued.intent == Intent::UpdateAddresses;
        if rest.iter().any(moved) {
            self.queue.push_back(at_once(Intent::UpdateAddresses));
        }
        Estate {
            path,
            nat,
            mobility: self.mobility.clone(),
            children,
            queue: rest,
        }
    }

    /// Lets the Child SAs and SPIs go.
    pub(crate) fn release(mut self, core: &mut Core, ike: IkeId, reason: &Reason) {
        self.void_promise(core);
        match self.request {
            Some(Request::Child(request)) => core.free_esp_spi(request.offer.spi_in),
            Some(Request::Disown(spi_in)) => core.free_esp_spi(spi_in),
            _ => {}
        }
        for queued in self.queue {
            if let Intent::Disown(spi_in) = queued.intent {
                core.free_esp_spi(spi_in);
            }
        }
        for (spi_in, child) in self.children {
            core.free_esp_spi(spi_in);
            let (spi_out, reason) = (child.spi_out, reason.clone());
            core.event(Event::ChildDown {
                ike,
                spi_in,
                spi_out,
                reason,
            });
        }
    }
}

/// When to replace something of this life: up to a tenth earlier, so that not all peers of a gateway
/// come at once, nor both sides of one SA.
pub(crate) fn rekey_time(core: &mut Core, life: Option<Duration>) -> Option<Timestamp> {
    let life = life?;
    let spread = life.checked_div(10).unwrap_or_default();
    let earlier = core.jittered(spread).saturating_sub(spread);
    Some(core.now.after(life.saturating_sub(earlier)))
}

/// When something of this life ends, if it is not replaced.
pub(crate) fn end_time(core: &Core, life: Option<Duration>) -> Option<Timestamp> {
    Some(core.now.after(life?).after(core.limits.overdue?))
}

impl IkeSa {
    /// Adds an intention of the caller; false if this IKE SA is not the one to carry it out.
    pub(crate) fn want(&mut self, core: &mut Core, intent: Intent) -> bool {
        let now = core.now;
        match &mut self.phase {
            Phase::Established(established) if established.role == Role::Live => {
                established.enqueue(core, intent, now);
                self.pump(core);
                true
            }
            Phase::InitSent(_) | Phase::Handshake(_) if matches!(intent, Intent::DeleteIke(_)) => {
                self.down(core, Reason::Local);
                self.gone = true;
                true
            }
            _ => false,
        }
    }

    /// Starts what waits, if nothing is out.
    pub(super) fn pump(&mut self, core: &mut Core) {
        while self.channel.is_idle() {
            let Phase::Established(established) = &mut self.phase else {
                return;
            };
            // Who was replaced or waits for a decision starts nothing but its own deletion.
            let may = |queued: &Queued| match established.role {
                Role::Live => established.ready_at(queued) <= core.now,
                // The peer may not have our answer to its rekeying, and behind a NAT may not be able
                // to ask again before it hears from us; nor does it, if we are elsewhere now.
                Role::Replaced => matches!(
                    queued.intent,
                    Intent::Liveness | Intent::UpdateAddresses | Intent::DeleteIke(_)
                ),
                _ => matches!(queued.intent, Intent::DeleteIke(_)),
            };
            let Some(index) = established.queue.iter().position(may) else {
                return;
            };
            let Some(queued) = established.queue.remove(index) else {
                return;
            };
            match queued.intent {
                Intent::CreateChild(config) => self.start_child(core, config, None, None),
                Intent::RekeyChild(spi_in) => self.start_child_rekey(core, spi_in),
                Intent::DeleteChild(spi_in, reason) => self.start_delete(core, spi_in, reason),
                Intent::Disown(spi_in) => self.start_disowning(core, spi_in),
                Intent::RekeyIke => self.start_ike_rekey(core, None),
                Intent::DeleteIke(reason) => self.start_close(core, reason),
                Intent::UpdateAddresses => self.start_update(core),
                Intent::CheckPath => self.start_checking_path(core),
                Intent::AnnounceAddresses => self.start_announcing(core),
                Intent::TellInvalidSpi(spi) => self.start_telling(core, spi),
                Intent::GiveCrashToken => self.start_giving_token(core),
                Intent::Liveness => self.start_liveness(core),
            }
        }
    }

    pub(super) fn established_timeout(&self, established: &Established) -> Option<Timestamp> {
        let timers = |child: &ChildSa| [child.rekey_at, established.ends_at(child)];
        let children = established.children.values().flat_map(timers).flatten();
        let live = established.role == Role::Live;
        let probes = live || established.role == Role::Replaced;
        let idle = self.channel.is_idle();
        let queued = established
            .queue
            .iter()
            .map(|queued| established.ready_at(queued));
        let quiet = self
            .connection
            .liveness
            .map(|after| self.channel.last_heard.after(after));
        let keepalive = self.keepalive_at();
        let promise = established.promise.as_ref().map(|promise| promise.expires);
        [
            promise,
            children.min().filter(|_| live),
            established.rekey_at.filter(|_| live),
            established.ends_at.filter(|_| live),
            queued.min().filter(|_| idle && live),
            quiet.filter(|_| idle && probes),
            keepalive.filter(|_| live),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn keepalive_at(&self) -> Option<Timestamp> {
        self.nat.ours.then(|| self.channel.keepalive_at())
    }

    pub(super) fn established_tick(&mut self, core: &mut Core) {
        let keepalive = self.keepalive_at().is_some_and(|at| at <= core.now);
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let now = core.now;
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if due(established.promise.as_ref().map(|promise| promise.expires)) {
            established.void_promise(core);
        }
        let quiet = self
            .connection
            .liveness
            .map(|after| self.channel.last_heard.after(after));
        let probes = matches!(established.role, Role::Live | Role::Replaced);
        if probes && due(quiet) && self.channel.is_idle() {
            established.enqueue(core, Intent::Liveness, core.now);
        }
        if established.role != Role::Live {
            return;
        }
        established.tick_children(core);
        if due(established.ends_at) {
            established.ends_at = None;
            established.enqueue(core, Intent::DeleteIke(Reason::Overdue), now);
        }
        if due(established.rekey_at) {
            established.rekey_at = None;
            established.enqueue(core, Intent::RekeyIke, now);
        }
        if keepalive {
            self.channel.send_keepalive(core);
        }
    }

    /// The wait for a successor's fate, or for the peer to delete what was replaced, is over.
    pub(super) fn on_established_deadline(&mut self, core: &mut Core) {
        self.down(core, Reason::Timeout);
        self.gone = true;
    }

    /// Takes over what belongs to a replaced IKE SA.
    pub(crate) fn inherit(&mut self, core: &mut Core, old: IkeId, estate: Estate) {
        let rekey_at = rekey_time(core, self.connection.rekey_after);
        let ends_at = end_time(core, self.connection.rekey_after);
        let Phase::Established(established) = &mut self.phase else {
            // The successor is gone already; so are the Child SAs.
            estate.release(core, old);
            return;
        };
        established.role = Role::Live;
        established.mobility = estate.mobility;
        (self.channel.local, self.channel.remote) = estate.path;
        self.nat = estate.nat;
        // Its age counts from the start of its duty.
        established.rekey_at = rekey_at;
        established.ends_at = ends_at;
        self.deadline = None;
        established.children.extend(estate.children);
        established.queue.extend(estate.queue);
        // In our own request the peer's SPI was not known yet (RFC 6290 §4.1).
        if core.crash_secret.is_some() && self.channel.initiator {
            established.enqueue(core, Intent::GiveCrashToken, core.now);
        }
        core.event(Event::IkeRekeyed { old, new: self.id });
        self.pump(core);
    }

    /// Packets came through a Child SA: the peer sends with it, so we may too.
    pub(crate) fn note_inbound(&mut self, core: &mut Core, spi_in: u32) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let Some(child) = established.children.get_mut(&spi_in) else {
            return;
        };
        child.unconfirmed = None;
        if child.is_live() && !child.sending {
            self.send_with(core, spi_in);
        }
    }

    /// Switches outbound traffic to a Child SA.
    pub(super) fn send_with(&mut self, core: &mut Core, spi_in: u32) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let Some(child) = established.children.get_mut(&spi_in) else {
            return;
        };
        if std::mem::replace(&mut child.sending, true) {
            return;
        }
        let (spi_out, state) = (child.spi_out, child.state);
        // We may have replaced it already, before the peer's deletion of its predecessor came: then
        // what we send with is newer.
        if let ChildState::Replaced(newer) = state
            && established
                .children
                .get(&newer)
                .is_some_and(|child| child.sending)
        {
            return;
        }
        core.event(Event::ChildOutbound {
            ike: self.id,
            spi_in,
            spi_out,
        });
    }

    /// The peer, if it is authenticated.
    pub(crate) fn peer(&self) -> Option<&crate::wire::Identification> {
        match &self.phase {
            Phase::Established(established) => Some(established.auth.peer()),
            _ => None,
        }
    }

    /// Whether this IKE SA carries Child SAs or may.
    pub(crate) fn is_live(&self) -> bool {
        matches!(&self.phase, Phase::Established(established) if established.role == Role::Live)
    }

    /// Inbound SPIs of the Child SAs.
    pub(crate) fn children(&self) -> Vec<(u32, u32)> {
        match &self.phase {
            Phase::Established(e) => e.children.values().map(|c| (c.spi_in, c.spi_out)).collect(),
            _ => Vec::new(),
        }
    }
}
