//! Packets that must be protected do not pass without protection, whatever becomes of the daemon.
//!
//! A route into a TUN interface goes with the interface, and with it goes the only thing that kept
//! packets for the other side off the cable. So the SPD's DISCARD entries (RFC 4301 §4.4.1) are held
//! where no process of ours can take them along: in a table of nftables. It is set before the daemon
//! opens its first socket, stays when it is stopped, killed or replaced, and goes only by
//! [`remove`].
//!
//! ```text
//! leaves for a protected network  ─ not by the tunnel's interface ─► dropped
//! arrives from a protected network ─ not by the tunnel's interface ─► dropped
//! ```
//!
//! What carries the tunnel itself (IKE, ESP, AH) and what the host needs to have an address (neighbour
//! discovery, DHCP) passes. One table for each interface, named after it; it belongs to one configuration file (`owner`), and
//! neither another one nor its daemon can replace or remove it.
//!
//! A packet that is on its way through the rules of a table while the table is replaced passes: it meets the old rules
//! no more, and not yet the new ones. So while one is replaced, a second one with the new rules is in force.

mod owner;
mod tcp;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use tunnel::config::{BackendConfig, Enforce, FirewallConfig, Prefix, StaticConfig};

pub use self::owner::Owner;
use self::owner::Table;
use self::tcp::Tcp;
use crate::config::{ConnectionConfig, DaemonConfig};

/// Folders in which `nft` is looked for besides `PATH`: services are often started without these.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

/// Times that a table is looked at anew, where others change it meanwhile.
const TRIES: usize = 5;

/// Why the firewall is not in force.
#[derive(Debug, thiserror::Error)]
pub enum FirewallError {
    /// The program is missing.
    #[error("`nft` cannot be started: {0}")]
    NoProgram(std::io::Error),
    #[error("nftables refuses table {table}: {reason}")]
    Refused { table: String, reason: String },
    /// It is another tunnel's, which would be without protection.
    #[error("table {table} of nftables belongs to another configuration, {file}")]
    Foreign { table: String, file: String },
}

/// Packets that one tunnel interface holds back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firewall {
    interface: String,
    /// Prefixes that only the tunnel may carry.
    protected: Vec<Prefix>,
    local: Vec<Prefix>,
    bypass: Vec<Prefix>,
    /// Mark of outer packets, where they go to the same addresses as inner ones.
    mark: Option<u32>,
    tcp: Tcp,
}

impl Firewall {
    /// The firewall of negotiated tunnels; none where the configuration turns it off or protects nothing.
    #[must_use]
    pub fn of_daemon(config: &DaemonConfig) -> Option<Self> {
        let (mut protected, mut local) = (Vec::new(), Vec::new());
        for connection in &config.connection {
            protected.extend(remote_networks(connection, config));
            local.extend(
                connection
                    .child
                    .iter()
                    .flat_map(|child| child.local.iter().copied()),
            );
        }
        let transport = config
            .connection
            .iter()
            .any(ConnectionConfig::has_transport);
        let made = Self::new(
            &config.interface.name,
            (protected, local),
            &config.firewall,
            transport.then(|| config.path.mark.get()),
            config.backend,
        )?;
        let tcp = Tcp::of(config);
        Some(Self { tcp, ..made })
    }

    /// The firewall of a tunnel with manual keys; none where the configuration turns it off.
    #[must_use]
    pub fn of_static(config: &StaticConfig) -> Option<Self> {
        let mut protected: Vec<Prefix> = config.policy.iter().map(|policy| policy.remote).collect();
        if protected.is_empty() {
            // The policy is everything: what is routed into the tunnel tells what is meant for it.
            protected.clone_from(&config.interface.routes);
            protected.extend(
                config
                    .interface
                    .addresses
                    .iter()
                    .copied()
                    .filter(wider_than_a_host),
            );
        }
        if config.is_transport() {
            protected = vec![Prefix::host(config.path.remote.ip())];
        }
        let local = config.policy.iter().map(|policy| policy.local).collect();
        Self::new(
            &config.interface.name,
            (protected, local),
            &config.firewall,
            config.is_transport().then(|| config.path.mark.get()),
            config.backend,
        )
    }

    fn new(
        interface: &str,
        (protected, local): (Vec<Prefix>, Vec<Prefix>),
        config: &FirewallConfig,
        mark: Option<u32>,
        backend: BackendConfig,
    ) -> Option<Self> {
        let made = Self {
            interface: interface.to_owned(),
            protected,
            local,
            bypass: config.bypass.clone(),
            mark,
            tcp: Tcp::default(),
        };
        // The kernel's own policies stay when the daemon is killed, and show nftables packets before they
        // are protected and after.
        let ours = backend == BackendConfig::User && config.enforce == Enforce::Nftables;
        (ours && !made.protected.is_empty()).then_some(made)
    }

    /// Both at once, for the time in which it is not decided which of two configurations counts.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.protected.extend(&other.protected);
        // Exceptions only where both have them.
        self.bypass.retain(|network| other.bypass.contains(network));
        self.local.retain(|network| other.local.contains(network));
        self.tcp.retain(&other.tcp);
        self
    }

    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The name of its table.
    #[must_use]
    pub fn table(&self) -> String {
        table(&self.interface)
    }

    /// Puts it into force in one step, in place of an earlier one of the same interface and file.
    ///
    /// # Errors
    /// [`FirewallError`]; what was in force before stays so.
    pub fn install(&self, owner: &Owner) -> Result<(), FirewallError> {
        self.check_name()?;
        let (table, cover) = (self.table(), cover(&self.interface));
        // Refused before anything is changed.
        Table::look(&table)?.beginning(&table, owner)?;
        self.make(&cover, owner)?;
        sys::grace::wait_for_packets_under_way();
        let installed = self.make(&table, owner);
        sys::grace::wait_for_packets_under_way();
        // Also where the new rules were refused: then the earlier ones stay, alone as before.
        take_away(&cover, owner).and(installed)
    }

    /// Has `nft` and the kernel look at the rules without putting them into force.
    ///
    /// # Errors
    /// [`FirewallError`], as of [`Self::install`].
    pub fn check(&self, owner: &Owner) -> Result<(), FirewallError> {
        self.check_name()?;
        let table = self.table();
        let script = Table::look(&table)?.beginning(&table, owner)? + &self.script(&table, owner);
        nft(&["--check", "-f", "-"], &table, &script).map(drop)
    }

    fn make(&self, table: &str, owner: &Owner) -> Result<(), FirewallError> {
        let script = self.script(table, owner);
        change(table, |found| Ok(found.beginning(table, owner)? + &script))
    }

    fn check_name(&self) -> Result<(), FirewallError> {
        // Others would end the word in which `nft` reads the name, or mean several interfaces.
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\*".contains(&byte);
        if !self.interface.bytes().all(plain) {
            return Err(FirewallError::Refused {
                table: self.table(),
                reason: format!("{:?} cannot be named in a rule", self.interface),
            });
        }
        Ok(())
    }

    /// Networks of ours inside what the tunnel leads to, as a branch has them whose tunnel leads to all
    /// of 10.0.0.0/8: routes to them are narrower than the one into the tunnel, so they stay reachable.
    fn own(&self) -> Vec<Prefix> {
        let inside = |own: &&Prefix| self.protected.iter().any(|wide| contains(wide, own));
        self.local.iter().filter(inside).copied().collect()
    }

    /// Protected networks inside such ones, as a pool that is part of our own network.
    fn narrow(&self) -> Vec<Prefix> {
        let own = self.own();
        let inside = |narrow: &&Prefix| own.iter().any(|wide| contains(wide, narrow));
        self.protected.iter().filter(inside).copied().collect()
    }

    /// The input of `nft` that makes `table`. All of it takes effect at once or not at all.
    fn script(&self, table: &str, owner: &Owner) -> String {
        let mut text = format!("table inet {table} {{\n{}", owner.declaration());
        let sets = [
            ("bypass", self.bypass.clone()),
            // From the narrowest to the widest, as routes are chosen: the first rule that fits decides.
            ("narrow", self.narrow()),
            ("own", self.own()),
            ("protected", self.protected.clone()),
        ];
        for (name, networks) in &sets {
            text.push_str(&set(name, "4", "ipv4_addr", networks.iter().filter(is_v4)));
            text.push_str(&set(
                name,
                "6",
                "ipv6_addr",
                networks.iter().filter(|net| !is_v4(net)),
            ));
        }
        let own = format!("{{ \"lo\", \"{}\" }}", self.interface);
        let marked = self
            .mark
            .map(|mark| format!("    meta mark {mark:#x} accept\n"));
        let user = rustix::process::geteuid().as_raw();
        let _ = write!(
            text,
            "  chain leaving {{
    type filter hook postrouting priority filter; policy accept;
    oifname {own} accept
    ip daddr @bypass4 accept
    ip6 daddr @bypass6 accept
    ip daddr @narrow4 goto leaving_protected
    ip6 daddr @narrow6 goto leaving_protected
    ip daddr @own4 accept
    ip6 daddr @own6 accept
    ip daddr @protected4 goto leaving_protected
    ip6 daddr @protected6 goto leaving_protected
  }}
  chain leaving_protected {{
    meta l4proto {{ esp, ah }} accept
    udp sport {{ 500, 4500 }} meta skuid {user} accept
{tcp_leaving}{marked}    icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld2-listener-report }} accept
    udp sport {{ 68, 546 }} udp dport {{ 67, 547 }} accept
    counter drop
  }}
  chain arriving {{
    type filter hook prerouting priority filter; policy accept;
    iifname {own} accept
    ip saddr @bypass4 accept
    ip6 saddr @bypass6 accept
    ip saddr @narrow4 goto arriving_protected
    ip6 saddr @narrow6 goto arriving_protected
    ip saddr @own4 accept
    ip6 saddr @own6 accept
    ip saddr @protected4 goto arriving_protected
    ip6 saddr @protected6 goto arriving_protected
  }}
  chain arriving_protected {{
    meta l4proto {{ esp, ah }} accept
    udp dport {{ 500, 4500 }} accept
{tcp_arriving}    icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert }} accept
    udp sport {{ 67, 547 }} udp dport {{ 68, 546 }} accept
    counter drop
  }}
}}
",
            marked = marked.unwrap_or_default(),
            // Only the daemon's own IKE leaves: other programs could send anything from that port.
            user = user,
            tcp_leaving = self.tcp.leaving(user),
            tcp_arriving = self.tcp.arriving(),
        );
        text
    }
}

/// Takes the firewall of an interface out of force, if it is the owner's; without one, whose ever it is. None there is no error.
///
/// # Errors
/// [`FirewallError`]; it stays in force then.
pub fn remove(interface: &str, owner: Option<&Owner>) -> Result<(), FirewallError> {
    let (table, cover) = (table(interface), cover(interface));
    let Some(owner) = owner else {
        return run(&table, &(deletion(&cover) + &deletion(&table)));
    };
    // Refused before anything is changed.
    Table::look(&table)?.removal(&table, owner)?;
    // One that was killed while it replaced the table left both.
    take_away(&cover, owner)?;
    take_away(&table, owner)
}

/// Whether an interface has a firewall in force that is not the owner's.
///
/// # Errors
/// [`FirewallError`], where the host does not say.
pub fn is_taken(interface: &str, owner: Option<&Owner>) -> Result<bool, FirewallError> {
    let table = table(interface);
    let found = Table::look(&table)?;
    Ok(match owner {
        Some(owner) => found.removal(&table, owner).is_err(),
        None => found != Table::Missing,
    })
}

fn take_away(table: &str, owner: &Owner) -> Result<(), FirewallError> {
    change(table, |found| found.removal(table, owner))
}

/// Has `nft` change a table as it was found. What others did to it meanwhile makes `nft` refuse the script: then it is looked at
/// anew.
fn change(
    table: &str,
    script: impl Fn(&Table) -> Result<String, FirewallError>,
) -> Result<(), FirewallError> {
    let mut found = Table::look(table)?;
    for _ in 1..TRIES {
        let Err(error) = run(table, &script(&found)?) else {
            return Ok(());
        };
        let now = Table::look(table)?;
        if now == found {
            return Err(error);
        }
        found = now;
    }
    run(table, &script(&found)?)
}

/// The input of `nft` after which there is no such table. It is declared first, as deleting what is not there is an error.
fn deletion(table: &str) -> String {
    format!("table inet {table} {{}}\ndelete table inet {table}\n")
}

/// Networks on the peer's side of a connection.
pub(super) fn remote_networks(connection: &ConnectionConfig, config: &DaemonConfig) -> Vec<Prefix> {
    let named = |name: &String| config.pool.iter().find(|pool| pool.name == *name);
    let pool = connection.pool.as_ref().and_then(named);
    let mut networks = Vec::new();
    for child in &connection.child {
        networks.extend(child.remote.iter().copied());
        if child.remote.is_empty() {
            // The peer's addresses inside: from the pool, or in transport mode its own one.
            networks.extend(pool.iter().flat_map(|pool| pool.addresses.iter().copied()));
        }
    }
    if connection.has_transport() {
        networks.extend(connection.remote.map(Prefix::host));
    }
    networks
}

/// Whether the second network is a part of the first and smaller.
fn contains(wide: &Prefix, narrow: &Prefix) -> bool {
    wide.bits < narrow.bits && wide.range().contains(narrow.address)
}

fn wider_than_a_host(network: &Prefix) -> bool {
    Prefix::host(network.address).bits != network.bits
}

const fn is_v4(network: &&Prefix) -> bool {
    network.address.is_ipv4()
}

/// The table of an interface. Names of tables have letters, digits and underscores: any other byte of an
/// interface's name, and the underscore, stands as its number, so that no two interfaces share a table.
fn table(interface: &str) -> String {
    let mut name = "cordon_".to_owned();
    for byte in interface.bytes() {
        if byte.is_ascii_alphanumeric() {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "_{byte:02x}");
        }
    }
    name
}

/// The table in force while that of an interface is replaced. No other interface's has its name: `n` is not hexadecimal.
fn cover(interface: &str) -> String {
    table(interface) + "_next"
}

/// The declaration of a set of networks.
fn set<'a>(
    name: &str,
    family: &str,
    kind: &str,
    networks: impl Iterator<Item = &'a Prefix>,
) -> String {
    let elements: Vec<String> = networks
        .map(|network| format!("{}/{}", first_address(network), network.bits))
        .collect();
    let elements = match elements.is_empty() {
        true => String::new(),
        false => format!(" elements = {{ {} }};", elements.join(", ")),
    };
    format!("  set {name}{family} {{ type {kind}; flags interval; auto-merge;{elements} }}\n")
}

/// The network's address without host bits.
fn first_address(network: &Prefix) -> IpAddr {
    network.range().first()
}

fn run(table: &str, script: &str) -> Result<(), FirewallError> {
    nft(&["-f", "-"], table, script).map(drop)
}

/// Has `nft` list something of this host as JSON.
///
/// # Errors
/// [`FirewallError`].
pub fn nft_json(arguments: &[&str]) -> Result<Vec<u8>, FirewallError> {
    nft(arguments, "of the host", "")
}

/// Has `nft` carry out a script about tables that are not ours.
///
/// # Errors
/// [`FirewallError`]; nothing of the script is in force then.
pub fn nft_script(script: &str) -> Result<(), FirewallError> {
    run("of the host", script)
}

fn nft(arguments: &[&str], table: &str, script: &str) -> Result<Vec<u8>, FirewallError> {
    let path = std::env::var("PATH").unwrap_or_default();
    let started = Command::new("nft")
        .args(arguments)
        .env("PATH", format!("{path}:{SYSTEM_PATH}"))
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = started.map_err(FirewallError::NoProgram)?;
    if let Some(mut input) = child.stdin.take() {
        // What it did not read, it complains about itself.
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(FirewallError::NoProgram)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(FirewallError::Refused {
        table: table.to_owned(),
        reason: reason
            .lines()
            .next()
            .unwrap_or("no reason given")
            .to_owned(),
    })
}
