use super::*;
use crate::message::Direction;

/// A tunnel with manual keys.
const EXAMPLE: &str = include_str!("../../../tunnel/src/config/example.toml");

fn config(change: impl FnOnce(String) -> String) -> StaticConfig {
    let text = change(format!("backend = \"kernel\"\n{EXAMPLE}"));
    StaticConfig::parse(&text).unwrap()
}

/// Without what only a tunnel's interface has.
fn transport(path: &str) -> StaticConfig {
    config(|text| {
        text.replace("addresses = [\"10.8.0.1/24\"]", "")
            .replace("routes = [\"10.2.0.0/16\"]", "")
            .replace("[sa]", &format!("{path}\n[sa]\nmode = \"transport\""))
    })
}

#[test]
fn tunnel_policies_carry_the_interface_number() {
    let policies = policies(&config(|text| text)).unwrap();
    assert_eq!(policies.len(), 6);
    assert!(policies.iter().all(|policy| policy.if_id == Some(0x1002)));
    assert!(policies.iter().all(|policy| policy.template.is_some()));
}

#[test]
fn policies_cover_both_directions() {
    let config = config(|text| {
        format!(
            "{text}\n[[policy]]\nlocal = \"10.1.2.3/16\"\nremote = \"10.2.0.0/17\"\nprotocol = 6"
        )
    });
    let policies = policies(&config).unwrap();
    let found: Vec<_> = policies
        .iter()
        .map(|policy| {
            let selector = &policy.selector;
            let template = policy.template.unwrap();
            let source = selector.source.address.to_string();
            (
                policy.direction,
                source,
                selector.source.bits,
                template.source.to_string(),
            )
        })
        .collect();
    let row =
        |direction, source: &str, bits, outer: &str| (direction, source.into(), bits, outer.into());
    let expected = [
        // Host bits are left out.
        row(Direction::Out, "10.1.0.0", 16, "192.0.2.1"),
        row(Direction::In, "10.2.0.0", 17, "192.0.2.2"),
        row(Direction::Forward, "10.2.0.0", 17, "192.0.2.2"),
    ];
    assert_eq!(found, expected);
    assert!(
        policies
            .iter()
            .all(|policy| policy.selector.protocol == Some(6))
    );
}

#[test]
fn transport_mode_policies_bypass_the_carrier() {
    let passing = |config: &StaticConfig| {
        let policies = policies(config).unwrap();
        assert!(policies.iter().all(|policy| policy.if_id.is_none()));
        let protecting = policies.iter().filter(|policy| policy.template.is_some());
        assert_eq!(protecting.count(), 2, "out and in, nothing is forwarded");
        let passing = policies
            .into_iter()
            .filter(|policy| policy.template.is_none());
        passing
            .map(|policy| {
                (
                    policy.direction,
                    policy.selector.protocol,
                    policy.selector.ports,
                )
            })
            .collect::<Vec<_>>()
    };
    let udp = (Direction::In, Some(17), [None, Some(4500)]);
    assert_eq!(passing(&transport("")), [udp]);
    assert_eq!(passing(&transport("encapsulation = \"none\"")), []);
    let mut v6 = transport("encapsulation = \"none\"");
    v6.path.local = "[2001:db8::1]:4500".parse().unwrap();
    v6.path.remote = "[2001:db8::2]:4500".parse().unwrap();
    let neighbours: Vec<_> = [135, 136]
        .into_iter()
        .flat_map(|kind| {
            [Direction::Out, Direction::In].map(|way| (way, Some(58), [Some(kind), None]))
        })
        .collect();
    assert_eq!(passing(&v6), neighbours);
}

#[test]
fn inbound_association_swaps_ports_and_addresses() {
    let config = config(|text| text.replace("192.0.2.2:4500", "192.0.2.2:4501"));
    let pair = pair(&config).unwrap();
    assert_eq!(pair.outbound.in_udp, Some([4500, 4501]));
    assert_eq!(pair.inbound.in_udp, Some([4501, 4500]));
    assert_eq!(pair.outbound.destination, pair.inbound.source);
    assert_eq!(pair.inbound.window, 1024);
}
