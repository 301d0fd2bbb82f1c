use super::*;

const FILE: &str = r#"
status = "control.sock"
[interface]
name = "tunnel0"
[[connection]]
name = "branch"
remote = "192.0.2.1"
remote_id = "gateway.example.org"
psk_file = "psk"
local_id = "camera-17.example.org"
start = "start"
[[connection.child]]
name = "net"
local = ["10.5.1.0/24"]
remote = ["10.5.2.0/24"]
"#;

fn config(from: &str, to: &str) -> DaemonConfig {
    assert!(FILE.contains(from), "{from}");
    toml::from_str(&FILE.replace(from, to)).unwrap()
}

fn route(network: &str, interface: &str, is_connected: bool) -> HostRoute {
    HostRoute {
        network: network.parse().unwrap(),
        interface: interface.into(),
        is_connected,
    }
}

/// A gateway on which nothing is wrong.
fn host() -> Host {
    Host {
        capabilities: CapabilitySet::all(),
        unprivileged: 1024,
        ports: Vec::new(),
        device: None,
        interfaces: ["lo", "eth0", "eth1"].map(String::from).into(),
        forwarding: [Some(true), Some(true)],
        strict: Vec::new(),
        routes: vec![
            route("192.0.2.0/24", "eth0", true),
            route("10.5.1.0/24", "eth1", true),
        ],
        addresses: ["127.0.0.1", "192.0.2.2", "10.5.1.1"]
            .map(|text| text.parse().unwrap())
            .into(),
        unwritable: Vec::new(),
        is_status_taken: false,
        is_serving: false,
    }
}

fn found(config: &DaemonConfig, host: &Host) -> Vec<(Severity, String)> {
    let all = findings(config, host);
    assert!(all.iter().all(|one| !one.remedy.is_empty()));
    let each = all.into_iter();
    each.map(|one| (one.severity, format!("{}: {}", one.setting, one.found)))
        .collect()
}

fn only(config: &DaemonConfig, host: &Host, severity: Severity, words: &str) {
    let all = found(config, host);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].0, severity, "{all:?}");
    assert!(all[0].1.contains(words), "{words}: {all:?}");
}

#[test]
fn host_on_which_all_is_well_has_no_findings() {
    assert_eq!(found(&config("status", "status"), &host()), []);
}

#[test]
fn start_without_capability_device_port_or_name_is_an_error() {
    let plain = config("status", "status");
    let with = |change: &dyn Fn(&mut Host)| {
        let mut host = host();
        change(&mut host);
        host
    };
    let without = |one| with(&|host: &mut Host| host.capabilities.remove(one));
    let error = |host: &Host, words: &str| only(&plain, host, Severity::Error, words);
    error(&without(CapabilitySet::NET_ADMIN), "CAP_NET_ADMIN");
    error(
        &without(CapabilitySet::NET_BIND_SERVICE),
        "CAP_NET_BIND_SERVICE",
    );
    // Where low ports are for everybody, the capability is not asked for.
    let mut open = without(CapabilitySet::NET_BIND_SERVICE);
    open.unprivileged = 500;
    assert_eq!(found(&plain, &open), []);
    assert_eq!(found(&plain, &without(CapabilitySet::NET_RAW)), []);
    let native = config(
        "[interface]",
        "path = { encapsulation = \"native\" }\n[interface]",
    );
    only(
        &native,
        &without(CapabilitySet::NET_RAW),
        Severity::Error,
        "CAP_NET_RAW",
    );
    let port =
        |kind| with(&|host: &mut Host| host.ports = vec![("UDP", 500, kind, "port 500".into())]);
    error(&port(ErrorKind::AddrInUse), "UDP port 500");
    error(&port(ErrorKind::AddrNotAvailable), "path.listen");
    let device = with(&|host: &mut Host| host.device = Some("/dev/net/tun: not there".into()));
    error(&device, "/dev/net/tun");
    let taken = with(&|host: &mut Host| {
        host.interfaces.insert("tunnel0".into());
    });
    error(&taken, "tunnel0");
    let serving = Host {
        is_serving: true,
        ..taken
    };
    assert_eq!(found(&plain, &serving), []);
    let folder = with(&|host: &mut Host| host.unwritable = vec![("status", "/none".into())]);
    error(&folder, "/none");
}

#[test]
fn packets_in_the_clear_are_an_error() {
    let off = config(
        "[interface]",
        "firewall = { enforce = \"off\" }\n[interface]",
    );
    only(&off, &host(), Severity::Error, "\"off\"");
    let mut around = host();
    around.routes.push(route("10.5.2.128/25", "eth2", false));
    only(
        &config("status", "status"),
        &around,
        Severity::Warning,
        "held back",
    );
    let all = found(&off, &around);
    assert!(
        all.iter()
            .any(|(severity, text)| *severity == Severity::Error && text.contains("10.5.2.128/25")),
        "{all:?}"
    );
    // A bypass beside the tunnel's networks is no matter, one inside is said, and a route there is in the clear.
    let bypass = |network: &str| {
        let to = format!("firewall = {{ bypass = [\"{network}\"] }}\n[interface]");
        config("[interface]", &to)
    };
    assert_eq!(found(&bypass("10.5.3.0/24"), &host()), []);
    only(
        &bypass("10.5.2.0/28"),
        &host(),
        Severity::Warning,
        "without protection",
    );
    let all = found(&bypass("10.5.2.128/25"), &around);
    assert!(
        all.iter().any(|(severity, _)| *severity == Severity::Error),
        "{all:?}"
    );
}

#[test]
fn networks_that_the_host_reaches_otherwise_are_named() {
    let plain = config("status", "status");
    let with = |one: HostRoute| {
        let mut host = host();
        host.routes.push(one);
        host
    };
    // The same network, and one in which it lies; not where another router leads, whose route is wider.
    let warning = |host: &Host, words: &str| only(&plain, host, Severity::Warning, words);
    warning(&with(route("10.5.2.0/24", "eth2", true)), "held back");
    warning(
        &with(route("10.5.0.0/16", "eth2", true)),
        "not reached any more",
    );
    let none = config("start = \"start\"", "start = \"none\"");
    only(
        &none,
        &with(route("10.5.0.0/16", "eth2", true)),
        Severity::Warning,
        "Child SA to it is refused",
    );
    assert_eq!(found(&plain, &with(route("10.0.0.0/8", "eth2", false))), []);
    assert_eq!(
        found(&plain, &with(route("10.5.2.0/24", "tunnel0", true))),
        []
    );
    // A branch whose tunnel leads to everything keeps its own part.
    let wide = config("10.5.2.0/24", "10.0.0.0/8");
    assert_eq!(found(&wide, &host()), []);
    let carrier = config("10.5.2.0/24", "192.0.0.0/16");
    let all = found(&carrier, &host());
    assert!(
        all.iter()
            .any(|(_, text)| text.contains("what carries the tunnel")),
        "{all:?}"
    );
}

#[test]
fn hosts_behind_need_forwarding_and_this_one_an_address() {
    let plain = config("status", "status");
    let mut off = host();
    off.forwarding = [Some(false), Some(false)];
    only(&plain, &off, Severity::Warning, "net.ipv4.ip_forward");
    let alone = config("10.5.1.0/24", "10.5.1.1/32");
    assert_eq!(found(&alone, &off), []);
    let v6 = config("\"10.5.1.0/24\"", "\"10.5.1.1/32\", \"fd05::/64\"");
    only(&v6, &off, Severity::Warning, "net.ipv6.conf.all.forwarding");
    let mut foreign = host();
    foreign.addresses.pop();
    only(&plain, &foreign, Severity::Warning, "no address in `local`");
}

#[test]
fn transport_mode_and_demanded_lists_are_looked_at() {
    let mut strict = host();
    strict.strict = vec!["eth0".into()];
    assert_eq!(found(&config("status", "status"), &strict), []);
    let transport = config(
        "local = [\"10.5.1.0/24\"]\nremote = [\"10.5.2.0/24\"]",
        "mode = \"transport\"",
    );
    only(
        &transport,
        &strict,
        Severity::Warning,
        "net.ipv4.conf.eth0.rp_filter",
    );
    let demanded = config("[interface]", "trust = { require_crl = true }\n[interface]");
    only(&demanded, &host(), Severity::Error, "require_crl");
    let named = "trust = { require_crl = true, crls = [\"list.crl\"] }\n[interface]";
    assert_eq!(found(&config("[interface]", named), &host()), []);
}

#[test]
fn host_is_asked_without_leaving_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("status", "status");
    // No port of the system's services.
    config.path.listen = "127.0.0.1".parse().unwrap();
    config.crash_secret = Some("missing/secret".into());
    let host = Host::look(&config, folder.path(), true);
    assert!(host.interfaces.contains("lo"));
    assert!(host.ports.is_empty());
    assert_eq!(
        host.unwritable,
        [("crash_secret", folder.path().join("missing"))]
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn peer_at_an_address_of_nobody_or_of_this_host_is_an_error() {
    for unfit in [
        "192.0.2.2",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "127.0.0.1",
        "::",
        "ff02::1",
        "::ffff:192.0.2.1",
    ] {
        let config = config("remote = \"192.0.2.1\"", &format!("remote = \"{unfit}\""));
        let all = found(&config, &host());
        let is_it = |(severity, line): &(Severity, String)| {
            *severity == Severity::Error && line.contains("\"branch\": remote")
        };
        assert!(all.iter().any(is_it), "{unfit}: {all:?}");
    }
}

#[test]
fn network_that_no_tunnel_carries_is_an_error() {
    for unfit in ["127.0.0.0/8", "224.0.0.0/4", "ff00::/8", "169.254.0.0/24"] {
        let config = config("10.5.2.0/24", unfit);
        let all = found(&config, &host());
        let is_it = |(severity, line): &(Severity, String)| {
            *severity == Severity::Error && line.contains("child \"net\": remote")
        };
        assert!(all.iter().any(is_it), "{unfit}: {all:?}");
    }
    for wide in ["0.0.0.0/0", "::/0"] {
        assert_eq!(unfit_network(&wide.parse().unwrap()), None);
    }
}

#[test]
fn file_in_the_place_of_the_status_socket_is_an_error() {
    let file = config("branch", "branch");
    let host = Host {
        is_status_taken: true,
        ..host()
    };
    only(&file, &host, Severity::Error, "is no socket");
}
