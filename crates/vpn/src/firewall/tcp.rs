//! TCP connections that carry the tunnel itself (RFC 9329).

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::config::{DaemonConfig, TransportConfig};

/// Connections that pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tcp {
    /// Our port for peers that come.
    port: Option<u16>,
    /// Peers to which we open some, and their ports.
    peers: Vec<(IpAddr, u16)>,
}

impl Tcp {
    pub(super) fn of(config: &DaemonConfig) -> Self {
        let over_tcp = config
            .connection
            .iter()
            .filter(|one| one.transport != TransportConfig::Udp);
        let peers = over_tcp.filter_map(|one| Some((one.remote?, one.tcp_port.get())));
        Self {
            port: config.path.tcp_port.map(std::num::NonZeroU16::get),
            peers: peers.collect(),
        }
    }

    /// Leaves what another one has as well.
    pub(super) fn retain(&mut self, other: &Self) {
        // As for other exceptions: while two configurations count, only what both let through passes.
        self.port = self.port.filter(|port| other.port == Some(*port));
        self.peers.retain(|peer| other.peers.contains(peer));
    }

    /// Rules for packets that leave: those of the daemon's own sockets.
    pub(super) fn leaving(&self, user: u32) -> String {
        let mut text = String::new();
        if let Some(port) = self.port {
            // The kernel's answer to a connection that nobody has accepted yet is no program's, and carries nothing.
            let answers = "tcp flags & (syn | ack) == (syn | ack)";
            let _ = writeln!(text, "    tcp sport {port} meta skuid {user} accept");
            let _ = writeln!(text, "    tcp sport {port} {answers} accept");
        }
        for (peer, port) in &self.peers {
            let family = family(*peer);
            let _ = writeln!(
                text,
                "    {family} daddr {peer} tcp dport {port} meta skuid {user} accept"
            );
        }
        text
    }

    /// Rules for packets that arrive.
    pub(super) fn arriving(&self) -> String {
        let mut text = String::new();
        if let Some(port) = self.port {
            let _ = writeln!(text, "    tcp dport {port} accept");
        }
        for (peer, port) in &self.peers {
            let family = family(*peer);
            let _ = writeln!(text, "    {family} saddr {peer} tcp sport {port} accept");
        }
        text
    }
}

const fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "ip",
        IpAddr::V6(_) => "ip6",
    }
}
