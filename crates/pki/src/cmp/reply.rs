//! Answers.

use der::asn1::{GeneralizedTime, OctetString};
use der::{Encode, TagNumber};
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::ext::pkix::name::GeneralName;

use super::failure::FailureInfo;
use super::mac::Mac;
use super::message::{BodyKind, Message};
use super::wire::{Header, ID_IMPLICIT_CONFIRM, InfoTypeAndValue, StatusInfo, explicit, sequence};
use crate::key::{KeyError, Signer};

const ACCEPTED: u8 = 0;
const REJECTION: u8 = 2;
/// Characters of a reason that is sent.
const MAX_TEXT: usize = 500;

/// Why an answer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    #[error("cannot encode the answer")]
    Encode(#[from] der::Error),
    #[error("cannot sign the answer")]
    Sign(#[from] KeyError),
}

/// The body of an answer.
pub enum ReplyBody<'a> {
    /// The certificate that was asked for.
    Certificate {
        certificate: &'a Certificate,
        /// The request's number.
        id: i64,
        /// Authorities to trust from now on: only with protection by a secret (RFC 9810, section 5.3.4).
        trust: &'a [Certificate],
        /// Whether it needs no confirmation.
        confirmed: bool,
    },
    /// The certificate is revoked.
    Revoked,
    /// The confirmation was taken.
    Confirmed,
    Refused {
        failure: FailureInfo,
        text: &'a str,
    },
}

/// The protection of an answer.
pub enum Protect<'a> {
    Secret { mac: &'a Mac, secret: &'a [u8] },
    Signature(&'a dyn Signer),
}

/// An answer to a message.
pub struct Reply<'a> {
    pub body: ReplyBody<'a>,
    /// The sender name of the answer: that of its signer, whichever protection it has.
    pub sender: &'a Certificate,
    /// Certificates beside it: the signer's first.
    pub certificates: &'a [Certificate],
    /// A number of ours that was never used before.
    pub nonce: [u8; 16],
    pub now: OffsetDateTime,
}

impl Reply<'_> {
    /// The answer to `message` in DER.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub fn to_der(
        &self,
        message: &Message<'_>,
        protect: &Protect<'_>,
    ) -> Result<Vec<u8>, ReplyError> {
        let header = self.header(&message.header, protect)?.to_der()?;
        let body = self.body(message.kind)?;
        let protected = sequence(&[&header, &body])?;
        let protection = match protect {
            Protect::Secret { mac, secret } => mac.compute(secret, &protected),
            Protect::Signature(signer) => signer.sign(&protected)?,
        };
        let protection = der::asn1::BitString::from_bytes(&protection)?.to_der()?;
        let protection = explicit(TagNumber::N0, &protection)?;
        let certificates = explicit(TagNumber::N1, &certificates(self.certificates)?)?;
        Ok(sequence(&[&header, &body, &protection, &certificates])?)
    }

    fn header(&self, request: &Header, protect: &Protect<'_>) -> Result<Header, ReplyError> {
        let subject = &self.sender.tbs_certificate.subject;
        let seconds = u64::try_from(self.now.unix_timestamp()).unwrap_or_default();
        let time = GeneralizedTime::from_unix_duration(std::time::Duration::from_secs(seconds))?;
        let (algorithm, kid) = match protect {
            Protect::Secret { mac, .. } => (mac.algorithm()?, request.sender_kid.clone()),
            Protect::Signature(signer) => {
                let found = self.sender.tbs_certificate.get::<SubjectKeyIdentifier>()?;
                (signer.signature_algorithm(), found.map(|(_, kid)| kid.0))
            }
        };
        let confirmed = matches!(
            self.body,
            ReplyBody::Certificate {
                confirmed: true,
                ..
            }
        );
        let implicit = InfoTypeAndValue {
            oid: ID_IMPLICIT_CONFIRM,
            value: Some(der::asn1::Any::from(der::asn1::Null)),
        };
        Ok(Header {
            // A version that we do not know is answered in the one that we have.
            pvno: if request.pvno == 3 { 3 } else { 2 },
            sender: GeneralName::DirectoryName(subject.clone()),
            recipient: match &request.sender {
                GeneralName::DirectoryName(name) => GeneralName::DirectoryName(name.clone()),
                _ => nobody(),
            },
            message_time: Some(time),
            protection_algorithm: Some(algorithm),
            sender_kid: kid,
            recipient_kid: None,
            transaction_id: request.transaction_id.clone(),
            sender_nonce: Some(OctetString::new(self.nonce)?),
            recipient_nonce: request.sender_nonce.clone(),
            free_text: None,
            general_info: confirmed.then(|| vec![implicit]),
        })
    }

    fn body(&self, request: BodyKind) -> Result<Vec<u8>, ReplyError> {
        let accepted = || status(ACCEPTED, None);
        Ok(match &self.body {
            ReplyBody::Certificate {
                certificate,
                id,
                trust,
                ..
            } => {
                let tag = match request {
                    BodyKind::Initialization => TagNumber::N1,
                    BodyKind::KeyUpdate => TagNumber::N8,
                    // RFC 9810, section 5.3.4: `cp` also answers `p10cr`.
                    _ => TagNumber::N3,
                };
                let pair = sequence(&[&explicit(TagNumber::N0, &certificate.to_der()?)?])?;
                let response = sequence(&[&id.to_der()?, &accepted()?, &pair])?;
                let responses = sequence(&[&response])?;
                let trusted = match trust.is_empty() {
                    true => Vec::new(),
                    false => explicit(TagNumber::N1, &certificates(trust)?)?,
                };
                explicit(tag, &sequence(&[&trusted, &responses])?)?
            }
            ReplyBody::Revoked => {
                let statuses = sequence(&[&accepted()?])?;
                explicit(TagNumber::N12, &sequence(&[&statuses])?)?
            }
            ReplyBody::Confirmed => explicit(TagNumber::N19, &der::asn1::Null.to_der()?)?,
            ReplyBody::Refused { failure, text } => {
                let status = status(REJECTION, Some((*failure, text)))?;
                explicit(TagNumber::N23, &sequence(&[&status])?)?
            }
        })
    }
}

fn status(status: u8, refused: Option<(FailureInfo, &str)>) -> der::Result<Vec<u8>> {
    let text = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
    StatusInfo {
        status,
        text: refused.map(|(_, why)| vec![text(why)]),
        failure: refused.map(|(failure, _)| failure.to_bits()).transpose()?,
    }
    .to_der()
}

fn certificates(all: &[Certificate]) -> der::Result<Vec<u8>> {
    let all: Vec<Vec<u8>> = all.iter().map(Encode::to_der).collect::<Result<_, _>>()?;
    let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    sequence(&all)
}

/// The name of a sender without one: an empty directory name.
fn nobody() -> GeneralName {
    GeneralName::DirectoryName(x509_cert::name::RdnSequence::default())
}
