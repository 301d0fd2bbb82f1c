//! PKCS#10 certification requests (RFC 2986).

use der::asn1::{Any, BitString, SetOfVec};
use der::pem::LineEnding;
use der::{Decode, Encode};
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::attr::Attribute;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::request::{CertReq, CertReqInfo, ExtensionReq, Version};
use zeroize::Zeroizing;

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ID_CE_SUBJECT_ALT_NAME, ID_EC_PUBLIC_KEY, ID_EXTENSION_REQ, SECP_256_R_1,
};

use crate::crmf;
use crate::extension::{extension, find};
use crate::key::{self, KeyAlgorithm, KeyError, Signer};
use crate::name::{AltName, NameError, Subject};
use crate::pem::{self, PemError};

/// Largest request read, in bytes. One with an RSA 4096 key and some names has about 1 500.
pub const MAX_CSR_LEN: usize = 16 * 1024;
/// Largest text with a request, in bytes: base64 and line ends add less than one half; a message around it is short.
pub const MAX_CSR_TEXT_LEN: usize = MAX_CSR_LEN * 2;
/// RFC 7030, section 4.4.1.1: id-aa-decryptKeyID (RFC 4108).
const DECRYPT_KEY_IDENTIFIER: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.2.37");
/// RFC 7030, section 4.4.1.2: id-aa-asymmDecryptKeyID.
const ASYMMETRIC_DECRYPT_KEY_IDENTIFIER: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.2.54");
/// RFC 2985, section 5.4.1.
const ID_CHALLENGE_PASSWORD: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.7");
const PEM_LABEL: &str = "CERTIFICATE REQUEST";
/// RFC 7468, section 7: what earlier programs write.
const OLD_PEM_LABEL: &str = "NEW CERTIFICATE REQUEST";

/// A request whose signature has been verified: the sender holds the private key.
#[derive(Clone, Debug)]
pub struct Csr {
    /// The name asked for. What is granted is for the registration authority to say.
    pub subject: Subject,
    /// Alternative names asked for, of the kinds we know.
    pub alt_names: Vec<AltName>,
    pub spki: SubjectPublicKeyInfoOwned,
    pub algorithm: KeyAlgorithm,
}

/// Why a request could not be built or was refused.
#[derive(Debug, thiserror::Error)]
pub enum CsrError {
    #[error("certification request longer than {MAX_CSR_LEN} bytes")]
    TooLong,
    /// Not a DER or PEM certification request.
    #[error("malformed certification request")]
    Malformed,
    #[error("several certification requests in one text")]
    Several,
    /// The name cannot be encoded or read.
    #[error("invalid name in the certification request")]
    Name(#[from] NameError),
    /// The key is of a type or size that is not accepted.
    #[error("unusable key in the certification request")]
    Key(#[source] KeyError),
    /// The request is not signed with the key it names.
    #[error("certification request does not prove possession of the key")]
    NotProven(#[source] key::VerifyError),
    /// No signature with the key is there at all.
    #[error("certification request is not signed with its key")]
    NoProof,
    /// Key or subject is missing.
    #[error("certification request names no key or no subject")]
    Incomplete,
    /// The private key could not sign.
    #[error("cannot sign the certification request")]
    Sign(#[source] KeyError),
}

/// A request in one of its formats, whose proof of possession is not verified yet.
#[derive(Clone, Copy)]
pub enum CertificationRequest<'a> {
    /// PKCS#10, in DER.
    Pkcs10(&'a [u8]),
    Crmf(&'a crmf::Request<'a>),
}

impl CertificationRequest<'_> {
    /// Verifies that the request is signed with its key.
    ///
    /// # Errors
    /// [`CsrError`], one variant per reason.
    pub fn verify(self) -> Result<Csr, CsrError> {
        match self {
            Self::Pkcs10(der) => parse_and_verify(der),
            Self::Crmf(request) => request.verify(),
        }
    }
}

/// Builds a request in DER, signed with `key`.
///
/// # Errors
/// [`CsrError::Name`], [`CsrError::Sign`], or [`CsrError::Malformed`] if encoding fails.
pub fn build(
    key: &dyn Signer,
    subject: &Subject,
    alt_names: &[AltName],
) -> Result<Vec<u8>, CsrError> {
    let info = CertReqInfo {
        version: Version::V1,
        subject: subject.to_name()?,
        public_key: key.spki(),
        attributes: attributes(alt_names)?,
    };
    let message = info.to_der().map_err(|_| CsrError::Malformed)?;
    let signature = key.sign(&message).map_err(CsrError::Sign)?;
    let request = CertReq {
        info,
        algorithm: key.signature_algorithm(),
        signature: BitString::from_bytes(&signature).map_err(|_| CsrError::Malformed)?,
    };
    request.to_der().map_err(|_| CsrError::Malformed)
}

fn attributes(alt_names: &[AltName]) -> Result<SetOfVec<Attribute>, CsrError> {
    if alt_names.is_empty() {
        return Ok(SetOfVec::new());
    }
    let names = alt_names
        .iter()
        .map(AltName::to_general_name)
        .collect::<Result<Vec<_>, _>>()?;
    let wanted: Extension = extension(ID_CE_SUBJECT_ALT_NAME, false, &SubjectAltName(names))
        .map_err(|_| CsrError::Malformed)?;
    let attribute =
        Attribute::try_from(ExtensionReq(vec![wanted])).map_err(|_| CsrError::Malformed)?;
    SetOfVec::try_from(vec![attribute]).map_err(|_| CsrError::Malformed)
}

/// Encodes a DER request as PEM.
///
/// # Errors
/// [`CsrError::Malformed`] if encoding fails.
pub fn to_pem(der: &[u8]) -> Result<String, CsrError> {
    der::pem::encode_string(PEM_LABEL, LineEnding::LF, der).map_err(|_| CsrError::Malformed)
}

/// Extracts the DER request from what a person pasted or stored: PEM with either label and any text around it, or
/// the base64 alone. The layout is as [`crate::pem`] reads it.
///
/// # Errors
/// [`CsrError::TooLong`], [`CsrError::Several`] or [`CsrError::Malformed`].
pub fn from_pem(text: &str) -> Result<Vec<u8>, CsrError> {
    if text.len() > MAX_CSR_TEXT_LEN {
        return Err(CsrError::TooLong);
    }
    match pem::single(text, &[PEM_LABEL, OLD_PEM_LABEL]) {
        Ok(der) => Ok(der),
        Err(PemError::Missing) => pem::bare(text).ok_or(CsrError::Malformed),
        Err(PemError::Malformed) => Err(CsrError::Malformed),
        Err(PemError::Several) => Err(CsrError::Several),
    }
}

/// Parses a DER request and verifies its signature (proof of possession).
///
/// # Errors
/// [`CsrError`], one variant per reason.
pub fn parse_and_verify(der: &[u8]) -> Result<Csr, CsrError> {
    let request = Signed::parse(der)?;
    let spki = request.spki().clone();
    let algorithm = KeyAlgorithm::of_spki(&spki).map_err(CsrError::Key)?;
    let spki_der = spki.to_der().map_err(|_| CsrError::Malformed)?;
    request.verify(|by, message, signature| key::verify(&spki_der, by, message, signature))?;
    Ok(Csr {
        subject: request.subject()?,
        alt_names: requested_names(&request.0)?,
        spki,
        algorithm,
    })
}

/// A request that was read, and whose proof of possession is not verified yet.
pub(crate) struct Signed(CertReq);

impl Signed {
    pub(crate) fn parse(der: &[u8]) -> Result<Self, CsrError> {
        if der.len() > MAX_CSR_LEN {
            return Err(CsrError::TooLong);
        }
        let request = CertReq::from_der(der);
        request.map(Self).map_err(|_| CsrError::Malformed)
    }

    pub(crate) const fn spki(&self) -> &SubjectPublicKeyInfoOwned {
        &self.0.info.public_key
    }

    pub(crate) fn subject(&self) -> Result<Subject, CsrError> {
        Ok(Subject::from_name(&self.0.info.subject)?)
    }

    /// Has the proof of possession verified, with the algorithm that it names, over the message.
    pub(crate) fn verify(
        &self,
        verify: impl FnOnce(&AlgorithmIdentifierOwned, &[u8], &[u8]) -> Result<(), key::VerifyError>,
    ) -> Result<(), CsrError> {
        let message = self.0.info.to_der().map_err(|_| CsrError::Malformed)?;
        // A signature is whole bytes; unused bits would make a second form of one request.
        let signature = self.0.signature.as_bytes().ok_or(CsrError::Malformed)?;
        verify(&self.0.algorithm, &message, signature).map_err(CsrError::NotProven)
    }
}

/// What a request says of itself beside its names, before its proof of possession is verified.
pub struct Claims {
    pub common_name: String,
    pub spki: SubjectPublicKeyInfoOwned,
    /// The challenge password (RFC 2985, section 5.4.1).
    pub challenge: Option<Zeroizing<String>>,
}

/// Reads what a DER request claims, without its signature.
///
/// # Errors
/// [`CsrError::TooLong`] or [`CsrError::Malformed`]; with two passwords as well.
pub fn claims(der: &[u8]) -> Result<Claims, CsrError> {
    if der.len() > MAX_CSR_LEN {
        return Err(CsrError::TooLong);
    }
    let request = CertReq::from_der(der).map_err(|_| CsrError::Malformed)?;
    let mut challenges = request.info.attributes.iter();
    let challenge = match challenges.find(|one| one.oid == ID_CHALLENGE_PASSWORD) {
        None => None,
        Some(one) => {
            let [value] = one.values.as_slice() else {
                return Err(CsrError::Malformed);
            };
            let text = std::str::from_utf8(value.value()).map_err(|_| CsrError::Malformed)?;
            Some(Zeroizing::new(text.to_owned()))
        }
    };
    if challenges.any(|one| one.oid == ID_CHALLENGE_PASSWORD) {
        return Err(CsrError::Malformed);
    }
    Ok(Claims {
        common_name: Subject::from_name(&request.info.subject)?.common_name,
        spki: request.info.public_key.clone(),
        challenge,
    })
}

/// What an EST client is told to put into a request (RFC 7030, section 4.5.2): a key on P-256, and the request signed
/// with SHA-256. Whatever else stands there is not asked for.
///
/// # Errors
/// [`CsrError::Malformed`] if encoding fails.
pub fn wanted_attributes() -> Result<Vec<u8>, CsrError> {
    let malformed = |_| CsrError::Malformed;
    let key = Attribute {
        oid: ID_EC_PUBLIC_KEY,
        values: SetOfVec::try_from(vec![Any::from(SECP_256_R_1)]).map_err(malformed)?,
    };
    let wanted = vec![
        Any::encode_from(&key).map_err(malformed)?,
        Any::from(ECDSA_WITH_SHA_256),
    ];
    wanted.to_der().map_err(malformed)
}

/// Whether a request for a key made by the server wants it encrypted to a key of the client's (RFC 7030, section
/// 4.4.1). The request is not verified: its key and signature mean nothing there.
///
/// # Errors
/// [`CsrError::TooLong`] or [`CsrError::Malformed`].
pub fn wants_encrypted_key(der: &[u8]) -> Result<bool, CsrError> {
    if der.len() > MAX_CSR_LEN {
        return Err(CsrError::TooLong);
    }
    let request = CertReq::from_der(der).map_err(|_| CsrError::Malformed)?;
    let mut attributes = request.info.attributes.iter();
    Ok(attributes.any(|one| {
        one.oid == DECRYPT_KEY_IDENTIFIER || one.oid == ASYMMETRIC_DECRYPT_KEY_IDENTIFIER
    }))
}

fn requested_names(request: &CertReq) -> Result<Vec<AltName>, CsrError> {
    let mut names = Vec::new();
    for attribute in request
        .info
        .attributes
        .iter()
        .filter(|a| a.oid == ID_EXTENSION_REQ)
    {
        for value in attribute.values.iter() {
            let wanted: Vec<Extension> = value.decode_as().map_err(|_| CsrError::Malformed)?;
            let san =
                find(Some(&wanted), ID_CE_SUBJECT_ALT_NAME).map_err(|_| CsrError::Malformed)?;
            if let Some(der) = san {
                let san = SubjectAltName::from_der(der).map_err(|_| CsrError::Malformed)?;
                names.extend(san.0.iter().filter_map(AltName::from_general_name));
            }
        }
    }
    Ok(names)
}
