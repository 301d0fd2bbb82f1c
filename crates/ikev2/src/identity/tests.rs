use super::*;

fn id(kind: IdType, data: &[u8]) -> Identification {
    let data = data.to_vec();
    Identification { kind, data }
}

fn host(name: &str) -> Identification {
    Identification::fqdn(name)
}

fn mail(address: &str) -> Identification {
    id(IdType::RFC822_ADDR, address.as_bytes())
}

#[test]
fn other_spelling_of_an_identity_is_the_same_identity() {
    assert!(host("Camera-17.Police.test").is_same(&host("camera-17.police.test")));
    assert!(mail("anna@Police.TEST").is_same(&mail("anna@police.test")));
    assert_eq!(host("A.test").key(), host("a.test").key());
    for (one, two) in [
        // The local part is the mail host's business (RFC 5280 §7.5).
        (mail("Anna@police.test"), mail("anna@police.test")),
        (host("a.police.test"), host("a.police.test.")),
        (host("a.police.test"), host("a.police.test\0")),
        // Another type is another identity, whatever the bytes.
        (host("gateway"), id(IdType::KEY_ID, b"gateway")),
        (
            id(IdType::KEY_ID, b"Gateway"),
            id(IdType::KEY_ID, b"gateway"),
        ),
        (host("a@b.test"), mail("a@b.test")),
    ] {
        assert!(!one.is_same(&two), "{one} {two}");
        assert_ne!(one.key(), two.key(), "{one} {two}");
    }
}

#[test]
fn distinguished_names_are_compared_by_their_values() {
    // CN=gw as PrintableString and as UTF8String, and cn=GW.
    let name = |tag: u8, value: &[u8; 2]| {
        let der = b"\x30\x0d\x31\x0b\x30\x09\x06\x03\x55\x04\x03";
        id(
            IdType::DER_ASN1_DN,
            &[&der[..], &[tag, 2], &value[..]].concat(),
        )
    };
    let (printable, utf8) = (name(0x13, b"gw"), name(0x0c, b"GW"));
    assert!(printable.is_same(&utf8));
    assert_ne!(printable, utf8);
    assert!(!printable.is_same(&name(0x13, b"gx")));
    // Garbage is itself and nothing else.
    let garbage = id(IdType::DER_ASN1_DN, b"\x30\x03gw");
    assert!(garbage.is_same(&garbage) && !garbage.is_same(&printable));
}

#[test]
fn host_pattern_stands_for_one_label() {
    let pattern = IdPattern::HostIn("police.test".into());
    for good in ["gw.police.test", "CAMERA-17.Police.Test", "a_b.police.test"] {
        assert!(pattern.matches(&host(good)), "{good}");
    }
    let long = format!("{}.police.test", "a".repeat(64));
    for bad in [
        "police.test",
        ".police.test",
        "a.b.police.test",
        "gw.evilpolice.test",
        "gw.police.test.evil",
        "gw.police.test.",
        "gw.police.test\0.evil",
        "gw\0.police.test",
        "*.police.test",
        "g w.police.test",
        "g\u{456}.police.test",
        "gw@police.test",
        &long,
        "",
    ] {
        assert!(!pattern.matches(&host(bad)), "{bad:?}");
    }
    let label = format!("{}.police.test", "a".repeat(63));
    assert!(pattern.matches(&host(&label)));
    // The same text as another type of identity.
    assert!(!pattern.matches(&mail("gw.police.test")));
    assert!(!pattern.matches(&id(IdType::KEY_ID, b"gw.police.test")));
}

#[test]
fn mail_pattern_stands_for_addresses_of_one_domain() {
    let pattern = IdPattern::MailAt("police.test".into());
    for good in ["anna@police.test", "a.b+c@POLICE.test"] {
        assert!(pattern.matches(&mail(good)), "{good}");
    }
    for bad in [
        "@police.test",
        "anna@ruch.police.test",
        "anna@evilpolice.test",
        "anna@evil.test@police.test",
        "anna\0@police.test",
        "anna @police.test",
        "anna@police.test\0",
        "\u{430}nna@police.test",
        "police.test",
    ] {
        assert!(!pattern.matches(&mail(bad)), "{bad:?}");
    }
    assert!(!pattern.matches(&host("anna@police.test")));
}

#[test]
fn fewest_open_parts_are_most_specific() {
    let name = |text: &str| PeerId::Matching(IdPattern::Name(NamePattern::parse(text).unwrap()));
    let all = [
        PeerId::Exactly(host("gw.police.test")),
        name("CN=*,O=Police"),
        name("CN=*,O=*"),
        PeerId::Any,
    ];
    let open: Vec<usize> = all.iter().map(PeerId::open_parts).collect();
    assert!(open.is_sorted_by(|one, two| one < two), "{open:?}");
    let (one, two) = (
        IdPattern::HostIn("a.test".into()),
        IdPattern::HostIn("A.test".into()),
    );
    assert!(one.overlaps(&two));
    assert!(!one.overlaps(&IdPattern::HostIn("b.a.test".into())));
    assert!(!one.overlaps(&IdPattern::MailAt("a.test".into())));
}
