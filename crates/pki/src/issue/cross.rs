//! Cross certificates of two roots, one of which takes the place of the other (RFC 9810, section 4.4).

use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::ext::pkix::BasicConstraints;

use super::{CertificateAuthority, CertificateRequest, IssueError, Validity, build};
use crate::extension::decoded;
use crate::name::{NameError, Subject, shown};
use crate::profile::Profile;
use const_oid::db::rfc5912::ID_CE_BASIC_CONSTRAINTS;

impl CertificateAuthority {
    /// Certifies the key of another root of the same name, by which those who trust this one accept what the other certified.
    /// With one name the certificate is self-issued, and adds nothing to the length of paths.
    ///
    /// # Errors
    /// [`IssueError::WrongAuthority`] if either is no root, or they are one or have two names; otherwise as
    /// [`Self::issue`].
    pub fn cross_certify(
        &self,
        root: &Certificate,
        validity: Validity,
        now: OffsetDateTime,
    ) -> Result<Certificate, IssueError> {
        let (other, own) = (&root.tbs_certificate, &self.certificate.tbs_certificate);
        let basic: Option<BasicConstraints> = decoded(root, ID_CE_BASIC_CONSTRAINTS)?;
        let is_root = basic.is_some_and(|basic| basic.ca) && self.kind.is_none();
        let names = [&other.issuer, &own.issuer, &own.subject];
        let have_one_name = names.iter().all(|name| **name == other.subject);
        let is_other = other.subject_public_key_info != own.subject_public_key_info;
        if !(is_root && have_one_name && is_other) {
            return Err(IssueError::WrongAuthority {
                profile: Profile::Root,
                authority: shown(&own.subject),
            });
        }
        let subject = Subject::from_name(&own.subject)?;
        if subject.to_name()? != own.subject {
            return Err(NameError::Malformed.into());
        }
        let spki = other.subject_public_key_info.clone();
        let request = CertificateRequest::new(Profile::Root, subject, spki, validity);
        self.check_validity(&request, now)?;
        build(&request, &request.spki, &self.signing()?)
    }
}
