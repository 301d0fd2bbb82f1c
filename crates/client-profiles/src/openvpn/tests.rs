use std::path::Path;

use super::settings::default_verifier;
use super::*;

fn settings(cipher: &str) -> Settings {
    Settings {
        server: "vpn.example.org".into(),
        port: 1194,
        transport: Transport::Udp,
        ipv6: false,
        device: Device::Tun,
        network: "10.8.0.0/24".parse().unwrap(),
        bridge: None,
        cipher: cipher.parse().unwrap(),
        verifier: default_verifier(),
        own_control_keys: true,
        guard: true,
    }
}

const CHAIN: &str = "-----BEGIN CERTIFICATE-----\nLEAF\n-----END CERTIFICATE-----\n\
     -----BEGIN CERTIFICATE-----\nDEVICES\n-----END CERTIFICATE-----\n";

fn certificates() -> Certificates<'static> {
    Certificates {
        root_pem: "ROOT\n",
        chain_pem: CHAIN,
    }
}

fn server_of(settings: &Settings) -> Zeroizing<String> {
    server(settings, certificates(), "KEY\n", None)
}

fn device_of(settings: &Settings) -> Zeroizing<String> {
    let proof = Proof::Key("KEY\n");
    device("camera-17", settings, certificates(), proof, "CRYPT")
}

fn bridged(gateway: &str, pool: &str) -> Settings {
    Settings {
        device: Device::Tap,
        bridge: Some(Bridge {
            gateway: gateway.parse().unwrap(),
            pool: pool.parse().unwrap(),
        }),
        ..settings("AES-256-GCM")
    }
}

#[test]
fn network_unaligned_or_of_wrong_size_is_refused() {
    for good in ["10.8.0.0/24", "10.8.0.0/16", "192.0.2.8/29"] {
        let network: Network = good.parse().unwrap();
        assert_eq!(String::from(network), good);
    }
    for bad in [
        "10.8.0.0",
        "10.8.0.1/24",
        "10.0.0.0/15",
        "10.8.0.0/30",
        "x/24",
        "::/24",
        "",
    ] {
        assert!(bad.parse::<Network>().is_err(), "{bad}");
    }
    let network: Network = "10.8.0.0/20".parse().unwrap();
    assert_eq!(network.mask().to_string(), "255.255.240.0");
}

#[test]
fn cipher_outside_the_lists_is_refused() {
    assert!(!"aes-256-gcm".parse::<DataCipher>().unwrap().is_research());
    assert!(
        "indect-128-cbc"
            .parse::<DataCipher>()
            .unwrap()
            .is_research()
    );
    for bad in [
        "AES-128-CBC",
        "BF-CBC",
        "none",
        "INDECT-128-CTR",
        "INDECT-128-ECB",
    ] {
        assert!(bad.parse::<DataCipher>().is_err(), "{bad}");
    }
}

#[test]
fn research_cipher_alone_brings_provider_and_warning() {
    for (cipher, research) in [("AES-256-GCM", false), ("INDECT-320-CBC", true)] {
        let settings = settings(cipher);
        for text in [server_of(&settings), device_of(&settings)] {
            assert!(text.contains(&format!("\ndata-ciphers {cipher}\n")));
            assert_eq!(
                text.contains("\nproviders default cordon_ibc_openvpn\n"),
                research
            );
            assert_eq!(text.contains("# WARNING"), research);
            for block in [
                "<ca>\nROOT\n</ca>",
                "<cert>\n-----BEGIN CERTIFICATE-----\nLEAF\n",
                "<key>\nKEY\n</key>",
            ] {
                assert!(text.contains(block), "{}", *text);
            }
        }
    }
}

#[test]
fn server_and_device_check_purpose_and_name_of_each_other() {
    let settings = settings("AES-256-GCM");
    let server = server_of(&settings);
    assert!(server.contains("\nremote-cert-eku 1.3.6.1.5.5.7.3.17\n"));
    assert!(server.contains("\ncrl-verify crl.pem\n"));
    let device = device_of(&settings);
    assert!(device.contains("\nremote-cert-tls server\nverify-x509-name vpn.example.org name\n"));
}

#[test]
fn transport_and_family_give_the_names_that_openvpn_has_for_them() {
    for (transport, ipv6, at_server, at_device, notifies) in [
        (Transport::Udp, false, "udp", "udp", true),
        (Transport::Udp, true, "udp6", "udp", true),
        (Transport::Tcp, false, "tcp-server", "tcp-client", false),
        (Transport::Tcp, true, "tcp6-server", "tcp-client", false),
    ] {
        let settings = Settings {
            transport,
            ipv6,
            ..settings("AES-256-GCM")
        };
        let server = server_of(&settings);
        assert!(server.contains(&format!("\nproto {at_server}\nport 1194\n")));
        // OpenVPN takes it for UDP only.
        assert_eq!(server.contains("\nexplicit-exit-notify"), notifies);
        assert!(device_of(&settings).contains(&format!("\nproto {at_device}\n")));
    }
}

#[test]
fn ethernet_has_a_pool_of_its_own_or_that_of_a_bridge() {
    let plain = Settings {
        device: Device::Tap,
        ..settings("AES-256-GCM")
    };
    plain.check().unwrap();
    let server = server_of(&plain);
    assert!(server.contains("\ndev tap\nserver 10.8.0.0 255.255.255.0\n"));
    assert!(!server.contains("topology"));
    assert!(device_of(&plain).contains("\ndev tap\n"));
    let bridged = bridged("10.8.0.1", "10.8.0.128-10.8.0.191");
    bridged.check().unwrap();
    let wanted = "\nserver-bridge 10.8.0.1 255.255.255.0 10.8.0.128 10.8.0.191\n";
    let server = server_of(&bridged);
    assert!(server.contains(wanted) && server.contains("\ndev tap-cordon\ndev-type tap\n"));
}

#[test]
fn bridge_that_does_not_fit_its_network_is_refused() {
    let ip_packets = Settings {
        device: Device::Tun,
        ..bridged("10.8.0.1", "10.8.0.128-10.8.0.191")
    };
    assert!(ip_packets.check().unwrap_err().contains("Ethernet"));
    for (gateway, pool) in [
        ("10.8.1.1", "10.8.0.128-10.8.0.191"),
        ("10.8.0.0", "10.8.0.128-10.8.0.191"),
        ("10.8.0.1", "10.8.0.128-10.8.0.255"),
        ("10.8.0.1", "10.8.0.128-10.9.0.1"),
    ] {
        let refused = bridged(gateway, pool).check().unwrap_err();
        assert!(refused.contains("is no host of the network"), "{refused}");
    }
    let own = bridged("10.8.0.130", "10.8.0.128-10.8.0.191").check();
    assert!(own.unwrap_err().contains("among the addresses of devices"));
    for bad in ["10.8.0.9-10.8.0.2", "10.8.0.2", "10.8.0.2-", "a-b"] {
        assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
    }
}

#[test]
fn guard_and_keys_of_devices_are_in_configurations_that_have_them() {
    let with = settings("AES-256-GCM");
    let without = Settings {
        own_control_keys: false,
        guard: false,
        ..with.clone()
    };
    let (new, old) = (
        server_of(&with),
        server(&without, certificates(), "KEY", Some("SHARED")),
    );
    for line in [
        "\nmanagement-client-auth\n",
        "\nmanagement-hold\nmanagement-signal\n",
        "\ntls-crypt-v2 tls-crypt-v2.key force-cookie\n",
        "openvpn-verify-key --refused refused-devices.txt\"\n",
    ] {
        assert!(new.contains(line) && !old.contains(line), "{line}");
    }
    assert!(old.contains("<tls-crypt>\nSHARED\n</tls-crypt>"));
    assert!(device_of(&with).contains("<tls-crypt-v2>\nCRYPT\n</tls-crypt-v2>"));
    assert!(device_of(&without).contains("<tls-crypt>\nCRYPT\n</tls-crypt>"));
}

#[test]
fn settings_of_a_folder_from_before_keep_their_meaning() {
    let text = r#"{"server":"vpn.example.org","port":1194,"network":"10.8.0.0/24","cipher":"AES-256-GCM"}"#;
    let known: Settings = serde_json::from_str(text).unwrap();
    let before = Settings {
        own_control_keys: false,
        guard: false,
        ..settings("AES-256-GCM")
    };
    assert_eq!(known, before);
    let new = bridged("10.8.0.1", "10.8.0.128-10.8.0.191");
    let text = serde_json::to_string(&new).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), new);
}

#[test]
fn profile_for_a_token_names_it_and_has_no_key() {
    let module = Path::new("/usr/lib/softhsm/libsofthsm2.so");
    let id = r"SoftHSM\x20project/SoftHSM\x20v2/caec5c924f5cb86f/cameras/01";
    let token = Token::new(module, id).unwrap();
    let proof = Proof::Token(&token);
    let text = device(
        "camera-17",
        &settings("AES-256-GCM"),
        certificates(),
        proof,
        "CRYPT",
    );
    assert!(text.contains("\npkcs11-providers '/usr/lib/softhsm/libsofthsm2.so'\n"));
    assert!(text.contains(&format!("\npkcs11-id '{id}'\n")));
    // OpenVPN takes neither of them beside a token.
    assert!(!text.contains("<key>") && !text.contains("<cert>"));
    assert!(text.contains("<extra-certs>\n-----BEGIN CERTIFICATE-----\nDEVICES\n"));
    assert!(!text.contains("LEAF"));
}

#[test]
fn token_whose_name_would_break_the_configuration_is_refused() {
    let module = Path::new("/usr/lib/module.so");
    for bad in [
        "",
        "a\"b",
        "a b",
        "a\nscript-security 3",
        "a'b",
        &"x".repeat(231),
        "pkcs11:id=%01;pin-value=1234",
        "pkcs11:id=%01?pin-source=/etc/pin",
    ] {
        assert!(Token::new(module, bad).is_err(), "{bad}");
    }
    for bad in ["module.so", "/a b", "/a\"", ""] {
        assert!(Token::new(Path::new(bad), "id").is_err(), "{bad}");
    }
}
