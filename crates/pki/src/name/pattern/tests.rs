use super::*;

fn pattern(text: &str) -> NamePattern {
    NamePattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn compared(text: &str) -> ComparedName {
    ComparedName::of(pattern(text).name().unwrap()).unwrap()
}

/// A name of attributes with their types of string, the outermost first.
fn encoded(parts: &[(ObjectIdentifier, Tag, &[u8])]) -> Name {
    let rdns = parts.iter().map(|(oid, tag, value)| {
        let value = Any::new(*tag, *value).unwrap();
        let one = AttributeTypeAndValue { oid: *oid, value };
        RelativeDistinguishedName(SetOfVec::try_from(vec![one]).unwrap())
    });
    RdnSequence(rdns.collect())
}

const CN: ObjectIdentifier = const_oid::db::rfc4519::COMMON_NAME;
const O: ObjectIdentifier = const_oid::db::rfc4519::ORGANIZATION_NAME;

#[test]
fn text_is_read_in_the_order_of_rfc_4514() {
    let name = pattern("CN=gw, O=Example Police, C=PL");
    assert_eq!(
        name.name().unwrap().to_string(),
        "CN=gw,O=Example Police,C=PL"
    );
    let der = name.name().unwrap().to_der().unwrap();
    // SEQUENCE, SET, SEQUENCE, countryName, PrintableString "PL".
    assert_eq!(
        der.get(2..15),
        Some(&b"\x31\x0b\x30\x09\x06\x03\x55\x04\x06\x13\x02PL"[..])
    );
    // What is shown can be written.
    for text in [
        "CN=a\\,b\\+c\\=d,O=x",
        "CN=\\#1,O=\\ x\\ ",
        "EMAILADDRESS=a@police.test,CN=Anna",
        "CN=Żółw,UID=4711,OU=Ruch,ST=Kraków",
        "1.2.3.4=x,CN=y",
    ] {
        let shown = pattern(text).name().unwrap().to_string();
        assert_eq!(compared(&shown), compared(text), "{shown}");
    }
}

#[test]
fn text_that_is_no_name_is_refused() {
    use NameTextError as Error;
    let error = |text: &str| NamePattern::parse(text).unwrap_err();
    assert_eq!(error("gw"), Error::NoValue("gw".into()));
    assert_eq!(error("CN=gw,"), Error::NoValue(String::new()));
    assert_eq!(error("CX=gw"), Error::UnknownType("CX".into()));
    assert!(matches!(error("CN=gw*"), Error::Star(_)));
    assert!(matches!(error("CN=a+CN=b"), Error::Repeated(_)));
    for bad in [
        "CN=",
        "CN= ",
        "CN=a\\",
        "CN=a\\q",
        "CN=\"a\"",
        "CN=#0c01",
        "CN=a\\00",
        "CN=a\u{200b}b",
        "C=Ż",
        "DC=ż",
        "CN=\\ff",
    ] {
        assert!(matches!(error(bad), Error::BadValue(_)), "{bad:?}");
    }
    let long = vec!["CN=a"; MAX_PARTS + 1].join(",");
    assert_eq!(error(&long), Error::Count);
    pattern(&long["CN=a,".len()..]);
}

#[test]
fn equal_names_may_differ_in_encoding_case_and_spaces() {
    let name = compared("CN=Gate Way,O=Żółw");
    for tag in [Tag::Utf8String, Tag::BmpString] {
        let bytes = |text: &str| match tag {
            Tag::BmpString => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            _ => text.as_bytes().to_vec(),
        };
        let other = encoded(&[
            (O, tag, &bytes("żÓŁW")),
            (CN, Tag::PrintableString, b"  gate   WAY "),
        ]);
        assert_eq!(ComparedName::of(&other), Some(name.clone()), "{tag}");
    }
    // The attributes of one part have no order; parts have.
    assert_eq!(compared("CN=a+UID=1,O=x"), compared("UID=1+CN=a,O=x"));
    assert_ne!(compared("CN=a,O=x"), compared("O=x,CN=a"));
    assert_ne!(compared("CN=a+UID=1,O=x"), compared("CN=a,UID=1,O=x"));
}

#[test]
fn different_names_are_told_apart() {
    let name = compared("CN=king,O=police");
    for other in [
        "CN=king",
        "CN=king,O=police,C=PL",
        "CN=king,OU=police",
        "CN=king2,O=police",
        "CN=k ing,O=police",
        // The Kelvin sign, a Cyrillic letter, a dotless i.
        "CN=\u{212a}ing,O=police",
        "CN=king,O=pol\u{456}ce",
        "CN=k\u{131}ng,O=police",
    ] {
        let other = compared(other);
        assert_ne!(other, name);
        assert_ne!(other.to_bytes(), name.to_bytes());
    }
    // Latin-1 in the clothes of T.61 is compared byte by byte.
    let teletex = encoded(&[(CN, Tag::TeletexString, b"king")]);
    assert_ne!(ComparedName::of(&teletex), Some(compared("CN=king")));
}

#[test]
fn name_that_people_could_mistake_is_nobodys_identity() {
    let of = |value: &[u8]| ComparedName::of(&encoded(&[(CN, Tag::Utf8String, value)]));
    assert!(of(b"gw").is_some());
    for bad in [
        &b"gw\0"[..],
        b"gw\0.evil",
        b"gw\n",
        "gw\u{200b}".as_bytes(),
        "g\u{ad}w".as_bytes(),
        "\u{202e}wg".as_bytes(),
        b"",
        b"  ",
        b"\xff",
    ] {
        assert_eq!(of(bad), None, "{bad:?}");
    }
    assert_eq!(ComparedName::of(&RdnSequence(Vec::new())), None, "empty");
    assert_eq!(ComparedName::from_der(b"\x30\x00"), None);
    let mut der = pattern("CN=gw").name().unwrap().to_der().unwrap();
    assert!(ComparedName::from_der(&der).is_some());
    der.push(0);
    assert_eq!(ComparedName::from_der(&der), None, "bytes behind it");
}

#[test]
fn star_stands_for_one_whole_value() {
    let any = pattern("CN=*, O=Example Police, C=PL");
    assert_eq!((any.open_values(), any.name()), (1, None));
    for good in [
        "CN=gw,O=Example Police,C=PL",
        "CN=a b,O=EXAMPLE  police,C=pl",
    ] {
        assert!(any.matches(&compared(good)), "{good}");
    }
    for bad in [
        "O=Example Police,C=PL",
        "CN=gw,OU=x,O=Example Police,C=PL",
        "OU=gw,O=Example Police,C=PL",
        "O=Example Police,CN=gw,C=PL",
        "C=PL,O=Example Police,CN=gw",
        "CN=gw,O=Example Police 2,C=PL",
        "CN=gw+UID=1,O=Example Police,C=PL",
        "CN=gw,O=Example Police",
    ] {
        assert!(!any.matches(&compared(bad)), "{bad}");
    }
    // No text at all is no value; an escaped star is itself.
    let octets = encoded(&[(CN, Tag::OctetString, b"gw")]);
    assert!(!pattern("CN=*").matches(&ComparedName::of(&octets).unwrap()));
    assert_eq!(pattern("CN=\\2a").open_values(), 0);
    assert!(!pattern("CN=\\*").matches(&compared("CN=gw")));
}

#[test]
fn patterns_overlap_where_one_name_fits_both() {
    let overlap = |one: &str, two: &str| {
        let (one, two) = (pattern(one), pattern(two));
        assert_eq!(one.overlaps(&two), two.overlaps(&one));
        one.overlaps(&two)
    };
    assert!(overlap("CN=*,O=a", "CN=gw,O=*"));
    assert!(overlap("CN=*,O=a", "CN=*,O=A"));
    assert!(!overlap("CN=*,O=a", "CN=*,O=b"));
    assert!(!overlap("CN=*,O=a", "O=a,CN=*"));
    assert!(!overlap("CN=*", "CN=*,O=a"));
}
