//! Who somebody is: names in the configuration, on the wire, and in certificates (RFC 7296 §3.5, RFC 4945).

use std::net::IpAddr;

use const_oid::db::rfc5912::ID_CE_SUBJECT_ALT_NAME;
use der::{Decode as _, Encode as _};
use ikev2::wire::{IdType, Identification};
use x509_cert::Certificate;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

/// Reads an identity as people write it: an IP address, an e-mail address, or else a host name.
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
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@+".contains(&byte);
    if text.is_empty() || !text.bytes().all(plain) {
        return Err(format!(
            "{text:?} is no identity: a host name, an e-mail address or an IP address"
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

/// The identity that is a certificate's subject.
pub(super) fn of_subject(certificate: &Certificate) -> Option<Identification> {
    let data = certificate.tbs_certificate.subject.to_der().ok()?;
    let kind = IdType::DER_ASN1_DN;
    Some(Identification { kind, data })
}

/// Whether a certificate says that its holder is `id`. Host names and addresses count only in
/// subjectAltName (RFC 4945 §3.1.2), and so does a name from EAP (an opaque identity): a common name is
/// bound by no name constraints (RFC 5280 §4.2.1.10), so an authority that may certify one domain only
/// could speak for any name by it.
pub(super) fn speaks_for(certificate: &Certificate, id: &Identification) -> bool {
    if id.kind == IdType::DER_ASN1_DN {
        return of_subject(certificate).as_ref() == Some(id);
    }
    let extensions = certificate.tbs_certificate.extensions.iter().flatten();
    let names = extensions
        .filter(|extension| extension.extn_id == ID_CE_SUBJECT_ALT_NAME)
        .filter_map(|extension| SubjectAltName::from_der(extension.extn_value.as_bytes()).ok())
        .flat_map(|names| names.0);
    let text = std::str::from_utf8(&id.data).ok();
    names.into_iter().any(|name| match (name, id.kind) {
        (GeneralName::DnsName(name), IdType::FQDN | IdType::KEY_ID) => {
            text.is_some_and(|text| name.as_str().eq_ignore_ascii_case(text))
        }
        (GeneralName::Rfc822Name(name), IdType::RFC822_ADDR | IdType::KEY_ID) => {
            text.is_some_and(|text| name.as_str().eq_ignore_ascii_case(text))
        }
        (GeneralName::IpAddress(octets), IdType::IPV4_ADDR | IdType::IPV6_ADDR) => {
            octets.as_bytes() == id.data
        }
        _ => false,
    })
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
        for wrong in ["", "two words", "CN=camera", "a\nb"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
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
