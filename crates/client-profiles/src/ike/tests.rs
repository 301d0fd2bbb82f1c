//! The texts as far as Rust can read them; `tests/ikev2.py` gives them to strongSwan and plistlib.

use super::*;

fn networks() -> Vec<String> {
    vec!["10.2.0.0/16".into(), "2001:db8:2::/48".into()]
}

fn profile<'a>(networks: &'a [String], credential: Credential<'a>) -> Profile<'a> {
    let names = ("camera-17", "vpn.example.org");
    let random = [[1; 16], [2; 16], [3; 16], [0xff; 16]];
    Profile::new(names, networks, None, b"root", credential, random).unwrap()
}

const CERTIFICATE: Credential<'static> = Credential::Certificate {
    subject: "CN=camera-17",
    pkcs12: b"pkcs12",
};

#[test]
fn uuid_has_version_4_and_its_variant() {
    let text = Uuid::from_random([0xff; 16]).to_string();
    assert_eq!(text, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    let text = Uuid::from_random([0; 16]).to_string();
    assert_eq!(text, "00000000-0000-4000-8000-000000000000");
}

#[test]
fn name_with_special_characters_is_refused() {
    let networks = networks();
    for bad in [
        "", "a b", "a'b", "a\"b", "a<b", "a$b", "a\nb", "a{b", "a;b", "é",
    ] {
        for names in [(bad, "vpn.example.org"), ("camera-17", bad)] {
            let made = Profile::new(
                names,
                &networks,
                None,
                b"",
                Credential::Password,
                [[0; 16]; 4],
            );
            assert_eq!(made.err(), Some(ProfileError::Name(bad.into())));
        }
        let nets = [bad.to_owned()];
        let names = ("camera-17", "vpn.example.org");
        let random = [[0; 16]; 4];
        let made = Profile::new(names, &nets, None, b"", Credential::Password, random);
        assert!(made.is_err());
    }
    let long = "a".repeat(MAX_NAME + 1);
    assert!(is_plain(&long[1..]) && !is_plain(&long));
    let names = ("camera-17", "vpn.example.org");
    let made = Profile::new(names, &[], None, b"", Credential::Password, [[0; 16]; 4]);
    assert_eq!(made.err(), Some(ProfileError::NoNetwork));
}

#[test]
fn android_profile_is_json_with_the_credential() {
    let networks = networks();
    let text = profile(&networks, CERTIFICATE).android();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["type"], "ikev2-cert");
    assert_eq!(value["local"]["p12"], STANDARD.encode("pkcs12"));
    assert_eq!(value["remote"]["cert"], STANDARD.encode("root"));
    assert_eq!(value["split-tunneling"]["subnets"][1], "2001:db8:2::/48");
    let text = profile(&networks, Credential::Password).android();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["type"], "ikev2-eap");
    assert_eq!(value["local"]["eap_id"], "camera-17");
}

#[test]
fn profile_brackets_and_quotes_are_balanced() {
    let networks = networks();
    for credential in [CERTIFICATE, Credential::Password] {
        let profile = profile(&networks, credential);
        let (windows, swanctl) = (profile.windows(), profile.swanctl());
        let count = |text: &str, c| text.chars().filter(|other| *other == c).count();
        assert_eq!(count(&windows, '('), count(&windows, ')'));
        assert_eq!(count(&windows, '\'') % 2, 0);
        assert_eq!(count(&swanctl, '{'), count(&swanctl, '}'));
        let apple = profile.apple();
        for tag in ["dict", "array", "string", "data", "integer", "key"] {
            let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
            assert_eq!(apple.matches(&open).count(), apple.matches(&close).count());
        }
    }
}

#[test]
fn ml_kem_is_offered_to_clients_that_have_it() {
    let networks = networks();
    let profile = profile(&networks, CERTIFICATE);
    let (plain, with) = (profile.swanctl(), profile.swanctl_6());
    assert!(!plain.contains("mlkem"));
    for proposals in [
        "proposals = aes256gcm16-prfsha256-x25519-ke1_mlkem768,aes256gcm16-prfsha256-x25519,",
        "esp_proposals = aes256gcm16-x25519-ke1_mlkem768,aes256gcm16-x25519,",
    ] {
        assert!(with.contains(proposals), "{with}");
    }
    let apple = profile.apple();
    assert_eq!(apple.matches("<integer>36</integer>").count(), 1);
    assert!(apple.contains("<key>AllowPostQuantumKeyExchangeFallback</key><integer>1</integer>"));
    assert!(!profile.windows().to_lowercase().contains("mlkem"));
}

#[test]
fn client_asks_for_addresses_of_the_families_that_it_is_to_reach() {
    let asked = |networks: &[&str]| {
        let networks: Vec<String> = networks.iter().map(|&text| text.to_owned()).collect();
        let text = profile(&networks, CERTIFICATE).swanctl();
        let line = text.lines().find(|line| line.contains("vips = "));
        line.unwrap().trim().to_owned()
    };
    assert_eq!(asked(&["10.2.0.0/16"]), "vips = 0.0.0.0");
    assert_eq!(asked(&["2001:db8:2::/48"]), "vips = ::");
    assert_eq!(
        asked(&["2001:db8:2::/48", "10.2.0.0/16"]),
        "vips = 0.0.0.0,::"
    );
}

#[test]
fn password_profile_has_no_key_and_no_password() {
    let networks = networks();
    let profile = profile(&networks, Credential::Password);
    assert!(!profile.windows().contains("Pfx"));
    assert!(profile.windows().contains("-AuthenticationMethod Eap"));
    assert!(!profile.apple().contains("pkcs12"));
    assert!(profile.swanctl().contains("eap_id = camera-17"));
}
