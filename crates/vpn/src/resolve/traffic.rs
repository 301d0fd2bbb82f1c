//! Between networks of the file, selectors of the protocol and selectors of the data plane.

use ikev2::wire::TrafficSelector;
use ipsec::selector::{AddressRange, Selector};

use tunnel::config::Prefix;

/// A selector's addresses as networks.
pub(crate) fn prefixes(selector: &TrafficSelector) -> Vec<Prefix> {
    let (first, last) = selector.addresses();
    let Ok(range) = AddressRange::new(first, last) else {
        return Vec::new();
    };
    let networks = range.networks();
    let of = |(address, bits)| Prefix { address, bits };
    networks.into_iter().map(of).collect()
}

pub(super) fn traffic_selector(network: &Prefix, protocol: Option<u8>) -> Option<TrafficSelector> {
    let all = TrafficSelector::network(network.address, network.bits)?;
    match protocol {
        None | Some(0) => Some(all),
        Some(protocol) => all.with_ports(protocol, 0, u16::MAX),
    }
}

/// Everything between two sides, as the data plane has it. Pairs that no packet can belong to are left
/// out: of two families, or of two protocols.
pub(crate) fn selectors(local: &[TrafficSelector], remote: &[TrafficSelector]) -> Vec<Selector> {
    use ipsec::selector::PortMatch;
    let range = |selector: &TrafficSelector| {
        let (first, last) = selector.addresses();
        AddressRange::new(first, last).ok()
    };
    let ports = |selector: &TrafficSelector| match selector.ports() {
        (0, u16::MAX) => PortMatch::Any,
        (u16::MAX, 0) => PortMatch::Opaque,
        (first, last) => PortMatch::Range(first, last),
    };
    let pair = |ours: &TrafficSelector, theirs: &TrafficSelector| {
        let (ours_range, theirs_range) = (range(ours)?, range(theirs)?);
        let protocol = match (ours.protocol(), theirs.protocol()) {
            (0, any) | (any, 0) => any,
            (one, two) if one == two => one,
            _ => return None,
        };
        let same_family = ours_range.first().is_ipv4() == theirs_range.first().is_ipv4();
        same_family.then_some(Selector {
            protocol: (protocol != 0).then_some(protocol),
            local_ports: ports(ours),
            remote_ports: ports(theirs),
            ..Selector::between(ours_range, theirs_range)
        })
    };
    let all = local
        .iter()
        .flat_map(|ours| remote.iter().map(move |theirs| (ours, theirs)));
    all.filter_map(|(ours, theirs)| pair(ours, theirs))
        .collect()
}
