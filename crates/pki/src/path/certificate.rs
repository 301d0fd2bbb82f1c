//! A certificate with everything that path validation reads of it, decoded once.

use aws_lc_rs::digest;
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5280::ID_CE_INHIBIT_ANY_POLICY;
use const_oid::db::rfc5912::{
    ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_BASIC_CONSTRAINTS, ID_CE_CERTIFICATE_POLICIES,
    ID_CE_CRL_DISTRIBUTION_POINTS, ID_CE_EXT_KEY_USAGE, ID_CE_KEY_USAGE, ID_CE_NAME_CONSTRAINTS,
    ID_CE_POLICY_CONSTRAINTS, ID_CE_POLICY_MAPPINGS, ID_CE_SUBJECT_ALT_NAME,
    ID_CE_SUBJECT_KEY_IDENTIFIER,
};
use der::{Encode as _, Reader as _, SliceReader};
use rustls_pki_types::CertificateDer;
use untrusted_text::UntrustedText;
use webpki::ALL_VERIFICATION_ALGS;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, CertificatePolicies, CrlDistributionPoints,
    ExtendedKeyUsage, KeyUsage, NameConstraints, PolicyConstraints, PolicyMappings, SubjectAltName,
    SubjectKeyIdentifier,
};

use crate::cert::{self, CertError, Certificate};
use crate::extension::decoded;
use crate::issuer_id::AnchorId;
use crate::name::canonical::CanonicalName;
use crate::name::{Subject, shown};

/// Extensions that are processed here, and may therefore be critical. Key identifiers are missing on
/// purpose: RFC 5280 forbids to mark them so (sections 4.2.1.1 and 4.2.1.2).
const PROCESSED: [ObjectIdentifier; 10] = [
    ID_CE_BASIC_CONSTRAINTS,
    ID_CE_KEY_USAGE,
    ID_CE_EXT_KEY_USAGE,
    ID_CE_NAME_CONSTRAINTS,
    ID_CE_CERTIFICATE_POLICIES,
    ID_CE_POLICY_MAPPINGS,
    ID_CE_POLICY_CONSTRAINTS,
    ID_CE_INHIBIT_ANY_POLICY,
    ID_CE_SUBJECT_ALT_NAME,
    ID_CE_CRL_DISTRIBUTION_POINTS,
];

/// Why bytes are no certificate that a path may hold; [`super::PathError`] says it to others.
pub(crate) enum ParseError {
    Certificate(CertError),
    /// Extensions that cannot be decoded, or an encoding other than DER.
    Malformed(der::Error),
}

/// Certificate, DER, and decoded extensions.
#[derive(Debug)]
pub(crate) struct ParsedCertificate {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) certificate: Certificate,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) subject: CanonicalName,
    pub(crate) issuer: CanonicalName,
    pub(crate) basic: Option<BasicConstraints>,
    pub(crate) key_usage: Option<KeyUsage>,
    pub(crate) extended_usage: Option<ExtendedKeyUsage>,
    pub(crate) name_constraints: Option<NameConstraints>,
    pub(crate) policies: Option<Vec<ObjectIdentifier>>,
    pub(crate) policy_mappings: Vec<(ObjectIdentifier, ObjectIdentifier)>,
    pub(crate) policy_constraints: Option<PolicyConstraints>,
    pub(crate) inhibit_any_policy: Option<u32>,
    pub(crate) alt_names: Option<Vec<GeneralName>>,
    pub(crate) has_critical_alt_names: bool,
    pub(crate) crl_distribution_points: Option<CrlDistributionPoints>,
    pub(crate) subject_key_id: Option<Vec<u8>>,
    pub(crate) authority_key_id: Option<Vec<u8>>,
    /// The first critical extension that nobody here processes.
    pub(crate) unknown_critical: Option<ObjectIdentifier>,
    tbs_len: usize,
    tbs_start: usize,
    key_algorithm: Vec<u8>,
    signature_algorithm: Vec<u8>,
}

impl ParsedCertificate {
    /// Parses, and insists on DER: the bytes that are signed and the values that are read must be one.
    pub(crate) fn parse(der: &[u8]) -> Result<Self, ParseError> {
        let certificate = cert::from_der(der).map_err(ParseError::Certificate)?;
        if certificate.to_der().map_err(ParseError::Malformed)? != der {
            let noncanonical = der::ErrorKind::Noncanonical {
                tag: der::Tag::Sequence,
            };
            return Err(ParseError::Malformed(noncanonical.into()));
        }
        Self::of(certificate, der).map_err(ParseError::Malformed)
    }

    fn of(certificate: Certificate, der: &[u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(der)?;
        reader.peek_header().and_then(|outer| {
            let header = outer.encoded_len()?;
            reader.read_slice(header).map(drop)
        })?;
        let tbs_start = usize::try_from(reader.position())?;
        let tbs_len = reader.tlv_bytes()?.len();
        let extensions = certificate.tbs_certificate.extensions.as_ref();
        check_unique(extensions.map_or(&[], Vec::as_slice))?;
        let policies: Option<CertificatePolicies> =
            decoded(&certificate, ID_CE_CERTIFICATE_POLICIES)?;
        let mappings: Option<PolicyMappings> = decoded(&certificate, ID_CE_POLICY_MAPPINGS)?;
        let alt_names: Option<SubjectAltName> = decoded(&certificate, ID_CE_SUBJECT_ALT_NAME)?;
        let own_id: Option<SubjectKeyIdentifier> =
            decoded(&certificate, ID_CE_SUBJECT_KEY_IDENTIFIER)?;
        let issuer_id: Option<AuthorityKeyIdentifier> =
            decoded(&certificate, ID_CE_AUTHORITY_KEY_IDENTIFIER)?;
        let unknown_critical = extensions
            .into_iter()
            .flatten()
            .find(|e| e.critical && !PROCESSED.contains(&e.extn_id))
            .map(|e| e.extn_id);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest::digest(&digest::SHA256, der).as_ref());
        let tbs = &certificate.tbs_certificate;
        Ok(Self {
            fingerprint,
            subject: CanonicalName::of(&tbs.subject),
            issuer: CanonicalName::of(&tbs.issuer),
            basic: decoded(&certificate, ID_CE_BASIC_CONSTRAINTS)?,
            key_usage: decoded(&certificate, ID_CE_KEY_USAGE)?,
            extended_usage: decoded(&certificate, ID_CE_EXT_KEY_USAGE)?,
            name_constraints: decoded(&certificate, ID_CE_NAME_CONSTRAINTS)?,
            policies: policies.map(|p| p.0.into_iter().map(|one| one.policy_identifier).collect()),
            policy_mappings: mappings
                .map(|m| m.0)
                .unwrap_or_default()
                .into_iter()
                .map(|m| (m.issuer_domain_policy, m.subject_domain_policy))
                .collect(),
            policy_constraints: decoded(&certificate, ID_CE_POLICY_CONSTRAINTS)?,
            inhibit_any_policy: decoded(&certificate, ID_CE_INHIBIT_ANY_POLICY)?,
            has_critical_alt_names: extensions
                .into_iter()
                .flatten()
                .any(|e| e.critical && e.extn_id == ID_CE_SUBJECT_ALT_NAME),
            alt_names: alt_names.map(|names| names.0),
            crl_distribution_points: decoded(&certificate, ID_CE_CRL_DISTRIBUTION_POINTS)?,
            subject_key_id: own_id.map(|id| id.0.into_bytes()),
            authority_key_id: issuer_id
                .and_then(|id| id.key_identifier)
                .map(der::asn1::OctetString::into_bytes),
            unknown_critical,
            tbs_start,
            tbs_len,
            key_algorithm: contents(&tbs.subject_public_key_info.algorithm)?,
            signature_algorithm: contents(&certificate.signature_algorithm)?,
            der: CertificateDer::from(der.to_vec()),
            certificate,
        })
    }

    /// Whether it names itself as its issuer: a root, or an authority that changes its key or policies
    /// (RFC 5280, section 3.2).
    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    pub(crate) fn is_authority(&self) -> bool {
        self.basic.as_ref().is_some_and(|basic| basic.ca)
    }

    /// Whether the key of `issuer` made the signature. What names say is not looked at.
    ///
    /// The table holds ECDSA over the NIST curves, RSA of 2048 to 8192 bits (PKCS#1 v1.5 and PSS) with
    /// SHA-2, and Ed25519. Anything else, SHA-1 and DSA among them, is `None`.
    pub(crate) fn is_signed_by(&self, issuer: &Self) -> Option<bool> {
        verify(
            issuer,
            &self.signature_algorithm,
            self.tbs()?,
            self.certificate.signature.as_bytes()?,
        )
    }

    fn tbs(&self) -> Option<&[u8]> {
        self.der
            .get(self.tbs_start..self.tbs_start.checked_add(self.tbs_len)?)
    }

    /// Whether signatures of its key could be verified.
    pub(super) fn has_usable_key(&self) -> bool {
        let own = self.key_algorithm.as_slice();
        let mut known = ALL_VERIFICATION_ALGS.iter();
        known.any(|one| one.public_key_alg_id().as_ref() == own)
    }

    /// Name and key, for an anchor.
    pub(crate) fn anchor_id(&self) -> AnchorId {
        let mut context = digest::Context::new(&digest::SHA256);
        let spki = &self.certificate.tbs_certificate.subject_public_key_info;
        // What was parsed can be encoded.
        context.update(&spki.to_der().unwrap_or_default());
        context.update(&self.subject.to_bytes());
        let mut id = [0; 32];
        id.copy_from_slice(context.finish().as_ref());
        AnchorId(id)
    }

    pub(crate) fn key_bits(&self) -> &[u8] {
        let spki = &self.certificate.tbs_certificate.subject_public_key_info;
        spki.subject_public_key.raw_bytes()
    }
}

/// Verifies a signature with the key of `signer`; `None` for algorithms that are not in the table.
/// `algorithm` is what stands inside of the AlgorithmIdentifier.
pub(crate) fn verify(
    signer: &ParsedCertificate,
    algorithm: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Option<bool> {
    let mut known = false;
    for candidate in ALL_VERIFICATION_ALGS {
        if candidate.signature_alg_id().as_ref() == algorithm
            && candidate.public_key_alg_id().as_ref() == signer.key_algorithm.as_slice()
        {
            known = true;
            let key = signer.key_bits();
            if candidate.verify_signature(key, message, signature).is_ok() {
                return Some(true);
            }
        }
    }
    known.then_some(false)
}

/// The encoding of an AlgorithmIdentifier without tag and length, as the table of algorithms has it.
pub(crate) fn contents(algorithm: &spki::AlgorithmIdentifierOwned) -> der::Result<Vec<u8>> {
    let der = algorithm.to_der()?;
    let reader = SliceReader::new(&der)?;
    let header = reader.peek_header()?;
    let front = usize::try_from(header.encoded_len()?)?;
    Ok(der.get(front..).unwrap_or_default().to_vec())
}

/// An extension that occurs twice is forbidden, whichever it is (RFC 5280, section 4.2).
fn check_unique(extensions: &[x509_cert::ext::Extension]) -> der::Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    match extensions.iter().all(|e| seen.insert(e.extn_id)) {
        true => Ok(()),
        false => Err(der::ErrorKind::Failed.into()),
    }
}

pub(super) fn name(certificate: &ParsedCertificate) -> String {
    subject_name(&certificate.certificate)
}

/// The common name, which people know, or else the whole subject.
pub(super) fn subject_name(certificate: &Certificate) -> String {
    let subject = &certificate.tbs_certificate.subject;
    Subject::from_name(subject)
        .map(|s| s.common_name)
        .ok()
        .filter(|common_name| !common_name.is_empty())
        .map_or_else(
            || shown(subject),
            |common_name| UntrustedText::new(&common_name).into(),
        )
}
