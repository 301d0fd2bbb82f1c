//! Addresses inside the tunnel: the Configuration payload (RFC 7296 §2.19, §3.15).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::authorization::Authorization;
use crate::config::Addresses;
use crate::wire::{Attribute, AttributeType, CfgType, Configuration, Payload};

/// Configuration that the responder gives us.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assigned {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) dns: Vec<IpAddr>,
}

impl Assigned {
    /// Reads a reply: of each family that we asked for the first address, and its name servers.
    /// Attributes of a wrong length or of no interest are skipped, and so is what we did not ask for: a
    /// responder could give us an address that somebody here has.
    pub(crate) fn from_reply(wanted: Addresses, payloads: &[Payload]) -> Self {
        let mut out = Self::default();
        let Addresses::Request { v4, v6 } = wanted else {
            return out;
        };
        let asked = |address: &IpAddr| if address.is_ipv4() { v4 } else { v6 };
        for payload in payloads {
            let Payload::Cp(Configuration {
                kind: CfgType::REPLY,
                attributes,
            }) = payload
            else {
                continue;
            };
            for attribute in attributes {
                let Some(address) = address(&attribute.value).filter(asked) else {
                    continue;
                };
                match attribute.kind {
                    AttributeType::INTERNAL_IP4_ADDRESS | AttributeType::INTERNAL_IP6_ADDRESS => {
                        let mut same = out.addresses.iter();
                        if same.all(|other| other.is_ipv4() != address.is_ipv4()) {
                            out.addresses.push(address);
                        }
                    }
                    AttributeType::INTERNAL_IP4_DNS | AttributeType::INTERNAL_IP6_DNS => {
                        out.dns.push(address);
                    }
                    _ => {}
                }
            }
        }
        out
    }
}

/// The reply to a request: what the peer may have, and nothing else.
pub(crate) fn reply(authorization: &Authorization) -> Payload {
    let address = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => attribute(AttributeType::INTERNAL_IP4_ADDRESS, &ip.octets()),
        // With the length of its prefix.
        IpAddr::V6(ip) => attribute(
            AttributeType::INTERNAL_IP6_ADDRESS,
            &[&ip.octets()[..], &[128]].concat(),
        ),
    };
    let server = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => attribute(AttributeType::INTERNAL_IP4_DNS, &ip.octets()),
        IpAddr::V6(ip) => attribute(AttributeType::INTERNAL_IP6_DNS, &ip.octets()),
    };
    // The authorization bounds the traffic as well, so a peer gains nothing by using another address.
    let addresses = authorization.addresses().iter().map(address);
    let servers = authorization.name_servers().iter().map(server);
    Payload::Cp(Configuration {
        kind: CfgType::REPLY,
        attributes: addresses.chain(servers).collect(),
    })
}

fn attribute(kind: AttributeType, value: &[u8]) -> Attribute {
    Attribute {
        kind,
        value: value.to_vec(),
    }
}

fn address(value: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from_octets(octets).into());
    }
    // An address has the length of its prefix behind it, a name server has not.
    let octets = value.first_chunk::<16>().filter(|_| value.len() <= 17)?;
    Some(Ipv6Addr::from_octets(*octets).into())
}

/// Our request, if we want addresses.
pub(crate) fn request(wanted: Addresses) -> Option<Payload> {
    let Addresses::Request { v4, v6 } = wanted else {
        return None;
    };
    let kinds = [
        (v4, AttributeType::INTERNAL_IP4_ADDRESS),
        (v4, AttributeType::INTERNAL_IP4_DNS),
        (v6, AttributeType::INTERNAL_IP6_ADDRESS),
        (v6, AttributeType::INTERNAL_IP6_DNS),
    ];
    let attributes = kinds.iter().filter(|(wanted, _)| *wanted);
    let attributes = attributes.map(|(_, kind)| attribute(*kind, &[])).collect();
    Some(Payload::Cp(Configuration {
        kind: CfgType::REQUEST,
        attributes,
    }))
}

/// Whether the peer asks for an IPv4 and an IPv6 address.
pub(crate) fn requested(payloads: &[Payload]) -> (bool, bool) {
    let asks = |kind| {
        payloads.iter().any(|payload| match payload {
            Payload::Cp(Configuration {
                kind: CfgType::REQUEST,
                attributes,
            }) => attributes.iter().any(|attribute| attribute.kind == kind),
            _ => false,
        })
    };
    (
        asks(AttributeType::INTERNAL_IP4_ADDRESS),
        asks(AttributeType::INTERNAL_IP6_ADDRESS),
    )
}
