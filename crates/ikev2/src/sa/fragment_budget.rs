//! Room for the fragments of strangers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Limits;
use crate::half_open::Network;

/// A network's share of [`Limits::stranger_fragments`] is one of so many.
const SHARES: usize = 8;

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_network: BTreeMap<Network, usize>,
}

/// Bytes of fragments that peers have sent who have not proved who they are, over all IKE SAs.
#[derive(Clone, Debug, Default)]
pub(crate) struct FragmentBudget(Arc<Mutex<Taken>>);

impl FragmentBudget {
    /// Takes bytes for a network; false if it has too many already, or all together have.
    pub(super) fn take(&self, limits: &Limits, network: Network, bytes: usize) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.by_network.get(&network).copied().unwrap_or(0);
        let share = limits.stranger_fragments.checked_div(SHARES).unwrap_or(0);
        if all.total.saturating_add(bytes) > limits.stranger_fragments
            || own.saturating_add(bytes) > share
        {
            return false;
        }
        all.by_network.insert(network, own.saturating_add(bytes));
        all.total = all.total.saturating_add(bytes);
        true
    }

    pub(super) fn give_back(&self, network: Network, bytes: usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.total = all.total.saturating_sub(bytes);
        if let Some(own) = all.by_network.get_mut(&network) {
            *own = own.saturating_sub(bytes);
            // Else there would be an entry for every network that ever sent a fragment.
            if *own == 0 {
                all.by_network.remove(&network);
            }
        }
    }
}
