//! Certification requests of the Certificate Request Message Format (RFC 4211), as CMP carries them.

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::ID_CE_SUBJECT_ALT_NAME;
use der::asn1::Any;
use der::{Decode, Encode, Reader, Sequence, SliceReader, TagMode, TagNumber};
use x509_cert::Certificate;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::cmp::wire::{CertId, CertTemplate, SigningProof};
use crate::csr::{Csr, CsrError};
use crate::extension::find;
use crate::key::{self, KeyAlgorithm};
use crate::name::{AltName, Subject};

/// id-regCtrl-oldCertID (RFC 4211, section 6.5).
const OLD_CERTIFICATE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.5.1.5");

/// One request; its proof of possession is not verified yet.
pub struct Request<'a> {
    /// CertRequest as it came: what the proof is over.
    signed: &'a [u8],
    content: CertRequest,
    proof: Option<SigningProof>,
}

/// A certificate, by the name of its issuer in DER and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateId {
    pub(crate) issuer: Vec<u8>,
    pub(crate) serial: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
struct CertRequest {
    id: i64,
    template: CertTemplate,
    controls: Option<Vec<Control>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
struct Control {
    oid: ObjectIdentifier,
    value: Any,
}

impl<'a> Request<'a> {
    /// Reads CertReqMessages in DER with one request.
    ///
    /// # Errors
    /// [`CsrError::Malformed`].
    pub fn parse(der: &'a [u8]) -> Result<Self, CsrError> {
        Self::read(der).map_err(|_| CsrError::Malformed)
    }

    fn read(der: &'a [u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(der)?;
        // A second message is left over, which is an error.
        let (signed, proof) = reader.sequence(|messages| {
            messages.sequence(|message| {
                let signed = message.tlv_bytes()?;
                let proof = match message.is_finished() {
                    true => None,
                    false => Some(message.tlv_bytes()?),
                };
                // Information for the registrar, which nobody asks for here.
                if !message.is_finished() {
                    message.tlv_bytes()?;
                }
                Ok((signed, proof))
            })
        })?;
        reader.finish(())?;
        Ok(Self {
            signed,
            content: CertRequest::from_der(signed)?,
            proof: match proof {
                Some(der) => signing_proof(der)?,
                None => None,
            },
        })
    }

    /// The request's number in its message.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.content.id
    }

    /// The certificate in whose place the new one comes, where the request names it.
    ///
    /// # Errors
    /// [`CsrError::Malformed`].
    pub fn old_certificate(&self) -> Result<Option<CertificateId>, CsrError> {
        let mut controls = self.content.controls.iter().flatten();
        let Some(control) = controls.find(|control| control.oid == OLD_CERTIFICATE) else {
            return Ok(None);
        };
        let id: CertId = control.value.decode_as().map_err(|_| CsrError::Malformed)?;
        let GeneralName::DirectoryName(issuer) = id.issuer else {
            return Err(CsrError::Malformed);
        };
        Ok(Some(CertificateId {
            issuer: issuer.to_der().map_err(|_| CsrError::Malformed)?,
            serial: id.serial_number.as_bytes().to_vec(),
        }))
    }

    /// Verifies the proof of possession: a signature with the key over the request (RFC 4211, section 4.1). That a
    /// registration authority has seen a proof, or that the key decrypts, is not believed.
    ///
    /// # Errors
    /// [`CsrError`], one variant per reason.
    pub fn verify(&self) -> Result<Csr, CsrError> {
        let template = &self.content.template;
        let (Some(spki), Some(subject)) = (&template.public_key, &template.subject) else {
            return Err(CsrError::Incomplete);
        };
        let algorithm = KeyAlgorithm::of_spki(spki).map_err(CsrError::Key)?;
        let proof = self.proof.as_ref().ok_or(CsrError::NoProof)?;
        if proof.input.is_some() {
            return Err(CsrError::NoProof);
        }
        let spki_der = spki.to_der().map_err(|_| CsrError::Malformed)?;
        let signature = proof.signature.as_bytes().ok_or(CsrError::Malformed)?;
        key::verify(&spki_der, &proof.algorithm, self.signed, signature)
            .map_err(CsrError::NotProven)?;
        Ok(Csr {
            subject: Subject::from_name(subject)?,
            alt_names: self.alt_names()?,
            spki: spki.clone(),
            algorithm,
        })
    }

    fn alt_names(&self) -> Result<Vec<AltName>, CsrError> {
        let extensions = self.content.template.extensions.as_ref();
        let found = find(extensions, ID_CE_SUBJECT_ALT_NAME).map_err(|_| CsrError::Malformed)?;
        let Some(der) = found else {
            return Ok(Vec::new());
        };
        let names = SubjectAltName::from_der(der).map_err(|_| CsrError::Malformed)?;
        let names = names.0.iter();
        Ok(names.filter_map(AltName::from_general_name).collect())
    }
}

impl CertificateId {
    /// Whether it names this certificate.
    #[must_use]
    pub fn names(&self, certificate: &Certificate) -> bool {
        let tbs = &certificate.tbs_certificate;
        let issuer = tbs.issuer.to_der();
        issuer.is_ok_and(|issuer| issuer == self.issuer)
            && tbs.serial_number.as_bytes() == self.serial
    }
}

/// The proof by signature; `None` for any other.
fn signing_proof(der: &[u8]) -> der::Result<Option<SigningProof>> {
    let mut reader = SliceReader::new(der)?;
    let proof = reader.context_specific(TagNumber::N1, TagMode::Implicit)?;
    match proof {
        Some(proof) => reader.finish(Some(proof)),
        None => Ok(None),
    }
}
