//! Set-ups that are wrong on one side, and what both sides say of them: the setting and both values.

use std::os::unix::fs::PermissionsExt as _;

use super::certificates::{PEER, Site};
use super::*;
use crate::report::Explanation;

/// Replacements in a text.
type Changes<'a> = &'a [(&'a str, &'a str)];

/// What an explanation has in setting, theirs and ours.
type Expected<'a> = [&'a str; 3];

/// A wrong set-up: what is changed at the camera, which starts, and at the gateway; and what either side explains.
type Case<'a> = (Changes<'a>, Changes<'a>, [Expected<'a>; 2]);

const CAMERA_SIDE: usize = 0;
const GATEWAY_SIDE: usize = 1;

/// The other side ended the attempt before it said who it is, or says nothing of what it lacks: there is nothing to explain.
const UNKNOWN: Expected<'_> = [""; 3];
const OWN_PROOF: &str = "`local_id`, `certificate` or `psk_file` here";
const REFUSES: &str = "refuses with AUTHENTICATION_FAILED";
const NO_PROPOSAL: &str = "refuses with NO_PROPOSAL_CHOSEN";
const WITH_SECRET: Expected<'_> = [
    OWN_PROOF,
    REFUSES,
    "FQDN:camera-17.example.org with a shared secret, towards FQDN:gateway.example.org",
];
const WITH_CERTIFICATE: Expected<'_> = [
    OWN_PROOF,
    REFUSES,
    "CN=camera-17 with a certificate, towards FQDN:gateway.example.org",
];
const NETWORKS: &str = "`local` and `remote`";

const SMALL: &str =
    "[{ encryption = [\"aes-128-gcm\"], prf = [\"hmac-sha2-256\"], groups = [\"x25519\"] }]";

fn changed(text: &str, changes: Changes<'_>) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} in {text}");
        text.replacen(from, to, 1)
    })
}

fn write_secrets(folder: &std::path::Path) {
    for (name, text) in [
        ("psk2", "another secret for this test"),
        ("ppk", "0123456789abcdef0123456789abcdef"),
        ("ppk2", "fedcba9876543210fedcba9876543210"),
        ("users", "anna:a long password of hers\n"),
        ("password", "another long password\n"),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn explanations(world: &mut World, at: usize) -> Vec<Explanation> {
    match world.command(at, Command::Explain) {
        Reply::Explanations(all) => all,
        other => panic!("{other:?}"),
    }
}

/// Lets the camera come, and looks at all that either side has to say.
fn check(folder: tempfile::TempDir, texts: [&str; 2], case: &Case<'_>) {
    let (ours, theirs, expected) = case;
    write_secrets(folder.path());
    let texts = [changed(texts[0], ours), changed(texts[1], theirs)];
    let mut world = World::in_folder(folder, &texts[0], &texts[1]);
    world.run(Duration::from_secs(3));
    for (at, [setting, value, own]) in expected.iter().enumerate() {
        let found = explanations(&mut world, at);
        let has = |text: &Option<String>, part: &str| {
            text.as_ref().is_some_and(|text| text.contains(part))
        };
        let fits = |one: &Explanation| {
            has(&one.setting, setting) && has(&one.theirs, value) && has(&one.ours, own)
        };
        let known = expected[at] != UNKNOWN;
        assert!(
            found.is_empty() != known && found.iter().all(fits),
            "{ours:?} {theirs:?} at {at}: {found:#?}"
        );
    }
}

/// A gateway that gives addresses, and takes no others.
const POOL: Changes<'_> = &[
    ("psk_file = \"psk\"\n", "psk_file = \"psk\"\npool = \"p\"\n"),
    (
        "[[connection]]",
        "[[pool]]\nname = \"p\"\naddresses = [\"10.5.1.0/24\"]\n[[connection]]",
    ),
    ("remote = [\"10.5.1.0/24\"]", ""),
];

#[test]
fn wrong_identity_secret_algorithm_or_network_is_explained_on_both_sides() {
    let (psk, net) = ("psk_file = \"psk\"", "name = \"net\"");
    let own_network = "local = [\"10.5.1.0/24\"]";
    let ppk = |id: &str, file: &str| {
        format!("{psk}\nppk = {{ id = \"{id}\", secret_file = \"{file}\" }}")
    };
    let (lab, other, office) = (ppk("lab", "ppk"), ppk("lab", "ppk2"), ppk("office", "ppk"));
    let ike = |from: &str, to: &str| format!("{psk}\nike = {}", SMALL.replace(from, to));
    let small = ike("", "");
    let (large, other_prf) = (ike("aes-128", "aes-256"), ike("sha2-256", "sha2-512"));
    let (other_group, other_cipher) = (
        ike("x25519", "p384"),
        ike("aes-128-gcm", "chacha20-poly1305"),
    );
    let with = |hash: &str| format!("aes-128-cbc\"], integrity = [\"hmac-sha2-{hash}");
    let cbc = ike("aes-128-gcm", &with("256-128"));
    let cbc_512 = ike("aes-128-gcm", &with("512-256"));
    let esp = |cipher: &str| format!("{net}\nesp = [{{ encryption = [\"{cipher}\"] }}]");
    let (esp_small, esp_large) = (esp("aes-128-gcm"), esp("chacha20-poly1305"));
    let (esp_cbc, esp_cbc_512) = (esp(&with("256-128")), esp(&with("512-256")));
    let cases: &[Case<'_>] = &[
        (
            &[("camera-17", "camera-18")],
            &[],
            [
                [
                    OWN_PROOF,
                    REFUSES,
                    "FQDN:camera-18.example.org with a shared secret, towards FQDN:gateway.example.org",
                ],
                ["`remote_id` here", "FQDN:camera-18", "FQDN:camera-17"],
            ],
        ),
        (
            &[],
            &[("camera-17", "camera-19")],
            [
                WITH_SECRET,
                ["`remote_id` here", "FQDN:camera-17", "FQDN:camera-19"],
            ],
        ),
        (
            &[("camera-17.example.org", "keyid:camera-17.example.org")],
            &[],
            [
                [
                    OWN_PROOF,
                    REFUSES,
                    "KEY_ID:camera-17.example.org with a shared secret, towards FQDN:gateway.example.org",
                ],
                ["`remote_id` here", "KEY_ID:camera-17", "FQDN:camera-17"],
            ],
        ),
        (
            &[("camera-17.example.org", "CN=camera-17")],
            &[],
            [
                [
                    OWN_PROOF,
                    REFUSES,
                    "CN=camera-17 with a shared secret, towards FQDN:gateway.example.org",
                ],
                [
                    "`remote_id` here",
                    "CN=camera-17",
                    "FQDN:camera-17.example.org",
                ],
            ],
        ),
        (
            &[("camera-17.example.org", "camera-17@example.org")],
            &[],
            [
                [
                    OWN_PROOF,
                    REFUSES,
                    "RFC822_ADDR:camera-17@example.org with a shared secret, towards FQDN:gateway.example.org",
                ],
                [
                    "`remote_id` here",
                    "RFC822_ADDR:camera-17@example.org",
                    "FQDN:camera-17.example.org",
                ],
            ],
        ),
        (
            &[("\"gateway.", "\"gate.")],
            &[],
            [
                [
                    OWN_PROOF,
                    REFUSES,
                    "FQDN:camera-17.example.org with a shared secret, towards FQDN:gate.example.org",
                ],
                ["`local_id` here", "gate.example.org", "gateway.example.org"],
            ],
        ),
        (
            &[],
            &[("\"gateway.", "\"gate.")],
            [
                WITH_SECRET,
                ["`local_id` here", "gateway.example.org", "gate.example.org"],
            ],
        ),
        (
            &[],
            &[("\"psk\"", "\"psk2\"")],
            [
                WITH_SECRET,
                [
                    "`psk_file` here",
                    "another secret",
                    "connection \"cameras\"",
                ],
            ],
        ),
        (
            &[("\"psk\"", "\"psk2\"")],
            &[],
            [
                WITH_SECRET,
                [
                    "`psk_file` here",
                    "another secret",
                    "connection \"cameras\"",
                ],
            ],
        ),
        (
            &[],
            &[(psk, &lab)],
            [WITH_SECRET, ["`ppk`", "none", "\"lab\""]],
        ),
        (&[(psk, &lab)], &[], [["`ppk`", "none", "\"lab\""], UNKNOWN]),
        (
            &[(psk, &office)],
            &[(psk, &lab)],
            [WITH_SECRET, ["`ppk`", "\"office\"", "\"lab\""]],
        ),
        (
            &[(psk, &other)],
            &[(psk, &lab)],
            [
                WITH_SECRET,
                [
                    "`psk_file` here",
                    "another PPK",
                    "`ppk` of connection \"cameras\"",
                ],
            ],
        ),
        (
            &[(psk, &small)],
            &[(psk, &large)],
            [
                ["`ike`", NO_PROPOSAL, "AES_GCM_16_128"],
                ["`ike`", "AES_GCM_16_128", "AES_GCM_16_256"],
            ],
        ),
        (
            &[(psk, &small)],
            &[(psk, &other_prf)],
            [
                ["`ike`", NO_PROPOSAL, "PRF_HMAC_SHA2_256"],
                ["`ike`", "PRF_HMAC_SHA2_256", "PRF_HMAC_SHA2_512"],
            ],
        ),
        (
            &[(psk, &small)],
            &[(psk, &other_group)],
            [
                ["`ike`", NO_PROPOSAL, "CURVE25519"],
                ["`ike`", "CURVE25519", "ECP_384"],
            ],
        ),
        (
            &[(psk, &small)],
            &[(psk, &other_cipher)],
            [
                ["`ike`", NO_PROPOSAL, "AES_GCM_16_128"],
                ["`ike`", "AES_GCM_16_128", "CHACHA20_POLY1305"],
            ],
        ),
        (
            &[(psk, &cbc)],
            &[(psk, &cbc_512)],
            [
                ["`ike`", NO_PROPOSAL, "HMAC_SHA2_256_128"],
                ["`ike`", "HMAC_SHA2_256_128", "HMAC_SHA2_512_256"],
            ],
        ),
        (
            &[(net, &esp_small)],
            &[(net, &esp_large)],
            [
                ["`esp`", NO_PROPOSAL, "AES_GCM_16_128"],
                ["`esp`", "AES_GCM_16_128", "CHACHA20_POLY1305"],
            ],
        ),
        (
            &[(net, &esp_cbc)],
            &[(net, &esp_cbc_512)],
            [
                ["`esp`", NO_PROPOSAL, "HMAC_SHA2_256_128"],
                ["`esp`", "HMAC_SHA2_256_128", "HMAC_SHA2_512_256"],
            ],
        ),
        (
            &[("10.5.1.0/24", "10.7.1.0/24")],
            &[],
            [
                [NETWORKS, "TS_UNACCEPTABLE", "10.7.1.0/24 = 10.5.2.0/24"],
                [NETWORKS, "10.7.1.0/24", "10.5.1.0/24"],
            ],
        ),
        (
            &[("10.5.2.0/24", "10.7.2.0/24")],
            &[],
            [
                [NETWORKS, "TS_UNACCEPTABLE", "10.5.1.0/24 = 10.7.2.0/24"],
                [NETWORKS, "10.7.2.0/24", "10.5.2.0/24"],
            ],
        ),
        (
            &[],
            &[("10.5.2.0/24", "10.8.2.0/24")],
            [
                [NETWORKS, "TS_UNACCEPTABLE", "10.5.1.0/24 = 10.5.2.0/24"],
                [NETWORKS, "10.5.2.0/24", "10.8.2.0/24"],
            ],
        ),
        (
            &[],
            &[("10.5.1.0/24", "2001:db8::/64")],
            [
                [NETWORKS, "TS_UNACCEPTABLE", "10.5.1.0/24 = 10.5.2.0/24"],
                [NETWORKS, "10.5.1.0/24", "2001:db8::/64"],
            ],
        ),
        (
            &[(net, "name = \"net\"\nprotocol = 6")],
            &[(net, "name = \"net\"\nprotocol = 17")],
            [
                [NETWORKS, "TS_UNACCEPTABLE", "10.5.2.0/24"],
                [NETWORKS, "6", "17"],
            ],
        ),
        (
            &[],
            POOL,
            [
                ["`pool`", "FAILED_CP_REQUIRED", "10.5.1.0/24"],
                ["`pool`", "asks for none", "an address of the pool"],
            ],
        ),
        (
            &[
                (own_network, ""),
                (psk, "psk_file = \"psk\"\nrequest = [\"ipv4\"]"),
            ],
            &[],
            [["`pool`", "gave none", "asked for one"], UNKNOWN],
        ),
        (
            &[
                (own_network, ""),
                (psk, "psk_file = \"psk\"\nrequest = [\"ipv6\"]"),
            ],
            POOL,
            [
                ["`pool`", "INTERNAL_ADDRESS_FAILURE", "10.5.2.0/24"],
                ["`pool`", "asks for an IPv6 address", "none left"],
            ],
        ),
    ];
    for case in cases {
        check(tempfile::tempdir().unwrap(), [CAMERA, GATEWAY], case);
    }
}

#[test]
fn wrong_proof_or_certificate_is_explained_on_both_sides() {
    let any = Site::gateway(&[("any", "")]);
    let pin = format!("pinned_keys = [\"{}\"]", "00".repeat(32));
    let demands = [
        ("kind = \"users\"", "`peer.kind` users"),
        ("domain = \"office.example.org\"", "`peer.domain` office"),
        ("min_clearance = 3", "`peer.min_clearance` 3"),
        ("unit = \"Traffic\"", "`peer.unit` Traffic"),
        ("authorities = [\"users.pem\"]", "`peer.authorities`"),
        (&pin, "`peer.pinned_keys`"),
    ];
    let site = || {
        let site = Site::new();
        site.camera("camera-17.cameras.example.org");
        let stranger = Site::new();
        let root = std::fs::read_to_string(stranger.folder.path().join("root.pem")).unwrap();
        std::fs::write(site.folder.path().join("other.pem"), root).unwrap();
        site.folder
    };
    // What the gateway has shown, and the camera does not believe.
    let shown = "FQDN:gateway.example.org with a certificate, towards";
    let unbelieved = [OWN_PROOF, REFUSES, shown];
    for (demand, expected) in demands {
        let gateway = Site::gateway(&[("any", demand)]);
        let here = ["`peer` here", "certificate of CN=camera-17", expected];
        let case: Case<'_> = (&[], &[], [WITH_CERTIFICATE, here]);
        check(site(), [PEER, &gateway], &case);
        // The camera demands the same of its gateway.
        let peer = format!("key = \"peer.key\"\npeer = {{ {demand} }}");
        let here = ["`peer` here", "certificate of CN=gateway", expected];
        let changes = [("key = \"peer.key\"", peer.as_str())];
        check(site(), [PEER, &any], &(&changes, &[], [here, unbelieved]));
    }
    let certificate = "certificate = \"peer.pem\"\nkey = \"peer.key\"";
    let secret = "local_id = \"camera-17.example.org\"\npsk_file = \"psk\"";
    let of_gateway = "certificate = \"gateway.pem\"\nkey = \"gateway.key\"";
    let wants_secret = format!("{of_gateway}\npsk_file = \"psk\"\npsk_proves = \"peer\"");
    let wants_login =
        format!("{of_gateway}\neap = {{ methods = [\"mschapv2\"], users_file = \"users\" }}");
    let login = |name: &str| {
        format!(
            "login = {{ name = \"{name}\", method = \"mschapv2\", password_file = \"password\" }}"
        )
    };
    let (anna, nobody) = (login("anna"), login("nobody"));
    let one = "remote_id = \"camera-17.cameras.example.org\"";
    let (named, trust) = (
        "[[connection]]\nlocal_id = \"camera-17.cameras.example.org\"",
        "anchors = [\"root.pem\"]",
    );
    let other = "anchors = [\"other.pem\"]";
    let no_more = ("intermediates = [\"devices.pem\"]", "intermediates = []");
    let untrusted = [
        "`trust`",
        "signature on the certificate",
        "authorities of the connection",
    ];
    let cases: &[Case<'_>] = &[
        (
            &[(certificate, secret)],
            &[],
            [
                WITH_SECRET,
                ["the proof", "a shared secret", "a certificate"],
            ],
        ),
        (
            &[("[[connection]]", named)],
            &[("remote_id = \"any\"", one), (of_gateway, &wants_secret)],
            [
                [
                    OWN_PROOF,
                    REFUSES,
                    "FQDN:camera-17.cameras.example.org with a certificate",
                ],
                ["the proof", "a certificate", "a shared secret"],
            ],
        ),
        (
            &[],
            &[(of_gateway, &wants_login)],
            [WITH_CERTIFICATE, ["the proof", "a certificate", "EAP"]],
        ),
        (
            &[(certificate, &anna)],
            &[],
            [
                [OWN_PROOF, REFUSES, "with EAP as \"anna\""],
                ["the proof", "EAP", "a certificate"],
            ],
        ),
        (
            &[(certificate, &anna)],
            &[(of_gateway, &wants_login)],
            [
                ["`login`", "refuses user, password", "with EAP as \"anna\""],
                ["`eap`", "user or password of anna", "connection \"any\""],
            ],
        ),
        (
            &[(certificate, &nobody)],
            &[(of_gateway, &wants_login)],
            [
                [
                    "`login`",
                    "refuses user, password",
                    "with EAP as \"nobody\"",
                ],
                [
                    "`eap`",
                    "nobody: there is no such user",
                    "connection \"any\"",
                ],
            ],
        ),
        (
            &[],
            &[(trust, other), no_more],
            [WITH_CERTIFICATE, untrusted],
        ),
        (&[(trust, other), no_more], &[], [untrusted, unbelieved]),
        (
            &[("\"gateway.example.org\"", "\"*.office.test\"")],
            &[],
            [
                ["`remote_id` here", "gateway.example.org", "*.office.test"],
                unbelieved,
            ],
        ),
        (
            &[],
            &[("remote_id = \"any\"", "remote_id = \"CN=*, O=Police\"")],
            [
                WITH_CERTIFICATE,
                ["`remote_id` here", "CN=camera-17", "CN=*, O=Police"],
            ],
        ),
        (
            &[],
            &[("remote_id = \"any\"", "remote_id = \"*.office.test\"")],
            [
                WITH_CERTIFICATE,
                ["`remote_id` here", "CN=camera-17", "*.office.test"],
            ],
        ),
    ];
    for case in cases {
        check(site(), [PEER, &any], case);
    }
}

#[test]
fn ppk_that_only_the_side_that_starts_has_is_explained_when_that_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    write_secrets(folder.path());
    let psk = "psk_file = \"psk\"";
    let lab = format!("{psk}\nppk = {{ id = \"lab\", secret_file = \"ppk\" }}");
    let mut world = World::in_folder(folder, &changed(CAMERA, &[(psk, &lab)]), GATEWAY);
    // A handshake may take 30 seconds.
    world.run(Duration::from_secs(33));
    let one = explanations(&mut world, GATEWAY_SIDE).pop().unwrap();
    assert!(one.setting.as_ref().unwrap().contains("`ppk`"), "{one:?}");
    let values = (one.theirs.as_deref(), one.ours.as_deref());
    assert_eq!(values, (Some("wants one"), Some("none")));
}

#[test]
fn silent_peer_and_peer_of_version_1_are_explained() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.cut = true;
    world.run(Duration::from_secs(120));
    let found = explanations(&mut world, CAMERA_SIDE);
    let one = found.first().unwrap();
    assert!(
        one.setting.as_ref().unwrap().contains("`remote` here"),
        "{one:?}"
    );
    assert_eq!(one.remote.as_deref(), Some("192.0.2.1:500"));
    // Main mode of version 1: cookies, SA payload, version 1.0, exchange 2.
    let mut message = vec![7; 8];
    message.extend([0; 8]);
    message.extend([1, 0x10, 2, 0]);
    message.extend([0; 4]);
    message.extend(32_u32.to_be_bytes());
    message.extend([0; 4]);
    let (now, gateway) = (world.now(), &mut world.sides[GATEWAY_SIDE].control);
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    for (change, count) in [
        (None, 1),
        // Version 3, another exchange, a responder's cookie, a wrong length.
        (Some((17, 0x30)), 1),
        (Some((18, 5)), 1),
        (Some((8, 1)), 1),
        (Some((27, 33)), 1),
        (Some((18, 4)), 2),
    ] {
        let mut changed = message.clone();
        if let Some((place, byte)) = change {
            changed[place] = byte;
        }
        gateway.message(
            Path::udp(at("192.0.2.1:500"), at("192.0.2.9:500")),
            &changed,
            now,
        );
        assert_eq!(gateway.counters.failed_proposal, count, "{change:?}");
    }
    let one = explanations(&mut world, GATEWAY_SIDE).remove(0);
    assert_eq!(one.reason, "the peer speaks IKEv1, and here is only IKEv2");
    assert_eq!(
        (one.theirs.as_deref(), one.ours.as_deref()),
        (Some("IKEv1"), Some("IKEv2"))
    );
    assert_eq!(one.remote.as_deref(), Some("192.0.2.9:500"));
}
