//! One IKE SA with each peer of a connection.
//!
//! Two come up where both sides start at once, and where a peer authenticates anew. Which one survives:
//!
//! - of two that one side started, the one that was begun later: which one comes up first depends on what gets lost;
//! - of two that different sides started, the later one, if its first message was sent when the other was up;
//! - else, as both were begun before either was up, the one that was started by the side with the lower identity.
//!
//! The sides may see the order differently where messages cross, so one of them acts: the side with the lower
//! identity. The other acts where it has started both, as its peer sees those in the same order, and after
//! [`crate::Limits::settle`], as not every implementation ends what is surplus. Should both act and differ, the one
//! whose survivor is ended by the other gets no answer, and so ends nothing; and the side with the higher identity waits on
//! while the other asks through what it is about to end, which may be what has that one act.
//!
//! ```text
//! both up ──► survivor carries the Child SAs ──► HDR, SK {}  -->            (by the survivor)
//!                                                            <--  HDR, SK {}
//!             all traffic goes by the survivor ──► HDR, SK {D}  -->         (by the other)
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::Endpoint;
use crate::config::Unique;
use crate::event::Reason;
use crate::sa::{IkeId, IkeSa, Intent, Origin, PeerKey};
use crate::time::Timestamp;

/// Peers with surplus IKE SAs, and when to look at them again.
#[derive(Default)]
pub(super) struct Contests {
    of_peer: BTreeMap<PeerKey, Contest>,
    timers: BTreeSet<(Timestamp, PeerKey)>,
}

/// Times that the side with the higher identity waits on at most (our choice: peers also ask whether we are alive).
const POSTPONED: u8 = 3;

#[derive(Clone, Copy)]
struct Contest {
    at: Timestamp,
    /// Whether the peer has had its time.
    waited: bool,
    /// Times that we have waited on.
    postponed: u8,
}

impl Contests {
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn remove(&mut self, key: &PeerKey) {
        if let Some(contest) = self.of_peer.remove(key) {
            self.timers.remove(&(contest.at, key.clone()));
        }
    }

    fn set(&mut self, key: &PeerKey, contest: Contest) {
        self.remove(key);
        self.timers.insert((contest.at, key.clone()));
        self.of_peer.insert(key.clone(), contest);
    }
}

/// One of several IKE SAs with a peer.
struct Rival {
    id: IkeId,
    origin: Origin,
    /// Child SAs, by their place in the configuration.
    children: BTreeSet<usize>,
    last_asked: u64,
}

/// Several IKE SAs with a peer, and the one that survives.
struct Outcome {
    survivor: Rival,
    others: Vec<Rival>,
    /// Whether it is for us to end the others.
    ours: bool,
}

impl Outcome {
    /// The others that we are to end now: not before the survivor carries what they do. A peer that leaves
    /// something out on purpose has had its time to make it.
    fn surplus(&self, waited: bool) -> Vec<IkeId> {
        let carries = |other: &Rival| {
            let all = self.survivor.children.is_superset(&other.children);
            all || (waited && !self.survivor.children.is_empty())
        };
        let acts = |other: &Rival| {
            let both_ours = self.survivor.origin.ours && other.origin.ours;
            self.ours || waited || both_ours
        };
        let others = self.others.iter();
        let others = others.filter(|other| acts(other) && carries(other));
        others.map(|other| other.id).collect()
    }

    /// Tells that the peer, whose turn it is, may take another one for the survivor and be about to end this one.
    fn is_contested(&self) -> bool {
        let came_up = self.survivor.origin.up;
        !self.ours && self.others.iter().any(|other| other.last_asked > came_up)
    }
}

/// The survivor among IKE SAs in the order in which they came up. `lower` says whether our identity is the lower one.
fn survivor(rivals: &[Rival], lower: bool) -> Option<usize> {
    let mut rest = rivals.iter().enumerate();
    let mut best = rest.next()?;
    for next in rest {
        let (one, two) = (best.1.origin, next.1.origin);
        let stays = if one.ours == two.ours {
            two.begun < one.begun
        } else {
            // At once: the earlier one stays if it is of the side with the lower identity.
            two.begun < one.up && one.ours == lower
        };
        best = if stays { best } else { next };
    }
    Some(best.0)
}

impl Endpoint {
    /// Compares the IKE SAs of a peer; none if there is one at most, or there may be several.
    fn compare(&self, key: &PeerKey) -> Option<Outcome> {
        let live = self.core.sessions.live(key);
        let mut rivals: Vec<Rival> = live
            .into_iter()
            .filter_map(|id| {
                let sa = self.table.get(&id)?;
                let (origin, children) = (sa.origin()?, sa.configured_children());
                Some(Rival {
                    id,
                    origin,
                    children,
                    last_asked: sa.last_asked(),
                })
            })
            .collect();
        rivals.sort_unstable_by_key(|rival| rival.origin.up);
        let newest = self.table.get(&rivals.last()?.id)?.connection();
        let lower = newest.local_id.key().cmp(&key.0);
        // Where both sides have one identity it tells nobody apart.
        if rivals.len() < 2 || newest.unique == Unique::Never || lower.is_eq() {
            return None;
        }
        let at = survivor(&rivals, lower.is_lt())?;
        let survivor = rivals.swap_remove(at);
        Some(Outcome {
            survivor,
            others: rivals,
            ours: lower.is_lt(),
        })
    }

    /// An IKE SA has come up: the peer may have others.
    pub(super) fn settle(&mut self, ike: IkeId) {
        if let Some(key) = self.core.sessions.key(ike).cloned() {
            self.look(&key, false, 0);
        }
    }

    /// Looks at the peers whose time it is.
    pub(super) fn settle_due(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.contests.timers.first().cloned() {
            if at > now {
                return;
            }
            let postponed = self
                .contests
                .of_peer
                .get(&key)
                .map_or(0, |contest| contest.postponed);
            self.contests.remove(&key);
            self.look(&key, true, postponed);
        }
    }

    /// Has the survivor ask the peer, if there is something to be ended.
    fn look(&mut self, key: &PeerKey, waited: bool, postponed: u8) {
        let Some(outcome) = self.compare(key) else {
            return self.contests.remove(key);
        };
        let at = self.core.now.after(self.core.limits.settle);
        let contest = Contest {
            at,
            waited,
            postponed,
        };
        self.contests.set(key, contest);
        self.mark(&outcome);
        if outcome.surplus(waited).is_empty() {
            return;
        }
        // A responder's first request may overtake its response to IKE_AUTH.
        let pause = match outcome.survivor.origin.ours {
            true => std::time::Duration::ZERO,
            false => self.core.limits.retry_pause,
        };
        let not_before = self.core.now.after(pause);
        if let Some(sa) = self.table.remove(&outcome.survivor.id) {
            self.run(sa, |sa, core| sa.confirm_takeover(core, not_before));
        }
    }

    /// Notes which of the IKE SAs goes, for when the peer ends it.
    fn mark(&mut self, outcome: &Outcome) {
        if let Some(sa) = self.table.get_mut(&outcome.survivor.id) {
            sa.set_superseded(false);
        }
        for other in &outcome.others {
            if let Some(sa) = self.table.get_mut(&other.id) {
                sa.set_superseded(true);
            }
        }
    }

    /// The peer has answered through this IKE SA. If it is the survivor, the others go.
    pub(super) fn confirmed(&mut self, ike: IkeId) {
        let Some(key) = self.core.sessions.key(ike).cloned() else {
            return;
        };
        let contest = self.contests.of_peer.get(&key).copied();
        let waited = contest.is_some_and(|contest| contest.waited);
        let Some(outcome) = self.compare(&key) else {
            return;
        };
        let surplus = outcome.surplus(waited);
        if outcome.survivor.id != ike || surplus.is_empty() {
            return;
        }
        if let Some(contest) = contest
            && contest.postponed < POSTPONED
            && outcome.is_contested()
        {
            let at = self.core.now.after(self.core.limits.settle);
            let postponed = contest.postponed.saturating_add(1);
            let later = Contest {
                at,
                postponed,
                ..contest
            };
            return self.contests.set(&key, later);
        }
        // First what we send, so that nothing goes by an IKE SA that the peer has deleted.
        if let Some(sa) = self.table.remove(&ike) {
            self.run(sa, |sa, core| sa.send_with_all(core));
        }
        for id in surplus {
            if let Some(sa) = self.table.remove(&id) {
                let intent = Intent::DeleteIke(Reason::Replaced);
                self.run(sa, |sa, core| sa.want(core, intent));
            }
        }
    }

    /// An IKE SA whose place another takes has begun to send with new keys: what the survivor sends with comes
    /// first, as the peer may delete this one at any moment.
    pub(super) fn yields(&mut self, ike: IkeId) {
        let key = self.core.sessions.key(ike).cloned();
        let Some(outcome) = key.and_then(|key| self.compare(&key)) else {
            return;
        };
        if let Some(sa) = self.table.remove(&outcome.survivor.id) {
            self.run(sa, |sa, core| sa.send_with_all(core));
        }
    }

    /// An IKE SA of a peer has ended. The only one that is left need not wait for the peer any more.
    pub(super) fn ended(&mut self, key: &PeerKey) {
        if let Some(only) = self.core.sessions.only(key)
            && let Some(sa) = self.table.remove(&only)
        {
            self.run(sa, IkeSa::send_with_held);
        }
    }
}
