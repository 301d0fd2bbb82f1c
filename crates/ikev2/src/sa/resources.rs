//! Several Child SAs for the same traffic, each for a resource of its own, as a core (RFC 9611).
//!
//! ```text
//! the first   SA, [Ni, KEi,] TSi, TSr, N(SA_RESOURCE_INFO)  -->
//!                                                           <--  SA, [Nr, KEr,] TSi, TSr, N(SA_RESOURCE_INFO)
//! further     HDR, SK {SA, Ni, [KEi,] TSi, TSr, N(SA_RESOURCE_INFO)}  -->
//!                                       <--  HDR, SK {SA, Nr, [KEr,] TSi, TSr, N(SA_RESOURCE_INFO)}   or
//!                                       <--  HDR, SK {N(TS_MAX_QUEUE)}
//! at last     HDR, SK {}  -->
//!                         <--  HDR, SK {}
//! ```
//!
//! The side that asked for the first asks for the further ones, one at a time, until each of its resources has one or the peer
//! wants no more; then not again before the IKE SA is replaced. So there are as many as the side with fewer resources
//! has, whoever starts. A peer that does not confirm the first is not asked.
//!
//! SPIs say which resource receives: those of Child SAs beside each other differ modulo [`Limits::resources`], and a
//! successor has the place of what it replaces. The responder sends with a further one once the peer has shown that
//! it has it; meanwhile the others carry the traffic. That is what the last exchange is for.

use super::child::{ChildContext, Negotiated};
use super::child_sa::{ChildSa, Traffic};
use super::common::Common;
use super::core::Core;
use super::established::Established;
use super::exchange::{Exchange, Purpose};
use super::intent::Intent;
use super::payloads::has_notify;
use super::refusal::Refusal;
use super::siblings::{Sibling, Siblings, most};
use crate::config::Limits;
use crate::event::Reason;
use crate::wire::{NotifyType, Payload};

impl Negotiated {
    /// Its traffic, if there may be several for it.
    pub(super) fn shared(&self) -> Option<Traffic> {
        let (ts_i, ts_r) = self.selectors.clone();
        let (local, remote) = match self.initiator {
            true => (ts_i, ts_r),
            false => (ts_r, ts_i),
        };
        self.shares.then_some(Traffic { local, remote })
    }

    /// Tells whether there are others for its traffic.
    pub(super) fn has_others(&self, siblings: &Siblings) -> bool {
        let shared = self.shared();
        shared.is_some_and(|traffic| !siblings.beside(self.config, &traffic).is_empty())
    }
}

impl ChildContext<'_> {
    /// Tells whether there are Child SAs with this traffic, beside which one more would be.
    pub(crate) fn is_further(&self, shared: Option<(usize, &Traffic)>) -> bool {
        let beside = shared.map(|(config, traffic)| self.siblings.beside(config, traffic));
        beside.is_some_and(|beside| !beside.is_empty())
    }

    /// Tells whether the Child SA that the peer asks for is one of several for its traffic.
    pub(crate) fn admit_resource(
        &self,
        limits: &Limits,
        config: usize,
        request: &[Payload],
    ) -> Result<bool, Refusal> {
        if self.replaces.is_some() {
            return Ok(self.shared);
        }
        if !has_notify(request, NotifyType::SA_RESOURCE_INFO) {
            return Ok(false);
        }
        if !self.siblings.has_room(limits, config) {
            let kind = NotifyType::TS_MAX_QUEUE;
            return Err(Refusal::new(kind, Reason::Refused(kind)));
        }
        Ok(most(limits) > 1)
    }
}

impl Established {
    /// Live Child SAs apart from one, which is replaced. One that is being deleted is none any more, nor is one that
    /// the peer has replaced while we want to.
    pub(crate) fn siblings(&self, limits: &Limits, replaced: Option<u32>) -> Siblings {
        let gone = match &self.exchange {
            Some(Exchange::Child(ours)) if ours.peer_rekey.is_some() => ours.rekeys,
            _ => None,
        };
        let ours = self.exchange.as_ref();
        let counts = |child: &&ChildSa| {
            let spi_in = Some(child.spi_in);
            let deleted = ours.is_some_and(|ours| ours.deletes_child(child.spi_in));
            child.is_live() && !deleted && spi_in != replaced && spi_in != gone
        };
        let live = self.children.values().filter(counts);
        let list = live.map(|child| Sibling {
            config: child.config,
            spi_in: child.spi_in,
            traffic: child.traffic.clone(),
        });
        Siblings {
            list: list.collect(),
            crowded: self.children.len() >= limits.children / 2,
        }
    }

    /// Tells whether another Child SA counts for this one against what the peer may have: of those for the same traffic the one
    /// with the lowest SPI does.
    pub(crate) fn is_further(&self, child: &ChildSa, replaced: Option<u32>) -> bool {
        let Some(traffic) = &child.traffic else {
            return false;
        };
        self.children.range(..child.spi_in).any(|(spi, other)| {
            let theirs = other.traffic.as_deref();
            let same = theirs.is_some_and(|theirs| theirs.is(traffic));
            same && other.is_live() && other.config == child.config && Some(*spi) != replaced
        })
    }

    /// Asks for one more Child SA with the traffic of those that are configured so, if one is missing and the peer may
    /// be asked. False if not.
    pub(super) fn want_resource(&mut self, core: &Core, config: usize) -> bool {
        let wanted = self.asks_for.contains(&config)
            && !self.refused.contains(&config)
            && self
                .siblings(&core.limits, None)
                .has_room(&core.limits, config);
        if wanted {
            self.enqueue(core, Intent::CreateResource(config), core.now);
        }
        wanted
    }

    /// Takes note of a Child SA that we have asked for and that the peer has made one of several: the first of them, or
    /// a further one.
    pub(super) fn made_resource(&mut self, core: &Core, config: usize, further: bool) {
        self.asks_for.insert(config);
        if !further {
            self.refused.remove(&config);
        }
        if !self.want_resource(core, config) && further {
            self.enqueue(core, Intent::Liveness, core.now);
        }
    }

    /// Asks for what may have been refused before: the peer may have more resources by now.
    pub(super) fn want_all_resources(&mut self, core: &Core) {
        for config in self.asks_for.clone() {
            self.want_resource(core, config);
        }
    }

    /// Asks for a further Child SA, unless there are enough by now, or none beside which it would be.
    ///
    /// ```text
    /// HDR, SK {SA, Ni, [KEi,] TSi, TSr, N(SA_RESOURCE_INFO)}  -->
    /// ```
    pub(super) fn start_resource(&mut self, sa: &mut Common, core: &mut Core, config: usize) {
        let mut of = self.children.values().filter(|child| child.is_live());
        let found = of.find_map(|child| child.traffic.clone().filter(|_| child.config == config));
        let siblings = self.siblings(&core.limits, None);
        if let Some(traffic) = found.filter(|_| siblings.has_room(&core.limits, config)) {
            self.start_child(sa, core, config, &Purpose::Resource(traffic), None);
        }
    }

    /// The peer wants no more of them.
    pub(super) fn refuse_resources(&mut self, config: usize) {
        self.refused.insert(config);
    }
}
