//! Certificates and chains: PEM and DER, files, fingerprints.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use const_oid::db::rfc5912::{ID_CE_KEY_USAGE, ID_CE_SUBJECT_ALT_NAME};
use der::pem::LineEnding;
use der::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use spki::SubjectPublicKeyInfoOwned;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, KeyUsage, SubjectAltName};

pub use x509_cert::Certificate;

use crate::extension::decoded;
use crate::key::{self, KeyAlgorithm, KeyError, VerifyError};
use crate::name::{AltName, SecurityIdentifier, WindowsAccount};
use crate::oid::NTDS_CA_SECURITY;
use crate::pem;

/// Most certificates in one chain; ours have three.
pub const MAX_CHAIN_LEN: usize = 16;
/// Largest certificate looked at, in bytes; ours have less than 2 500.
pub const MAX_CERTIFICATE_LEN: usize = 64 * 1024;
const PEM_LABEL: &str = "CERTIFICATE";

/// Why a certificate or chain could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// Not a DER certificate as RFC 5280 describes it.
    #[error("malformed certificate")]
    Malformed(#[source] der::Error),
    /// Not a PEM document with the label `CERTIFICATE`.
    #[error("malformed PEM certificate")]
    MalformedPem,
    /// No certificate in the input.
    #[error("no certificate found")]
    Empty,
    /// More than [`MAX_CHAIN_LEN`] certificates.
    #[error("more than {MAX_CHAIN_LEN} certificates")]
    TooMany,
    /// A certificate of more than [`MAX_CERTIFICATE_LEN`] bytes.
    #[error("certificate longer than {MAX_CERTIFICATE_LEN} bytes")]
    TooLong,
}

/// Why a signature by a certificate's key was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// The key is of a type that does not sign here.
    #[error("unusable public key")]
    Key(#[from] KeyError),
    #[error(transparent)]
    Signature(#[from] VerifyError),
}

/// Verifies that `signature` over `message` is by the key of `certificate` (DER), made as [`crate::PrivateKey::sign`]
/// makes it. Says nothing about the certificate's path.
///
/// # Errors
/// [`SignatureError`].
pub fn verify_signature(
    certificate: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let certificate = from_der(certificate)?;
    let spki = &certificate.tbs_certificate.subject_public_key_info;
    let algorithm = KeyAlgorithm::of_spki(spki)?.signature_algorithm();
    let spki = spki.to_der().map_err(CertError::Malformed)?;
    Ok(key::verify(&spki, &algorithm, message, signature)?)
}

/// Whether the key and name of `issuer` are those that signed `certificate`. Says nothing about the path of either.
#[must_use]
pub fn is_signed_by(certificate: &Certificate, issuer: &Certificate) -> bool {
    let (tbs, issuer) = (&certificate.tbs_certificate, &issuer.tbs_certificate);
    let spki = issuer.subject_public_key_info.to_der();
    let (Ok(content), Ok(spki)) = (tbs.to_der(), spki) else {
        return false;
    };
    let (algorithm, signature) = (
        &certificate.signature_algorithm,
        certificate.signature.as_bytes().unwrap_or_default(),
    );
    tbs.issuer == issuer.subject && key::verify(&spki, algorithm, &content, signature).is_ok()
}

/// Reads one certificate in DER; bytes left over are an error.
///
/// # Errors
/// [`CertError::Malformed`] or [`CertError::TooLong`].
pub fn from_der(der: &[u8]) -> Result<Certificate, CertError> {
    if der.len() > MAX_CERTIFICATE_LEN {
        return Err(CertError::TooLong);
    }
    Certificate::from_der(der).map_err(CertError::Malformed)
}

/// The DER encoding of `certificate`.
///
/// # Errors
/// [`CertError::Malformed`] for a value that cannot be encoded.
pub fn to_der(certificate: &Certificate) -> Result<Vec<u8>, CertError> {
    certificate.to_der().map_err(CertError::Malformed)
}

/// The PEM encoding of `certificate`, with a newline at its end.
///
/// # Errors
/// [`CertError::Malformed`] for a value that cannot be encoded.
pub fn to_pem(certificate: &Certificate) -> Result<String, CertError> {
    der_to_pem(&to_der(certificate)?)
}

fn der_to_pem(der: &[u8]) -> Result<String, CertError> {
    der::pem::encode_string(PEM_LABEL, LineEnding::LF, der).map_err(|_| CertError::MalformedPem)
}

/// SHA-256 over the DER encoding, in lower-case hexadecimal.
#[must_use]
pub fn fingerprint_sha256(der: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, der).as_ref())
}

/// The names of `certificate` in subjectAltName, of the kinds we know.
///
/// # Errors
/// [`CertError::Malformed`] for an unreadable extension.
pub fn alt_names(certificate: &Certificate) -> Result<Vec<AltName>, CertError> {
    let names: Option<SubjectAltName> =
        decoded(certificate, ID_CE_SUBJECT_ALT_NAME).map_err(CertError::Malformed)?;
    let names = names.iter().flat_map(|names| &names.0);
    Ok(names.filter_map(AltName::from_general_name).collect())
}

/// The account of Windows that `certificate` logs on to, if it names one in both ways.
#[must_use]
pub fn windows_account(certificate: &Certificate) -> Option<WindowsAccount> {
    let named: SubjectAltName = decoded(certificate, NTDS_CA_SECURITY).ok()??;
    let sid = SecurityIdentifier::from_extension(&named)?;
    let names = alt_names(certificate).ok()?;
    let principal = names.into_iter().find_map(|name| match name {
        AltName::Upn(principal) => Some(principal),
        _ => None,
    })?;
    Some(WindowsAccount { principal, sid })
}

/// Tells whether the key usage has `nonRepudiation`: the profile leaves it out where the centre made the key.
#[must_use]
pub fn has_non_repudiation(certificate: &Certificate) -> bool {
    let usage: Option<KeyUsage> = decoded(certificate, ID_CE_KEY_USAGE).ok().flatten();
    usage.is_some_and(|usage| usage.non_repudiation())
}

/// The serial number in lower-case hexadecimal, two digits for each byte, without sign byte.
#[must_use]
pub fn serial_hex(certificate: &Certificate) -> String {
    serial_to_hex(certificate.tbs_certificate.serial_number.as_bytes())
}

/// The key identifier of the issuer, if the certificate names it by that.
#[must_use]
pub fn authority_key_id(certificate: &Certificate) -> Option<Vec<u8>> {
    let found = certificate.tbs_certificate.get::<AuthorityKeyIdentifier>();
    let (_, named) = found.ok().flatten()?;
    Some(named.key_identifier?.as_bytes().to_vec())
}

/// Formats a serial number's bytes as [`serial_hex`] does: leading zero bytes are dropped.
#[must_use]
pub fn serial_to_hex(bytes: &[u8]) -> String {
    let first = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len());
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes.iter().skip(first) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Certificates from the leaf upwards; never empty.
///
/// Holds the exact bytes that were read, because signatures and fingerprints are over these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateChain {
    certificates: Vec<Certificate>,
    ders: Vec<CertificateDer<'static>>,
}

impl CertificateChain {
    /// Builds a chain of parsed certificates, leaf first.
    ///
    /// # Errors
    /// [`CertError::Empty`], [`CertError::TooMany`], or [`CertError::Malformed`].
    pub fn new(certificates: Vec<Certificate>) -> Result<Self, CertError> {
        let ders = certificates
            .iter()
            .map(to_der)
            .collect::<Result<Vec<_>, _>>()?;
        Self::from_ders(ders)
    }

    /// Puts together what a registry answers: the certificate for the key `spki` among `issued`, and its
    /// issuers below the root among `issued` and `authorities`. `None` if there is no certificate for it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_issued(
        spki: &SubjectPublicKeyInfoOwned,
        mut issued: Vec<Certificate>,
        authorities: &[Certificate],
    ) -> Result<Option<Self>, CertError> {
        let own = |c: &Certificate| c.tbs_certificate.subject_public_key_info == *spki;
        let Some(at) = issued.iter().position(own) else {
            return Ok(None);
        };
        let mut chain = vec![issued.swap_remove(at)];
        while let Some(last) = chain.last() {
            let name = &last.tbs_certificate.issuer;
            let issuer = authorities
                .iter()
                .chain(&issued)
                .find(|c| c.tbs_certificate.subject == *name && c.tbs_certificate.issuer != *name);
            match issuer.filter(|c| !chain.contains(c)) {
                Some(issuer) => chain.push(issuer.clone()),
                None => break,
            }
        }
        Self::new(chain).map(Some)
    }

    /// Reads a chain of DER certificates, leaf first.
    ///
    /// # Errors
    /// [`CertError`], one variant per reason.
    pub fn from_ders<D: Into<Vec<u8>>>(
        ders: impl IntoIterator<Item = D>,
    ) -> Result<Self, CertError> {
        let mut chain = Self {
            certificates: Vec::new(),
            ders: Vec::new(),
        };
        for der in ders {
            if chain.ders.len() >= MAX_CHAIN_LEN {
                return Err(CertError::TooMany);
            }
            let der: Vec<u8> = der.into();
            chain.certificates.push(from_der(&der)?);
            chain.ders.push(CertificateDer::from(der));
        }
        if chain.ders.is_empty() {
            Err(CertError::Empty)
        } else {
            Ok(chain)
        }
    }

    /// Reads concatenated PEM certificates, leaf first; text around them is ignored.
    ///
    /// # Errors
    /// [`CertError`], one variant per reason.
    pub fn from_pem(text: &str) -> Result<Self, CertError> {
        let mut ders = Vec::new();
        let mut rest = text;
        while let Some((der, after)) =
            pem::next(rest, PEM_LABEL).map_err(|_| CertError::MalformedPem)?
        {
            if ders.len() >= MAX_CHAIN_LEN {
                return Err(CertError::TooMany);
            }
            ders.push(der);
            rest = after;
        }
        Self::from_ders(ders)
    }

    /// Concatenated PEM, leaf first.
    ///
    /// # Errors
    /// [`CertError::MalformedPem`] if encoding fails.
    pub fn to_pem(&self) -> Result<String, CertError> {
        self.ders.iter().map(|der| der_to_pem(der)).collect()
    }

    #[must_use]
    pub fn leaf(&self) -> &Certificate {
        self.certificates
            .first()
            .expect("a chain is built with at least one certificate")
    }

    /// The certificates, leaf first.
    #[must_use]
    pub fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// The certificates in DER as they were read, leaf first.
    #[must_use]
    pub fn ders(&self) -> &[CertificateDer<'static>] {
        &self.ders
    }

    /// [`fingerprint_sha256`] of the leaf.
    #[must_use]
    pub fn leaf_fingerprint(&self) -> String {
        self.ders
            .first()
            .map(|der| fingerprint_sha256(der))
            .unwrap_or_default()
    }
}
