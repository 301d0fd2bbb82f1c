//! Several Child SAs for the same traffic, each for a worker of its own (RFC 9611).
//!
//! The inbound SPI says whose it is: its remainder by the number of workers. That worker gets what the peer sends with
//! it (`sys::option::steer_by_spi`) and sends with its other half, so that no two want the same association. Every
//! worker has all of them all the same: one whose own is not there sends with another's, and opens whatever comes.

use std::collections::{BTreeMap, HashMap, HashSet};

use ipsec::sa::Spi;

/// Names Child SAs for the same traffic, with all that replaced one of them.
pub(super) type Group = u64;

/// A worker's place among all, and the groups of Child SAs.
#[derive(Debug)]
pub(super) struct Resources {
    number: u32,
    workers: u32,
    next: Group,
    members: HashMap<Group, Vec<Spi>>,
    /// Inbound SPIs of groups in which several workers have their own.
    spread: HashSet<Spi>,
}

impl Default for Resources {
    fn default() -> Self {
        Self::of_worker(0, 1)
    }
}

impl Resources {
    /// The groups as worker `number` of `workers` sees them.
    pub(super) fn of_worker(number: u32, workers: u32) -> Self {
        Self {
            number,
            workers: workers.max(1),
            next: 0,
            members: HashMap::new(),
            spread: HashSet::new(),
        }
    }

    /// The worker to which an inbound SPI belongs.
    const fn owner(&self, spi: Spi) -> u32 {
        match spi.get().checked_rem(self.workers) {
            Some(owner) => owner,
            None => 0,
        }
    }

    /// Adds a Child SA to a group, or to one of its own.
    pub(super) fn add(&mut self, spi: Spi, group: Option<Group>) -> Group {
        self.forget(spi);
        let group = group.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.members.entry(group).or_default().push(spi);
        self.look(group);
        group
    }

    /// Takes a Child SA out of its group. Packets may still come with it, until [`Self::forget`].
    pub(super) fn remove(&mut self, spi: Spi, group: Group) {
        if let Some(members) = self.members.get_mut(&group) {
            members.retain(|member| *member != spi);
            if members.is_empty() {
                self.members.remove(&group);
            }
        }
        self.look(group);
    }

    /// Nothing comes with this SPI any more.
    pub(super) fn forget(&mut self, spi: Spi) {
        self.spread.remove(&spi);
    }

    /// Notes whether several workers have their own in a group.
    fn look(&mut self, group: Group) {
        let Some(members) = self.members.get(&group) else {
            return;
        };
        let first = members.first().map(|spi| self.owner(*spi));
        let several = members.iter().any(|spi| Some(self.owner(*spi)) != first);
        for spi in members {
            match several {
                true => self.spread.insert(*spi),
                false => self.spread.remove(spi),
            };
        }
    }

    /// Tells whether several workers have their own of the Child SAs among which this one is.
    pub(super) fn is_spread(&self, spi: Spi) -> bool {
        self.spread.contains(&spi)
    }

    /// The one with which this worker sends, of those that may, the newest last: of the newest one's group its own, or
    /// one that it shares with as few others as possible.
    pub(super) fn choose(
        &self,
        owners: &[Spi],
        group: impl Fn(Spi) -> Option<Group>,
    ) -> Option<Spi> {
        let newest = group(*owners.last()?)?;
        let of_group = owners.iter().filter(|spi| group(**spi) == Some(newest));
        // The newer of two that belong to one worker replaces the other.
        let by_owner: BTreeMap<u32, Spi> = of_group.map(|spi| (self.owner(*spi), *spi)).collect();
        let own = by_owner.get(&self.number);
        own.copied().or_else(|| {
            let place = usize::try_from(self.number).ok()?;
            let place = place.checked_rem(by_owner.len())?;
            by_owner.into_values().nth(place)
        })
    }
}
