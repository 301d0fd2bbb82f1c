//! What a configuration means for the kernel.

use std::net::{IpAddr, SocketAddr};

use ipsec::ip::protocol;
use ipsec::sa::DEFAULT_REPLAY_WINDOW;
use tunnel::config::{
    ConfigError, DscpConfig, Encapsulation, KeyConfig, PolicyConfig, Prefix, StaticConfig,
};

use crate::message::{Direction, Policy, Sa, Selector, Template};

/// Types of ICMPv6 by which neighbours find one another (RFC 4861 §4.3, §4.4).
const NEIGHBOURS: [u16; 2] = [135, 136];

/// Two associations that belong together.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) outbound: Sa,
    pub(crate) inbound: Sa,
}

/// The associations of a configuration.
pub(crate) fn pair(config: &StaticConfig) -> Result<Pair, ConfigError> {
    let (local, remote) = (config.path.local, config.path.remote);
    let protocol = config.protocol()?;
    let in_udp = config.encapsulation() == Encapsulation::Udp;
    let of = |key: &KeyConfig, from: SocketAddr, to: SocketAddr| Sa {
        source: from.ip(),
        destination: to.ip(),
        spi: key.spi,
        protocol,
        transport: config.is_transport(),
        reqid: reqid(config),
        in_udp: in_udp.then(|| [from.port(), to.port()]),
        extended_sequence: config.sa.extended_sequence,
        window: match config.sa.replay_window {
            0 => DEFAULT_REPLAY_WINDOW,
            packets => packets,
        },
        copy_dscp: config.path.dscp == DscpConfig::Copy,
        tfc_padding: None,
        hard_seconds: None,
        encryption_key: key.encryption_key.clone(),
        integrity_key: key.integrity_key.clone(),
    };
    Ok(Pair {
        outbound: of(&config.sa.outbound, local, remote),
        inbound: of(&config.sa.inbound, remote, local),
    })
}

/// The policies of a configuration, for packets that leave, arrive and pass through.
pub(crate) fn policies(config: &StaticConfig) -> Result<Vec<Policy>, ConfigError> {
    let mut policies = if config.is_transport() {
        unprotected(config)
    } else {
        Vec::new()
    };
    let (local, remote) = (config.path.local.ip(), config.path.remote.ip());
    let protocol = config.protocol()?;
    let template = |source, destination| Template {
        source,
        destination,
        protocol,
        transport: config.is_transport(),
        reqid: reqid(config),
    };
    let if_id = interface_number(config);
    for (ours, theirs, upper) in selectors(config) {
        let to = Selector {
            source: ours,
            destination: theirs,
            protocol: upper,
            ports: [None; 2],
        };
        let from = Selector {
            source: theirs,
            destination: ours,
            ..to
        };
        let protect = |direction, selector, template| Policy {
            direction,
            selector,
            template: Some(template),
            if_id,
        };
        policies.push(protect(Direction::Out, to, template(local, remote)));
        policies.push(protect(Direction::In, from, template(remote, local)));
        if !config.is_transport() {
            policies.push(protect(Direction::Forward, from, template(remote, local)));
        }
    }
    Ok(policies)
}

/// The number that ties interface, policies and associations together. Two tunnels of one host cannot
/// have the same inbound SPI, so it is free; it stays when keys change.
pub(crate) fn interface_number(config: &StaticConfig) -> Option<u32> {
    (!config.is_transport()).then(|| config.sa.inbound.spi.get())
}

fn reqid(config: &StaticConfig) -> u32 {
    config.path.mark.get()
}

/// Local and remote addresses and protocol of what is protected.
fn selectors(config: &StaticConfig) -> Vec<(Prefix, Prefix, Option<u8>)> {
    if !config.policy.is_empty() {
        let of = |policy: &PolicyConfig| {
            (
                network(policy.local),
                network(policy.remote),
                policy.protocol,
            )
        };
        return config.policy.iter().map(of).collect();
    }
    if config.is_transport() {
        let [local, remote] =
            [config.path.local, config.path.remote].map(|end| Prefix::host(end.ip()));
        return vec![(local, remote, None)];
    }
    let any = |address| Prefix { address, bits: 0 };
    [IpAddr::from([0; 4]), IpAddr::from([0; 16])]
        .map(|address| (any(address), any(address), None))
        .to_vec()
}

/// A prefix without host bits.
fn network(prefix: Prefix) -> Prefix {
    Prefix {
        address: prefix.range().first(),
        ..prefix
    }
}

/// Builds policies for what two hosts exchange as it is although all their packets are protected: what carries the
/// protected ones, and the questions by which neighbours find one another.
fn unprotected(config: &StaticConfig) -> Vec<Policy> {
    let (local, remote) = (config.path.local, config.path.remote);
    let pass = |direction, source, destination, protocol, ports| Policy {
        direction,
        selector: Selector {
            source: Prefix::host(source),
            destination: Prefix::host(destination),
            protocol: Some(protocol),
            ports,
        },
        template: None,
        if_id: None,
    };
    let mut policies = Vec::new();
    let (ours, theirs) = (local.ip(), remote.ip());
    if config.encapsulation() == Encapsulation::Udp {
        // The kernel asks for policies before it takes ESP out of UDP.
        let ports = [None, Some(local.port())];
        policies.push(pass(Direction::In, theirs, ours, protocol::UDP, ports));
    }
    if local.is_ipv6() {
        for kind in NEIGHBOURS {
            let ports = [Some(kind), None];
            let icmp = protocol::ICMPV6;
            policies.push(pass(Direction::Out, ours, theirs, icmp, ports));
            policies.push(pass(Direction::In, theirs, ours, icmp, ports));
        }
    }
    policies
}
