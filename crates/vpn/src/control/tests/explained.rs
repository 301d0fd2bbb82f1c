//! Set-ups that are wrong on one side, and what either side says of them: the setting and both values.

use std::os::unix::fs::PermissionsExt as _;

use super::certificates::{PEER, Site};
use super::*;
use crate::report::Explanation;

/// Replacements in a text.
type Changes<'a> = &'a [(&'a str, &'a str)];

/// A wrong set-up: what is changed on either side, whose explanation is looked at, and what it has in setting, theirs
/// and ours.
type Case<'a> = (Changes<'a>, Changes<'a>, usize, [&'a str; 3]);

const CAMERA_SIDE: usize = 0;
const GATEWAY_SIDE: usize = 1;

const SMALL: &str =
    "[{ encryption = [\"aes-128-gcm\"], prf = [\"hmac-sha2-256\"], groups = [\"x25519\"] }]";
const LARGE: &str =
    "[{ encryption = [\"aes-256-gcm\"], prf = [\"hmac-sha2-256\"], groups = [\"x25519\"] }]";
const OTHER_PRF: &str =
    "[{ encryption = [\"aes-128-gcm\"], prf = [\"hmac-sha2-512\"], groups = [\"x25519\"] }]";
const OTHER_GROUP: &str =
    "[{ encryption = [\"aes-128-gcm\"], prf = [\"hmac-sha2-256\"], groups = [\"p384\"] }]";

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

/// Lets the peer come, and looks for what the case expects.
fn check(folder: tempfile::TempDir, texts: [&str; 2], case: &Case<'_>, seconds: u64) {
    let (ours, theirs, at, [setting, value, own]) = case;
    write_secrets(folder.path());
    let texts = [changed(texts[0], ours), changed(texts[1], theirs)];
    let mut world = World::in_folder(folder, &texts[0], &texts[1]);
    world.run(Duration::from_secs(seconds));
    let found = explanations(&mut world, *at);
    let has =
        |text: &Option<String>, part: &str| text.as_ref().is_some_and(|text| text.contains(part));
    let fits = |one: &&Explanation| {
        has(&one.setting, setting) && has(&one.theirs, value) && has(&one.ours, own)
    };
    assert!(
        found.iter().any(|one| fits(&one)),
        "{ours:?} {theirs:?} at {at}: {found:#?}"
    );
}

#[test]
fn wrong_identity_secret_algorithm_or_network_is_named_with_both_values() {
    let ppk = |id: &str, file: &str| {
        format!("psk_file = \"psk\"\nppk = {{ id = \"{id}\", secret_file = \"{file}\" }}")
    };
    let (lab, other, office) = (ppk("lab", "ppk"), ppk("lab", "ppk2"), ppk("office", "ppk"));
    let ike = |proposal: &str| format!("psk_file = \"psk\"\nike = {proposal}");
    let (small, large) = (ike(SMALL), ike(LARGE));
    let (other_prf, other_group) = (ike(OTHER_PRF), ike(OTHER_GROUP));
    let esp = |cipher: &str| format!("name = \"net\"\nesp = [{{ encryption = [\"{cipher}\"] }}]");
    let (esp_small, esp_large) = (esp("aes-128-gcm"), esp("chacha20-poly1305"));
    let psk = "psk_file = \"psk\"";
    let refuses = "refuses with AUTHENTICATION_FAILED";
    let cases: &[Case<'_>] = &[
        (
            &[("camera-17", "camera-18")],
            &[],
            GATEWAY_SIDE,
            ["`remote_id` here", "camera-18", "camera-17"],
        ),
        (
            &[("camera-17", "camera-18")],
            &[],
            CAMERA_SIDE,
            [
                "`local_id`",
                refuses,
                "camera-18.example.org with a shared secret, towards",
            ],
        ),
        (
            &[],
            &[("camera-17", "camera-19")],
            GATEWAY_SIDE,
            ["`remote_id` here", "camera-17", "camera-19"],
        ),
        (
            &[("camera-17.example.org", "keyid:camera-17.example.org")],
            &[],
            GATEWAY_SIDE,
            ["`remote_id` here", "KEY_ID:camera-17", "FQDN:camera-17"],
        ),
        (
            &[("camera-17.example.org", "CN=camera-17")],
            &[],
            GATEWAY_SIDE,
            ["`remote_id` here", "CN=camera-17", "camera-17.example.org"],
        ),
        (
            &[("\"gateway.", "\"gate.")],
            &[],
            GATEWAY_SIDE,
            ["`local_id` here", "gate.example.org", "gateway.example.org"],
        ),
        (
            &[("\"gateway.", "\"gate.")],
            &[],
            CAMERA_SIDE,
            ["`local_id`", refuses, "gate.example.org"],
        ),
        (
            &[],
            &[("\"psk\"", "\"psk2\"")],
            GATEWAY_SIDE,
            [
                "`psk_file` here",
                "another secret",
                "connection \"cameras\"",
            ],
        ),
        (
            &[],
            &[("\"psk\"", "\"psk2\"")],
            CAMERA_SIDE,
            ["`psk_file`", refuses, "a shared secret"],
        ),
        (
            &[],
            &[(psk, &lab)],
            GATEWAY_SIDE,
            ["`ppk`", "none", "\"lab\""],
        ),
        (
            &[(psk, &lab)],
            &[],
            CAMERA_SIDE,
            ["`ppk`", "none", "\"lab\""],
        ),
        (
            &[(psk, &office)],
            &[(psk, &lab)],
            GATEWAY_SIDE,
            ["`ppk`", "\"office\"", "\"lab\""],
        ),
        (
            &[(psk, &other)],
            &[(psk, &lab)],
            GATEWAY_SIDE,
            [
                "`psk_file` here",
                "another PPK",
                "`ppk` of connection \"cameras\"",
            ],
        ),
        (
            &[(psk, &small)],
            &[(psk, &large)],
            GATEWAY_SIDE,
            ["`ike`", "AES_GCM_16_128", "AES_GCM_16_256"],
        ),
        (
            &[(psk, &small)],
            &[(psk, &large)],
            CAMERA_SIDE,
            ["`ike`", "NO_PROPOSAL_CHOSEN", "AES_GCM_16_128"],
        ),
        (
            &[(psk, &small)],
            &[(psk, &other_prf)],
            GATEWAY_SIDE,
            ["`ike`", "PRF_HMAC_SHA2_256", "PRF_HMAC_SHA2_512"],
        ),
        (
            &[(psk, &small)],
            &[(psk, &other_group)],
            GATEWAY_SIDE,
            ["`ike`", "CURVE25519", "ECP_384"],
        ),
        (
            &[("name = \"net\"", &esp_small)],
            &[("name = \"net\"", &esp_large)],
            GATEWAY_SIDE,
            ["`esp`", "AES_GCM_16_128", "CHACHA20_POLY1305"],
        ),
        (
            &[("name = \"net\"", &esp_small)],
            &[("name = \"net\"", &esp_large)],
            CAMERA_SIDE,
            ["`esp`", "NO_PROPOSAL_CHOSEN", "AES_GCM_16_128"],
        ),
        (
            &[("10.5.1.0/24", "10.7.1.0/24")],
            &[],
            GATEWAY_SIDE,
            ["`local` and `remote`", "10.7.1.0/24", "10.5.1.0/24"],
        ),
        (
            &[("10.5.1.0/24", "10.7.1.0/24")],
            &[],
            CAMERA_SIDE,
            [
                "`local` and `remote`",
                "TS_UNACCEPTABLE",
                "10.7.1.0/24 = 10.5.2.0/24",
            ],
        ),
        (
            &[],
            &[("10.5.2.0/24", "10.8.2.0/24")],
            GATEWAY_SIDE,
            ["`local` and `remote`", "10.5.2.0/24", "10.8.2.0/24"],
        ),
        (
            &[],
            &[("10.5.1.0/24", "2001:db8::/64")],
            GATEWAY_SIDE,
            ["`local` and `remote`", "10.5.1.0/24", "2001:db8::/64"],
        ),
        (
            &[],
            &[
                ("psk_file = \"psk\"\n", "psk_file = \"psk\"\npool = \"p\"\n"),
                (
                    "[[connection]]",
                    "[[pool]]\nname = \"p\"\naddresses = [\"10.5.1.0/24\"]\n[[connection]]",
                ),
                ("remote = [\"10.5.1.0/24\"]", ""),
            ],
            GATEWAY_SIDE,
            ["`pool`", "asks for none", "an address of the pool"],
        ),
        (
            &[],
            &[
                ("psk_file = \"psk\"\n", "psk_file = \"psk\"\npool = \"p\"\n"),
                (
                    "[[connection]]",
                    "[[pool]]\nname = \"p\"\naddresses = [\"10.5.1.0/24\"]\n[[connection]]",
                ),
                ("remote = [\"10.5.1.0/24\"]", ""),
            ],
            CAMERA_SIDE,
            ["`pool`", "FAILED_CP_REQUIRED", "10.5.1.0/24"],
        ),
        (
            &[
                ("local = [\"10.5.1.0/24\"]", ""),
                (psk, "psk_file = \"psk\"\nrequest = [\"ipv4\"]"),
            ],
            &[],
            CAMERA_SIDE,
            ["`pool`", "gave none", "asked for one"],
        ),
        (
            &[
                ("local = [\"10.5.1.0/24\"]", ""),
                (psk, "psk_file = \"psk\"\nrequest = [\"ipv6\"]"),
            ],
            &[
                ("psk_file = \"psk\"\n", "psk_file = \"psk\"\npool = \"p\"\n"),
                (
                    "[[connection]]",
                    "[[pool]]\nname = \"p\"\naddresses = [\"10.5.1.0/24\"]\n[[connection]]",
                ),
                ("remote = [\"10.5.1.0/24\"]", ""),
            ],
            GATEWAY_SIDE,
            ["`pool`", "asks for an IPv6 address", "none left"],
        ),
    ];
    for case in cases {
        check(tempfile::tempdir().unwrap(), [CAMERA, GATEWAY], case, 2);
    }
}

#[test]
fn wrong_proof_or_certificate_is_named_with_both_values() {
    let any = Site::gateway(&[("any", "")]);
    let demands = [
        ("kind = \"users\"", "`peer.kind` users"),
        ("domain = \"office.example.org\"", "`peer.domain` office"),
        ("min_clearance = 3", "`peer.min_clearance` 3"),
        ("unit = \"Traffic\"", "`peer.unit` Traffic"),
        ("authorities = [\"users.pem\"]", "`peer.authorities`"),
        (
            "pinned_keys = [\"0000000000000000000000000000000000000000000000000000000000000000\"]",
            "`peer.pinned_keys`",
        ),
    ];
    let site = || {
        let site = Site::new();
        site.camera("camera-17.cameras.example.org");
        let stranger = Site::new();
        let root = std::fs::read_to_string(stranger.folder.path().join("root.pem")).unwrap();
        std::fs::write(site.folder.path().join("other.pem"), root).unwrap();
        site.folder
    };
    for (demand, expected) in demands {
        let gateway = Site::gateway(&[("any", demand)]);
        let case: Case<'_> = (
            &[],
            &[],
            GATEWAY_SIDE,
            ["`peer` here", "certificate of CN=camera-17", expected],
        );
        check(site(), [PEER, &gateway], &case, 2);
    }
    let certificate = "certificate = \"peer.pem\"\nkey = \"peer.key\"";
    let secret = "local_id = \"camera-17.example.org\"\npsk_file = \"psk\"";
    let of_gateway = "certificate = \"gateway.pem\"\nkey = \"gateway.key\"";
    let wants_secret = format!("{of_gateway}\npsk_file = \"psk\"\npsk_proves = \"peer\"");
    let wants_login =
        format!("{of_gateway}\neap = {{ methods = [\"mschapv2\"], users_file = \"users\" }}");
    let one = "remote_id = \"camera-17.cameras.example.org\"";
    let (named, trust) = (
        "[[connection]]\nlocal_id = \"camera-17.cameras.example.org\"",
        "anchors = [\"root.pem\"]",
    );
    let other = "anchors = [\"other.pem\"]";
    let cases: &[Case<'_>] = &[
        (
            &[(certificate, secret)],
            &[],
            GATEWAY_SIDE,
            ["the proof", "a shared secret", "a certificate"],
        ),
        (
            &[("[[connection]]", named)],
            &[("remote_id = \"any\"", one), (of_gateway, &wants_secret)],
            GATEWAY_SIDE,
            ["the proof", "a certificate", "a shared secret"],
        ),
        (
            &[],
            &[(of_gateway, &wants_login)],
            GATEWAY_SIDE,
            ["the proof", "a certificate", "EAP"],
        ),
        (
            &[],
            &[
                (trust, other),
                ("intermediates = [\"devices.pem\"]", "intermediates = []"),
            ],
            GATEWAY_SIDE,
            [
                "`trust`",
                "signature on the certificate",
                "authorities of the connection",
            ],
        ),
        (
            &[
                (trust, other),
                ("intermediates = [\"devices.pem\"]", "intermediates = []"),
            ],
            &[],
            CAMERA_SIDE,
            [
                "`trust`",
                "signature on the certificate",
                "authorities of the connection",
            ],
        ),
        (
            &[("\"gateway.example.org\"", "\"*.office.test\"")],
            &[],
            CAMERA_SIDE,
            ["`remote_id` here", "gateway.example.org", "*.office.test"],
        ),
        (
            &[],
            &[("remote_id = \"any\"", "remote_id = \"CN=*, O=Police\"")],
            GATEWAY_SIDE,
            ["`remote_id` here", "CN=camera-17", "CN=*, O=Police"],
        ),
    ];
    for case in cases {
        check(site(), [PEER, &any], case, 2);
    }
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
