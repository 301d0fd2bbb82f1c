//! Signed attributes (RFC 8894, section 3.2.1).

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5911::{ID_CONTENT_TYPE, ID_MESSAGE_DIGEST};
use der::asn1::{Any, OctetStringRef, PrintableStringRef, SetOfVec, Utf8StringRef};
use der::{Decode, Encode, Tag, Tagged};
use x509_cert::attr::{Attribute, Attributes};

pub(super) const CONTENT_TYPE: ObjectIdentifier = ID_CONTENT_TYPE;
pub(super) const MESSAGE_DIGEST: ObjectIdentifier = ID_MESSAGE_DIGEST;
/// Those of the protocol, by their last number.
pub(super) const MESSAGE_TYPE: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("2.16.840.1.113733.1.9.2");
pub(super) const PKI_STATUS: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("2.16.840.1.113733.1.9.3");
pub(super) const FAIL_INFO: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("2.16.840.1.113733.1.9.4");
pub(super) const SENDER_NONCE: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("2.16.840.1.113733.1.9.5");
pub(super) const RECIPIENT_NONCE: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("2.16.840.1.113733.1.9.6");
pub(super) const TRANSACTION_ID: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("2.16.840.1.113733.1.9.7");
/// Text beside a failure (RFC 8894, section 3.2.1.4).
pub(super) const FAIL_INFO_TEXT: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.24.1");

/// The only value of the attribute that is there once.
pub(super) fn value(attributes: &Attributes, oid: ObjectIdentifier) -> Option<&Any> {
    let mut found = attributes.iter().filter(|one| one.oid == oid);
    let (Some(one), None) = (found.next(), found.next()) else {
        return None;
    };
    match one.values.as_slice() {
        [value] => Some(value),
        _ => None,
    }
}

/// The value of a text.
pub(super) fn text(attributes: &Attributes, oid: ObjectIdentifier) -> Option<&str> {
    let value = value(attributes, oid)?;
    match value.tag() {
        Tag::PrintableString | Tag::Utf8String | Tag::Ia5String => {
            std::str::from_utf8(value.value()).ok()
        }
        _ => None,
    }
}

/// The value of an octet string.
pub(super) fn bytes(attributes: &Attributes, oid: ObjectIdentifier) -> Option<&[u8]> {
    let value = value(attributes, oid)?;
    (value.tag() == Tag::OctetString).then(|| value.value())
}

/// An attribute of one value.
pub(super) fn attribute<T: Encode>(oid: ObjectIdentifier, value: &T) -> der::Result<Attribute> {
    Ok(Attribute {
        oid,
        values: SetOfVec::try_from(vec![Any::from_der(&value.to_der()?)?])?,
    })
}

/// An attribute of letters.
pub(super) fn printable(oid: ObjectIdentifier, text: &str) -> der::Result<Attribute> {
    match PrintableStringRef::new(text) {
        Ok(text) => attribute(oid, &text),
        Err(_) => attribute(oid, &Utf8StringRef::new(text)?),
    }
}

/// An attribute of bytes.
pub(super) fn octets(oid: ObjectIdentifier, bytes: &[u8]) -> der::Result<Attribute> {
    attribute(oid, &OctetStringRef::new(bytes)?)
}
