//! IKE SAs over TCP (RFC 9329): when, and what becomes of their connections.

use std::net::{IpAddr, SocketAddr};

use ikev2::event::Reason;
use ikev2::{IkeId, Path, Transport};
use tunnel::outer::NextHop;

use super::super::config::TransportConfig;
use super::starts::LOOK_AT_PATHS;
use super::{Control, Effect, IKE_PORT, NAT_PORT, Now, Timer};
use crate::resolve::ResolvedConnection;

impl Control {
    /// The path of the next attempt to start a connection. Over TCP, the connection is being opened.
    pub(super) fn path_to(
        &mut self,
        resolved: &ResolvedConnectionPath,
        local: IpAddr,
    ) -> std::io::Result<Path> {
        let ResolvedConnectionPath {
            remote,
            tcp_port,
            over,
        } = *resolved;
        if over == Transport::Udp {
            // Always on port 500; the protocol goes to 4500 when it finds a translator (RFC 7296 §2.23).
            let [local, remote] = [local, remote].map(|ip| SocketAddr::new(ip, IKE_PORT));
            return Ok(Path::udp(local, remote));
        }
        // A reload cannot bring this about: the thread of connections is made at the start, and that is refused.
        let tcp = self.tcp.as_mut();
        let tcp = tcp.ok_or_else(|| std::io::Error::other("TCP needs a restart of the daemon"))?;
        let remote = SocketAddr::new(remote, tcp_port);
        Ok(Path::tcp(tcp.dial(local, remote)?, remote))
    }

    /// Transport of the next attempt.
    pub(super) fn next_transport(&self, resolved: &ResolvedConnection) -> Transport {
        let desired = self.desired.get(resolved.name());
        match resolved.transport {
            TransportConfig::Udp => Transport::Udp,
            TransportConfig::Tcp => Transport::Tcp,
            TransportConfig::UdpThenTcp => {
                desired.map_or(Transport::Udp, |desired| desired.next_transport)
            }
        }
    }

    /// Notes that an IKE SA was started over a path.
    pub(super) fn note_started(&mut self, name: &str, ike: IkeId, path: Path, now: Now) {
        if path.is_tcp() {
            self.dialled.insert(ike, path);
            return;
        }
        let falls_back =
            |resolved: &&ResolvedConnection| resolved.transport == TransportConfig::UdpThenTcp;
        if let Some(resolved) = self.resolved(name).filter(falls_back) {
            let at = now.stamp.after(resolved.fallback_after);
            self.at(at, Timer::FallBack(name.to_owned(), ike));
        }
    }

    /// Gives an attempt by datagrams up that nobody has answered, so that the next one goes over TCP.
    pub(super) fn fall_back(&mut self, name: &str, ike: IkeId, now: Now) {
        // A handshake that has had an answer goes on, however slow it is: UDP passes.
        if self.endpoint.is_unanswered(ike)
            && let Some(desired) = self.desired.get_mut(name)
            && desired.ike == Some(ike)
        {
            desired.next_transport = Transport::Tcp;
            let _ = self.endpoint.close(now.stamp, ike);
        }
    }

    /// An IKE SA of ours ended, which was `up` or not. Returns whether to start anew at once over TCP.
    pub(super) fn goes_over_tcp(
        &mut self,
        name: &str,
        up: bool,
        tcp: bool,
        reason: &Reason,
    ) -> bool {
        let falls_back = self
            .resolved(name)
            .is_some_and(|resolved| resolved.transport == TransportConfig::UdpThenTcp);
        let Some(desired) = self.desired.get_mut(name).filter(|_| falls_back) else {
            return false;
        };
        let silent = matches!(reason, Reason::Timeout | Reason::TimeoutOfLarge(_));
        // Each time datagrams first: they are better where they pass (RFC 9329 §5.1).
        let was = std::mem::take(&mut desired.next_transport);
        let now_tcp = !up && !tcp && (silent || was == Transport::Tcp);
        if now_tcp {
            desired.next_transport = Transport::Tcp;
            tracing::info!(conn = %name, "no answer over UDP, trying TCP");
        }
        now_tcp
    }

    /// Where the data plane sends packets over a path.
    ///
    /// # Errors
    /// Why it cannot be had, for the log.
    pub(super) fn next_hop(&mut self, path: &Path) -> Result<NextHop, String> {
        if !path.is_tcp() {
            return Ok(NextHop {
                remote: path.remote,
                source: Some(path.local.ip()).filter(|ip| !ip.is_unspecified()),
            });
        }
        let tcp = self.tcp.as_mut().ok_or("there are no TCP connections")?;
        tcp.next_hop(path).map_err(|error| error.to_string())
    }

    /// Lets ESP through on the connection of an IKE SA that has come up.
    pub(super) fn attach(&mut self, ike: IkeId) {
        let Some(path) = self.endpoint.path(ike).filter(Path::is_tcp) else {
            return;
        };
        // Before there is a Child SA: the connection is no stranger's from here on, and must not make room for one.
        if let Err(error) = self.next_hop(&path) {
            tracing::warn!(peer = %path.remote, error, "no ESP over TCP");
        }
        self.set_path(ike, path);
    }

    /// Closes a connection unless another IKE SA uses it.
    pub(super) fn close_tcp(&mut self, path: Path) {
        // While keys are replaced two IKE SAs go over one connection (RFC 9329 §6.1).
        let used = self.ikes.values().any(|state| state.path() == path)
            || self.dialled.values().any(|other| *other == path);
        if path.is_tcp() && !used {
            if let Some(tcp) = &mut self.tcp {
                tcp.forget(&path);
            }
            self.effects.push_back(Effect::CloseTcp(path));
        }
    }

    /// A connection of ours that was broken is open again.
    pub(in super::super) fn reopened(&mut self, path: Path, now: Now) {
        self.endpoint.reconnected(now.stamp, path);
        self.process_events(now);
    }

    /// A connection of a peer is gone. Its next one gets a way of its own to the data plane, whatever its port.
    pub(in super::super) fn disconnected(&mut self, path: Path) {
        if let Some(tcp) = &mut self.tcp {
            tcp.forget(&path);
        }
        // The IKE SAs stay: who opened the connection opens the next one as well (RFC 9329 §6.1).
        self.endpoint.disconnected(path);
    }

    /// Moves a tunnel that we started to another address of ours.
    pub(super) fn relocate(&mut self, ike: IkeId, source: IpAddr, old: Path, now: Now) {
        let fallback_after = self
            .fallback_of(ike)
            .map(|resolved| resolved.fallback_after);
        if old.is_tcp() && fallback_after.is_none() {
            self.redial(ike, source, old.remote, now);
            return;
        }
        // Where both may be used, datagrams first, whatever was in use before (RFC 9329 §7.1).
        let remote = match old.is_tcp() {
            true => SocketAddr::new(old.remote.ip(), NAT_PORT),
            false => old.remote,
        };
        let path = Path::udp(SocketAddr::new(source, NAT_PORT), remote);
        if self.endpoint.use_path(now.stamp, ike, path).is_ok() {
            self.dialled.remove(&ike);
            self.moved(ike, path, now);
            if let Some(after) = fallback_after {
                self.at(now.stamp.after(after), Timer::FallBackPath(ike, source));
            }
        } else if old.is_tcp() {
            // Without MOBIKE only another connection is followed (RFC 9329 §6.1).
            self.redial(ike, source, old.remote, now);
        } else {
            // Without MOBIKE the old address is lost and the tunnel with it.
            let _ = self.endpoint.close(now.stamp, ike);
        }
    }

    /// Goes on over TCP where nobody has answered by UDP from our new address. The same request is sent there (RFC 9329
    /// §7.1).
    pub(super) fn fall_back_path(&mut self, ike: IkeId, source: IpAddr, now: Now) {
        let path = self.endpoint.path(ike);
        let path = path.filter(|path| !path.is_tcp() && path.local.ip() == source);
        let Some(path) = path.filter(|_| self.endpoint.is_moving(ike)) else {
            return;
        };
        let Some(resolved) = self.fallback_of(ike) else {
            return;
        };
        tracing::info!(conn = %resolved.name(), "no answer over UDP, trying TCP");
        let remote = SocketAddr::new(path.remote.ip(), resolved.tcp_port);
        if !self.redial(ike, source, remote, now) {
            let again = now.stamp.after(LOOK_AT_PATHS);
            self.at(again, Timer::FallBackPath(ike, source));
        }
    }

    /// The connection of an IKE SA, if it may go by UDP and by TCP.
    fn fallback_of(&self, ike: IkeId) -> Option<&ResolvedConnection> {
        let resolved = self.resolved(&self.ikes.get(&ike)?.connection)?;
        (resolved.transport == TransportConfig::UdpThenTcp).then_some(resolved)
    }

    /// Has a tunnel go on over a TCP connection of its own from this address of ours; false if there is none.
    fn redial(&mut self, ike: IkeId, source: IpAddr, remote: SocketAddr, now: Now) -> bool {
        let dialled = self.tcp.as_mut().map(|tcp| tcp.dial(source, remote));
        let Some(Ok(local)) = dialled else {
            return false;
        };
        let path = Path::tcp(local, remote);
        if self.endpoint.use_path(now.stamp, ike, path).is_err() {
            // It is being closed or replaced: its successor is asked at the next look.
            self.close_tcp(path);
            return true;
        }
        self.dialled.insert(ike, path);
        self.moved(ike, path, now);
        true
    }
}

/// What of a connection decides about the path of an attempt.
#[derive(Clone, Copy)]
pub(super) struct ResolvedConnectionPath {
    pub(super) remote: IpAddr,
    pub(super) tcp_port: u16,
    pub(super) over: Transport,
}
