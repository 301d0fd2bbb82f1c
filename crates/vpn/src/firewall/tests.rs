use super::*;

/// A tunnel with manual keys.
const EXAMPLE: &str = include_str!("../../../tunnel/src/config/example.toml");

const DAEMON: &str = r#"
status = "control.sock"
[interface]
name = "tunnel0"
[[pool]]
name = "cameras"
addresses = ["10.9.5.0/24"]
[[connection]]
name = "cameras"
remote_id = "any"
pool = "cameras"
[[connection.child]]
name = "intake"
local = ["10.9.0.0/16"]
[[connection]]
name = "headquarters"
remote = "192.0.2.1"
remote_id = "gateway.example.org"
[[connection.child]]
name = "net"
local = ["10.9.0.0/16", "fd09::/64"]
remote = ["10.0.0.0/8", "fd00::7/8"]
"#;

fn daemon(text: &str) -> Option<Firewall> {
    Firewall::of_daemon(&toml::from_str(text).unwrap())
}

fn owner() -> Owner {
    Owner::of(std::path::Path::new("/vpn.toml")).unwrap()
}

fn lines_with<'a>(script: &'a str, word: &str) -> Vec<&'a str> {
    script
        .lines()
        .filter(|line| line.contains(word))
        .map(str::trim)
        .collect()
}

#[test]
fn daemon_protects_remote_networks_and_pools() {
    let script = daemon(DAEMON).unwrap().script("cordon_t", &owner());
    assert_eq!(
        lines_with(&script, "set protected"),
        [
            "set protected4 { type ipv4_addr; flags interval; auto-merge; elements = { 10.9.5.0/24, 10.0.0.0/8 }; }",
            "set protected6 { type ipv6_addr; flags interval; auto-merge; elements = { fd00::/8 }; }",
        ]
    );
}

#[test]
fn own_network_inside_a_protected_one_stays_reachable_but_not_its_pool() {
    let firewall = daemon(DAEMON).unwrap();
    let networks = |list: &[&str]| {
        list.iter()
            .map(|net| net.parse().unwrap())
            .collect::<Vec<Prefix>>()
    };
    assert_eq!(
        firewall.own(),
        networks(&["10.9.0.0/16", "10.9.0.0/16", "fd09::/64"])
    );
    assert_eq!(firewall.narrow(), networks(&["10.9.5.0/24"]));
    let script = firewall.script("cordon_t", &owner());
    let at = |rule: &str| script.find(rule).unwrap();
    assert!(at("ip saddr @bypass4") < at("ip saddr @narrow4"));
    assert!(at("ip saddr @narrow4") < at("ip saddr @own4"));
    assert!(at("ip saddr @own4") < at("ip saddr @protected4"));
}

#[test]
fn network_that_covers_all_of_a_protected_one_is_no_exception() {
    // A gateway that leads to everything has 0.0.0.0/0 as its own side.
    let text = DAEMON.replace("local = [\"10.9.0.0/16\"]", "local = [\"0.0.0.0/0\"]");
    let firewall = daemon(&text).unwrap();
    assert!(!firewall.own().contains(&"0.0.0.0/0".parse().unwrap()));
}

#[test]
fn firewall_turned_off_makes_no_table() {
    assert_eq!(
        daemon(&format!("{DAEMON}\n[firewall]\nenforce = \"off\"\n")),
        None
    );
    let wrong = format!("{DAEMON}\n[firewall]\nenforce = \"ipchains\"\n");
    assert!(toml::from_str::<DaemonConfig>(&wrong).is_err());
}

#[test]
fn manual_keys_protect_what_is_routed_into_the_tunnel() {
    let config = StaticConfig::parse(EXAMPLE).unwrap();
    let script = Firewall::of_static(&config)
        .unwrap()
        .script("cordon_t", &owner());
    assert!(
        script.contains("elements = { 10.2.0.0/16, 10.8.0.0/24 }"),
        "{script}"
    );
    assert!(
        script.contains("oifname { \"lo\", \"cordon0\" } accept"),
        "{script}"
    );
}

#[test]
fn tables_of_two_interfaces_differ() {
    let names = ["vpn0", "vpn_0", "vpn-0", "vpn.0", "vpn_2d0", "VPN0"];
    let tables: std::collections::BTreeSet<String> = names.iter().map(|name| table(name)).collect();
    assert_eq!(tables.len(), names.len());
    assert!(
        tables
            .iter()
            .flat_map(|table| table.bytes())
            .all(|b| b == b'_' || b.is_ascii_alphanumeric())
    );
}

#[test]
fn interface_name_with_special_characters_is_refused() {
    for name in ["a\"b", "a\\b", "a*", "a b"] {
        let text = DAEMON.replace("\"tunnel0\"", &format!("{name:?}"));
        let error = daemon(&text).unwrap().install(&owner()).unwrap_err();
        assert!(
            matches!(error, FirewallError::Refused { .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn connections_of_tunnels_over_tcp_pass_and_no_others() {
    let script = daemon(DAEMON).unwrap().script("cordon_t", &owner());
    assert_eq!(lines_with(&script, "tcp "), [""; 0]);
    let text = DAEMON.replace(
        "remote = \"192.0.2.1\"",
        "remote = \"192.0.2.1\"\ntransport = \"udp-then-tcp\"\ntcp_port = 443",
    ) + "\n[path]\ntcp_port = 4500\n";
    let firewall = daemon(&text).unwrap();
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(
        lines_with(&firewall.script("cordon_t", &owner()), "tcp "),
        [
            format!("tcp sport 4500 meta skuid {user} accept"),
            "tcp sport 4500 tcp flags & (syn | ack) == (syn | ack) accept".to_owned(),
            format!("ip daddr 192.0.2.1 tcp dport 443 meta skuid {user} accept"),
            "tcp dport 4500 accept".to_owned(),
            "ip saddr 192.0.2.1 tcp sport 443 accept".to_owned(),
        ]
    );
    // While it is not decided which of two counts, what only one lets through does not pass.
    let both = firewall.and(&daemon(DAEMON).unwrap());
    assert_eq!(
        lines_with(&both.script("cordon_t", &owner()), "tcp "),
        [""; 0]
    );
}
