//! A Child SA and its state: plain data.

use std::sync::Arc;

use crate::event::Reason;
use crate::time::Timestamp;
use crate::wire::TrafficSelector;

/// State of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildState {
    /// In use, or about to be.
    Live,
    /// Replaced by the one with this inbound SPI; whoever replaced it deletes it.
    Replaced(u32),
    /// Surplus after simultaneous rekeying; whoever made it deletes it.
    Redundant,
}

/// Traffic on our side and on the peer's.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) local: Vec<TrafficSelector>,
    pub(crate) remote: Vec<TrafficSelector>,
}

impl Traffic {
    /// Tells whether both are the same, in whatever order.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let same = |one: &[TrafficSelector], two: &[TrafficSelector]| {
            one.len() == two.len() && one.iter().all(|selector| two.contains(selector))
        };
        same(&self.local, &other.local) && same(&self.remote, &other.remote)
    }
}

/// A Child SA without its keys, which belong to the data plane.
#[derive(Clone, Debug)]
pub(crate) struct ChildSa {
    /// Index into the connection's children.
    pub(crate) config: usize,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
    pub(crate) state: ChildState,
    /// Whether we send with it.
    pub(crate) sending: bool,
    /// We made it in a response that the peer may not have yet, so that it may not know it; until then
    /// at most.
    pub(crate) unconfirmed: Option<Timestamp>,
    /// The peer sends by another of its IKE SAs until it has our response: we send with this one when it shows
    /// that it has it, or has no other.
    pub(crate) held: bool,
    /// Others carry its traffic until the peer shows by another request, or by packets, that it has our response.
    pub(crate) further: bool,
    /// Its traffic, if there may be others with the same (RFC 9611).
    pub(crate) traffic: Option<Arc<Traffic>>,
    pub(crate) rekey_at: Option<Timestamp>,
    /// When we delete it, if it is not replaced, or if the peer that replaced it does not.
    pub(crate) ends_at: Option<Timestamp>,
}

impl ChildSa {
    pub(crate) fn is_live(&self) -> bool {
        self.state == ChildState::Live
    }

    /// Why it ends when nothing else ends it.
    pub(crate) fn end_reason(&self) -> Reason {
        match self.state {
            ChildState::Live => Reason::Overdue,
            ChildState::Replaced(_) => Reason::Replaced,
            ChildState::Redundant => Reason::Redundant,
        }
    }

    /// It is of no use any more.
    pub(crate) fn retire(&mut self, state: ChildState) {
        self.state = state;
        self.rekey_at = None;
        self.ends_at = None;
    }
}
