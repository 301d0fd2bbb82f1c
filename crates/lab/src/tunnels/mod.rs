//! Tunnels, ours and others', with their two ends in the two namespaces.

mod cordon;
mod openvpn;
mod strongswan;
mod tunnel;
mod wireguard;

use std::path::Path;

use crate::LabError;
use crate::network::Network;

pub(crate) use cordon::Cordon;
pub(crate) use openvpn::{Identity, OPENVPN, OpenVpn, Provider};
pub(crate) use strongswan::{CHARON, SWANCTL, StrongSwan, control};
pub(crate) use tunnel::{PING, Tunnel, ourselves, product, round_trips, write_private};
pub(crate) use wireguard::{WG, WIREGUARD, WireGuard};

/// A kind of tunnel.
pub(crate) enum Kind {
    /// None: the cable itself.
    Plain,
    Cordon(Cordon),
    OpenVpn(OpenVpn),
    WireGuard(WireGuard),
    StrongSwan(StrongSwan),
}

impl Kind {
    /// Starts both ends and waits until the server answers.
    pub(crate) fn start<'a>(
        &self,
        network: &'a Network,
        folder: &Path,
    ) -> Result<Tunnel<'a>, LabError> {
        let mut tunnel = Tunnel::new(network, folder);
        match self {
            Self::Plain => {}
            Self::Cordon(kind) => kind.start(&mut tunnel)?,
            Self::OpenVpn(kind) => kind.start(&mut tunnel)?,
            Self::WireGuard(kind) => kind.start(&mut tunnel)?,
            Self::StrongSwan(kind) => kind.start(&mut tunnel)?,
        }
        tunnel.answers()?;
        Ok(tunnel)
    }
}
