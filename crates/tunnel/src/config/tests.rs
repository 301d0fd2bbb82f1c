use super::*;

pub(crate) const EXAMPLE: &str = include_str!("example.toml");

#[test]
fn example_configuration_is_accepted() {
    let config = StaticConfig::parse(EXAMPLE).unwrap();
    assert_eq!(config.path.mtu, 1500);
    assert!(config.sa.extended_sequence && config.interface.offload);
    assert!(
        !format!("{config:?}").contains("0102"),
        "keys are not shown"
    );
}

/// The example with further lines in two sections.
fn with(path: &str, sa: &str) -> Result<StaticConfig, ConfigError> {
    let text = EXAMPLE
        .replace("[sa]", &format!("{path}\n[sa]\n{sa}"))
        .replace("addresses = [\"10.8.0.1/24\"]", "")
        .replace("routes = [\"10.2.0.0/16\"]", "");
    StaticConfig::parse(&text)
}

#[test]
fn mode_and_carrier_are_read_and_conflicts_refused() {
    let carrier = |path, sa| with(path, sa).unwrap().encapsulation();
    assert_eq!(carrier("", ""), Encapsulation::Udp);
    assert_eq!(
        carrier("encapsulation = \"none\"", "mode = \"transport\""),
        Encapsulation::None
    );
    let dscp = |path| with(path, "").unwrap().path.dscp;
    assert_eq!(dscp(""), DscpConfig::Fixed(0));
    assert_eq!(dscp("dscp = \"copy\""), DscpConfig::Copy);
    assert_eq!(dscp("dscp = 63"), DscpConfig::Fixed(63));
    assert!(with("dscp = 64", "").is_err());

    let ah = EXAMPLE.replace(
        "encryption = \"aes-128-gcm\"",
        "protocol = \"ah\"\nintegrity = \"hmac-sha1-96\"",
    );
    let config = StaticConfig::parse(&ah).unwrap();
    assert_eq!(config.encapsulation(), Encapsulation::None);
    let in_udp = ah.replace("[sa]", "encapsulation = \"udp\"\n[sa]");
    assert!(matches!(
        StaticConfig::parse(&in_udp),
        Err(ConfigError::AhInUdp)
    ));
    assert!(matches!(
        with("", "protocol = \"ah\""),
        Err(ConfigError::AhAlgorithms)
    ));
    let transport = EXAMPLE.replace("[sa]", "[sa]\nmode = \"transport\"");
    assert!(matches!(
        StaticConfig::parse(&transport),
        Err(ConfigError::InnerAddresses)
    ));
    let anywhere = EXAMPLE
        .replace("192.0.2.1:4500", "0.0.0.0")
        .replace("[sa]", "encapsulation = \"none\"\n[sa]");
    assert!(matches!(
        StaticConfig::parse(&anywhere),
        Err(ConfigError::Wildcard(_))
    ));
}

#[test]
fn time_beyond_a_day_is_refused() {
    let rekey = |lines: &str| StaticConfig::parse(&format!("{EXAMPLE}\n[rekey]\n{lines}"));
    assert_eq!(rekey("").unwrap().rekey.switch_after.as_secs(), 2);
    let timing = rekey("switch_after = 0.5\ndrain = 86400").unwrap().rekey;
    assert_eq!(timing.switch_after.as_millis(), 500);
    for wrong in ["drain = -1", "drain = 86401", "drain = nan"] {
        assert!(rekey(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn configuration_error_names_its_line() {
    let wrong = |from: &str, to: &str, expected: &str| {
        assert!(EXAMPLE.contains(from));
        let error = StaticConfig::parse(&EXAMPLE.replace(from, to))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    wrong("aes-128-gcm", "rot13", "line 11");
    wrong("10.2.0.0/16", "10.2.0.0/33", "no prefix of 33 bits");
    wrong("0x1001", "255", "SPIs below 256 are reserved");
    wrong("1213\" }\ninbound", "121\" }\ninbound", "hexadecimal");
    wrong("192.0.2.2:4500", "[::1]:4500", "different address families");
    wrong(
        "{ spi = 0x1002, encryption_key = \"10",
        "{ spi = 0x1002, encryption_key = \"00",
        "nonces would repeat",
    );
    wrong("aes-128-gcm", "aes-128-cbc", "integrity");
    wrong("[path]", "[paths]", "unknown field");
}

#[test]
fn kernel_backend_refuses_unsupported_settings() {
    let of = |path: &str, sa: &str, end: &str| {
        let text = EXAMPLE
            .replace("[sa]", &format!("{path}\n[sa]\n{sa}"))
            .replace("addresses = [\"10.8.0.1/24\"]", "")
            .replace("routes = [\"10.2.0.0/16\"]", "");
        let end = end.replace("POLICY", "[[policy]]\nlocal = ");
        let text = format!("{text}\n{end}");
        let user = StaticConfig::parse(&text);
        assert!(user.is_ok(), "our own data plane can: {user:?}");
        StaticConfig::parse(&format!("backend = \"kernel\"\n{text}"))
    };
    let v6 = "POLICY \"fd01::/64\"\nremote = \"fd02::/64\"";
    let mixed = "POLICY \"fd01::/64\"\nremote = \"10.2.0.0/16\"";
    for (path, sa, end) in [
        ("", "", ""),
        ("", "replay_window = 4096", ""),
        ("dscp = \"copy\"", "", ""),
        ("", "", v6),
    ] {
        let taken = of(path, sa, end);
        assert!(taken.is_ok(), "{path} {sa} {end}: {taken:?}");
    }
    for (path, sa, end) in [
        ("", "replay_window = 4097", ""),
        ("dscp = 10", "", ""),
        ("", "", mixed),
        ("", "mode = \"transport\"", v6),
        ("", "", "[debug]\ncapture = \"inner.pcapng\""),
    ] {
        let refused = of(path, sa, end);
        assert!(
            matches!(refused, Err(ConfigError::Kernel(_))),
            "{path} {sa} {end}: {refused:?}"
        );
    }
    let wildcard = EXAMPLE.replace("192.0.2.1:4500", "0.0.0.0:4500");
    assert!(StaticConfig::parse(&wildcard).is_ok());
    let refused = StaticConfig::parse(&format!("backend = \"kernel\"\n{wildcard}"));
    assert!(matches!(refused, Err(ConfigError::Wildcard(_))));
}

#[test]
fn several_workers_are_refused_where_they_cannot_share() {
    let of = |interface: &str, path: &str, end: &str| {
        let text = EXAMPLE.replace("[interface]\n", &format!("[interface]\n{interface}\n"));
        let text = text.replace("[path]\n", &format!("[path]\n{path}\n"));
        StaticConfig::parse(&format!("{text}\n{end}"))
    };
    assert_eq!(of("", "", "").unwrap().interface.workers.get(), 1);
    assert_eq!(
        of("workers = 4", "", "").unwrap().interface.workers.get(),
        4
    );
    for number in ["0", "65", "-1", "\"all\""] {
        let refused = of(&format!("workers = {number}"), "", "").unwrap_err();
        assert!(
            matches!(refused, ConfigError::Syntax(_)),
            "{number}: {refused}"
        );
    }
    let capture = "[debug]\ncapture = \"inner.pcapng\"";
    let raw = "encapsulation = \"none\"";
    for (path, end) in [(raw, ""), ("", capture)] {
        assert!(of("", path, end).is_ok(), "{path} {end}");
        let refused = of("workers = 2", path, end).unwrap_err();
        assert!(
            matches!(refused, ConfigError::Workers(_)),
            "{path} {end}: {refused}"
        );
    }
}
