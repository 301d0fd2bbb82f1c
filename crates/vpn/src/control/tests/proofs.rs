//! Keys that are pinned, authorities of one connection, and a secret one way.

use std::os::unix::fs::PermissionsExt as _;

use aws_lc_rs::digest::{SHA256, digest};
use der::Encode as _;

use super::certificates::{PEER, Site};
use super::*;

const NAME: &str = "camera-17.cameras.example.org";

/// SHA-256 of the public key of a certificate in a file; the first one is the holder's, the next its authority's.
fn pin(site: &Site, file: &str, index: usize) -> String {
    let pem = std::fs::read(site.folder.path().join(file)).unwrap();
    let chain = x509_cert::Certificate::load_pem_chain(&pem).unwrap();
    let spki = &chain[index].tbs_certificate.subject_public_key_info;
    hex::encode(digest(&SHA256, &spki.to_der().unwrap()))
}

/// A gateway with these connections: their names, and the lines that make them different.
fn gateway(top: &str, connections: &[(&str, &str)]) -> String {
    let mut text = format!("status = \"s\"\ninterface = {{ name = \"t\" }}\n{top}\n");
    for (number, (name, lines)) in connections.iter().enumerate() {
        text += &format!(
            r#"
[[pool]]
name = "{name}"
addresses = ["10.{number}.9.0/24"]
[[connection]]
name = "{name}"
local_id = "gateway.example.org"
pool = "{name}"
{lines}
[[connection.child]]
name = "net"
local = ["10.5.2.0/24"]
"#
        );
    }
    text
}

const TRUST: &str = "trust = { anchors = [\"root.pem\"], intermediates = [\"devices.pem\"] }";
const CERTIFICATE: &str = "certificate = \"gateway.pem\"\nkey = \"gateway.key\"";

fn site() -> Site {
    let site = Site::new();
    site.camera(NAME);
    site
}

/// Lets the peer come; the connection on which it is up, and why not otherwise.
fn connect(site: Site, peer: &str, gateway: &str) -> (Option<String>, Vec<String>) {
    let mut world = World::in_folder(site.folder, peer, gateway);
    world.run(Duration::from_secs(2));
    let up = world.status(1).sas.first().map(|sa| sa.connection.clone());
    let reasons = [0, 1].map(|at| world.reasons(at)).concat();
    (up, reasons)
}

#[test]
fn pinned_key_is_demanded_on_top_of_the_chain() {
    let other = "00".repeat(32);
    // The key; the key among others; that of the authority; another one.
    for (pins, good) in [
        (vec![0], true),
        (vec![2, 0], true),
        (vec![1], false),
        (vec![2], false),
    ] {
        let site = site();
        let all = [
            pin(&site, "peer.pem", 0),
            pin(&site, "peer.pem", 1),
            other.clone(),
        ];
        let pins: Vec<&String> = pins.iter().map(|at: &usize| &all[*at]).collect();
        let lines =
            format!("remote_id = \"any\"\n{CERTIFICATE}\npeer = {{ pinned_keys = {pins:?} }}");
        let (up, reasons) = connect(site, PEER, &gateway(TRUST, &[("pinned", &lines)]));
        assert_eq!(up.is_some(), good, "{reasons:?}");
        let named = reasons.iter().any(|reason| reason.contains(&all[0]));
        assert_eq!(named, !good, "{reasons:?}");
    }
}

#[test]
fn initiator_demands_the_pinned_key_too() {
    for (index, good) in [(0, true), (1, false)] {
        let site = site();
        let pins = format!("\"{}\"", pin(&site, "gateway.pem", index));
        let peer = PEER.replace(
            "start = \"start\"",
            &format!("start = \"start\"\npeer = {{ pinned_keys = [{pins}] }}"),
        );
        let lines = format!("remote_id = \"any\"\n{CERTIFICATE}");
        let (up, reasons) = connect(site, &peer, &gateway(TRUST, &[("any", &lines)]));
        // The gateway has brought it up by then; the peer tells it that it is not.
        assert_eq!(up.is_some(), good, "{reasons:?}");
    }
}

#[test]
fn pinned_key_is_enough_where_no_chain_is_demanded() {
    for (index, remote_id, good) in [
        (0, NAME, true),
        (1, NAME, false),
        // The right key under another name.
        (0, "camera-18.cameras.example.org", false),
    ] {
        let site = site();
        let pin = pin(&site, "peer.pem", index);
        let demand = format!("peer = {{ pinned_keys = [\"{pin}\"], require_chain = false }}");
        let lines = format!("remote_id = \"{remote_id}\"\n{CERTIFICATE}\n{demand}");
        let peer = PEER.replace(
            "[[connection]]",
            "[[connection]]\nlocal_id = \"camera-17.cameras.example.org\"",
        );
        let (up, reasons) = connect(site, &peer, &gateway("", &[("pinned", &lines)]));
        assert_eq!(up.is_some(), good, "{reasons:?}");
    }
}

#[test]
fn certificate_accepted_by_its_key_ends_with_its_dates() {
    let site = site();
    let pin = pin(&site, "peer.pem", 0);
    let demand = format!("peer = {{ pinned_keys = [\"{pin}\"], require_chain = false }}");
    let lines = format!("remote_id = \"{NAME}\"\n{CERTIFICATE}\n{demand}");
    let peer = PEER.replace(
        "[[connection]]",
        &format!("[[connection]]\nlocal_id = \"{NAME}\""),
    );
    let mut world = World::in_folder(site.folder, &peer, &gateway("", &[("pinned", &lines)]));
    world.run(Duration::from_secs(2));
    world.check_up();
    let (now, utc) = (world.now(), time::OffsetDateTime::now_utc());
    for (days, revoked) in [(0, 0), (29, 0), (31, 1)] {
        let later = utc + time::Duration::days(days);
        let side = &mut world.sides[1];
        let trust = side.trust.clone();
        let check = move |name: &str, accepted: &Accepted| trust.recheck(name, accepted, later);
        side.control.recheck(&check, now);
        assert_eq!(side.control.counters.revoked, revoked, "after {days} days");
    }
}

#[test]
fn authorities_of_a_connection_take_the_place_of_those_of_the_file() {
    let any = format!("remote_id = \"any\"\n{CERTIFICATE}");
    let other = format!("{any}\ntrust = {{ anchors = [\"other.pem\"] }}");
    let same = format!("{any}\ntrust = {{ anchors = [\"devices.pem\"] }}");
    for (connections, expected) in [
        (vec![("other", other.as_str())], None),
        (vec![("other", &other), ("any", &any)], Some("any")),
        (vec![("other", &other), ("same", &same)], Some("same")),
        (vec![("same", &same), ("any", &any)], Some("same")),
    ] {
        let site = site();
        let stranger = Site::new();
        let root = std::fs::read_to_string(stranger.folder.path().join("root.pem")).unwrap();
        std::fs::write(site.folder.path().join("other.pem"), root).unwrap();
        let (up, reasons) = connect(site, PEER, &gateway(TRUST, &connections));
        assert_eq!(up.as_deref(), expected, "{reasons:?}");
    }
}

#[test]
fn more_precise_connection_is_not_passed_by() {
    let any = format!("remote_id = \"any\"\n{CERTIFICATE}");
    let pattern = format!("remote_id = \"*.cameras.example.org\"\n{CERTIFICATE}");
    let own = format!("remote_id = \"{NAME}\"\n{CERTIFICATE}");
    let demanding = format!("{own}\npeer = {{ kind = \"users\" }}");
    let ppk = format!("{own}\nppk = {{ id = \"lab\", secret_file = \"ppk\" }}");
    let strong = format!(
        "{own}\nike = [{{ encryption = [\"aes-256-gcm\"], prf = [\"hmac-sha2-512\"], groups = [\"modp4096\"] }}]"
    );
    let peer = PEER.replace(
        "[[connection]]",
        &format!("[[connection]]\nlocal_id = \"{NAME}\""),
    );
    for (connections, expected) in [
        (
            vec![("any", any.as_str()), ("pattern", &pattern)],
            Some("pattern"),
        ),
        (
            vec![("any", &any), ("pattern", &pattern), ("own", &own)],
            Some("own"),
        ),
        (vec![("any", &any), ("own", &demanding)], None),
        (vec![("any", &any), ("own", &ppk)], None),
        (vec![("any", &any), ("own", &strong)], None),
    ] {
        let site = site();
        let secret = site.folder.path().join("ppk");
        std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (up, reasons) = connect(site, &peer, &gateway(TRUST, &connections));
        assert_eq!(up.as_deref(), expected, "{connections:?} {reasons:?}");
    }
}

#[test]
fn secret_may_prove_one_side_and_a_certificate_the_other() {
    let certificate = "certificate = \"peer.pem\"\nkey = \"peer.key\"";
    let secret = "psk_file = \"psk\"\npsk_proves =";
    let name = format!("local_id = \"{NAME}\"");
    let by_secret = PEER.replace(certificate, &format!("{name}\n{secret} \"us\""));
    let by_certificate = PEER.replace(
        certificate,
        &format!("{name}\n{certificate}\n{secret} \"peer\""),
    );
    let peer = format!("remote_id = \"{NAME}\"");
    let checks_secret = format!("{peer}\n{CERTIFICATE}\n{secret} \"peer\"");
    let checks_certificate = format!("{peer}\n{secret} \"us\"");
    let both = format!("{peer}\npsk_file = \"psk\"");
    for (ours, theirs, good) in [
        (&by_secret, &checks_secret, true),
        (&by_certificate, &checks_certificate, true),
        // The other way round, and a side that wants the secret both ways.
        (&by_secret, &checks_certificate, false),
        (&by_certificate, &checks_secret, false),
        (&by_secret, &both, false),
        (&by_certificate, &both, false),
    ] {
        let (up, reasons) = connect(site(), ours, &gateway(TRUST, &[("one", theirs)]));
        assert_eq!(up.is_some(), good, "{ours}\n{theirs}\n{reasons:?}");
    }
}

#[test]
fn settings_that_prove_nothing_are_refused() {
    let pin = "00".repeat(32);
    let pinned = format!("peer = {{ pinned_keys = [\"{pin}\"], require_chain = false }}");
    let exact = format!("remote_id = \"{NAME}\"");
    let any = "remote_id = \"any\"";
    let secret = "psk_file = \"psk\"";
    let cases = [
        (
            format!("{any}\n{CERTIFICATE}\n{pinned}"),
            "chooses their name",
        ),
        (
            format!("remote_id = \"*.example.org\"\n{CERTIFICATE}\n{pinned}"),
            "chooses their name",
        ),
        (
            format!("{exact}\n{CERTIFICATE}\npeer = {{ require_chain = false }}"),
            "needs `pinned_keys`",
        ),
        (
            format!("{exact}\n{CERTIFICATE}\npeer = {{ pinned_keys = [\"00\"] }}"),
            "is no SHA-256",
        ),
        (
            format!(
                "{exact}\n{CERTIFICATE}\n{}",
                pinned.replace('}', ", kind = \"users\" }")
            ),
            "only `pinned_keys`",
        ),
        (
            format!("{exact}\n{CERTIFICATE}\n{pinned}\ntrust = {{ anchors = [\"root.pem\"] }}"),
            "exclude each other",
        ),
        (
            format!("{exact}\n{CERTIFICATE}\ntrust = {{ anchors = [] }}"),
            "has no certificate",
        ),
        (
            format!("{exact}\n{CERTIFICATE}\n{secret}"),
            "how we authenticate",
        ),
        (
            format!("{exact}\n{CERTIFICATE}\npsk_proves = \"peer\""),
            "whose proof",
        ),
        (
            format!("{exact}\n{secret}\npsk_proves = \"peer\""),
            "how we authenticate",
        ),
        (
            format!("{exact}\n{CERTIFICATE}\n{secret}\npsk_proves = \"us\""),
            "how we authenticate",
        ),
        (
            format!("{any}\n{CERTIFICATE}\n{secret}\npsk_proves = \"peer\""),
            "name the peer",
        ),
        (
            format!("remote_id = \"*.example.org\"\n{secret}"),
            "name the peer",
        ),
        (
            format!("{exact}\n{secret}\npeer = {{ pinned_keys = [\"{pin}\"] }}"),
            "shows no certificate",
        ),
        (
            format!(
                "{exact}\n{CERTIFICATE}\n{secret}\npsk_proves = \"peer\"\ntrust = {{ anchors = [\"root.pem\"] }}"
            ),
            "`trust` is for peers",
        ),
        (
            format!("remote_id = \"keyid:7\"\n{CERTIFICATE}"),
            "no certificate has one",
        ),
        (
            format!("remote_id = \"CN=*\"\n{CERTIFICATE}\neap = {{ methods = [\"tls\"] }}"),
            "names of their own",
        ),
    ];
    let site = site();
    let secret = site.folder.path().join("psk");
    std::fs::write(&secret, "a secret for this test only").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let read =
        |text: &str| ResolvedConfig::read(text, site.folder.path(), &KeyHost::in_thread().unwrap());
    for (lines, expected) in cases {
        let error = read(&gateway(TRUST, &[("one", &lines)])).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected), "{lines}: {error}");
    }
    // Without [trust], or with none in it, certificates need authorities of the connection.
    for top in ["", "trust = { anchors = [] }"] {
        let lines = format!("{exact}\n{CERTIFICATE}");
        let error = read(&gateway(top, &[("one", &lines)])).err().unwrap();
        assert!(error.to_string().contains("whose are believed"), "{error}");
        let own = format!("{lines}\ntrust = {{ anchors = [\"root.pem\"] }}");
        read(&gateway(top, &[("one", &own)])).unwrap();
    }
    let pattern = |id: &str, more: &str| format!("remote_id = \"{id}\"\n{CERTIFICATE}\n{more}");
    let star = pattern("CN=*, O=a", "");
    for (other, ambiguous) in [
        (pattern("CN=gw, O=*", ""), true),
        (pattern("CN=*, O=A", ""), true),
        (pattern("CN=*, O=*", ""), false),
        (pattern("CN=*, O=b", ""), false),
        (pattern("O=a, CN=*", ""), false),
        (pattern("CN=gw, O=*", "peer = { kind = \"users\" }"), false),
        (
            pattern("CN=gw, O=*", "trust = { anchors = [\"root.pem\"] }"),
            false,
        ),
        (pattern("CN=gw, O=a", ""), false),
    ] {
        let read = read(&gateway(TRUST, &[("one", &star), ("two", &other)]));
        let error = read.err().map(|error| error.to_string());
        let named = error
            .as_ref()
            .is_some_and(|error| error.contains("equally much"));
        assert_eq!(named, ambiguous, "{other} {error:?}");
        assert_eq!(error.is_some(), ambiguous, "{other} {error:?}");
    }
}

#[test]
fn another_spelling_of_a_name_is_the_same_peer() {
    let peer = |name: &str| {
        let local_id = format!("[[connection]]\nlocal_id = \"{name}\"");
        PEER.replace("[[connection]]", &local_id)
    };
    let any = format!("remote_id = \"any\"\n{CERTIFICATE}");
    let gateway = gateway(TRUST, &[("any", &any)]);
    let mut world = World::in_folder(site().folder, &peer(NAME), &gateway);
    world.run(Duration::from_secs(2));
    world.check_up();
    let before = world.status(1).sas.remove(0);
    // It comes again as somebody who might be another one: beside the first it would have addresses and bounds of its own.
    for name in [NAME.to_uppercase(), NAME.replace("example", "Example")] {
        world.sides[0] = Side::new(&peer(&name), world.folder.path(), 0, world.start);
        let now = world.now();
        world.sides[0].control.tick(now);
        world.run(Duration::from_secs(30));
        world.check_up();
        let after = world.status(1).sas.remove(0);
        assert_ne!(after.spi, before.spi, "{name}");
        assert_eq!(world.status(1).pools[0].taken, 1, "{name}");
    }
}

#[test]
fn search_for_a_path_ends_after_eight_sets_of_authorities() {
    let any = format!("remote_id = \"any\"\n{CERTIFICATE}");
    for (strangers, good) in [(7, true), (8, false)] {
        let site = site();
        let mut connections = Vec::new();
        for number in 0..strangers {
            let stranger = Site::new();
            let root = stranger.folder.path().join("root.pem");
            let file = format!("other{number}.pem");
            std::fs::copy(root, site.folder.path().join(&file)).unwrap();
            let lines = format!("{any}\ntrust = {{ anchors = [\"{file}\"] }}");
            connections.push((format!("stranger-{number}"), lines));
        }
        connections.push(("any".to_owned(), any.clone()));
        let connections: Vec<(&str, &str)> = connections
            .iter()
            .map(|(name, lines)| (name.as_str(), lines.as_str()))
            .collect();
        let text = gateway(TRUST, &connections);
        let mut world = World::in_folder(site.folder, PEER, &text);
        // One attempt: the next one comes after a second.
        world.run(Duration::from_millis(500));
        assert_eq!(
            !world.status(1).sas.is_empty(),
            good,
            "{strangers} strangers"
        );
        assert_eq!(world.sides[1].seen.0, 8, "{strangers} strangers");
    }
}
