use super::kind::MAX_NAME;
use super::*;
use crate::key::KeyAlgorithm;

fn definition(profile: Profile) -> &'static SharedDefinition {
    profile.definition().unwrap()
}

#[test]
fn every_built_in_file_is_a_profile_and_every_profile_has_a_file() {
    for text in built_in::FILES {
        let definition = Definition::read(text).unwrap();
        let found = built_in::by_name(definition.name()).unwrap();
        assert_eq!(**found, definition);
        assert!(text.len() <= MAX_PROFILE_TEXT, "{}", definition.name());
    }
    assert_eq!(built_in().count(), built_in::FILES.len());
    for profile in Profile::ALL {
        let definition = definition(profile);
        match definition.issuer() {
            Issuer::Each => assert!(matches!(profile, Profile::OcspSigner(_))),
            Issuer::Itself => assert_eq!(profile, Profile::Root),
            Issuer::Root => assert_eq!(profile.issued_by(), None),
            Issuer::Authority(kind) => assert_eq!(profile.issued_by(), Some(kind)),
        }
        if !matches!(profile, Profile::OcspSigner(_) | Profile::IssuingCa(_)) {
            assert_eq!(definition.profile(), Some(profile));
        }
    }
    for (definition, _) in built_in() {
        if let Some(profile @ Profile::Named { .. }) = definition.profile() {
            assert_eq!(profile.definition().unwrap(), definition);
            assert!(profile.is_on_request());
        }
    }
}

#[test]
fn services_roles_and_evidence_are_told_apart_by_usage() {
    let has = |profile: Profile, usage| definition(profile).purposes().contains(&usage);
    for profile in Profile::ALL {
        let receipts = profile == Profile::ServiceSigner;
        assert_eq!(has(profile, eku::RECEIPT_SIGNING), receipts, "{profile}");
        let bundles = profile == Profile::TrustBundleSigner;
        assert_eq!(
            has(profile, eku::TRUST_BUNDLE_SIGNING),
            bundles,
            "{profile}"
        );
    }
    assert!(has(Profile::Device, eku::EMAIL_PROTECTION));
    assert!(!has(Profile::VpnDevice, eku::EMAIL_PROTECTION));
    assert!(has(Profile::VpnDevice, eku::IPSEC_IKE));
}

#[test]
fn keys_for_signing_evidence_are_made_by_their_owners() {
    for (definition, _) in built_in() {
        for key in KeyAlgorithm::ALL {
            let usage = definition.key_usage(key);
            let signs = usage.is_some_and(|usage| usage.non_repudiation());
            assert!(!(signs && definition.centre_makes_key()), "{definition:?}");
        }
    }
    assert!(definition(Profile::VpnDevice).centre_makes_key());
    assert!(!definition(Profile::Device).centre_makes_key());
}

#[test]
fn only_administrators_recover_files() {
    for (definition, _) in built_in() {
        let of_administrators = definition.name().starts_with("administrator");
        assert_eq!(definition.is_for_administrators(), of_administrators);
    }
}

#[test]
fn encipherment_only_where_the_key_can() {
    for (definition, _) in built_in() {
        for key in KeyAlgorithm::ALL {
            let Some(usage) = definition.key_usage(key) else {
                continue;
            };
            let name = definition.name();
            assert!(key.is_rsa() || !usage.key_encipherment(), "{name} {key}");
            assert!(key.is_rsa() || !usage.data_encipherment(), "{name} {key}");
            assert!(key.is_ecdh() || !usage.key_agreement(), "{name} {key}");
            assert_eq!(usage.key_cert_sign(), definition.is_ca());
        }
    }
}

/// A profile of a name that is not built in, with one line changed.
fn with(line: &str, changed: &str) -> Result<Definition, ProfileError> {
    const TEXT: &str = r#"
name = "patrol-login"
issuer = "users"
clearance = "optional"
highest_clearance = 2
days = 90
[names]
uid = "required"
email = "optional"
[key_usage]
ecdsa = ["digitalSignature"]
[extended_key_usage]
purposes = ["clientAuth"]
"#;
    assert!(TEXT.contains(line), "{line}");
    Definition::parse(&TEXT.replace(line, changed))
}

#[test]
fn mistakes_are_named_with_place_value_and_advice() {
    with("days = 90", "days = 91").unwrap();
    for (line, changed, expected) in [
        ("days = 90", "days = 0", "days = 0: is no lifetime"),
        ("days = 90", "days = 3651", "days = 3651: is no lifetime"),
        (
            "days = 90",
            "day = 90",
            "line 6, column 1: unknown field `day`",
        ),
        (
            "days = 90",
            "days = \"90\"",
            "line 6, column 8: invalid type",
        ),
        (
            "\"optional\"\nh",
            "\"maybe\"\nh",
            "line 4, column 13: unknown variant `maybe`",
        ),
        (
            "highest_clearance = 2",
            "highest_clearance = 5",
            "highest_clearance = 5: is no clearance",
        ),
        (
            "clearance = \"optional\"",
            "clearance = \"none\"",
            "highest_clearance = 2: such a certificate has no",
        ),
        (
            "\"users\"",
            "\"people\"",
            "issuer = \"people\": is no authority",
        ),
        (
            "\"digitalSignature\"",
            "\"keyEncipherment\"",
            "key_usage.ecdsa = \"keyEncipherment\": is no usage",
        ),
        (
            "\"digitalSignature\"",
            "",
            "key_usage.ecdsa = []: a key without any usage",
        ),
        (
            "\"clientAuth\"",
            "\"codeSign\"",
            "extended_key_usage.purposes = \"codeSign\": is no purpose",
        ),
        (
            "\"clientAuth\"",
            "\"clientAuth\", \"clientAuth\"",
            "extended_key_usage.purposes = \"clientAuth\": is there twice",
        ),
        (
            "\"clientAuth\"",
            "",
            "extended_key_usage.purposes: every certificate",
        ),
        (
            "[names]",
            "[authority]\npath_length = 0\n[names]",
            "key_usage.ecdsa = \"digitalSignature\": is no usage",
        ),
    ] {
        let error = with(line, changed).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(!error.advice.is_empty());
    }
    assert!(Definition::parse(&"#".repeat(MAX_PROFILE_TEXT + 1)).is_err());
}

/// Purposes that belong to another authority.
#[test]
fn nobody_writes_a_profile_beyond_its_authority() {
    let purposes = |issuer: &str, purposes: &str, rest: &str| {
        Definition::parse(&format!(
            "name = \"x\"\nissuer = \"{issuer}\"\n[names]\nuid = \"required\"\n{rest}[key_usage]
            rsa = [\"digitalSignature\"]\n[extended_key_usage]\ncritical = true\npurposes = [{purposes}]"
        ))
    };
    for (issuer, good) in [
        ("users", "clientAuth"),
        ("users", "documentSigning"),
        ("users", "1.3.6.1.4.1.4711.7"),
        ("devices", "ipsecIKE"),
        ("services", "timeStamping"),
    ] {
        purposes(issuer, &format!("{good:?}"), "").unwrap();
    }
    for (issuer, bad) in [
        ("users", "serverAuth"),
        ("users", "OCSPSigning"),
        ("users", "msEFSRecovery"),
        ("users", "anyExtendedKeyUsage"),
        ("users", "receiptSigning"),
        ("users", "cmcRA"),
        ("users", "timeStamping"),
        // Code signing, by its number.
        ("users", "1.3.6.1.5.5.7.3.3"),
        // Certificate request agent of Microsoft, who enrols on behalf of others.
        ("users", "1.3.6.1.4.1.311.20.2.1"),
        ("users", "1.3.6.1.4.1.99999.1.5.1"),
        // By numbers that have names.
        ("users", "1.3.6.1.5.5.7.3.1"),
        // Signs evidence.
        ("devices", "emailProtection"),
        ("devices", "smartCardLogon"),
        ("services", "serverAuth"),
        ("services", "emailProtection"),
        ("services", "clientAuth"),
        ("root", "clientAuth"),
        ("itself", "clientAuth"),
        ("each", "clientAuth"),
    ] {
        purposes(issuer, &format!("{bad:?}"), "").unwrap_err();
    }
    // Both names of the account, or none.
    let logon = "\"clientAuth\", \"smartCardLogon\"";
    purposes("users", logon, "").unwrap_err();
    purposes("users", logon, "principal = \"required\"\n").unwrap_err();
    let both = "principal = \"required\"\nsecurity_identifier = \"required\"\n";
    purposes("users", logon, both).unwrap();
    purposes("users", "\"clientAuth\"", both).unwrap_err();
    with("uid = \"required\"", "uid = \"optional\"").unwrap_err();
    with("patrol-login", "Patrol").unwrap_err();
    with("patrol-login", "../patrol").unwrap_err();
    with("patrol-login", &"x".repeat(MAX_NAME + 1)).unwrap_err();
    with("patrol-login", &"x".repeat(MAX_NAME)).unwrap();
    let stamps = "critical = true\ntime_stamping_among_others = true\npurposes = [\"clientAuth\"]";
    with("purposes = [\"clientAuth\"]", stamps).unwrap_err();
    let centre = "centre_makes_key = true\ndays = 90";
    with("days = 90", centre).unwrap();
}

#[test]
fn a_built_in_profile_may_only_become_narrower() {
    let changed = |name: &str, line: &str, to: &str| {
        let mut files = built_in();
        let (_, text) = files.find(|(one, _)| one.name() == name).unwrap();
        assert!(text.contains(line), "{name}: {line}");
        Definition::parse(&text.replace(line, to))
    };
    changed("user", "  \"msEFS\",\n", "").unwrap();
    changed(
        "user",
        "clearance = \"optional\"",
        "clearance = \"required\"\nhighest_clearance = 3",
    )
    .unwrap();
    changed(
        "user",
        "uid = \"required\"\nemail = \"optional\"",
        "uid = \"required\"\nemail = \"required\"",
    )
    .unwrap();
    changed(
        "device",
        ", \"nonRepudiation\", \"keyAgreement\"",
        ", \"keyAgreement\"",
    )
    .unwrap();
    changed(
        "network server",
        "host = \"required\"",
        "host = \"required\"\n",
    )
    .unwrap();
    for (name, line, to) in [
        ("user", "  \"msEFS\",\n", "  \"msEFSRecovery\",\n"),
        ("user", "issuer = \"users\"", "issuer = \"devices\""),
        (
            "user",
            "clearance = \"optional\"",
            "clearance = \"optional\"\ncentre_makes_key = true",
        ),
        ("user", "uid = \"required\"", "uid = \"optional\""),
        (
            "user-centre-key",
            "rsa = [\"digitalSignature\"",
            "rsa = [\"digitalSignature\", \"nonRepudiation\"",
        ),
        (
            "mail-signing",
            "email = \"required\"",
            "email = \"optional\"",
        ),
        (
            "mail-signing",
            "clearance = \"none\"",
            "clearance = \"optional\"",
        ),
        ("smart-card-logon", "security_identifier = \"required\"", ""),
        (
            "vpn device",
            "\"ipsecIKE\"",
            "\"ipsecIKE\", \"emailProtection\"",
        ),
        (
            "device",
            "ecdsa = [\"digitalSignature\", \"nonRepudiation\", \"keyAgreement\"]",
            "ecdsa = [\"digitalSignature\"]\n[authority]\npath_length = 0",
        ),
        // The site's own services.
        ("gateway", "issuer", "issuer"),
        ("server", "issuer", "issuer"),
        ("service signer", "issuer", "issuer"),
        ("OCSP signer", "issuer", "issuer"),
        ("root", "issuer", "issuer"),
        ("issuing authority", "issuer", "issuer"),
        ("ceremony signer", "issuer", "issuer"),
    ] {
        let refused = changed(name, line, to);
        assert!(refused.is_err(), "{name}: {line} -> {to}");
    }
}

#[test]
fn who_a_profile_is_for_does_not_depend_on_its_purposes() {
    for name in ["administrator", "administrator-centre-key"] {
        let mut files = built_in();
        let (_, text) = files.find(|(one, _)| one.name() == name).unwrap();
        let recovery = "  \"msEFSRecovery\",\n";
        let only = "administrators_only = true\n";
        for left_out in [recovery, only] {
            assert!(text.contains(left_out), "{name}: {left_out}");
        }
        // Neither the purpose nor the line itself.
        for file in [
            text.replace(recovery, ""),
            text.replace(only, ""),
            text.replace(only, "").replace(recovery, ""),
        ] {
            assert!(Definition::parse(&file).unwrap().is_for_administrators());
        }
        let others = text.replace("administrators_only = true", "administrators_only = false");
        let error = Definition::parse(&others).unwrap_err();
        assert_eq!(error.place, "administrators_only");
    }
    let only = |changed: &str| with("days = 90", changed).map(|one| one.is_for_administrators());
    assert!(!only("days = 90").unwrap());
    assert!(!only("administrators_only = false").unwrap());
    assert!(only("administrators_only = true").unwrap());
    let device = "name = \"x\"\nissuer = \"devices\"\nadministrators_only = true\n[key_usage]\n\
                  rsa = [\"digitalSignature\"]\n[extended_key_usage]\npurposes = [\"clientAuth\"]";
    assert_eq!(
        Definition::parse(device).unwrap_err().place,
        "administrators_only"
    );
}

#[test]
fn a_profile_has_no_character_that_is_not_seen() {
    for good in ["# č, 警察, ü\n", "# tab\there\n", "# Windows\r\n"] {
        with("days = 90", &format!("{good}days = 90")).unwrap();
    }
    for (bad, code) in [
        // Bidirectional controls: what is shown is in another order than what is read.
        ('\u{202e}', "U+202E"),
        ('\u{2066}', "U+2066"),
        ('\u{61c}', "U+061C"),
        ('\u{200f}', "U+200F"),
        // C1: a terminal may take U+009B for the beginning of a command.
        ('\u{85}', "U+0085"),
        ('\u{9b}', "U+009B"),
        ('\u{7f}', "U+007F"),
        ('\0', "U+0000"),
        ('\u{1b}', "U+001B"),
        // Nothing is drawn for these.
        ('\u{200b}', "U+200B"),
        ('\u{ad}', "U+00AD"),
        ('\u{feff}', "U+FEFF"),
        ('\u{2028}', "U+2028"),
        ('\u{3164}', "U+3164"),
        ('\u{115f}', "U+115F"),
        ('\u{fe0f}', "U+FE0F"),
        ('\u{e0041}', "U+E0041"),
        ('\u{e0100}', "U+E0100"),
        // The end of a line that only some show as one.
        ('\r', "U+000D"),
    ] {
        let error = with("days = 90", &format!("# a{bad}b\ndays = 90")).unwrap_err();
        assert_eq!(
            (error.value.as_str(), error.place.as_str()),
            (code, "line 6, column 4")
        );
    }
    // Written as escapes they reach no message.
    for escaped in [
        "\"\\u202e\" = 1",
        "issuer = \"\\u202e\"",
        "clearance = \"\\u009b\"",
    ] {
        let error = with("days = 90", escaped).unwrap_err().to_string();
        assert!(!error.chars().any(untrusted_text::is_hidden), "{error:?}");
    }
}
