//! Findings about a configuration on this host, without starting anything: what would keep its tunnels from working,
//! and what would leave in the clear.
//!
//! [`Host::look`] asks the system once; [`findings`] decides on what it said, and has tests that way. Mistakes of the
//! file itself are [`crate::ResolveError`]s.

mod addresses;
mod certificates;
mod routes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;
use serde::Serialize;
use tunnel::config::{BackendConfig, Enforce, ModeConfig, Prefix};
use tunnel::link;
use tunnel::outer::udp::bind;

pub use addresses::{unfit_network, unfit_peer};
pub use routes::HostRoute;

use crate::config::{Carrier, DaemonConfig, IKE_PORT, NAT_PORT, Start};
use crate::firewall::remote_networks;

/// First port that takes no capability, unless the system says otherwise (kernel, ip-sysctl.rst).
const UNPRIVILEGED: u16 = 1024;
/// The device of which TUN interfaces are made.
const TUN: &str = "/dev/net/tun";

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The daemon would not start, no tunnel could come up, or packets would leave in the clear.
    Error,
    /// Some traffic would not get through, or soon no more.
    Warning,
}

/// Something that the operator should know before the daemon starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// Setting of the file or of the host.
    pub setting: String,
    /// Value found, and what follows from it.
    pub found: String,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    pub fn error(
        setting: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            setting: setting.into(),
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    pub fn warning(
        setting: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(setting, found, remedy)
        }
    }
}

/// The system as far as tunnels depend on it.
#[derive(Debug)]
pub struct Host {
    capabilities: CapabilitySet,
    /// First port that takes no capability.
    unprivileged: u16,
    /// Ports of ours that cannot be opened, and why. None while the daemon of this file has them.
    ports: Vec<(&'static str, u16, ErrorKind, String)>,
    /// Why no interface can be made for the packets.
    device: Option<String>,
    /// Names of the interfaces that are there.
    interfaces: BTreeSet<String>,
    /// Whether packets are forwarded, IPv4 and IPv6; unknown where the system does not say.
    forwarding: [Option<bool>; 2],
    /// Interfaces with `rp_filter = 1`.
    strict: Vec<String>,
    routes: Vec<HostRoute>,
    addresses: Vec<IpAddr>,
    /// Folders in which the daemon could not make its files, and of which setting.
    unwritable: Vec<(&'static str, PathBuf)>,
    /// Whether something other than a socket has the name of the status socket.
    is_status_taken: bool,
    /// Whether the daemon of this file runs: ports and interface are its own then.
    is_serving: bool,
}

impl Host {
    /// Asks the system. Sockets are opened and closed again to see whether the ports are free, unless the daemon
    /// of this file runs (`is_serving`); `folder` is that of the file.
    #[must_use]
    pub fn look(config: &DaemonConfig, folder: &Path, is_serving: bool) -> Self {
        let number = |path: &str| -> Option<u16> {
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().parse().ok()
        };
        let (mut ports, families) = (Vec::new(), config.path.families());
        for port in [IKE_PORT, NAT_PORT].into_iter().filter(|_| !is_serving) {
            let opened = bind(SocketAddr::new(config.path.listen, port), false, families);
            ports.extend(opened.err().map(|error| refused("UDP", port, &error)));
        }
        let tcp_port = config.path.tcp_port.filter(|_| !is_serving);
        if let Some(port) = tcp_port.map(NonZeroU16::get) {
            let opened = tunnel::tcp::listen(SocketAddr::new(config.path.listen, port), families);
            ports.extend(opened.err().map(|error| refused("TCP", port, &error)));
        }
        let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
        let interfaces = all.map(|found| found.interface_name).collect();
        // Those of the tunnel's interface come and go with the daemon.
        let networks = crate::route::connected(&config.interface.name).unwrap_or_default();
        Self {
            capabilities: rustix::thread::capabilities(None)
                .map_or(CapabilitySet::empty(), |sets| sets.effective),
            unprivileged: number("/proc/sys/net/ipv4/ip_unprivileged_port_start")
                .unwrap_or(UNPRIVILEGED),
            ports,
            device: device(config, is_serving),
            interfaces,
            forwarding: [
                "/proc/sys/net/ipv4/ip_forward",
                "/proc/sys/net/ipv6/conf/all/forwarding",
            ]
            .map(|path| number(path).map(|value| value != 0)),
            strict: link::strict_interfaces(),
            routes: routes::read(),
            addresses: networks.iter().map(|network| network.address).collect(),
            unwritable: unwritable(config, folder),
            is_status_taken: std::fs::symlink_metadata(folder.join(&config.status))
                .is_ok_and(|found| !found.file_type().is_socket()),
            is_serving,
        }
    }
}

/// A port that cannot be opened.
fn refused(
    protocol: &'static str,
    port: u16,
    error: &tunnel::StartError,
) -> (&'static str, u16, ErrorKind, String) {
    let kind = match error {
        tunnel::StartError::Socket { source, .. } => source.kind(),
        _ => ErrorKind::Other,
    };
    (protocol, port, kind, error.to_string())
}

/// Networks beside this host, with its address in them.
#[must_use]
pub fn own_networks() -> Vec<Prefix> {
    let all = crate::route::connected("").unwrap_or_default().into_iter();
    all.filter(|network| !network.address.is_loopback())
        .collect()
}

/// Why the data plane finds nothing to make an interface of.
fn device(config: &DaemonConfig, is_serving: bool) -> Option<String> {
    match config.backend {
        BackendConfig::User => {
            let opened = OpenOptions::new().read(true).write(true).open(TUN);
            opened.err().map(|error| format!("{TUN}: {error}"))
        }
        BackendConfig::Kernel if is_serving => None,
        BackendConfig::Kernel => {
            let probed = xfrm::negotiated::check_kernel(config.path.mark.get());
            probed.err().map(|error| error.to_string())
        }
    }
}

/// Folders for files of the daemon that are missing or not to be written to.
fn unwritable(config: &DaemonConfig, folder: &Path) -> Vec<(&'static str, PathBuf)> {
    use rustix::fs::{Access, access};
    let parent = |file: &PathBuf| folder.join(file).parent().map(Path::to_owned);
    // The journal's folder is made by the daemon, with those above it.
    let journal = config.audit.as_ref().and_then(|audit| {
        let own = folder.join(&audit.folder);
        own.ancestors()
            .find(|above| above.is_dir())
            .map(Path::to_owned)
    });
    let kept = [
        ("status", parent(&config.status)),
        (
            "crash_secret",
            config.crash_secret.as_ref().and_then(parent),
        ),
        (
            "session_tickets",
            config.session_tickets.as_ref().and_then(parent),
        ),
        ("audit.folder", journal),
    ];
    let kept = kept
        .into_iter()
        .filter_map(|(setting, folder)| Some((setting, folder?)));
    let here = |folder: &Path| match folder.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => folder.to_owned(),
    };
    kept.map(|(setting, folder)| (setting, here(&folder)))
        .filter(|(_, folder)| access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err())
        .collect()
}

/// Decides what of a configuration this host cannot carry out, or lets out in the clear.
#[must_use]
pub fn findings(config: &DaemonConfig, host: &Host) -> Vec<Finding> {
    let mut found = Vec::new();
    start(config, host, &mut found);
    addresses::findings(config, host, &mut found);
    in_the_clear(config, &mut found);
    networks(config, host, &mut found);
    outer_addresses(config, &mut found);
    forwarding(config, host, &mut found);
    transport(config, host, &mut found);
    revocation(config, &mut found);
    found
}

/// Demands of the start itself.
fn start(config: &DaemonConfig, host: &Host, found: &mut Vec<Finding>) {
    let mut capability = |needed: bool, one: CapabilitySet, name: &str, what: &str| {
        if needed && !host.capabilities.contains(one) {
            found.push(Finding::error(
                "capabilities",
                format!("{name} is missing: {what}"),
                "run as root, or by the systemd unit shipped, which grants it",
            ));
        }
    };
    let interface = "interface, addresses and routes take it";
    capability(true, CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN", interface);
    let low = host.unprivileged > IKE_PORT;
    let ports = "UDP port 500 takes it";
    capability(
        low,
        CapabilitySet::NET_BIND_SERVICE,
        "CAP_NET_BIND_SERVICE",
        ports,
    );
    let native = config.path.encapsulation != Carrier::Udp && config.backend == BackendConfig::User;
    capability(
        native,
        CapabilitySet::NET_RAW,
        "CAP_NET_RAW",
        "ESP without UDP takes it",
    );
    for (protocol, port, kind, error) in &host.ports {
        let (setting, remedy) = match kind {
            // Said as a capability already.
            ErrorKind::PermissionDenied => continue,
            ErrorKind::AddrNotAvailable => (
                "path.listen".to_owned(),
                "name an address of this host, or leave it out".to_owned(),
            ),
            ErrorKind::AddrInUse => (
                format!("{protocol} port {port}"),
                format!(
                    "end what has it: `ss -l{}np sport = :{port}` names it",
                    if *protocol == "TCP" { 't' } else { 'u' }
                ),
            ),
            _ => (
                format!("{protocol} port {port}"),
                "see docs/vpn.md, \"The daemon\"".to_owned(),
            ),
        };
        found.push(Finding::error(setting, error, remedy));
    }
    if let Some(error) = &host.device {
        let (setting, remedy) = match config.backend {
            BackendConfig::User => (
                "TUN",
                "`modprobe tun`; in a container, hand /dev/net/tun over to it",
            ),
            BackendConfig::Kernel => ("backend", "leave it out: then the program moves packets"),
        };
        found.push(Finding::error(setting, error, remedy));
    }
    let name = &config.interface.name;
    if !host.is_serving
        && config.backend == BackendConfig::User
        && host.interfaces.contains(name.as_str())
    {
        found.push(Finding::error(
            "interface.name",
            format!("there is an interface {name} already"),
            format!(
                "end the tunnel that has it, or choose another name; see `ip link show {name}`"
            ),
        ));
    }
    if host.is_status_taken {
        found.push(Finding::error(
            "status",
            format!("{} is there and is no socket", config.status.display()),
            "name another path; that file stays as it is",
        ));
    }
    for (setting, folder) in &host.unwritable {
        found.push(Finding::error(
            *setting,
            format!("no file can be made in {}", folder.display()),
            "make the folder for the user that runs the daemon, or name another",
        ));
    }
    if config.connection.is_empty() {
        found.push(Finding::warning(
            "connection",
            "there is none: no peer can come",
            "add [[connection]]: see docs/tunnels/setup.md",
        ));
    }
}

/// Whether this host has an interface of a name.
#[must_use]
pub fn has_interface(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

/// Networks that only tunnels may carry, with the connection that says so.
fn protected(config: &DaemonConfig) -> impl Iterator<Item = (&str, Prefix, Start)> {
    config.connection.iter().flat_map(|connection| {
        let networks = remote_networks(connection, config).into_iter();
        networks.map(|network| (connection.name.as_str(), network, connection.start))
    })
}

/// Settings that let packets out without protection.
fn in_the_clear(config: &DaemonConfig, found: &mut Vec<Finding>) {
    if config.backend == BackendConfig::User
        && config.firewall.enforce == Enforce::Off
        && protected(config).next().is_some()
    {
        found.push(Finding::error(
            "firewall.enforce",
            "\"off\": packets for the other side leave in the clear while the tunnel is down",
            "remove the setting",
        ));
    }
    for bypass in &config.firewall.bypass {
        let overlaps = |(_, network, _): &(&str, Prefix, Start)| common(network, bypass);
        if let Some((connection, network, _)) = protected(config).find(overlaps) {
            found.push(Finding::warning(
                "firewall.bypass",
                format!(
                    "{} is reached without protection, though connection {connection:?} leads to {}",
                    show(bypass),
                    show(&network)
                ),
                "remove it, unless that is meant",
            ));
        }
    }
}

/// Networks of the other side that this host reaches by another way.
fn networks(config: &DaemonConfig, host: &Host, found: &mut Vec<Finding>) {
    let own = &config.interface.name;
    let children = config.connection.iter().flat_map(|one| &one.child);
    let local: Vec<Prefix> = children.flat_map(|child| child.local.clone()).collect();
    let transport = config.connection.iter().filter(|one| one.has_transport());
    let hosts: Vec<IpAddr> = transport.filter_map(|one| one.remote).collect();
    let is_open = |network: &Prefix| {
        config.backend == BackendConfig::User && config.firewall.enforce == Enforce::Off
            || config
                .firewall
                .bypass
                .iter()
                .any(|one| within(network, one))
    };
    for (connection, network, start) in protected(config) {
        // Two hosts have rules, and no routes.
        if network == Prefix::host(network.address) && hosts.contains(&network.address) {
            continue;
        }
        for route in host.routes.iter().filter(|route| route.interface != *own) {
            let setting = format!("connection {connection:?}");
            let by = format!("{} is routed to {}", show(&route.network), route.interface);
            if within(&route.network, &network) {
                // A branch whose tunnel leads to all of 10.0.0.0/8 keeps its own part of it.
                if local.iter().any(|own| within(&route.network, own)) {
                    continue;
                }
                let remedy = "take that route away, or that network out of the tunnel's";
                found.push(match is_open(&route.network) {
                    true => Finding::error(
                        setting,
                        format!("{by}, inside {}: it goes in the clear", show(&network)),
                        remedy,
                    ),
                    false => Finding::warning(
                        setting,
                        format!("{by}, inside {}: packets are held back", show(&network)),
                        remedy,
                    ),
                });
            } else if route.is_connected && within(&network, &route.network) {
                let what = match start {
                    Start::None => "a peer's Child SA to it is refused",
                    Start::Start | Start::Trap => "its hosts there are not reached any more",
                };
                found.push(Finding::warning(
                    setting,
                    format!("{by}, and {} is a part of it: {what}", show(&network)),
                    "give the networks on both sides different addresses",
                ));
            }
        }
    }
}

/// Peers outside that would be looked for inside of a tunnel.
fn outer_addresses(config: &DaemonConfig, found: &mut Vec<Finding>) {
    for connection in config.connection.iter().filter(|one| !one.has_transport()) {
        let Some(remote) = connection.remote else {
            continue;
        };
        let inside = |(_, network, _): &(&str, Prefix, Start)| network.range().contains(remote);
        if let Some((other, network, _)) = protected(config).find(inside) {
            found.push(Finding::warning(
                format!("connection {:?}: remote", connection.name),
                format!(
                    "{remote} lies in {}, to which connection {other:?} leads: what carries the tunnel would go into it",
                    show(&network)
                ),
                "leave that address out of the tunnel's networks",
            ));
        }
    }
}

/// A setting of the host without which hosts behind it are not reached.
#[derive(Debug)]
pub struct Forwarding {
    /// Its name for `sysctl`.
    pub setting: &'static str,
    pub file: PathBuf,
    /// A network behind this host.
    pub network: Prefix,
}

/// Names the settings that a configuration needs for the hosts behind this one.
#[must_use]
pub fn forwarded(config: &DaemonConfig) -> Vec<Forwarding> {
    let settings = [
        ("net.ipv4.ip_forward", true),
        ("net.ipv6.conf.all.forwarding", false),
    ];
    let needed = |(setting, is_v4): (&'static str, bool)| {
        let children = config.connection.iter().flat_map(|one| &one.child);
        let mut local = children.flat_map(|child| &child.local);
        let network = local.find(|network| {
            network.address.is_ipv4() == is_v4 && **network != Prefix::host(network.address)
        });
        Some(Forwarding {
            setting,
            file: Path::new("/proc/sys").join(setting.replace('.', "/")),
            network: *network?,
        })
    };
    settings.into_iter().filter_map(needed).collect()
}

/// Hosts behind this one, which are reached only if it forwards packets, and this host itself.
fn forwarding(config: &DaemonConfig, host: &Host, found: &mut Vec<Finding>) {
    for Forwarding {
        setting, network, ..
    } in forwarded(config)
    {
        let [v4, v6] = host.forwarding;
        let on = if network.address.is_ipv4() { v4 } else { v6 };
        if on == Some(false) {
            found.push(Finding::warning(
                setting,
                format!("0: only this host itself is reached in {}", show(&network)),
                format!("`sysctl -w {setting}=1`, and the same line in /etc/sysctl.d"),
            ));
        }
    }
    // Without an address of its own in these networks the host speaks from one that the peer does not let in.
    for connection in &config.connection {
        for child in &connection.child {
            let known = host
                .addresses
                .iter()
                .chain(config.interface.addresses.iter().map(|own| &own.address));
            let mut known = known.filter(|address| !address.is_loopback());
            let is_ours =
                |address: &IpAddr| child.local.iter().any(|net| net.range().contains(*address));
            if !child.local.is_empty() && connection.request.is_empty() && !known.any(is_ours) {
                found.push(Finding::warning(
                    format!("connection {:?}: child {:?}", connection.name, child.name),
                    "this host has no address in `local`: those behind it use the tunnel, it does not itself",
                    "name an address of these networks in `addresses` of [interface], unless that is meant",
                ));
            }
        }
    }
}

/// Transport mode, where the peer is routed into the tunnel.
fn transport(config: &DaemonConfig, host: &Host, found: &mut Vec<Finding>) {
    let mut children = config.connection.iter().flat_map(|one| &one.child);
    if config.path.listen.is_ipv4() && children.any(|child| child.mode == ModeConfig::Transport) {
        for interface in &host.strict {
            found.push(Finding::warning(
                format!("net.ipv4.conf.{interface}.rp_filter"),
                "1: drops what the peer of transport mode sends there",
                format!("`sysctl -w net.ipv4.conf.{interface}.rp_filter=2`, where the peer is"),
            ));
        }
    }
}

/// Revocation lists that are demanded and come from nowhere.
fn revocation(config: &DaemonConfig, found: &mut Vec<Finding>) {
    let Some(trust) = &config.trust else { return };
    let mut own = config.connection.iter().filter_map(|c| c.trust.as_ref());
    let none = trust.crls.is_empty() && trust.crl_urls.is_empty();
    if trust.require_crl && none && own.all(|own| own.crls.is_empty()) {
        found.push(Finding::error(
            "trust.require_crl",
            "true, and neither `crls` nor `crl_urls` names a list: every certificate is refused",
            "name the lists of the authorities in `crl_urls`",
        ));
    }
}

fn show(network: &Prefix) -> String {
    format!("{}/{}", network.range().first(), network.bits)
}

/// Whether all of the first network lies in the second.
fn within(narrow: &Prefix, wide: &Prefix) -> bool {
    let (narrow, wide) = (narrow.range(), wide.range());
    wide.contains(narrow.first()) && wide.contains(narrow.last())
}

/// Whether two networks have an address in common.
#[must_use]
pub fn common(one: &Prefix, other: &Prefix) -> bool {
    within(one, other) || within(other, one)
}
