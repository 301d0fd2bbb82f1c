//! Facts about this host from which defaults follow.

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::path::{Path, PathBuf};

use commandline::{Failure, OrHint as _, Outcome};
use tunnel::config::Prefix;
use vpn::firewall::{self, Owner};
use vpn::host::has_interface;

/// Our address on the way to another host. Connecting a UDP socket sends nothing.
pub(super) fn address_towards(remote: IpAddr) -> Option<IpAddr> {
    let any = match remote {
        IpAddr::V4(_) => "0.0.0.0:0",
        IpAddr::V6(_) => "[::]:0",
    };
    let probe = UdpSocket::bind(any).ok()?;
    probe.connect((remote, 500)).ok()?;
    probe.local_addr().ok().map(|address| address.ip())
}

/// Networks beside this host, with its address in them, without the one that has an address outside.
pub(super) fn networks_beside(outside: IpAddr) -> Vec<Prefix> {
    let all = networks().into_iter();
    all.filter(|network| !network.range().contains(outside))
        .collect()
}

/// Networks beside this host, with its address in them, that are not for the whole Internet.
pub(super) fn networks() -> Vec<Prefix> {
    let is_private = |network: &Prefix| match network.address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    };
    let all = vpn::host::own_networks().into_iter();
    all.filter(|network| is_private(network) && *network != Prefix::host(network.address))
        .collect()
}

/// Whether this host has addresses of both families that are reached from elsewhere.
pub(super) fn has_both_families() -> bool {
    let own = vpn::host::own_networks();
    let is_reached = |network: &&Prefix| match network.address {
        IpAddr::V4(address) => !address.is_loopback(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    };
    let mut reached = own.iter().filter(is_reached);
    reached.clone().any(|one| one.address.is_ipv4()) && reached.any(|one| one.address.is_ipv6())
}

/// Lines about names of this gateway under which its peers would not find it.
pub(super) fn unknown_names(names: &[String], is_here: bool) -> Vec<String> {
    let own = vpn::host::own_networks();
    let is_own = |address: IpAddr| own.iter().any(|network| network.address == address);
    let names = names.iter().filter(|name| name.parse::<IpAddr>().is_err());
    let told = names.filter_map(|name| match (name.as_str(), 500).to_socket_addrs() {
        Err(_) => Some(format!(
            "name    {name} has no address yet: telephones and strongSwan look it up"
        )),
        Ok(mut found) if is_here && !found.clone().any(|at| is_own(at.ip())) => Some(format!(
            "name    {name} is {}, which is not an address of this host: right only behind address translation",
            found.next()?.ip()
        )),
        Ok(_) => None,
    });
    told.collect()
}

/// The host's name, where it is a full one.
pub(super) fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    name.contains('.').then(|| name.to_owned())
}

/// Interface of tunnels, unless it is taken.
pub(super) const INTERFACE: &str = "cordon0";
/// Interfaces that are tried.
const INTERFACES: u8 = 100;

/// An interface that no other tunnel of this host has, as far as the host says.
pub(super) fn free_interface(settings: &Path) -> Outcome<String> {
    let owner = Owner::of(settings).ok();
    let is_free = |name: &String| {
        let taken = firewall::is_taken(name, owner.as_ref());
        // Without nftables, or without the right to list its tables, the name counts as free.
        !has_interface(name) && !taken.unwrap_or(false)
    };
    let mut names = (0..INTERFACES).map(|number| format!("cordon{number}"));
    names.find(is_free).ok_or_else(|| {
        Failure::usage(
            "every interface from cordon0 on is taken",
            "name another one with --interface; see `ip link`",
        )
    })
}

pub(super) fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path).or_hint(format!("{}", path.display()), "name an existing folder")
}
