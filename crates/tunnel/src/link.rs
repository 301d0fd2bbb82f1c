//! The inner interface's addresses and routes, by rtnetlink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::link::{InfoData, InfoXfrm, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkXfrm, RouteMessageBuilder};

use crate::config::Prefix;

/// Packets that the kernel keeps for the interface: some milliseconds of small ones, for which the
/// worker may have to wait for a core.
const QUEUE: u32 = 2048;

/// Why an interface could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("netlink: {0}")]
    Socket(#[from] std::io::Error),
    /// The kernel said no.
    #[error("{what}: {source}")]
    Refused {
        what: String,
        source: rtnetlink::Error,
    },
    /// The interface is gone.
    #[error("interface {0} does not exist")]
    NoInterface(String),
}

impl LinkError {
    /// The system's number for what the kernel answered.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Refused {
                source: rtnetlink::Error::NetlinkError(error),
                ..
            } => Some(error.raw_code().saturating_neg()),
            _ => None,
        }
    }
}

/// Description of an interface.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    pub name: &'a str,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// Bytes of the largest GSO super-packet: what fits one batch of datagrams.
    pub gso_max_size: u32,
    pub addresses: &'a [Prefix],
    /// Destinations that are routed into it.
    pub routes: &'a [Prefix],
    /// The other host of transport mode.
    pub peer: Option<Peer>,
}

/// Two hosts that protect what they send each other.
///
/// Inner and outer packets have the same addresses there, so routes alone cannot tell them apart. Two
/// rules for the peer's address do: marked packets, which are the outer ones, go by the main table,
/// all others by a table of ours, into the interface. When the interface is gone, that table says
/// "unreachable": nothing goes out unprotected until the tunnel is taken down in an orderly way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub local: IpAddr,
    pub remote: IpAddr,
    /// The mark, and the number of the table.
    pub mark: u32,
}

/// Priorities of our two rules: in front of the main table's (32766) and far behind the local table's.
const RULES: [u32; 2] = [17_230, 17_231];
const MAIN: u32 = 254;
/// Metric of "unreachable": any other route is preferred.
const LAST: u32 = u32::MAX;

/// Sets up an interface and brings it up.
///
/// # Errors
/// [`LinkError`], naming what was refused.
pub async fn configure(link: &Link<'_>) -> Result<(), LinkError> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let task = tokio::spawn(connection);
    let result = apply(&handle, link).await;
    task.abort();
    result
}

/// Creates an XFRM interface: policies and associations with its number are for its packets (kernel,
/// net/xfrm/xfrm_interface_core.c).
///
/// # Errors
/// [`LinkError`]; for a name or number that is taken as well.
pub async fn create_xfrm(name: &str, number: u32) -> Result<(), LinkError> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let task = tokio::spawn(connection);
    let message = LinkMessageBuilder::<LinkXfrm>::new(name)
        .append_info_data(InfoXfrm::IfId(number))
        .build();
    let result = handle.link().add(message).execute().await;
    task.abort();
    result.map_err(|source| LinkError::Refused {
        what: format!("interface {name} of kind xfrm"),
        source,
    })
}

/// Removes the XFRM interface with this name and number, if there is one.
///
/// # Errors
/// [`LinkError`], naming what was refused.
pub async fn remove_xfrm(name: &str, number: u32) -> Result<(), LinkError> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let task = tokio::spawn(connection);
    // Asking by name is an error where there is none.
    let mut found = handle.link().get().match_name(name.to_owned()).execute();
    let result = match found.try_next().await {
        Ok(Some(message)) if xfrm_number(&message) == Some(number) => {
            remove_by(&handle, name).await
        }
        _ => Ok(()),
    };
    task.abort();
    result
}

/// The number of an XFRM interface.
fn xfrm_number(message: &LinkMessage) -> Option<u32> {
    let infos = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        })?;
    let data = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Xfrm(data)) => Some(data),
        _ => None,
    })?;
    data.iter().find_map(|info| match info {
        InfoXfrm::IfId(number) => Some(*number),
        _ => None,
    })
}

/// Removes an interface.
///
/// # Errors
/// [`LinkError`]; where there is none as well.
pub async fn remove(name: &str) -> Result<(), LinkError> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let task = tokio::spawn(connection);
    let result = remove_by(&handle, name).await;
    task.abort();
    result
}

async fn remove_by(handle: &Handle, name: &str) -> Result<(), LinkError> {
    let index = index_of(handle, name).await?;
    let removed = handle.link().del(index).execute().await;
    removed.map_err(|source| LinkError::Refused {
        what: format!("removing interface {name}"),
        source,
    })
}

pub async fn index_of(handle: &Handle, name: &str) -> Result<u32, LinkError> {
    let mut found = handle.link().get().match_name(name.to_owned()).execute();
    let found = found
        .try_next()
        .await
        .map_err(|source| LinkError::Refused {
            what: format!("interface {name}"),
            source,
        })?;
    found
        .map(|message| message.header.index)
        .ok_or_else(|| LinkError::NoInterface(name.to_owned()))
}

async fn apply(handle: &Handle, link: &Link<'_>) -> Result<(), LinkError> {
    let refused = |what: String| move |source| LinkError::Refused { what, source };
    let index = index_of(handle, link.name).await?;
    // All in one request: an interface that is up with the wrong MTU would take packets that do not fit.
    let up = LinkUnspec::new_with_index(index)
        .mtu(u32::from(link.mtu))
        .append_extra_attribute(LinkAttribute::GsoMaxSize(link.gso_max_size))
        .append_extra_attribute(LinkAttribute::TxQueueLen(QUEUE))
        .up()
        .build();
    handle
        .link()
        .set(up)
        .execute()
        .await
        .map_err(refused(format!(
            "interface {} up with MTU {}",
            link.name, link.mtu
        )))?;
    // Addresses before routes: the kernel chooses the source of a route from them.
    for Prefix { address, bits } in link.addresses {
        handle
            .address()
            .add(index, *address, *bits)
            .execute()
            .await
            .map_err(refused(format!(
                "address {address}/{bits} on {}",
                link.name
            )))?;
    }
    for Prefix { address, bits } in link.routes {
        let what = format!("route to {address}/{bits} by {}", link.name);
        let mut route = route_to(*address, *bits);
        route.attributes.push(RouteAttribute::Oif(index));
        handle
            .route()
            .add(route)
            .execute()
            .await
            .map_err(refused(what))?;
    }
    match &link.peer {
        Some(peer) => add_peer(handle, peer, index).await,
        None => Ok(()),
    }
}

/// Interfaces that take only packets whose source they would route back to (`rp_filter = 1`): in
/// transport mode the peer is routed into the tunnel, so they drop its outer packets.
pub fn strict_interfaces() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/sys/net/ipv4/conf") else {
        return Vec::new();
    };
    let settings: Vec<(String, u8)> = entries
        .flatten()
        .filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path().join("rp_filter")).ok()?;
            let name = entry.file_name().into_string().ok()?;
            Some((name, text.trim().parse().ok()?))
        })
        .collect();
    strict_of(&settings)
}

/// The larger of an interface's setting and that of "all" counts (kernel, ip-sysctl.rst).
fn strict_of(settings: &[(String, u8)]) -> Vec<String> {
    const STRICT: u8 = 1;
    let all = settings.iter().find(|(name, _)| name == "all");
    let all = all.map_or(0, |(_, value)| *value);
    settings
        .iter()
        .filter(|(name, value)| {
            !["all", "default", "lo"].contains(&name.as_str()) && all.max(*value) == STRICT
        })
        .map(|(name, _)| name.clone())
        .collect()
}

pub fn route_to(address: IpAddr, bits: u8) -> RouteMessage {
    match address {
        IpAddr::V4(address) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address, bits)
            .build(),
        IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(address, bits)
            .build(),
    }
}

/// The two routes to a peer: into the interface, and nowhere.
fn peer_routes(peer: &Peer, index: Option<u32>) -> Vec<RouteMessage> {
    let to_peer = || {
        let mut route = route_to(peer.remote, bits_of(peer.remote));
        set_table(&mut route, peer.mark);
        route
    };
    let mut nowhere = to_peer();
    // It stays when the interface goes, so that packets for the peer are refused rather than sent in the clear.
    nowhere.header.kind = RouteType::Unreachable;
    nowhere.attributes.push(RouteAttribute::Priority(LAST));
    let into = index.map(|index| {
        let mut route = to_peer();
        route.attributes.push(RouteAttribute::Oif(index));
        route
            .attributes
            .push(RouteAttribute::PrefSource(peer.local.into()));
        route
    });
    into.into_iter().chain([nowhere]).collect()
}

fn set_table(route: &mut RouteMessage, table: u32) {
    // The header's field has 8 bits; "unspecified" there leaves it to the attribute.
    route.header.table = 0;
    route.attributes.push(RouteAttribute::Table(table));
}

const fn bits_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The rules of a peer: outer packets, then all others.
fn peer_rules(handle: &Handle, peer: &Peer) -> [RuleMessage; 2] {
    let [marked, others] = RULES;
    let base = |priority| {
        let mut request = handle.rule().add();
        let rule = request.message_mut();
        rule.header.family = match peer.remote {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        rule.header.table = 0;
        rule.header.action = RuleAction::ToTable;
        rule.header.dst_len = bits_of(peer.remote);
        rule.attributes
            .push(RuleAttribute::Destination(peer.remote));
        rule.attributes.push(RuleAttribute::Priority(priority));
        rule.clone()
    };
    let mut outer = base(marked);
    // Outer packets have the peer's address as well: without the mark they would go into their own tunnel.
    outer.attributes.push(RuleAttribute::FwMark(peer.mark));
    outer.attributes.push(RuleAttribute::Table(MAIN));
    let mut inner = base(others);
    inner.attributes.push(RuleAttribute::Table(peer.mark));
    [outer, inner]
}

pub async fn add_peer(handle: &Handle, peer: &Peer, index: u32) -> Result<(), LinkError> {
    // Routes before rules: a rule that leads to an empty table falls through to the main one.
    for route in peer_routes(peer, Some(index)) {
        let added = handle.route().add(route).execute().await;
        existing_is_fine(added, || format!("route to {}", peer.remote))?;
    }
    for rule in peer_rules(handle, peer) {
        let mut request = handle.rule().add();
        *request.message_mut() = rule;
        let added = request.execute().await;
        existing_is_fine(added, || format!("routing rule to {}", peer.remote))?;
    }
    Ok(())
}

/// Left by a tunnel that did not end in an orderly way.
pub fn existing_is_fine(
    result: Result<(), rtnetlink::Error>,
    what: impl Fn() -> String,
) -> Result<(), LinkError> {
    match result {
        Err(rtnetlink::Error::NetlinkError(error))
            if error.raw_code() == -rustix::io::Errno::EXIST.raw_os_error() =>
        {
            Ok(())
        }
        Err(source) => Err(LinkError::Refused {
            what: what(),
            source,
        }),
        Ok(()) => Ok(()),
    }
}

/// Takes away the rules and the last route of a peer.
///
/// # Errors
/// [`LinkError`], naming what was refused.
pub async fn remove_peer(peer: &Peer) -> Result<(), LinkError> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let task = tokio::spawn(connection);
    let result = take_away(&handle, peer).await;
    task.abort();
    result
}

pub async fn take_away(handle: &Handle, peer: &Peer) -> Result<(), LinkError> {
    let refused = |what: String| move |source| LinkError::Refused { what, source };
    for rule in peer_rules(handle, peer) {
        let removed = handle.rule().del(rule).execute().await;
        removed.map_err(refused(format!("removing the rule to {}", peer.remote)))?;
    }
    for route in peer_routes(peer, None) {
        let removed = handle.route().del(route).execute().await;
        removed.map_err(refused(format!("removing the route to {}", peer.remote)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xfrm_interface_number_is_read() {
        let data = LinkInfo::Data(InfoData::Xfrm(vec![InfoXfrm::Link(0), InfoXfrm::IfId(7)]));
        let mut message = LinkMessage::default();
        assert_eq!(xfrm_number(&message), None);
        message.attributes.push(LinkAttribute::LinkInfo(vec![data]));
        assert_eq!(xfrm_number(&message), Some(7));
    }

    #[test]
    fn larger_rp_filter_setting_counts() {
        let strict = |all, one| {
            let settings = [("all", all), ("default", 1), ("eth0", one)];
            strict_of(&settings.map(|(name, value)| (name.to_owned(), value)))
        };
        assert_eq!(strict(0, 1), ["eth0"]);
        assert_eq!(strict(1, 0), ["eth0"]);
        for (all, one) in [(0, 0), (2, 1), (1, 2), (0, 2)] {
            assert!(strict(all, one).is_empty(), "{all} {one}");
        }
    }
}
