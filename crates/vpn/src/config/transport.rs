//! How IKE and ESP go to a peer.

use std::num::NonZeroU16;
use std::time::Duration;

use serde::Deserialize;

use super::DaemonConfig;

/// Transport of IKE and ESP of a connection that is started here.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum TransportConfig {
    /// Datagrams.
    #[default]
    Udp,
    /// A TCP connection (RFC 9329).
    Tcp,
    /// Datagrams, and a TCP connection where nobody answers them.
    UdpThenTcp,
}

impl DaemonConfig {
    /// Whether something may go over TCP.
    pub(crate) fn uses_tcp(&self) -> bool {
        let over_tcp = |transport| transport != TransportConfig::Udp;
        self.path.tcp_port.is_some() || self.connection.iter().any(|one| over_tcp(one.transport))
    }
}

/// Port of IKE and ESP over TCP (RFC 9329 §2).
pub(super) const fn usual_port() -> NonZeroU16 {
    match NonZeroU16::new(4500) {
        Some(port) => port,
        None => NonZeroU16::MIN,
    }
}

/// Several repetitions of the first message (RFC 9329 §5.1).
pub(super) const fn eight_seconds() -> Duration {
    Duration::from_secs(8)
}
