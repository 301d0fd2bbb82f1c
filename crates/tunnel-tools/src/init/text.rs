//! Settings for `cordon vpn up` as text, from values.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use commandline::{Failure, OrHint as _, Outcome};
use tunnel::config::Prefix;
use vpn::config::DaemonConfig;

use super::outside::Outside;

/// One of two gateways.
pub(super) struct Side<'a> {
    pub(super) interface: &'a str,
    /// Address outside, and networks.
    pub(super) ours: (IpAddr, &'a [Prefix]),
    pub(super) theirs: (&'a Outside, &'a [Prefix]),
    /// Addresses of the gateway in its networks.
    pub(super) own: Vec<IpAddr>,
}

impl Side<'_> {
    pub(super) fn settings(&self) -> String {
        let (ours, theirs) = (self.ours.0, self.theirs.0.address);
        let mut text = head(&[
            "audit = { folder = \"journal\" }",
            "crash_secret = \"crash.secret\"",
        ]);
        outside(&mut text, ours);
        interface(&mut text, self.interface, &self.own);
        let _ = write!(
            text,
            r#"
[[connection]]
name = "site-to-site"
{}remote = "{theirs}"
local_id = "{ours}"
remote_id = "{theirs}"
psk_file = "secret"
start = "start"

[[connection.child]]
name = "net"
local = {}
remote = {}
"#,
            self.theirs.0.comment(),
            networks(self.ours.1),
            networks(self.theirs.1),
        );
        text
    }
}

/// A gateway for devices of a site.
pub(super) struct Gateway<'a> {
    pub(super) interface: &'a str,
    pub(super) name: &'a str,
    pub(super) networks: &'a [Prefix],
    pub(super) pools: &'a [Prefix],
    /// Whether peers may come by IPv4 and by IPv6.
    pub(super) both_families: bool,
    /// Setting and value that say where the revocation list of devices is.
    pub(super) lists: (&'a str, &'a str),
}

impl Gateway<'_> {
    pub(super) fn settings(&self) -> String {
        let mut text = head(&[
            "audit = { folder = \"journal\" }",
            "crash_secret = \"crash.secret\"",
        ]);
        let own: Vec<IpAddr> = self.networks.iter().filter_map(host_of).collect();
        if self.both_families {
            text.push_str(
                "\n[path]\n# Peers come by IPv6 and by IPv4.\nlisten = \"::\"\ndual_stack = true\n",
            );
        }
        interface(&mut text, self.interface, &own);
        let (setting, list) = self.lists;
        let _ = write!(
            text,
            r#"
[trust]
anchors = ["devices-ca.pem"]
{setting} = [{}]
# Without a current list nobody gets in.
require_crl = true

[[pool]]
name = "devices"
addresses = {}

[[connection]]
name = "devices"
local_id = {}
# Whoever the site's authority for devices has certified and not revoked.
remote_id = "any"
certificate = "gateway.pem"
key = "gateway.pem"
pool = "devices"

[[connection.child]]
name = "net"
local = {}
"#,
            quoted(list),
            networks(self.pools),
            quoted(self.name),
            networks(self.networks),
        );
        text
    }
}

/// Name and networks of a gateway, from its settings.
pub(super) struct GatewayFile {
    pub(super) name: String,
    pub(super) networks: Vec<Prefix>,
}

impl GatewayFile {
    pub(super) fn read(text: &str, file: &Path) -> Outcome<Self> {
        let hint = "name the vpn.toml that `cordon vpn init gateway` wrote";
        let config: DaemonConfig =
            toml::from_str(text).or_hint(format!("{}", file.display()), hint)?;
        let connections = config.connection.iter();
        // Those who come get addresses, and know the gateway by its name.
        let served = connections.filter(|one| one.pool.is_some());
        let found = served.filter_map(|one| {
            let networks = one.child.iter().flat_map(|child| child.local.clone());
            Some((one.local_id.clone()?, networks.collect::<Vec<_>>()))
        });
        let mut found = found.filter(|(_, networks)| !networks.is_empty());
        let (name, networks) = found.next().ok_or_else(|| {
            let what = "has no connection with `pool`, `local_id` and `local` of a child";
            Failure::new(anyhow::anyhow!("{} {what}", file.display()), hint)
        })?;
        // Devices accept any peer with this name as the gateway, so it must be the name of one host.
        vpn::check_own_identity(&name).map_err(|what| {
            let error = anyhow::anyhow!("{}: local_id {what}", file.display());
            Failure::new(
                error,
                "ask who wrote the file; name the gateway itself there",
            )
        })?;
        Ok(Self { name, networks })
    }
}

/// A device that starts the tunnel to a gateway.
pub(super) struct Client<'a> {
    pub(super) interface: &'a str,
    pub(super) gateway: &'a GatewayFile,
    pub(super) address: &'a Outside,
    /// File with key and certificates.
    pub(super) identity: &'a str,
    /// File with the passphrase of the key.
    pub(super) passphrase: Option<&'a str>,
    /// Where the revocation list of gateways is fetched.
    pub(super) list: Option<String>,
}

impl Client<'_> {
    pub(super) fn settings(&self) -> String {
        let mut text = head(&[]);
        if self.address.address.is_ipv6() {
            text.push_str("\n[path]\nlisten = \"::\"\n");
        }
        interface(&mut text, self.interface, &[]);
        text.push_str("\n[trust]\nanchors = [\"services-ca.pem\"]\n");
        if let Some(list) = &self.list {
            let _ = writeln!(text, "crl_urls = [{}]", quoted(list));
        }
        let _ = write!(
            text,
            r#"
[[connection]]
name = "gateway"
{}remote = "{}"
remote_id = {}
certificate = {identity}
key = {identity}
"#,
            self.address.comment(),
            self.address.address,
            quoted(&self.gateway.name),
            identity = quoted(self.identity),
        );
        if let Some(file) = self.passphrase {
            let _ = writeln!(text, "passphrase_file = {}", quoted(file));
        }
        let families = [("ipv4", true), ("ipv6", false)];
        let inside = |v4: bool| {
            self.gateway
                .networks
                .iter()
                .any(|net| net.address.is_ipv4() == v4)
        };
        let wanted: Vec<String> = families
            .into_iter()
            .filter(|(_, v4)| inside(*v4))
            .map(|(name, _)| quoted(name))
            .collect();
        let _ = write!(
            text,
            r#"# An address inside the tunnel, please.
request = [{}]
start = "start"

[[connection.child]]
name = "net"
remote = {}
"#,
            wanted.join(", "),
            networks(&self.gateway.networks),
        );
        text
    }
}

fn head(more: &[&str]) -> String {
    let mut text =
        "# For `cordon vpn up`; all settings are described in docs/tunnels/settings.md.\nstatus = \"vpn.sock\"\n"
            .to_owned();
    for line in more {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The ports are opened for one family only.
fn outside(text: &mut String, ours: IpAddr) {
    if ours.is_ipv6() {
        text.push_str("\n[path]\nlisten = \"::\"\n");
    }
}

fn interface(text: &mut String, name: &str, own: &[IpAddr]) {
    let _ = writeln!(text, "\n[interface]\nname = {}", quoted(name));
    if !own.is_empty() {
        // The kernel takes the source of a route's packets from the addresses of its interface.
        let own: Vec<Prefix> = own.iter().copied().map(Prefix::host).collect();
        let _ = writeln!(
            text,
            "# This host's own addresses in its networks: from them it speaks through the tunnel itself.\naddresses = {}",
            networks(&own)
        );
    }
}

/// The address inside of a network, where one is named.
pub(super) fn host_of(network: &Prefix) -> Option<IpAddr> {
    let is_named = network.address != network.range().first() || is_one(network);
    is_named.then_some(network.address)
}

fn is_one(network: &Prefix) -> bool {
    *network == Prefix::host(network.address)
}

/// A network without an address in it.
pub(super) fn network(network: &Prefix) -> String {
    format!("{}/{}", network.range().first(), network.bits)
}

/// Networks for people.
pub(super) fn shown(all: &[Prefix]) -> String {
    let all: Vec<String> = all.iter().map(network).collect();
    all.join(", ")
}

/// A network with the address in it.
pub(super) fn prefix(network: &Prefix) -> String {
    format!("{}/{}", network.address, network.bits)
}

/// Networks as the file has them; an address in one stays, `cordon vpn ping` tries it.
fn networks(all: &[Prefix]) -> String {
    let all: Vec<String> = all.iter().map(|network| quoted(&prefix(network))).collect();
    format!("[{}]", all.join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(all: &[&str]) -> Vec<Prefix> {
        all.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn settings_are_what_the_daemon_reads() {
        let (ours, theirs) = (nets(&["10.1.0.1/16", "fd01::/64"]), nets(&["10.2.0.0/16"]));
        let side = Side {
            interface: "cordon0",
            ours: ("2001:db8::1".parse().unwrap(), &ours),
            theirs: (&"2001:db8::2".parse().unwrap(), &theirs),
            own: ours.iter().filter_map(host_of).collect(),
        };
        let config: DaemonConfig = toml::from_str(&side.settings()).unwrap();
        assert!(config.path.listen.is_ipv6());
        assert_eq!(config.interface.addresses, nets(&["10.1.0.1/32"]));
        let [connection] = config.connection.as_slice() else {
            panic!("one connection");
        };
        assert_eq!(connection.child[0].local, ours);
        assert_eq!(connection.remote_id, "2001:db8::2");
    }

    #[test]
    fn names_do_not_become_settings() {
        let networks = nets(&["10.2.0.1/16"]);
        let gateway = Gateway {
            interface: "cordon0",
            name: "a\"\nremote_id = \"b",
            networks: &networks,
            pools: &nets(&["10.9.0.0/24", "fd09::/64"]),
            both_families: true,
            lists: ("crls", "/a \"b\"/devices.crl"),
        };
        let text = gateway.settings();
        let config: DaemonConfig = toml::from_str(&text).unwrap();
        assert_eq!(config.connection[0].local_id.as_deref(), Some(gateway.name));
        assert_eq!(config.connection[0].remote_id, "any");
        assert!(config.path.dual_stack && config.path.listen.is_ipv6());
        assert_eq!(config.pool[0].addresses.len(), 2);
        let known = GatewayFile {
            name: gateway.name.to_owned(),
            networks: networks.clone(),
        };
        let client = Client {
            interface: "cordon0",
            gateway: &known,
            address: &"192.0.2.1".parse().unwrap(),
            identity: "device.pem",
            passphrase: None,
            list: Some("http://pki.example.org/crl/services.crl".into()),
        };
        let config: DaemonConfig = toml::from_str(&client.settings()).unwrap();
        assert_eq!(config.connection[0].remote_id, gateway.name);
        assert_eq!(config.connection[0].child[0].remote, networks);
        assert_eq!(config.connection[0].request.len(), 1);
        assert!(GatewayFile::read(&client.settings(), Path::new("vpn.toml")).is_err());
    }

    #[test]
    fn gateway_whose_name_stands_for_several_is_refused() {
        let networks = nets(&["10.2.0.1/16"]);
        for name in [
            "any",
            "*.example.org",
            "*@example.org",
            "CN=*, O=Example",
            "-x",
            "",
        ] {
            let gateway = Gateway {
                interface: "cordon0",
                name,
                networks: &networks,
                pools: &nets(&["10.9.0.0/24"]),
                both_families: false,
                lists: ("crls", "/devices.crl"),
            };
            let read = GatewayFile::read(&gateway.settings(), Path::new("vpn.toml"));
            assert!(read.is_err(), "{name}");
        }
    }
}
