//! Addresses inside the tunnel: the Configuration payload (RFC 7296 §2.19, §3.15).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::Addresses;
use crate::wire::{Attribute, AttributeType, CfgType, Configuration, Payload, TrafficSelector};

/// What the initiator was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assigned {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) dns: Vec<IpAddr>,
}

impl Assigned {
    /// The addresses as selectors.
    pub(crate) fn selectors(&self) -> Vec<TrafficSelector> {
        self.addresses
            .iter()
            .copied()
            .map(TrafficSelector::host)
            .collect()
    }

    /// Reads a reply; attributes of a wrong length or of no interest are skipped.
    pub(crate) fn from_reply(payloads: &[Payload]) -> Self {
        let mut out = Self::default();
        for payload in payloads {
            let Payload::Cp(Configuration {
                kind: CfgType::REPLY,
                attributes,
            }) = payload
            else {
                continue;
            };
            for attribute in attributes {
                let place = match attribute.kind {
                    AttributeType::INTERNAL_IP4_ADDRESS | AttributeType::INTERNAL_IP6_ADDRESS => {
                        &mut out.addresses
                    }
                    AttributeType::INTERNAL_IP4_DNS | AttributeType::INTERNAL_IP6_DNS => {
                        &mut out.dns
                    }
                    _ => continue,
                };
                place.extend(address(&attribute.value));
            }
        }
        out
    }

    /// The reply to a request.
    pub(crate) fn reply(&self) -> Payload {
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
        let addresses = self.addresses.iter().map(address);
        let attributes = addresses.chain(self.dns.iter().map(server)).collect();
        Payload::Cp(Configuration {
            kind: CfgType::REPLY,
            attributes,
        })
    }
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
