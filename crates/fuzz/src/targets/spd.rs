//! The policy database against a list that is searched from its beginning: any sequence of
//! insertions, removals and lookups gives the same answers, with the cache and without.

use std::net::IpAddr;

use ipsec::ip::Ports;
use ipsec::selector::{AddressRange, Flow, PortMatch, Selector};
use ipsec::spd::{Action, Policy, PolicyId, Spd};

/// Most rules at once: more only makes a run slower.
const MOST: usize = 64;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Few addresses, close together, of both families: rules and flows shall meet.
    fn address(&mut self) -> Option<IpAddr> {
        let byte = self.byte()?;
        let low = u32::from(byte & 0x3F);
        Some(match byte >> 6 {
            0 | 1 => IpAddr::V4((0x0A00_0000 | low).into()),
            2 => IpAddr::V6(((0xFD << 120) | u128::from(low)).into()),
            // The ends of the ranges of all addresses.
            _ if low & 1 == 0 => IpAddr::V4((u32::MAX - low).into()),
            _ => IpAddr::V6((u128::MAX - u128::from(low)).into()),
        })
    }

    fn range(&mut self) -> Option<AddressRange> {
        let first = self.address()?;
        let extent = self.byte()?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        Some(if extent & 1 == 0 {
            AddressRange::prefix(first, (extent >> 1).min(bits))
                .expect("no longer than the address")
        } else {
            let last = match first {
                IpAddr::V4(first) => {
                    IpAddr::V4(u32::from(first).saturating_add((extent >> 1).into()).into())
                }
                IpAddr::V6(first) => IpAddr::V6(
                    u128::from(first)
                        .saturating_add((extent >> 1).into())
                        .into(),
                ),
            };
            AddressRange::new(first, last).expect("in order")
        })
    }

    fn port_match(&mut self) -> Option<PortMatch> {
        let byte = self.byte()?;
        let (a, b) = (u16::from(byte & 7), u16::from(byte >> 3 & 7));
        Some(match byte >> 6 {
            0 | 1 => PortMatch::Any,
            2 => PortMatch::Opaque,
            _ => PortMatch::Range(a.min(b), a.max(b)),
        })
    }

    fn policy(&mut self) -> Option<Policy> {
        let kind = self.byte()?;
        Some(Policy {
            selector: Selector {
                local: self.range()?,
                remote: self.range()?,
                protocol: (kind & 4 != 0).then_some(16 + (kind & 3)),
                local_ports: self.port_match()?,
                remote_ports: self.port_match()?,
            },
            action: Action::Protect,
            order: u32::from(kind >> 5),
        })
    }

    fn flow(&mut self) -> Option<Flow> {
        let kind = self.byte()?;
        Some(Flow {
            local: self.address()?,
            remote: self.address()?,
            protocol: 16 + (kind & 3),
            ports: match kind >> 6 {
                0 => Ports::None,
                1 => Ports::Opaque,
                _ => Ports::Known {
                    source: u16::from(kind >> 3 & 7),
                    destination: u16::from(self.byte()? & 7),
                },
            },
        })
    }
}

/// Addresses as numbers of one line on which the families do not touch.
fn place(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (false, u32::from(address).into()),
        IpAddr::V6(address) => (true, address.into()),
    }
}

fn inside(range: &AddressRange, address: IpAddr) -> bool {
    let (first, last, at) = (place(range.first()), place(range.last()), place(address));
    first.0 == at.0 && first.1 <= at.1 && at.1 <= last.1
}

fn port_fits(wanted: PortMatch, port: Option<u16>, opaque: bool) -> bool {
    match wanted {
        PortMatch::Any => true,
        PortMatch::Opaque => opaque,
        PortMatch::Range(first, last) => port.is_some_and(|port| (first..=last).contains(&port)),
    }
}

/// RFC 4301 §4.4.1.1, said once more.
fn fits(selector: &Selector, flow: &Flow) -> bool {
    let (source, destination) = match flow.ports {
        Ports::Known {
            source,
            destination,
        } => (Some(source), Some(destination)),
        Ports::None | Ports::Opaque => (None, None),
    };
    let opaque = flow.ports == Ports::Opaque;
    inside(&selector.local, flow.local)
        && inside(&selector.remote, flow.remote)
        && (selector.protocol.is_none() || selector.protocol == Some(flow.protocol))
        && port_fits(selector.local_ports, source, opaque)
        && port_fits(selector.remote_ports, destination, opaque)
}

fn scan(list: &[(PolicyId, Policy)], flow: &Flow) -> Option<PolicyId> {
    // The list is in order of insertion, and the first of equal minima wins.
    let matching = list
        .iter()
        .filter(|(_, policy)| fits(&policy.selector, flow));
    matching
        .min_by_key(|(_, policy)| policy.order)
        .map(|(id, _)| *id)
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let mut spd = Spd::new(u64::from(input.byte().unwrap_or(0)));
    let mut list: Vec<(PolicyId, Policy)> = Vec::new();
    while let Some(step) = input.byte() {
        match step & 3 {
            0 if list.len() < MOST => {
                let Some(policy) = input.policy() else { break };
                list.push((spd.insert(policy), policy));
            }
            1 if !list.is_empty() => {
                let (id, policy) = list.remove(usize::from(step >> 2) % list.len());
                assert_eq!(spd.remove(id), Some(policy));
                assert_eq!(spd.remove(id), None, "removed twice");
            }
            _ => {
                let Some(flow) = input.flow() else { break };
                let expected = scan(&list, &flow);
                assert_eq!(spd.search(&flow), expected, "{flow:?} in {list:?}");
                assert_eq!(spd.lookup(&flow), expected, "from the cache or into it");
                assert_eq!(spd.lookup(&flow), expected, "from the cache");
            }
        }
    }
}
