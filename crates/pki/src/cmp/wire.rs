//! ASN.1 of RFC 9810 and RFC 4211, as far as it is in use here.

use const_oid::ObjectIdentifier;
use der::asn1::{Any, BitString, GeneralizedTime, Int, OctetString};
use der::{Encode, Sequence, Tag};
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::ext::Extensions;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::time::Time;

/// id-it-implicitConfirm.
pub(super) const ID_IMPLICIT_CONFIRM: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.4.13");

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct Header {
    pub(crate) pvno: u8,
    pub(crate) sender: GeneralName,
    pub(crate) recipient: GeneralName,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) message_time: Option<GeneralizedTime>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) protection_algorithm: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) sender_kid: Option<OctetString>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) recipient_kid: Option<OctetString>,
    #[asn1(context_specific = "4", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) transaction_id: Option<OctetString>,
    #[asn1(context_specific = "5", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) sender_nonce: Option<OctetString>,
    #[asn1(context_specific = "6", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) recipient_nonce: Option<OctetString>,
    #[asn1(context_specific = "7", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) free_text: Option<Vec<String>>,
    #[asn1(context_specific = "8", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) general_info: Option<Vec<InfoTypeAndValue>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct InfoTypeAndValue {
    pub(crate) oid: ObjectIdentifier,
    pub(crate) value: Option<Any>,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct StatusInfo {
    pub(crate) status: u8,
    pub(crate) text: Option<Vec<String>>,
    pub(crate) failure: Option<BitString>,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct CertStatus {
    pub(crate) cert_hash: OctetString,
    pub(crate) cert_req_id: i64,
    pub(crate) status: Option<StatusInfo>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) hash_algorithm: Option<AlgorithmIdentifierOwned>,
}

/// RFC 4211, section 5. Whatever is granted follows from elsewhere; the key counts, and in revocations issuer and number.
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct CertTemplate {
    #[asn1(context_specific = "0", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) version: Option<u8>,
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) serial_number: Option<Int>,
    #[asn1(context_specific = "2", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) signing_algorithm: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) issuer: Option<Name>,
    #[asn1(context_specific = "4", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) validity: Option<OptionalValidity>,
    #[asn1(context_specific = "5", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) subject: Option<Name>,
    #[asn1(context_specific = "6", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) public_key: Option<SubjectPublicKeyInfoOwned>,
    #[asn1(context_specific = "7", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) issuer_uid: Option<BitString>,
    #[asn1(context_specific = "8", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) subject_uid: Option<BitString>,
    #[asn1(context_specific = "9", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) extensions: Option<Extensions>,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct OptionalValidity {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) not_before: Option<Time>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) not_after: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct RevDetails {
    pub(crate) certificate: CertTemplate,
    pub(crate) entry: Option<Extensions>,
}

/// RFC 4211, section 6.5.
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct CertId {
    pub(crate) issuer: GeneralName,
    pub(crate) serial_number: Int,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct SigningProof {
    #[asn1(context_specific = "0", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) input: Option<SigningProofInput>,
    pub(crate) algorithm: AlgorithmIdentifierOwned,
    pub(crate) signature: BitString,
}

/// RFC 4211, section 4.1: in the place of a request without subject or key, which is refused here.
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct SigningProofInput {
    pub(crate) authenticator: Any,
    pub(crate) public_key: SubjectPublicKeyInfoOwned,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct PbmParameter {
    pub(crate) salt: OctetString,
    pub(crate) owf: AlgorithmIdentifierOwned,
    pub(crate) iterations: u64,
    pub(crate) mac: AlgorithmIdentifierOwned,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct Pbmac1Parameter {
    pub(crate) derivation: AlgorithmIdentifierOwned,
    pub(crate) mac: AlgorithmIdentifierOwned,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct Pbkdf2Parameter {
    pub(crate) salt: OctetString,
    pub(crate) iterations: u64,
    pub(crate) key_len: Option<u16>,
    pub(crate) prf: Option<AlgorithmIdentifierOwned>,
}

/// A SEQUENCE of values in DER.
pub(crate) fn sequence(parts: &[&[u8]]) -> der::Result<Vec<u8>> {
    Any::new(Tag::Sequence, parts.concat())?.to_der()
}

/// A value in DER under an explicit tag.
pub(crate) fn explicit(number: der::TagNumber, value: &[u8]) -> der::Result<Vec<u8>> {
    let tag = Tag::ContextSpecific {
        constructed: true,
        number,
    };
    Any::new(tag, value)?.to_der()
}
