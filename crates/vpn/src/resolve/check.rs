//! Settings of a connection that do not go together.

use std::time::Duration;

use tunnel::config::{BackendConfig, ModeConfig};

use super::{CHILDREN, Reader, ResolveError, wrong};
use crate::config::{
    Carrier, ChildConfig, ConnectionConfig, DaemonConfig, PskProves, Start, TfcPadding,
    TransportConfig,
};

/// Refuses settings of the whole file that do not go together.
pub(super) fn whole(config: &DaemonConfig) -> Result<(), ResolveError> {
    let why = match (config.backend, config.path.encapsulation) {
        (BackendConfig::Kernel, _) => Some("is for backend = \"user\""),
        (_, Carrier::Auto | Carrier::Native) => Some("needs encapsulation = \"udp\""),
        (BackendConfig::User, Carrier::Udp) => None,
    };
    if let Some(why) = why {
        let one = config.interface.one_worker(why);
        one.map_err(|error| wrong("the file", error.to_string()))?;
    }
    if let Some(why) = unfit_for_dual_stack(config) {
        return Err(wrong("[path] dual_stack", why));
    }
    if let Some(why) = unfit_for_tcp(config) {
        return Err(wrong("the file", why));
    }
    let debug = config.debug.check(&config.interface);
    debug.map_err(|error| wrong("[debug]", error.to_string()))?;
    match config.unfit_for_kernel() {
        Some(what) if config.backend == BackendConfig::Kernel => {
            Err(wrong("backend = \"kernel\"", what))
        }
        _ => Ok(()),
    }
}

/// Why one socket does not serve both address families, where it is to.
fn unfit_for_dual_stack(config: &DaemonConfig) -> Option<&'static str> {
    let path = &config.path;
    match path.dual_stack {
        false => None,
        true if !(path.listen.is_ipv6() && path.listen.is_unspecified()) => {
            Some("needs `listen = \"::\"`: all addresses of this host, of both families")
        }
        true if path.encapsulation != Carrier::Udp => {
            Some("needs `encapsulation = \"udp\"`: ESP without UDP is of one family")
        }
        true if config.backend == BackendConfig::Kernel => Some("is for backend = \"user\""),
        true => None,
    }
}

/// Why IKE and ESP do not go over TCP, where some of them are to.
fn unfit_for_tcp(config: &DaemonConfig) -> Option<&'static str> {
    let transport = config
        .connection
        .iter()
        .any(ConnectionConfig::has_transport);
    match config {
        _ if !config.uses_tcp() => None,
        _ if config.backend == BackendConfig::Kernel => Some(
            "TCP (`tcp_port` of [path], `transport` of a connection) is for backend = \"user\"",
        ),
        // Behind TCP, and behind UDP, to which the peer may come back.
        _ if config.path.encapsulation == Carrier::Native => {
            Some("encapsulation = \"native\" of [path] leaves no TCP: use \"udp\" or \"auto\"")
        }
        _ if transport => {
            Some("a child in transport mode and TCP do not go together in one daemon")
        }
        _ => None,
    }
}

// The data plane would pad to what the path takes, and nobody would know that it is less.
const fn larger(padding: TfcPadding, mtu: u16) -> bool {
    matches!(padding, TfcPadding::Bytes(size) if size > mtu)
}

fn pads_without_tunnel(child: &ChildConfig) -> bool {
    child.mode == ModeConfig::Transport && child.tfc_padding != TfcPadding::Off
}

impl Reader<'_> {
    /// Refuses settings that do not go together.
    pub(super) fn check(&self) -> Result<(), ResolveError> {
        let config = self.config;
        let listen = self.all.path.listen;
        let pool = |name: &String| self.all.pool.iter().any(|pool| pool.name == *name);
        let starts = config.start != Start::None;
        let ours = config.certificate.is_some() && config.login.is_none();
        let ways = [config.own_psk().is_some(), ours, config.login.is_some()];
        let ways = ways.into_iter().filter(|way| *way).count();
        let transport = config.hosts(listen).is_some();
        let kernel = self.all.backend == BackendConfig::Kernel;
        let what = match config {
            _ if config.name.is_empty() => "it has no name",
            _ if config.child.is_empty() => "it has no [[connection.child]]",
            _ if config.child.len() > CHILDREN => "it has more than 64 children",
            _ if ways != 1 => {
                "one of `psk_file`, `certificate` and `login` says how we authenticate"
            }
            _ if config.psk_proves != PskProves::Both && config.psk_file.is_none() => {
                "`psk_proves` says whose proof the secret in `psk_file` is"
            }
            _ if config.peer_psk().is_some() && config.login.is_some() => {
                "`login` is for gateways that prove themselves with a certificate"
            }
            _ if config.peer_psk().is_some() && config.trust.is_some() => {
                "`trust` is for peers with certificates, and this one proves itself with a secret"
            }
            _ if config.login.is_some() && config.eap.is_some() => {
                "`login` is for those who start a connection, `eap` for those who serve it"
            }
            _ if config.eap.is_some() && (starts || config.psk_file.is_some()) => {
                "`eap` is for peers that start the connection, towards whom a certificate proves us"
            }
            _ if config.certificate.is_some() != config.key.is_some() => {
                "`certificate` and `key` go together"
            }
            _ if config.certificate.is_none()
                && !(config.further_certificates.is_empty() && config.ocsp_response.is_none()) =>
            {
                "`further_certificates` and `ocsp_response` need `certificate`"
            }
            _ if config.login.is_some() && !config.further_certificates.is_empty() => {
                "`login` takes one certificate"
            }
            _ if config
                .further_addresses
                .iter()
                .any(|address| !self.all.path.reaches(*address)) =>
            {
                "`further_addresses` are of another address family than `listen` of [path]"
            }
            _ if !config.further_addresses.is_empty() && !listen.is_unspecified() => {
                "`further_addresses` need a `listen` of [path] that has them all: 0.0.0.0 or ::"
            }
            _ if starts && config.remote.is_none() => "it can only be started with `remote`",
            _ if config
                .remote
                .is_some_and(|remote| !self.all.path.reaches(remote)) =>
            {
                "`remote` is of another address family than `listen` of [path]; for both see `dual_stack`"
            }
            _ if config.transport != TransportConfig::Udp && config.remote.is_none() => {
                "`transport` is for a connection that is started here, with `remote`"
            }
            _ if !(1..=30).contains(&config.fallback_after.as_secs()) => {
                "`fallback_after` is from 1 to 30 seconds"
            }
            _ if config.pool.is_some() && !config.request.is_empty() => {
                "`pool` gives addresses and `request` asks for them: not both"
            }
            _ if config.pool.is_some() && starts => {
                "`pool` is for peers that start the connection themselves"
            }
            _ if config.start == Start::Trap && !config.request.is_empty() => {
                "start = \"trap\" needs an address of our own, not `request`"
            }
            _ if config.pool.as_ref().is_some_and(|name| !pool(name)) => {
                "there is no [[pool]] of that name"
            }
            _ if kernel && config.start == Start::Trap => {
                "start = \"trap\" is for backend = \"user\""
            }
            _ if kernel && config.child.iter().any(|c| c.mode == ModeConfig::Transport) => {
                "transport mode is for backend = \"user\""
            }
            _ if transport && (config.pool.is_some() || !config.request.is_empty()) => {
                "transport mode has no addresses inside the tunnel"
            }
            _ if config.lifetime < Duration::from_secs(1) => "`lifetime` is below one second",
            _ if config.child.iter().any(pads_without_tunnel) => {
                "`tfc_padding` is for tunnel mode: in transport mode no packet says where it ends"
            }
            _ if config
                .child
                .iter()
                .any(|c| larger(c.tfc_padding, self.all.path.mtu)) =>
            {
                "`tfc_padding` is more than `mtu` of [path]"
            }
            _ => return Ok(()),
        };
        Err(self.wrong(what))
    }
}
