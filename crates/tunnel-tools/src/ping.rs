//! `cordon vpn ping`: whether packets get through a tunnel, and if not, where they stop.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use commandline::{Failure, OrHint as _, Outcome, field, list, print, text};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use serde_json::{Value, json};
use tunnel::config::Prefix;
use vpn::config::{ConnectionConfig, DaemonConfig};

use crate::client::{Request, ask};
use crate::load::{folder_of, read_settings};

/// Echo requests, and how long each waits for its reply.
const COUNT: u16 = 3;
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a tunnel has to come up: a first message is repeated three times in it.
const COMING_UP: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(200);
/// How long its address and routes may take after it is up: another thread sets them.
const ROUTES: Duration = Duration::from_secs(3);

pub(crate) async fn run(
    path: &Path,
    name: Option<&str>,
    target: Option<IpAddr>,
    json: bool,
) -> Outcome {
    let hint = "see docs/tunnels/settings.md for what the file holds";
    let config: DaemonConfig =
        toml::from_str(&read_settings(path)?).or_hint(format!("{}", path.display()), hint)?;
    let connection = chosen(&config, name)?;
    let socket = folder_of(path).join(&config.status);
    let before = up(&socket, connection, path).await?;
    let children = of_connection(&before, &connection.name);
    let Some(target) = target.or_else(|| target_of(connection, &children)) else {
        let what = format!("connection {:?} names no address to try", connection.name);
        return Err(Failure::usage(what, "name one with --target"));
    };
    let inside = |side: &str, address: IpAddr| {
        let all = children
            .iter()
            .flat_map(|child| prefixes(text(child, side)));
        all.into_iter()
            .any(|network| network.range().contains(address))
    };
    if !inside("remote", target) {
        return Err(Failure::new(
            anyhow::anyhow!(
                "{target} is not in the networks of connection {:?}",
                connection.name
            ),
            "name an address of the other side with --target; see `cordon vpn status`",
        ));
    }
    let source = source_in(target, |source| inside("local", source)).await?;
    if !inside("local", source) {
        return Err(Failure::new(
            anyhow::anyhow!(
                "this host would speak to {target} from {source}, which the tunnel does not carry"
            ),
            "name its address in `local` as one of `addresses` of [interface], or try from a host behind it",
        ));
    }
    let times = tokio::task::spawn_blocking(move || echo(target)).await;
    let times = times.or_hint("cannot ping", "report this")??;
    let after = ask(&socket, &Request::Status).await?;
    let grown = |way: &str| has_grown(&children, &of_connection(&after, &connection.name), way);
    let result = PingResult {
        target,
        source,
        replies: times,
        sent: grown("bytes_out"),
        received: grown("bytes_in"),
    };
    let value = json!({
        "connection": connection.name, "target": target, "source": source,
        "sent": COUNT, "received": result.replies.len(),
        "milliseconds": result.replies.iter().map(|time| time.as_secs_f64() * 1000.0).collect::<Vec<_>>(),
        "left_through_tunnel": result.sent, "came_through_tunnel": result.received,
    });
    print(json, &value, &result.line(&connection.name))?;
    result.outcome()
}

/// What came of the echo requests.
struct PingResult {
    target: IpAddr,
    source: IpAddr,
    replies: Vec<Duration>,
    /// Whether the tunnel carried anything meanwhile, each way.
    sent: bool,
    received: bool,
}

impl PingResult {
    fn line(&self, connection: &str) -> String {
        let mut times: Vec<f64> = self
            .replies
            .iter()
            .map(|time| time.as_secs_f64() * 1000.0)
            .collect();
        times.sort_by(f64::total_cmp);
        let answered = format!(
            "{} of {COUNT} echo requests from {} to {} through connection {connection} were answered",
            times.len(),
            self.source,
            self.target
        );
        match (times.first(), times.last()) {
            (Some(least), Some(most)) => format!("{answered}, in {least:.1} to {most:.1} ms"),
            _ => answered,
        }
    }

    fn outcome(&self) -> Outcome {
        let Self { target, source, .. } = self;
        let (what, hint) = match (self.sent, self.received) {
            _ if !self.replies.is_empty() && self.sent && self.received => return Ok(()),
            _ if !self.replies.is_empty() => (
                format!("{target} answers, and not through the tunnel"),
                "another route leads there: see `cordon vpn check` and `ip route`".to_owned(),
            ),
            (false, _) => (
                format!("nothing left for {target} through the tunnel, which is up"),
                "the route or the host's firewall stops it: see `cordon vpn check`, `ip route get` and the \
                 counters of `nft list ruleset`"
                    .to_owned(),
            ),
            (true, false) => (
                format!("packets for {target} leave through the tunnel, and none come back"),
                format!(
                    "at the other side: is {target} there and answers, does the gateway forward and its firewall let \
                     {source} in (`cordon vpn prepare`, `cordon vpn check` there)?"
                ),
            ),
            (true, true) => (
                format!("packets come back through the tunnel, and no reply of {target} among them"),
                format!(
                    "is {target} the right address (--target), and does this host's firewall let replies in?"
                ),
            ),
        };
        Err(Failure::new(anyhow::anyhow!(what), hint))
    }
}

fn chosen<'a>(config: &'a DaemonConfig, name: Option<&str>) -> Outcome<&'a ConnectionConfig> {
    let hint = "name one of the connections of the file";
    match (name, config.connection.as_slice()) {
        (None, [one]) => Ok(one),
        (None, all) => {
            let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
            let what = format!("the file has the connections {}", names.join(", "));
            Err(Failure::usage(what, hint))
        }
        (Some(name), all) => {
            let found = all.iter().find(|one| one.name == name);
            found.ok_or_else(|| Failure::usage(format!("there is no connection {name:?}"), hint))
        }
    }
}

/// Brings the connection up if it is not, and returns the daemon's state.
async fn up(socket: &Path, connection: &ConnectionConfig, path: &Path) -> Outcome<Value> {
    let state = ask(socket, &Request::Status).await.map_err(|failure| {
        let hint = format!("start it with `cordon vpn up --config {}`", path.display());
        Failure::new(anyhow::anyhow!(failure.message()), hint)
    })?;
    let name = &connection.name;
    if !of_connection(&state, name).is_empty() {
        return Ok(state);
    }
    let Some(remote) = connection.remote else {
        return Err(Failure::new(
            anyhow::anyhow!("no peer of connection {name:?} has a tunnel"),
            "peers start it: run `cordon vpn ping` there",
        ));
    };
    let connect = Request::Connect { name: name.clone() };
    ask(socket, &connect).await?;
    let end = Instant::now() + COMING_UP;
    while Instant::now() < end {
        tokio::time::sleep(POLL).await;
        let state = ask(socket, &Request::Status).await?;
        if !of_connection(&state, name).is_empty() {
            return Ok(state);
        }
    }
    let failed = ask(socket, &Request::Explain).await?;
    let ours = |one: &&Value| [name.as_str(), ""].contains(&text(one, "connection"));
    // The newest first.
    match list(&failed, "failed").iter().find(ours) {
        Some(one) => Err(Failure::new(
            anyhow::anyhow!(
                "connection {name:?} does not come up: {}",
                text(one, "reason")
            ),
            format!(
                "`cordon vpn explain --config {}` here and at {remote} shows both sides' values",
                path.display()
            ),
        )),
        None => Err(Failure::new(
            anyhow::anyhow!("connection {name:?} does not come up: {remote} does not answer"),
            "is the daemon up there, and do UDP ports 500 and 4500 pass its firewall (`cordon vpn prepare` there) and \
             those on the way?",
        )),
    }
}

/// Child SAs of a connection in the daemon's state.
fn of_connection(state: &Value, name: &str) -> Vec<Value> {
    let all = list(field(state, "ike"), "sas").iter();
    let ours = all.filter(|sa| text(sa, "connection") == name);
    ours.flat_map(|sa| list(sa, "children").iter().cloned())
        .collect()
}

/// Whether a counter of some Child SA has grown. Others come and go meanwhile, so a sum would not say it.
fn has_grown(before: &[Value], after: &[Value], counter: &str) -> bool {
    let of = |child: &Value| field(child, counter).as_u64().unwrap_or(0);
    after.iter().any(|child| {
        let is_same = |one: &&Value| text(one, "spi_in") == text(child, "spi_in");
        of(child) > before.iter().find(is_same).map_or(0, of)
    })
}

/// Networks as the state shows them.
fn prefixes(shown: &str) -> Vec<Prefix> {
    let words = shown.split([',', ' ']);
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The address that the file names in the other side's network, or else the first one there.
fn target_of(connection: &ConnectionConfig, children: &[Value]) -> Option<IpAddr> {
    let mut named = connection
        .child
        .iter()
        .flat_map(|child| child.remote.clone());
    let network = named.next().or_else(|| {
        let mut all = children
            .iter()
            .flat_map(|child| prefixes(text(child, "remote")));
        all.next()
    })?;
    let (first, last) = (network.range().first(), network.range().last());
    if network.address != first || first == last {
        return Some(network.address);
    }
    Some(match first {
        IpAddr::V4(address) => IpAddr::from(address.to_bits().saturating_add(1).to_be_bytes()),
        IpAddr::V6(address) => IpAddr::from(address.to_bits().saturating_add(1).to_be_bytes()),
    })
}

/// As [`source`], after waiting for one that is `carried`.
async fn source_in(target: IpAddr, carried: impl Fn(IpAddr) -> bool) -> Outcome<IpAddr> {
    let until = Instant::now() + ROUTES;
    loop {
        let found = source(target);
        if found.as_ref().is_ok_and(|source| carried(*source)) || Instant::now() >= until {
            return found;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Our address towards a target, as the kernel's routes have it. Connecting sends nothing.
fn source(target: IpAddr) -> Outcome<IpAddr> {
    let hint = "see `ip route get`: the tunnel's route is missing";
    let what = || format!("there is no way to {target}");
    let any = if target.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let probe = UdpSocket::bind(any).or_hint(what(), hint)?;
    probe.connect((target, 9)).or_hint(what(), hint)?;
    Ok(probe.local_addr().or_hint(what(), hint)?.ip())
}

/// Sends echo requests one after the other (RFC 792, RFC 4443 §4.1), and returns the times of the replies.
fn echo(target: IpAddr) -> Outcome<Vec<Duration>> {
    let hint = "run as root or with CAP_NET_RAW";
    let what = || format!("cannot ping {target}");
    let (family, protocol) = match target {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let flags = SocketFlags::CLOEXEC;
    let raw = socket_with(family, SocketType::RAW, flags, Some(protocol));
    // Systems may let everybody ping by another kind of socket.
    let made = raw.or_else(|_| socket_with(family, SocketType::DGRAM, flags, Some(protocol)));
    let socket = UdpSocket::from(made.or_hint(what(), hint)?);
    socket.connect((target, 0)).or_hint(what(), hint)?;
    let mut token = [0; 16];
    aws_lc_rs::rand::fill(&mut token)
        .map_err(|_| Failure::new(anyhow::anyhow!("no random bytes"), "check the kernel"))?;
    let mut times = Vec::new();
    for number in 1..=COUNT {
        let start = Instant::now();
        // An error of a router or of this host does not count as a reply.
        if socket.send(&request(target, number, &token)).is_ok()
            && is_answered(&socket, number, &token, start)
        {
            times.push(start.elapsed());
        } else {
            std::thread::sleep(PATIENCE.saturating_sub(start.elapsed()));
        }
    }
    Ok(times)
}

/// Waits for the reply with this number and token.
fn is_answered(socket: &UdpSocket, number: u16, token: &[u8; 16], start: Instant) -> bool {
    let mut buffer = [0; 2048];
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            return false;
        }
        let Ok(len) = socket.recv(&mut buffer) else {
            // A router's refusal ends up here as well; a reply may still come.
            if start.elapsed() >= PATIENCE {
                return false;
            }
            continue;
        };
        let received = buffer.get(..len).unwrap_or_default();
        // Raw sockets of IPv4 show the IP header.
        let message = match received.first() {
            Some(first) if first >> 4 == 4 => received
                .get(usize::from(first & 15) * 4..)
                .unwrap_or_default(),
            _ => received,
        };
        let kind = message.first().copied();
        let is_reply = matches!(kind, Some(0 | 129)) && message.get(1) == Some(&0);
        if is_reply
            && message.get(6..8) == Some(&number.to_be_bytes())
            && message.get(8..) == Some(token)
        {
            return true;
        }
    }
}

/// Makes an echo request. The kernel fills in the checksum of ICMPv6, and the identifier where the socket is not a raw one.
fn request(target: IpAddr, number: u16, token: &[u8; 16]) -> Vec<u8> {
    let kind = if target.is_ipv4() { 8 } else { 128 };
    let mut message = vec![kind, 0, 0, 0];
    message.extend(token.iter().take(2));
    message.extend(number.to_be_bytes());
    message.extend(token);
    if target.is_ipv4() {
        let words = message.chunks(2);
        let words = words.map(|pair| match *pair {
            [high, low] => u32::from(u16::from_be_bytes([high, low])),
            _ => 0,
        });
        let sum: u32 = words.sum();
        let folded = (sum & 0xFFFF).saturating_add(sum >> 16);
        let folded = (folded & 0xFFFF).saturating_add(folded >> 16);
        let checksum = !u16::try_from(folded).unwrap_or(0);
        message.splice(2..4, checksum.to_be_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_request_has_its_checksum() {
        let message = request("10.0.0.1".parse().unwrap(), 1, &[0xFF; 16]);
        let sum: u32 = message
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        assert_eq!((folded & 0xFFFF) + (folded >> 16), 0xFFFF);
        assert_eq!(message.len(), 24);
    }

    #[test]
    fn counter_grows_though_another_child_sa_has_gone() {
        let child = |spi: &str, bytes: u64| json!({ "spi_in": spi, "bytes_out": bytes });
        let before = [child("01", 900), child("02", 100)];
        let grown = |after: &[Value]| has_grown(&before, after, "bytes_out");
        assert!(grown(&[child("02", 101)]));
        assert!(grown(&[child("03", 1)]));
        assert!(!grown(&[child("02", 100)]) && !grown(&[child("03", 0)]) && !grown(&[]));
    }

    #[test]
    fn target_is_the_address_named_in_a_network() {
        let of = |remote: &str| {
            let text = format!(
                "name = \"c\"\nremote_id = \"any\"\n[[child]]\nname = \"n\"\nremote = [{remote}]"
            );
            let connection: ConnectionConfig = toml::from_str(&text).unwrap();
            target_of(&connection, &[json!({ "remote": "10.9.0.2/32" })])
                .unwrap()
                .to_string()
        };
        assert_eq!(of("\"10.2.0.7/16\""), "10.2.0.7");
        assert_eq!(of("\"10.2.0.0/16\""), "10.2.0.1");
        assert_eq!(of("\"10.2.0.0/32\""), "10.2.0.0");
        assert_eq!(of("\"fd02::/64\""), "fd02::1");
        assert_eq!(of(""), "10.9.0.2");
    }

    #[test]
    fn result_names_where_packets_stop() {
        let result = |replies: usize, sent, received| PingResult {
            target: "10.2.0.1".parse().unwrap(),
            source: "10.1.0.1".parse().unwrap(),
            replies: vec![Duration::from_millis(2); replies],
            sent,
            received,
        };
        assert!(result(1, true, true).outcome().is_ok());
        let says = |replies, sent, received, words: &str| {
            let failure = result(replies, sent, received).outcome().unwrap_err();
            assert!(failure.message().contains(words), "{}", failure.message());
        };
        says(3, false, false, "not through the tunnel");
        says(0, false, false, "nothing left");
        says(0, true, false, "none come back");
        says(0, true, true, "no reply");
        assert!(result(2, true, true).line("c").contains("2 of 3"));
    }
}
