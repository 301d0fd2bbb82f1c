//! What is installed in the kernel, and how new keys take over.
//!
//! The steps are those of [`tunnel::rekey`]: the new inbound association is there first; the outbound
//! one follows once the far side was seen to use the new keys, or after `switch_after`, and then the
//! old outbound one goes; the old inbound ones go `drain` after the far side's first packet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tunnel::config::RekeyConfig;
use tunnel::counters::{Amount, Drop, SaState, Snapshot};
use tunnel::data_plane::DataPlaneError;
use tunnel::rekey::{MAX_OLD, RekeyError};

use crate::error::XfrmError;
use crate::message::{Policy, Sa, Usage};
use crate::policies::Pair;
use crate::socket::Socket;

/// Interval between questions whether new keys are in use, while that matters.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// Requests to the kernel.
pub(crate) trait Xfrm {
    fn add_sa(&mut self, sa: &Sa, if_id: Option<u32>) -> Result<(), XfrmError>;
    fn remove_sa(&mut self, sa: &Sa) -> Result<(), XfrmError>;
    fn add_policy(&mut self, policy: &Policy) -> Result<(), XfrmError>;
    /// Adds a policy, or changes what the one with its selector shows.
    fn set_policy(&mut self, policy: &Policy) -> Result<(), XfrmError>;
    fn remove_policy(&mut self, policy: &Policy) -> Result<(), XfrmError>;
    fn usage(&mut self, sa: &Sa) -> Result<Usage, XfrmError>;
}

impl Xfrm for Socket {
    fn add_sa(&mut self, sa: &Sa, if_id: Option<u32>) -> Result<(), XfrmError> {
        Self::add_sa(self, sa, if_id)
    }

    fn remove_sa(&mut self, sa: &Sa) -> Result<(), XfrmError> {
        Self::remove_sa(self, sa)
    }

    fn add_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        Self::add_policy(self, policy)
    }

    fn set_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        Self::set_policy(self, policy)
    }

    fn remove_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        Self::remove_policy(self, policy)
    }

    fn usage(&mut self, sa: &Sa) -> Result<Usage, XfrmError> {
        Self::usage(self, sa)
    }
}

/// Everything that one tunnel has in the kernel.
pub(crate) struct Tables<X> {
    kernel: X,
    if_id: Option<u32>,
    timing: RekeyConfig,
    policies: Vec<Policy>,
    outbound: Option<Sa>,
    /// Waits until it is used for sending; not installed yet.
    pending: Option<(Sa, Instant)>,
    /// The newest one, and whether the far side was seen to use it.
    inbound: Option<Sa>,
    seen: bool,
    /// Inbound ones on their way out, the oldest first, and when they go.
    old: VecDeque<(Sa, Option<Instant>)>,
    /// Usage of removed associations, both ways.
    past: [Usage; 2],
}

impl<X: Xfrm> Tables<X> {
    /// Installs a first pair and the policies; everything or nothing.
    pub(crate) fn install(
        kernel: X,
        pair: Pair,
        policies: Vec<Policy>,
        if_id: Option<u32>,
        timing: RekeyConfig,
    ) -> Result<Self, XfrmError> {
        let mut tables = Self {
            kernel,
            if_id,
            timing,
            policies: Vec::new(),
            outbound: None,
            pending: None,
            inbound: None,
            seen: true,
            old: VecDeque::new(),
            past: [Usage::default(); 2],
        };
        match tables.fill(pair, policies) {
            Ok(()) => Ok(tables),
            Err(error) => {
                if let Err(error) = tables.remove() {
                    tracing::warn!(%error, "not everything was removed again");
                }
                Err(error)
            }
        }
    }

    /// Associations come first: a policy without one makes packets wait.
    fn fill(&mut self, pair: Pair, policies: Vec<Policy>) -> Result<(), XfrmError> {
        self.kernel.add_sa(&pair.inbound, self.if_id)?;
        self.inbound = Some(pair.inbound);
        self.kernel.add_sa(&pair.outbound, self.if_id)?;
        self.outbound = Some(pair.outbound);
        for policy in policies {
            self.kernel.add_policy(&policy)?;
            self.policies.push(policy);
        }
        Ok(())
    }

    /// Begins to let a pair take over.
    pub(crate) fn begin(&mut self, pair: Pair, now: Instant) -> Result<(), DataPlaneError> {
        let (spi, inbound) = (pair.outbound.spi, pair.inbound.spi);
        let pending = self.pending.iter().map(|(sa, _)| sa);
        if self.outbound.iter().chain(pending).any(|sa| sa.spi == spi) {
            return Err(RekeyError::SpiInUse(spi).into());
        }
        let old = self.old.iter().map(|(sa, _)| sa);
        if self.inbound.iter().chain(old).any(|sa| sa.spi == inbound) {
            return Err(RekeyError::SpiInUse(inbound).into());
        }
        // Policies and interface stay, and with them what ties associations to them.
        self.kernel.add_sa(&pair.inbound, self.if_id)?;
        if let Some(old) = self.inbound.replace(pair.inbound) {
            self.old.push_back((old, None));
        }
        self.seen = false;
        while self.old.len() > MAX_OLD {
            if let Some((old, _)) = self.old.pop_front() {
                self.retire(&old, IN);
            }
        }
        // One that waited is simply forgotten.
        self.pending = Some((pair.outbound, now + self.timing.switch_after));
        Ok(())
    }

    /// Whether nothing changes by itself.
    pub(crate) fn is_stable(&self) -> bool {
        self.seen && self.old.is_empty() && self.pending.is_none()
    }

    /// Takes the steps that are due.
    pub(crate) fn poll(&mut self, now: Instant) {
        if self.is_stable() {
            return;
        }
        if !self.seen && self.inbound_is_used() {
            self.seen = true;
            for (_, until) in &mut self.old {
                *until = until.or(Some(now + self.timing.drain));
            }
        }
        let due = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        while self.old.front().is_some_and(|(_, until)| due(until)) {
            if let Some((old, _)) = self.old.pop_front() {
                self.retire(&old, IN);
            }
        }
        let seen = self.seen;
        if let Some((outbound, _)) = self.pending.take_if(|(_, at)| seen || *at <= now) {
            self.send_with(outbound);
        }
    }

    fn send_with(&mut self, outbound: Sa) {
        let spi = outbound.spi;
        if let Err(error) = self.kernel.add_sa(&outbound, self.if_id) {
            tracing::error!(%spi, %error, "still sending with old keys");
            return;
        }
        if let Some(old) = self.outbound.replace(outbound) {
            // The kernel may go on with the old one for as long as it is there.
            self.retire(&old, OUT);
        }
        tracing::info!(%spi, "sending with new keys");
    }

    fn inbound_is_used(&mut self) -> bool {
        let Some(inbound) = &self.inbound else {
            return false;
        };
        self.kernel
            .usage(inbound)
            .is_ok_and(|usage| usage.packets > 0)
    }

    /// Removes an association and keeps what it did.
    fn retire(&mut self, sa: &Sa, way: usize) {
        if let (Ok(usage), Some(past)) = (self.kernel.usage(sa), self.past.get_mut(way)) {
            add(past, &usage);
        }
        if let Err(error) = self.kernel.remove_sa(sa) {
            tracing::warn!(spi = %sa.spi, %error, "an old association");
        }
    }

    /// Removes all that was installed. Policies go first: with them alone nothing would get through,
    /// and with associations alone nothing is protected.
    pub(crate) fn remove(&mut self) -> Result<(), XfrmError> {
        let mut first = Ok(());
        let mut note = |result: Result<(), XfrmError>| match result {
            Err(error) if !error.is_gone() && first.is_ok() => first = Err(error),
            _ => {}
        };
        while let Some(policy) = self.policies.pop() {
            note(self.kernel.remove_policy(&policy));
        }
        let old = self.old.drain(..).map(|(sa, _)| sa);
        for sa in self
            .outbound
            .take()
            .into_iter()
            .chain(self.inbound.take())
            .chain(old)
        {
            note(self.kernel.remove_sa(&sa));
        }
        first
    }

    /// Writes counters into a tunnel's state.
    pub(crate) fn describe(&mut self, snapshot: &mut Snapshot) {
        let [mut sent, mut received] = self.past;
        snapshot.associations.clear();
        if let Some(sa) = &self.outbound {
            let usage = self.kernel.usage(sa).unwrap_or_default();
            add(&mut sent, &usage);
            snapshot
                .associations
                .push(state(sa, "out", &usage, usage.sent));
        }
        for sa in self.inbound.iter().chain(self.old.iter().map(|(sa, _)| sa)) {
            let usage = self.kernel.usage(sa).unwrap_or_default();
            add(&mut received, &usage);
            snapshot
                .associations
                .push(state(sa, "in", &usage, usage.received));
        }
        snapshot.sent = amount(&sent);
        snapshot.received = amount(&received);
        snapshot.inbound_drops = drops_of(&received);
        snapshot.rekey_pending = self.pending.is_some();
    }
}

const OUT: usize = 0;
const IN: usize = 1;

/// Counts the kernel's drops, by cause.
pub(crate) fn drops_of(received: &Usage) -> Vec<Drop> {
    [
        ("integrity_failed", received.integrity_failed),
        ("replay_duplicate", received.duplicate),
        ("replay_old", received.too_old),
    ]
    .into_iter()
    .filter(|(_, packets)| *packets > 0)
    .map(|(cause, packets)| Drop {
        cause: cause.into(),
        packets,
    })
    .collect()
}

pub(crate) fn add(total: &mut Usage, more: &Usage) {
    total.bytes += more.bytes;
    total.packets += more.packets;
    total.too_old += more.too_old;
    total.duplicate += more.duplicate;
    total.integrity_failed += more.integrity_failed;
}

pub(crate) fn state(sa: &Sa, direction: &'static str, usage: &Usage, sequence: u64) -> SaState {
    SaState {
        spi: sa.spi.to_string(),
        direction: direction.into(),
        amount: amount(usage),
        sequence,
    }
}

pub(crate) const fn amount(usage: &Usage) -> Amount {
    Amount {
        packets: usage.packets,
        bytes: usage.bytes,
    }
}

#[cfg(test)]
mod tests;
