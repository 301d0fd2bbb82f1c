//! Addresses and connections of IKE SAs as the caller changes them, or hears of them.

use std::net::{IpAddr, SocketAddr};

use super::{Endpoint, Misuse};
use crate::sa::{IkeId, IkeSa};
use crate::time::Timestamp;
use crate::types::Path;

impl Endpoint {
    /// Checks whether the peer is to be found at another address or port, as its newest ESP packets come
    /// from there (RFC 7296 §2.23): the NAT in front of it has changed its mapping. A request goes to both
    /// places; only the peer can answer it, and the IKE SA follows when the answer comes from the new one.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`], also if no NAT is in front of the peer, or one is in front of us.
    pub fn heard_from(
        &mut self,
        now: Timestamp,
        ike: IkeId,
        remote: SocketAddr,
    ) -> Result<(), Misuse> {
        self.core.now = now;
        let sa = self.table.remove(&ike).ok_or(Misuse::IkeSa)?;
        let taken = self.run(sa, |sa, core| sa.heard_from(core, remote));
        taken.unwrap_or(false).then_some(()).ok_or(Misuse::IkeSa)
    }

    /// Uses another path: our address has changed, or a better one appeared (MOBIKE). The ports are
    /// those of NAT traversal.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`], also if the peer does not speak MOBIKE or it is not ours to decide.
    pub fn change_path(
        &mut self,
        now: Timestamp,
        ike: IkeId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Misuse> {
        self.use_path(now, ike, Path::udp(local, remote))
    }

    /// Uses another path as [`Self::change_path`] does, or another TCP connection, for which the peer needs no MOBIKE.
    ///
    /// # Errors
    /// Those of [`Self::change_path`].
    pub fn use_path(&mut self, now: Timestamp, ike: IkeId, path: Path) -> Result<(), Misuse> {
        self.core.now = now;
        let sa = self.table.remove(&ike).ok_or(Misuse::IkeSa)?;
        let taken = self.run(sa, |sa, core| sa.change_path(core, path));
        let taken = taken.unwrap_or(false);
        taken.then_some(()).ok_or(Misuse::IkeSa)
    }

    /// Tells that a TCP connection that we had opened, and that was broken, is open again: IKE SAs over it go on.
    pub fn reconnected(&mut self, now: Timestamp, path: Path) {
        self.core.now = now;
        for id in self.over(path) {
            if let Some(sa) = self.table.remove(&id) {
                self.run(sa, |sa, core| {
                    sa.reconnected(core);
                    Ok(())
                });
            }
        }
    }

    /// Tells that a TCP connection that a peer had opened is gone. IKE SAs over it wait for its next one, which is announced
    /// by [`crate::Event::PathChanged`] even if it has the same addresses.
    pub fn disconnected(&mut self, path: Path) {
        for id in self.over(path) {
            if let Some(sa) = self.table.get_mut(&id) {
                sa.disconnected();
            }
        }
    }

    fn over(&self, path: Path) -> Vec<IkeId> {
        let over = self.table.values().filter(|sa| sa.path() == path);
        over.map(IkeSa::id).collect()
    }

    /// Path of an IKE SA of any state.
    pub fn path(&self, ike: IkeId) -> Option<Path> {
        self.table.get(&ike).map(IkeSa::path)
    }

    /// Whether the first request of an IKE SA that we started has no answer yet.
    pub fn is_unanswered(&self, ike: IkeId) -> bool {
        self.table.get(&ike).is_some_and(IkeSa::is_unanswered)
    }

    /// Whether the peer has not answered yet that it knows the path to which an IKE SA of ours has moved.
    pub fn is_moving(&self, ike: IkeId) -> bool {
        self.table.get(&ike).is_some_and(IkeSa::is_moving)
    }

    /// Tells the peer at which further addresses it can reach us (MOBIKE); those before are forgotten.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`], also if the peer does not speak MOBIKE.
    pub fn set_addresses(
        &mut self,
        now: Timestamp,
        ike: IkeId,
        addresses: Vec<IpAddr>,
    ) -> Result<(), Misuse> {
        self.core.now = now;
        let sa = self.table.remove(&ike).ok_or(Misuse::IkeSa)?;
        let taken = self.run(sa, |sa, core| sa.set_addresses(core, addresses));
        let taken = taken.unwrap_or(false);
        taken.then_some(()).ok_or(Misuse::IkeSa)
    }
}
