//! `cordon vpn prepare`: settings of this host without which a tunnel's packets do not get through.
//!
//! Each step is shown as the command that would do the same. The settings last until the host restarts: how a host
//! keeps them differs between distributions.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use commandline::{Failure, OrHint as _, Outcome, field, list, print, text};
use serde_json::{Value, json};
use vpn::config::{Carrier, DaemonConfig, Start};
use vpn::firewall::{nft_json, nft_script};
use vpn::host::{Forwarding, forwarded};

use crate::load::read_settings;
use crate::{check, firewall};

/// Begins the comments of our rules, by which they are found again.
const MARK: &str = "cordon vpn";
/// Bytes of an interface's name at most (kernel, IFNAMSIZ).
const MAX_INTERFACE: usize = 15;
const KEEP: &str = "these last until the host starts anew; to keep them, put what `sysctl` sets into /etc/sysctl.d and the rules \
     into the host's firewall";

/// Something that is set on this host.
#[derive(Debug)]
pub(super) enum Step {
    Sysctl {
        setting: &'static str,
        file: PathBuf,
    },
    /// A rule in front of a chain that would drop the packets.
    Rule(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl { setting, .. } => write!(f, "set     sysctl -w {setting}=1"),
            Self::Rule(rule) => write!(f, "set     nft '{rule}'"),
        }
    }
}

pub(crate) async fn run(path: &Path, dry_run: bool, json: bool) -> Outcome {
    let steps = steps_of(&read_settings(path)?, path)?;
    let said: Vec<String> = steps.iter().map(Step::to_string).collect();
    let mut lines = said.clone();
    if steps.is_empty() {
        lines.push("nothing has to be set on this host".to_owned());
    }
    if dry_run {
        lines.insert(0, "would do, and has not done:".to_owned());
        let value = json!({ "steps": said, "done": false });
        return print(json, &value, &lines.join("\n"));
    }
    carry_out(&steps)?;
    if !steps.is_empty() {
        lines.push(KEEP.to_owned());
    }
    let findings = check::findings(path).await?;
    lines.extend(findings.iter().map(check::line));
    let value = json!({ "steps": said, "done": true, "findings": findings });
    print(json, &value, &lines.join("\n"))?;
    check::refuse_errors(path, &findings)
}

/// Finds what is to be set for a file's tunnels.
pub(super) fn steps_of(text: &str, file: &Path) -> Outcome<Vec<Step>> {
    let hint = "see docs/tunnels/settings.md for what the file holds";
    let config: DaemonConfig = toml::from_str(text).or_hint(format!("{}", file.display()), hint)?;
    let interface = &config.interface.name;
    // The file may come from another host, and rules are carried out with root's rights.
    check_interface(interface)?;
    let own = config
        .connection
        .iter()
        .filter_map(|one| one.local_id.as_deref());
    for id in own {
        vpn::check_own_identity(id).map_err(|what| {
            let error = anyhow::anyhow!("{}: local_id {what}", file.display());
            Failure::new(error, "name this host itself there; ask who wrote the file")
        })?;
    }
    let mut steps = Vec::new();
    for Forwarding { setting, file, .. } in forwarded(&config) {
        let now = std::fs::read_to_string(&file);
        let now = now.or_hint(
            format!("cannot read {setting}"),
            "check that /proc is mounted",
        )?;
        if now.trim() == "0" {
            steps.push(Step::Sysctl { setting, file });
        }
    }
    let rules = nft_json(&["--json", "list", "ruleset"]).map_err(firewall::failed)?;
    let rules: Value = serde_json::from_slice(&rules).or_hint("the rules of nft", "report this")?;
    steps.extend(holes(&config, &rules).into_iter().map(Step::Rule));
    Ok(steps)
}

/// Refuses an interface that could mean something else in a rule.
pub(super) fn check_interface(name: &str) -> Outcome {
    match is_name(name) && name.len() <= MAX_INTERFACE && !name.starts_with(['-', '.']) {
        true => Ok(()),
        false => Err(Failure::new(
            anyhow::anyhow!("{name:?} cannot be named in a rule"),
            "name the interface with up to 15 letters and digits; ask who wrote the file",
        )),
    }
}

pub(super) fn carry_out(steps: &[Step]) -> Outcome {
    for step in steps {
        match step {
            Step::Sysctl { setting, file } => {
                let what = format!("cannot set {setting}");
                std::fs::write(file, "1\n").or_hint(what, "run as root, outside of containers")?;
            }
            Step::Rule(rule) => nft_script(rule).map_err(|error| {
                let failure = firewall::failed(error);
                Failure::new(
                    anyhow::anyhow!("{rule}: {}", failure.message()),
                    "run as root; open the host's firewall by its own program",
                )
            })?,
        }
    }
    Ok(())
}

/// A chain that drops what nothing before accepted.
type Chain<'a> = (&'a str, &'a str, &'a str);

/// Rules for the host's own firewall, where it would drop the tunnels' packets.
fn holes(config: &DaemonConfig, rules: &Value) -> Vec<String> {
    let interface = &config.interface.name;
    // Peers come to us unless we always go to them; answers pass a firewall that knows connections.
    let is_served = |start, remote: bool| start == Start::None || remote;
    let mut served = config.connection.iter();
    let is_served =
        served.any(|one| is_served(one.start, one.remote.is_some() && one.request.is_empty()));
    let is_forwarded = !forwarded(config).is_empty();
    let mut found = Vec::new();
    for ((family, table, chain), hook) in closed(rules) {
        let mut wanted: Vec<(String, String)> = Vec::new();
        match hook {
            "input" if is_served => {
                wanted.push((
                    format!("{MARK}: IKE"),
                    "udp dport { 500, 4500 } accept".to_owned(),
                ));
                if let Some(port) = config.path.tcp_port {
                    let rule = format!("tcp dport {port} accept");
                    wanted.push((format!("{MARK}: IKE over TCP"), rule));
                }
                if config.path.encapsulation != Carrier::Udp {
                    wanted.push((format!("{MARK}: ESP"), "meta l4proto esp accept".to_owned()));
                }
            }
            "forward" if is_forwarded => {
                // What passes the interface is what the tunnel's policies let through.
                for (side, word) in [("iifname", "from"), ("oifname", "to")] {
                    let comment = format!("{MARK}: {word} {interface}");
                    wanted.push((comment, format!("{side} \"{interface}\" accept")));
                }
            }
            _ => continue,
        }
        let is_there = |comment: &str| {
            list(rules, "nftables").iter().any(|entry| {
                let rule = field(entry, "rule");
                let place = (
                    text(rule, "family"),
                    text(rule, "table"),
                    text(rule, "chain"),
                );
                place == (family, table, chain) && text(rule, "comment") == comment
            })
        };
        for (comment, rule) in wanted {
            if !is_there(&comment) {
                found.push(format!(
                    "insert rule {family} {table} {chain} {rule} comment \"{comment}\""
                ));
            }
        }
    }
    found
}

/// Chains at the hooks of IP packets that drop what they do not accept, by their policy or by their last rule.
fn closed(rules: &Value) -> Vec<(Chain<'_>, &str)> {
    let entries = list(rules, "nftables");
    let mut last: BTreeMap<Chain<'_>, &Value> = BTreeMap::new();
    for entry in entries {
        let rule = field(entry, "rule");
        let place = (
            text(rule, "family"),
            text(rule, "table"),
            text(rule, "chain"),
        );
        last.insert(place, rule);
    }
    let drops = |rule: &Value| {
        let parts = list(rule, "expr");
        let is = |part: &Value, word: &str| part.get(word).is_some();
        parts
            .iter()
            .any(|part| is(part, "drop") || is(part, "reject"))
            && !parts.iter().any(|part| is(part, "match"))
    };
    let mut found = Vec::new();
    for entry in entries {
        let chain = field(entry, "chain");
        let (family, table) = (text(chain, "family"), text(chain, "table"));
        // Ours drop what must not pass.
        if !["ip", "ip6", "inet"].contains(&family) || table.starts_with("cordon_") {
            continue;
        }
        let place = (family, table, text(chain, "name"));
        let closes =
            text(chain, "policy") == "drop" || last.get(&place).is_some_and(|rule| drops(rule));
        let hook = text(chain, "hook");
        if closes && ["input", "forward"].contains(&hook) && is_plain(&place) {
            found.push((place, hook));
        }
    }
    found
}

/// Whether names of a chain can stand in a rule as they are.
fn is_plain((family, table, chain): &Chain<'_>) -> bool {
    [family, table, chain].iter().all(|name| is_name(name))
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !name.is_empty() && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
status = "s"
[interface]
name = "cordon0"
[[connection]]
name = "c"
remote = "192.0.2.1"
local_id = "192.0.2.2"
remote_id = "192.0.2.1"
psk_file = "s"
start = "start"
[[connection.child]]
name = "net"
local = ["10.1.0.0/16"]
remote = ["10.2.0.0/16"]
"#;

    fn chain(table: &str, hook: &str, policy: &str) -> Value {
        json!({ "chain": { "family": "inet", "table": table, "name": hook, "hook": hook, "policy": policy, "type": "filter" } })
    }

    fn rule(table: &str, chain: &str, expr: &Value, comment: Option<&str>) -> Value {
        json!({ "rule": { "family": "inet", "table": table, "chain": chain, "expr": expr, "comment": comment } })
    }

    fn found(config: &str, entries: &[Value]) -> Vec<String> {
        let config: DaemonConfig = toml::from_str(config).unwrap();
        holes(&config, &json!({ "nftables": entries }))
    }

    #[test]
    fn closed_chains_get_holes_once() {
        let closed = [
            chain("filter", "input", "drop"),
            chain("filter", "forward", "drop"),
        ];
        let rules = found(CONFIG, &closed);
        assert_eq!(rules.len(), 3, "{rules:?}");
        assert_eq!(
            rules[0],
            "insert rule inet filter input udp dport { 500, 4500 } accept comment \"cordon vpn: IKE\""
        );
        let mut again = closed.to_vec();
        again.push(rule("filter", "input", &json!([]), Some("cordon vpn: IKE")));
        again.push(rule(
            "filter",
            "forward",
            &json!([]),
            Some("cordon vpn: from cordon0"),
        ));
        again.push(rule(
            "filter",
            "forward",
            &json!([]),
            Some("cordon vpn: to cordon0"),
        ));
        assert_eq!(found(CONFIG, &again), Vec::<String>::new());
        // What came to the file since is all that is added.
        let tcp = format!("{CONFIG}\n[path]\ntcp_port = 443\n");
        let added = "insert rule inet filter input tcp dport 443 accept comment \"cordon vpn: IKE over TCP\"";
        assert_eq!(found(&tcp, &again), [added]);
    }

    #[test]
    fn open_chains_and_our_own_tables_are_left_alone() {
        let accepting = [
            chain("filter", "input", "accept"),
            chain("filter", "forward", "accept"),
        ];
        assert!(found(CONFIG, &accepting).is_empty());
        assert!(found(CONFIG, &[chain("cordon_cordon0", "input", "drop")]).is_empty());
        assert!(found(CONFIG, &[chain("odd \"name", "input", "drop")]).is_empty());
        // A last rule without a condition closes as well, one with a condition does not.
        let last = |expr: &Value| {
            let all = [
                chain("filter", "input", "accept"),
                rule("filter", "input", expr, None),
            ];
            found(CONFIG, &all).len()
        };
        assert_eq!(last(&json!([{ "counter": {} }, { "reject": null }])), 1);
        assert_eq!(last(&json!([{ "match": {} }, { "drop": null }])), 0);
    }

    #[test]
    fn interface_of_a_file_from_elsewhere_does_not_become_a_rule() {
        let hostile = r#"x\" accept; flush ruleset; add rule ip t c iifname \"y"#;
        for name in [hostile, "a*", "", "a b", "sixteen-bytes-xx"] {
            let text = CONFIG.replace("\"cordon0\"", &format!("\"{name}\""));
            let refused = steps_of(&text, Path::new("vpn.toml")).unwrap_err();
            assert!(
                refused.message().contains("in a rule"),
                "{}",
                refused.message()
            );
        }
    }

    #[test]
    fn hosts_that_only_go_to_a_gateway_need_no_holes() {
        let client = CONFIG.replace("local = [\"10.1.0.0/16\"]\n", "").replace(
            "start = \"start\"",
            "start = \"start\"\nrequest = [\"ipv4\"]",
        );
        let closed = [
            chain("filter", "input", "drop"),
            chain("filter", "forward", "drop"),
        ];
        assert!(found(&client, &closed).is_empty());
        let native = CONFIG.replace(
            "[interface]",
            "path = { encapsulation = \"native\" }\n[interface]",
        );
        assert!(
            found(&native, &closed)
                .iter()
                .any(|rule| rule.contains("l4proto esp"))
        );
    }
}
