//! The Child SAs of an IKE SA as far as they say whether there may be one more for the same traffic, and where
//! (RFC 9611, `resources.rs`): plain data.

use std::sync::Arc;

use super::child_sa::Traffic;
use crate::config::Limits;
use crate::wire::{Notify, NotifyType, Payload};

/// Most Child SAs for the same traffic, however many resources there are: each takes memory and rekeying of both sides.
const RESOURCES: usize = 16;

/// Most Child SAs for the same traffic.
pub(crate) fn most(limits: &Limits) -> usize {
    limits.resources.clamp(1, RESOURCES)
}

/// A Child SA of the same IKE SA.
pub(crate) struct Sibling {
    pub(super) config: usize,
    pub(super) spi_in: u32,
    pub(super) traffic: Option<Arc<Traffic>>,
}

/// Child SAs of an IKE SA that count as resources in use.
#[derive(Default)]
pub(crate) struct Siblings {
    pub(super) list: Vec<Sibling>,
    /// No further ones, so that Child SAs for other traffic have their place.
    pub(super) crowded: bool,
}

impl Siblings {
    /// Those that are configured as this one is.
    fn of(&self, config: usize) -> usize {
        let of = self.list.iter().filter(|one| one.config == config);
        of.count()
    }

    /// Tells whether there may be one more that is configured so.
    pub(super) fn has_room(&self, limits: &Limits, config: usize) -> bool {
        let count = self.of(config);
        count == 0 || (count < most(limits) && !self.crowded)
    }

    /// Tells whether a new one is to be the first of several.
    pub(crate) fn may_begin(&self, limits: &Limits, config: usize) -> bool {
        most(limits) > 1 && self.of(config) == 0
    }

    /// Those with the same traffic.
    pub(crate) fn beside(&self, config: usize, traffic: &Traffic) -> Vec<&Sibling> {
        let same = |one: &&Sibling| {
            let theirs = one.traffic.as_deref();
            one.config == config && theirs.is_some_and(|theirs| theirs.is(traffic))
        };
        self.list.iter().filter(same).collect()
    }

    /// The place of a new Child SA among the resources: that of the one that it replaces, or one that none beside it
    /// has. Any if none.
    pub(crate) fn place(
        &self,
        limits: &Limits,
        replaces: Option<u32>,
        shared: Option<(usize, &Traffic)>,
    ) -> Option<u32> {
        let count = u32::try_from(limits.resources).ok().filter(|n| *n > 1)?;
        let place = |spi: u32| spi.checked_rem(count).unwrap_or_default();
        if let Some(old) = replaces {
            return Some(place(old));
        }
        let (config, traffic) = shared?;
        let taken = self.beside(config, traffic);
        let taken: Vec<u32> = taken.iter().map(|one| place(one.spi_in)).collect();
        let first = *taken.first()?;
        // From the first one's place on, which is random: so peers with few of them share all resources evenly.
        let mut places = (1..count).map(|next| place(first.saturating_add(next)));
        places.find(|place| !taken.contains(place))
    }
}

/// Asks for, or agrees to, one of several Child SAs for the same traffic (RFC 9611). For which resource, each side
/// keeps to itself.
pub(super) fn resource_notify() -> Payload {
    Payload::Notify(Notify::new(NotifyType::SA_RESOURCE_INFO))
}
