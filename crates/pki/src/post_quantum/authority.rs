//! An authority that is kept offline: a root and one issuing authority below it.

use const_oid::db::rfc5912::ID_CE_CRL_NUMBER;
use const_oid::db::rfc5912::ID_CE_CRL_REASONS;
use der::{Decode as _, Encode as _};
use time::{Duration, OffsetDateTime};
use x509_cert::certificate::Certificate;
use x509_cert::crl::CertificateList;
use x509_cert::ext::pkix::{CrlNumber, CrlReason};

use super::{MlDsaKey, parse_and_verify_csr, verify};
use crate::crl::revocation::Revocation;
use crate::crl::{RevocationReason, RevokedEntry};
use crate::csr::CsrError;
use crate::extension::{find, from_x509_time};
use crate::issue::{CertificateAuthority, CertificateRequest, IssueError, Validity};
use crate::key::{Signer as _, VerifyError};
use crate::name::Subject;
use crate::oid::ExtensionArc;
use crate::profile::{CaKind, Profile, ProfileName, experimental};

/// Lives of the root and of the issuing authority; our choice, for an experiment.
const ROOT: Duration = Duration::days(3650);
const ISSUING: Duration = Duration::days(1825);
/// Longest life of a certificate, in days.
const MAX_DAYS: u32 = 730;
/// Time until the next list is due.
const LIST: Duration = Duration::days(30);
const DOCUMENT_SIGNING: &str = "document-signing-ml-dsa";

/// Why the authority did not do it.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error("certification request refused")]
    Csr(#[from] CsrError),
    /// The present list, which the next one continues, is none of this authority.
    #[error("the revocation list is not this authority's")]
    List(#[source] VerifyError),
    #[error("the revocation list cannot be read")]
    Malformed(#[from] der::Error),
    #[error("the certificate is not this authority's")]
    Foreign(#[source] VerifyError),
    #[error("a certificate lives 1 to {MAX_DAYS} days, not {0}")]
    Lifetime(u32),
    /// The profile did not come with this program.
    #[error("there is no profile {0:?}")]
    NoProfile(&'static str),
}

/// Whom a certificate is about, as whoever issues it says.
#[derive(Clone, Debug)]
pub struct Whom {
    pub name: String,
    pub uid: String,
    pub email: Option<String>,
    pub organisation: String,
    pub country: String,
}

/// An authority that certifies keys of ML-DSA-65 for signing documents.
pub struct Authority(CertificateAuthority);

impl Authority {
    /// Makes a root and an issuing authority of these keys; gives the root's certificate and list, and the issuing authority.
    ///
    /// # Errors
    /// [`AuthorityError::Issue`].
    pub fn create(
        (organisation, country): (&str, &str),
        root_key: MlDsaKey,
        issuing_key: MlDsaKey,
        now: OffsetDateTime,
    ) -> Result<(Certificate, Vec<u8>, Self), AuthorityError> {
        let request = |profile, what: &str, spki, lifetime, definition: &'static str| {
            let subject = Subject {
                organisation: Some(organisation.to_owned()),
                country: Some(country.to_owned()),
                ..Subject::new(format!("{organisation} {what} (experimental)"))
            };
            let validity = Validity::starting(now, lifetime);
            let mut request = CertificateRequest::new(profile, subject, spki, validity);
            let known = experimental(definition);
            request.definition = Some(known.ok_or(AuthorityError::NoProfile(definition))?);
            Ok::<_, AuthorityError>(request)
        };
        let of_root = request(Profile::Root, "ML-DSA root", root_key.spki(), ROOT, "root")?;
        let arc = ExtensionArc::default();
        let root = CertificateAuthority::create_root(&of_root, root_key, arc)?;
        let profile = Profile::IssuingCa(CaKind::Users);
        let (spki, name) = (issuing_key.spki(), "issuing authority");
        let of_issuing = request(profile, "ML-DSA users CA", spki, ISSUING, name)?;
        let issuing = root.issue(&of_issuing, now)?;
        let list = root.crl(1, &[], now, now.saturating_add(ROOT / 2))?;
        let issuing = Self::open(issuing, issuing_key)?;
        Ok((root.certificate().clone(), list, issuing))
    }

    /// Takes up issuing with the certificate and key of an issuing authority.
    ///
    /// # Errors
    /// [`IssueError::NotAnAuthority`].
    pub fn open(certificate: Certificate, key: MlDsaKey) -> Result<Self, AuthorityError> {
        let arc = ExtensionArc::default();
        Ok(Self(CertificateAuthority::new(certificate, key, arc)?))
    }

    /// Its certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        self.0.certificate()
    }

    /// Certifies the key of a certification request in DER, which proves its possession, for `days`. The names are those of
    /// `whom`, not of the request.
    ///
    /// # Errors
    /// [`AuthorityError`], one variant per reason.
    pub fn certify(
        &self,
        csr: &[u8],
        whom: &Whom,
        days: u32,
        now: OffsetDateTime,
    ) -> Result<Certificate, AuthorityError> {
        let lifetime = Duration::days(i64::from(days));
        if days > MAX_DAYS || days == 0 {
            return Err(AuthorityError::Lifetime(days));
        }
        let (spki, _) = parse_and_verify_csr(csr)?;
        let unknown = || AuthorityError::NoProfile(DOCUMENT_SIGNING);
        let name = ProfileName::new(DOCUMENT_SIGNING).ok_or_else(unknown)?;
        let authority = CaKind::Users;
        let subject = Subject {
            uid: Some(whom.uid.clone()),
            email: whom.email.clone(),
            organisation: Some(whom.organisation.clone()),
            country: Some(whom.country.clone()),
            ..Subject::new(&whom.name)
        };
        let validity = Validity::starting(now, lifetime);
        let profile = Profile::Named { name, authority };
        let mut request = CertificateRequest::new(profile, subject, spki, validity);
        request.definition = Some(experimental(DOCUMENT_SIGNING).ok_or_else(unknown)?);
        Ok(self.0.issue(&request, now)?)
    }

    /// Signs the next revocation list (DER): that of `present`, if there is one, and `revoked`. One that is on it already keeps
    /// its date and reason.
    ///
    /// # Errors
    /// [`AuthorityError::Foreign`] for a certificate of somebody else, [`AuthorityError::List`] for such a list.
    pub fn list(
        &self,
        present: Option<&[u8]>,
        revoked: Option<(&Certificate, RevocationReason)>,
        now: OffsetDateTime,
    ) -> Result<Vec<u8>, AuthorityError> {
        let (number, mut entries) = match present {
            None => (0, Vec::new()),
            Some(der) => self.read(der)?,
        };
        if let Some((certificate, reason)) = revoked {
            super::verify_issued(certificate, self.certificate())
                .map_err(AuthorityError::Foreign)?;
            let serial = certificate
                .tbs_certificate
                .serial_number
                .as_bytes()
                .to_vec();
            if !entries.iter().any(|entry| entry.serial == serial) {
                entries.push(RevokedEntry {
                    serial,
                    revocation: Revocation { at: now, reason },
                });
            }
        }
        let number = number.saturating_add(1);
        Ok(self
            .0
            .crl(number, &entries, now, now.saturating_add(LIST))?)
    }

    /// Number and entries of a list of this authority.
    pub(super) fn read(&self, der: &[u8]) -> Result<(u64, Vec<RevokedEntry>), AuthorityError> {
        let list = CertificateList::from_der(der)?;
        let tbs = &list.tbs_cert_list;
        let own = &self.certificate().tbs_certificate;
        let signature = list.signature.as_bytes().unwrap_or_default();
        let (spki, algorithm) = (&own.subject_public_key_info, &list.signature_algorithm);
        if tbs.issuer != own.subject || tbs.signature != *algorithm {
            return Err(AuthorityError::List(VerifyError::Mismatch));
        }
        verify(spki, algorithm, &tbs.to_der()?, signature).map_err(AuthorityError::List)?;
        let number = find(tbs.crl_extensions.as_ref(), ID_CE_CRL_NUMBER)?;
        let number = number.map(CrlNumber::from_der).transpose()?;
        let number = number.map_or(0, |number| {
            let bytes = number.0.as_bytes();
            bytes.iter().fold(0_u64, |so_far, byte| {
                so_far.saturating_mul(256).saturating_add(u64::from(*byte))
            })
        });
        let mut entries = Vec::new();
        for one in tbs.revoked_certificates.iter().flatten() {
            let code = find(one.crl_entry_extensions.as_ref(), ID_CE_CRL_REASONS)?;
            let code = code.map(CrlReason::from_der).transpose()?;
            let reason = code.and_then(RevocationReason::from_code);
            entries.push(RevokedEntry {
                serial: one.serial_number.as_bytes().to_vec(),
                revocation: Revocation {
                    at: from_x509_time(one.revocation_date),
                    reason: reason.unwrap_or(RevocationReason::Unspecified),
                },
            });
        }
        Ok((number, entries))
    }
}
