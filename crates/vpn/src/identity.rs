//! Who somebody is: names in the configuration, on the wire, and in certificates (RFC 7296 §3.5, RFC 4945).

use std::net::IpAddr;

use const_oid::db::rfc5912::ID_CE_SUBJECT_ALT_NAME;
use der::{Decode as _, Encode as _};
use ikev2::config::{IdPattern, PeerId};
use ikev2::wire::{IdType, Identification};
use pki::name::{ComparedName, NamePattern};
use x509_cert::Certificate;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

use crate::host::unfit_peer;

/// Mark of an opaque identity, which has no form of its own.
const KEY_ID: &str = "keyid:";

/// Reads an identity as people write it: an IP address, an e-mail address, a distinguished name (RFC 4514), an
/// opaque one behind `keyid:` (text, or bytes as `0x…`), or else a host name.
///
/// # Errors
/// A text for the operator.
pub(super) fn parse(text: &str) -> Result<Identification, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        let (kind, data) = match address {
            IpAddr::V4(address) => (IdType::IPV4_ADDR, address.octets().to_vec()),
            IpAddr::V6(address) => (IdType::IPV6_ADDR, address.octets().to_vec()),
        };
        return Ok(Identification { kind, data });
    }
    if let Some(opaque) = text.strip_prefix(KEY_ID) {
        let (kind, data) = (IdType::KEY_ID, key_id(opaque)?);
        return Ok(Identification { kind, data });
    }
    if text.contains('=') {
        let pattern = NamePattern::parse(text).map_err(|error| error.to_string())?;
        let name = pattern.name().and_then(|name| name.to_der().ok());
        let data = name.ok_or_else(|| format!("{text:?} is a pattern, and no identity"))?;
        let kind = IdType::DER_ASN1_DN;
        return Ok(Identification { kind, data });
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@+".contains(&byte);
    if text.is_empty() || !text.bytes().all(plain) {
        return Err(format!(
            "{text:?} is no identity: a host name, an e-mail address, an IP address, a distinguished name, or \
             \"keyid:\" and an opaque one"
        ));
    }
    let kind = if text.contains('@') {
        IdType::RFC822_ADDR
    } else {
        IdType::FQDN
    };
    let data = text.as_bytes().to_vec();
    Ok(Identification { kind, data })
}

fn key_id(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("{text:?} is no key ID: printable ASCII, or 0x and hexadecimal digits");
    let data = match text.strip_prefix("0x") {
        Some(digits) => hex::decode(digits).map_err(|_| bad())?,
        None if text.bytes().all(|byte| byte.is_ascii_graphic()) => text.as_bytes().to_vec(),
        None => return Err(bad()),
    };
    (!data.is_empty()).then_some(data).ok_or_else(bad)
}

/// Reads an identity of this side: one that a peer who names it means, and nothing besides. A certificate for `any` would
/// otherwise be a name by which a peer lets everybody in.
///
/// # Errors
/// A text for the operator.
pub(super) fn parse_own(text: &str) -> Result<Identification, String> {
    if text.starts_with('-') {
        return Err(format!(
            "{text:?} begins like an option, and is no identity"
        ));
    }
    match parse_peer(text)? {
        PeerId::Exactly(id) => Ok(id),
        PeerId::Any | PeerId::Matching(_) => Err(format!(
            "{text:?} stands for several identities: our own is one"
        )),
    }
}

/// Checks what is to be `local_id`: exactly one identity, and no pattern.
///
/// # Errors
/// A text for the operator.
pub fn check_own_identity(text: &str) -> Result<(), String> {
    parse_own(text).map(drop)
}

/// Checks the name of a host by which peers know it, and for which it is certified: a host name or an address.
///
/// # Errors
/// A text for the operator.
pub fn check_host(text: &str) -> Result<(), String> {
    let id = parse_own(text)?;
    if let Ok(address) = text.parse() {
        return match unfit_peer(address) {
            Some(what) => Err(format!("{text} {what}")),
            None => Ok(()),
        };
    }
    // RFC 1123 §2.1, RFC 1035 §2.3.4.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    match id.kind == IdType::FQDN && text.len() <= 253 && text.split('.').all(is_label) {
        true => Ok(()),
        false => Err(format!("{text:?} is no host name and no address")),
    }
}

/// Reads the identities that a peer may have: one, `any`, or a pattern: `*.police.test` for hosts with one label
/// more, `*@police.test` for mail addresses of that very domain, `CN=*, O=Example Police` for distinguished names.
///
/// # Errors
/// A text for the operator.
pub(super) fn parse_peer(text: &str) -> Result<PeerId, String> {
    if text == "any" {
        return Ok(PeerId::Any);
    }
    let domain = |domain: &str| match parse(domain) {
        Ok(id) if id.kind == IdType::FQDN && !domain.starts_with('.') => Ok(domain.to_owned()),
        _ => Err(format!("{text:?} has no domain behind its star")),
    };
    // No identity has a star, so patterns are told from names by it.
    if let Some(rest) = text.strip_prefix("*.") {
        return Ok(PeerId::Matching(IdPattern::HostIn(domain(rest)?)));
    }
    if let Some(rest) = text.strip_prefix("*@") {
        return Ok(PeerId::Matching(IdPattern::MailAt(domain(rest)?)));
    }
    if text.contains('=') && !text.starts_with(KEY_ID) {
        let pattern = NamePattern::parse(text).map_err(|error| error.to_string())?;
        if pattern.open_values() > 0 {
            return Ok(PeerId::Matching(IdPattern::Name(pattern)));
        }
    }
    parse(text).map(PeerId::Exactly)
}

/// The identity that is a certificate's subject; none where that is empty, or could be mistaken for another.
pub(super) fn of_subject(certificate: &Certificate) -> Option<Identification> {
    let subject = &certificate.tbs_certificate.subject;
    ComparedName::of(subject)?;
    let data = subject.to_der().ok()?;
    let kind = IdType::DER_ASN1_DN;
    Some(Identification { kind, data })
}

/// Whether a certificate says that its holder is `id`. A distinguished name is its subject; host names and
/// addresses count only in subjectAltName (RFC 4945 §3.1.2): a common name is bound by no name constraints
/// (RFC 5280 §4.2.1.10), so an authority that may certify one domain only could speak for any name by it. No
/// certificate speaks for an opaque identity (RFC 4945 §3.1.6), and the star of a wildcard is nobody's name.
pub(super) fn speaks_for(certificate: &Certificate, id: &Identification) -> bool {
    if id.kind == IdType::DER_ASN1_DN {
        return of_subject(certificate).is_some_and(|subject| subject.is_same(id));
    }
    let is_same = |kind, data: &[u8]| {
        let data = data.to_vec();
        !data.contains(&b'*') && Identification { kind, data }.is_same(id)
    };
    alternative_names(certificate).any(|name| match (name, id.kind) {
        (GeneralName::DnsName(name), kind @ IdType::FQDN) => is_same(kind, name.as_bytes()),
        (GeneralName::Rfc822Name(name), kind @ IdType::RFC822_ADDR) => {
            is_same(kind, name.as_bytes())
        }
        (GeneralName::IpAddress(octets), IdType::IPV4_ADDR | IdType::IPV6_ADDR) => {
            octets.as_bytes() == id.data
        }
        _ => false,
    })
}

/// Whether a certificate says that its holder is the user who logs in under a name (EAP-TLS): a name or mail address
/// in subjectAltName, to the letter. Another spelling would be another user, with addresses and bounds of its own.
pub(super) fn speaks_for_user(certificate: &Certificate, user: &[u8]) -> bool {
    alternative_names(certificate).any(|name| match name {
        GeneralName::DnsName(name) => name.as_bytes() == user,
        GeneralName::Rfc822Name(name) => name.as_bytes() == user,
        _ => false,
    })
}

fn alternative_names(certificate: &Certificate) -> impl Iterator<Item = GeneralName> {
    let extensions = certificate.tbs_certificate.extensions.iter().flatten();
    extensions
        .filter(|extension| extension.extn_id == ID_CE_SUBJECT_ALT_NAME)
        .filter_map(|extension| SubjectAltName::from_der(extension.extn_value.as_bytes()).ok())
        .flat_map(|names| names.0)
}

/// An identity for people: without its type, subjects as RFC 4514 writes them. The peer chose it, so
/// whatever is no printable ASCII is escaped.
pub(super) fn show(id: &Identification) -> String {
    let text = match id.kind {
        IdType::DER_ASN1_DN => Name::from_der(&id.data).ok().map(|name| name.to_string()),
        IdType::IPV4_ADDR => {
            let octets = <[u8; 4]>::try_from(id.data.as_slice()).ok();
            octets.map(|octets| IpAddr::from(octets).to_string())
        }
        IdType::IPV6_ADDR => {
            let octets = <[u8; 16]>::try_from(id.data.as_slice()).ok();
            octets.map(|octets| IpAddr::from(octets).to_string())
        }
        IdType::FQDN | IdType::RFC822_ADDR | IdType::KEY_ID => {
            return id.data.escape_ascii().to_string();
        }
        _ => None,
    };
    text.map_or_else(
        || id.to_string(),
        |text| text.as_bytes().escape_ascii().to_string(),
    )
}

/// A text of the protocol library with its identities as [`show`] has them: it knows no certificates, so
/// it writes subjects and addresses as bytes.
pub(super) fn readable(text: &str) -> String {
    const KINDS: [(&str, IdType); 3] = [
        ("DER_ASN1_DN:", IdType::DER_ASN1_DN),
        ("IPV4_ADDR:", IdType::IPV4_ADDR),
        ("IPV6_ADDR:", IdType::IPV6_ADDR),
    ];
    let mut text = text.to_owned();
    for (prefix, kind) in KINDS {
        let Some((before, rest)) = text.split_once(prefix) else {
            continue;
        };
        let end = rest.find(|c: char| !c.is_ascii_hexdigit());
        let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
        if let Ok(data) = hex::decode(digits) {
            let shown = show(&Identification { kind, data });
            text = format!("{before}{shown}{after}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_name_in_an_error_becomes_readable() {
        let name: Name = "CN=camera-17,O=LEA-EU".parse().unwrap();
        let data = name.to_der().unwrap();
        let kind = IdType::DER_ASN1_DN;
        let text = |id: &Identification| format!("no connection for {id} with RSA");
        assert_eq!(
            readable(&text(&Identification { kind, data })),
            "no connection for CN=camera-17,O=LEA-EU with RSA"
        );
        assert_eq!(
            readable(&text(&parse("192.0.2.1").unwrap())),
            "no connection for 192.0.2.1 with RSA"
        );
        // What is no name stays as it came.
        for odd in ["DER_ASN1_DN:30ff", "DER_ASN1_DN:3", "a DER_ASN1_DN", ""] {
            assert_eq!(readable(odd), odd);
        }
    }

    #[test]
    fn identity_kind_follows_its_form() {
        let kind = |text: &str| parse(text).map(|id| (id.kind, id.data));
        assert_eq!(
            kind("gateway.example.org"),
            Ok((IdType::FQDN, b"gateway.example.org".to_vec()))
        );
        assert_eq!(
            kind("a@example.org"),
            Ok((IdType::RFC822_ADDR, b"a@example.org".to_vec()))
        );
        assert_eq!(
            kind("192.0.2.1"),
            Ok((IdType::IPV4_ADDR, vec![192, 0, 2, 1]))
        );
        assert_eq!(kind("::1").unwrap().0, IdType::IPV6_ADDR);
        let opaque = |data: &[u8]| Ok((IdType::KEY_ID, data.to_vec()));
        assert_eq!(kind("keyid:station-7"), opaque(b"station-7"));
        assert_eq!(kind("keyid:CN=station"), opaque(b"CN=station"));
        assert_eq!(kind("keyid:0x00ff"), opaque(&[0, 255]));
        let name = parse("CN=gw, O=Example Police, C=PL").unwrap();
        assert_eq!(name.kind, IdType::DER_ASN1_DN);
        assert_eq!(show(&name), "CN=gw,O=Example Police,C=PL");
        for wrong in [
            "",
            "two words",
            "CX=camera",
            "CN=*",
            "CN=gw*",
            "*.police.test",
            "a\nb",
            "keyid:",
            "keyid:a b",
            "keyid:0x",
            "keyid:0xf",
            "kéyid:a",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn peer_may_be_a_pattern() {
        let host = |name: &str| PeerId::Matching(IdPattern::HostIn(name.to_owned()));
        assert_eq!(parse_peer("any"), Ok(PeerId::Any));
        assert_eq!(parse_peer("*.police.test"), Ok(host("police.test")));
        let mail = PeerId::Matching(IdPattern::MailAt("police.test".into()));
        assert_eq!(parse_peer("*@police.test"), Ok(mail));
        let names = parse_peer("CN=*, O=Example Police").unwrap();
        assert!(names.accepts(&parse("CN=gw,O=example police").unwrap()));
        assert!(!names.accepts(&parse("O=Example Police,CN=gw").unwrap()));
        for exact in ["CN=gw,O=x", "keyid:CN=*", "gw.police.test", "192.0.2.1"] {
            assert!(
                matches!(parse_peer(exact), Ok(PeerId::Exactly(_))),
                "{exact}"
            );
        }
        for wrong in [
            "*",
            "*.",
            "*@",
            "*.*.test",
            "**.test",
            "*.a b",
            "*..test",
            "*.192.0.2.1",
            "gw.*.test",
            "a*@police.test",
            "*@a@b",
            "*@*.test",
            "CN=g*,O=x",
            "192.0.2.*",
        ] {
            assert!(parse_peer(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn own_identity_is_one_and_no_pattern() {
        for own in [
            "gw.police.test",
            "a@police.test",
            "192.0.2.1",
            "CN=gw,O=x",
            "keyid:any",
            "keyid:CN=*",
        ] {
            assert_eq!(parse_own(own), parse(own), "{own}");
            assert_eq!(parse_peer(own), parse(own).map(PeerId::Exactly), "{own}");
        }
        for wrong in [
            "any",
            "*.police.test",
            "*@police.test",
            "CN=*, O=x",
            "-x",
            "",
            "%any",
        ] {
            assert!(parse_own(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn peer_identity_cannot_forge_a_log_line() {
        assert_eq!(show(&Identification::fqdn("a\nb")), "a\\nb");
        let name: Name = "CN=camera-17,O=LEA-EU".parse().unwrap();
        let id = Identification {
            kind: IdType::DER_ASN1_DN,
            data: name.to_der().unwrap(),
        };
        assert_eq!(show(&id), "CN=camera-17,O=LEA-EU");
        assert_eq!(show(&parse("192.0.2.1").unwrap()), "192.0.2.1");
    }
}
