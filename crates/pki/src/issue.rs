//! Issuing: from a profile and a public key to a signed certificate.

mod cross;
mod extensions;

use const_oid::db::rfc5912::{
    ID_CE_BASIC_CONSTRAINTS, ID_CE_KEY_USAGE, ID_CE_SUBJECT_KEY_IDENTIFIER,
};
use der::Encode;
use der::asn1::BitString;
use spki::SubjectPublicKeyInfoOwned;
use time::{Duration, OffsetDateTime};
use x509_cert::certificate::{Certificate, TbsCertificate, Version};
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage, SubjectKeyIdentifier};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;

pub(crate) use self::extensions::distribution_point;
use self::extensions::extensions;
use crate::clearance::{Clearance, ClearanceError};
use crate::extension::{decoded, from_x509_time, key_identifier, to_x509_time};
use crate::key::{AuthorityKey, KeyAlgorithm, KeyError, Signer};
use crate::lint::{Findings, Rules};
use crate::name::{AltName, NameError, SecurityIdentifier, Subject, shown};
use crate::oid::{AUTHORITY_CLEARANCE_CONSTRAINTS, ExtensionArc};
use crate::profile::{CaKind, Profile, SharedDefinition};

/// Length of the serial numbers we make, in bytes. RFC 5280 allows 20.
const SERIAL_LEN: usize = 16;
/// How far certificates are dated back, for relying parties whose clock is slow; our choice.
const BACKDATE: Duration = Duration::minutes(5);

/// The period in which a certificate may be used; both ends belong to it, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

impl Validity {
    /// From five minutes before `now`, for clocks that are slow, until `lifetime` after `now`.
    #[must_use]
    pub fn starting(now: OffsetDateTime, lifetime: Duration) -> Self {
        Self {
            not_before: now.saturating_sub(BACKDATE),
            not_after: now.saturating_add(lifetime),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    pub profile: Profile,
    /// Whom it is about. An e-mail address is repeated in subjectAltName, a UID in an extension.
    pub subject: Subject,
    /// The public key; the caller has checked that the subject holds the private half.
    pub spki: SubjectPublicKeyInfoOwned,
    /// Definition of the profile; the built-in one if `None`.
    pub definition: Option<SharedDefinition>,
    /// Further names; at least one for a server.
    pub alt_names: Vec<AltName>,
    /// The holder's security identifier in Windows.
    pub sid: Option<SecurityIdentifier>,
    /// Of an end entity: its clearance. Of an authority: the highest it may grant.
    pub clearance: Option<Clearance>,
    /// When it may be used.
    pub validity: Validity,
    /// Serial number as an unsigned big-endian integer of at most 20 bytes; random if `None`.
    pub serial: Option<Vec<u8>>,
    /// Where the issuer's CRL is published.
    pub crl_url: Option<String>,
    /// Where the delta CRL to that one is published.
    pub freshest_crl_url: Option<String>,
    /// Where the issuer's OCSP responder is.
    pub ocsp_url: Option<String>,
    /// Where the issuer's certificate is published (DER).
    pub issuer_url: Option<String>,
}

impl CertificateRequest {
    /// A request with neither further names, clearance, addresses of CRL and OCSP nor a serial of its own.
    #[must_use]
    pub fn new(
        profile: Profile,
        subject: Subject,
        spki: SubjectPublicKeyInfoOwned,
        validity: Validity,
    ) -> Self {
        Self {
            profile,
            subject,
            spki,
            definition: None,
            alt_names: Vec::new(),
            sid: None,
            clearance: None,
            validity,
            serial: None,
            crl_url: None,
            freshest_crl_url: None,
            ocsp_url: None,
            issuer_url: None,
        }
    }
}

/// Why no certificate or CRL was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The certificate given is not one of an authority, or not one for its key.
    #[error("not an authority: {reason}")]
    NotAnAuthority { reason: &'static str },
    /// This authority does not issue this profile.
    #[error("a {profile} certificate is not issued by {authority}")]
    WrongAuthority {
        /// What was asked for.
        profile: Profile,
        authority: String,
    },
    /// The request names no profile.
    #[error("there is no profile {0}")]
    UnknownProfile(Profile),
    /// The certificate that would have been signed breaks a rule.
    #[error("not signed: {0}")]
    Lint(Findings),
    /// The key cannot do what the profile is for.
    #[error("a {key} key cannot serve a {profile} certificate")]
    KeyNotForProfile {
        /// What was asked for.
        profile: Profile,
        /// Type of the subject's key.
        key: KeyAlgorithm,
    },
    /// The subject's key is of a type or size that is not accepted.
    #[error("unusable subject key")]
    SubjectKey(#[source] KeyError),
    /// The clearance asked for exceeds what the authority may grant.
    #[error("clearance {requested} is above the authority's {allowed}")]
    ClearanceAboveAuthority {
        /// What was asked for.
        requested: Clearance,
        allowed: Clearance,
    },
    /// The end of the period lies before its start.
    #[error("validity ends before it starts")]
    ValidityInverted,
    /// The certificate would outlive its issuer's.
    #[error("validity until {not_after} outlives the issuer, valid until {issuer_not_after}")]
    OutlivesIssuer {
        /// End of the period asked for.
        not_after: OffsetDateTime,
        /// End of the issuer's period.
        issuer_not_after: OffsetDateTime,
    },
    /// The authority's certificate is expired or not valid yet.
    #[error("the authority's certificate is not valid at {now}")]
    IssuerNotValid {
        /// The time of issuing.
        now: OffsetDateTime,
    },
    /// A server certificate needs a host name or address.
    #[error("a server certificate needs a DNS name or IP address")]
    ServerWithoutName,
    /// A delta CRL adds to a complete one that was issued before.
    #[error("the base of the delta CRL has a higher number")]
    DeltaBeforeBase,
    /// The serial number is zero or too long.
    #[error("serial number is not a positive integer of at most 20 bytes")]
    Serial,
    /// A name in the request is wrong.
    #[error("invalid name")]
    Name(#[from] NameError),
    /// Clearance could not be encoded or, in the authority's certificate, read.
    #[error("invalid clearance")]
    Clearance(#[from] ClearanceError),
    /// The authority's key could not sign.
    #[error("authority key failed")]
    Sign(#[source] KeyError),
    #[error("cannot encode")]
    Encode(#[from] der::Error),
}

/// A certificate and key that issue.
pub struct CertificateAuthority {
    certificate: Certificate,
    key: AuthorityKey,
    arc: ExtensionArc,
    kind: Option<CaKind>,
    max_clearance: Option<Clearance>,
}

impl CertificateAuthority {
    /// Takes up issuing with an existing certificate and key.
    ///
    /// # Errors
    /// [`IssueError::NotAnAuthority`] if the certificate lacks the authority bit or key usage, or
    /// belongs to another key; [`IssueError::Clearance`] if its clearance constraint is unreadable.
    pub fn new(
        certificate: Certificate,
        key: impl Into<AuthorityKey>,
        arc: ExtensionArc,
    ) -> Result<Self, IssueError> {
        let key = key.into();
        let not = |reason| IssueError::NotAnAuthority { reason };
        if certificate.tbs_certificate.subject_public_key_info != key.spki() {
            return Err(not("certificate and key do not belong together"));
        }
        let basic: Option<BasicConstraints> = decoded(&certificate, ID_CE_BASIC_CONSTRAINTS)?;
        if !basic.is_some_and(|b| b.ca) {
            return Err(not("basic constraints without authority bit"));
        }
        let usage: Option<KeyUsage> = decoded(&certificate, ID_CE_KEY_USAGE)?;
        if !usage.is_some_and(|u| u.key_cert_sign() && u.crl_sign()) {
            return Err(not("key usage without certificate and CRL signing"));
        }
        let kind = ca_kind(&certificate, &arc).map_err(|()| not("unknown kind of authority"))?;
        let max_clearance = authority_clearance(&certificate, &arc)?;
        Ok(Self {
            certificate,
            key,
            arc,
            kind,
            max_clearance,
        })
    }

    /// Creates a self-signed root; `request.spki` is ignored in favour of `key`.
    ///
    /// # Errors
    /// [`IssueError`]; the profile must be [`Profile::Root`].
    pub fn create_root(
        request: &CertificateRequest,
        key: impl Into<AuthorityKey>,
        arc: ExtensionArc,
    ) -> Result<Self, IssueError> {
        let key = key.into();
        if request.profile != Profile::Root {
            return Err(IssueError::WrongAuthority {
                profile: request.profile,
                authority: "itself".into(),
            });
        }
        let name = request.subject.to_name()?;
        let spki = key.spki();
        let issuer = Signing {
            name,
            key_id: key_identifier(&spki)?,
            certificate: None,
            max_clearance: None,
            key: &*key,
            arc: &arc,
        };
        let certificate = build(request, &spki, &issuer)?;
        Self::new(certificate, key, arc)
    }

    /// Issues a certificate.
    ///
    /// # Errors
    /// [`IssueError`], one variant per reason; nothing is signed in case of an error.
    pub fn issue(
        &self,
        request: &CertificateRequest,
        now: OffsetDateTime,
    ) -> Result<Certificate, IssueError> {
        self.check(request, now)?;
        build(request, &request.spki, &self.signing()?)
    }

    fn signing(&self) -> Result<Signing<'_>, IssueError> {
        Ok(Signing {
            name: self.certificate.tbs_certificate.subject.clone(),
            key_id: self.key_id()?,
            certificate: Some(&self.certificate),
            max_clearance: self.max_clearance,
            key: &*self.key,
            arc: &self.arc,
        })
    }

    fn check(&self, request: &CertificateRequest, now: OffsetDateTime) -> Result<(), IssueError> {
        let profile = request.profile;
        let fits = match (profile, self.kind) {
            (Profile::Root, _) => false,
            (Profile::IssuingCa(_) | Profile::CeremonySigner, kind) => kind.is_none(),
            (_, kind) => kind.is_some() && profile.issued_by() == kind,
        };
        if !fits {
            let authority = shown(&self.certificate.tbs_certificate.subject);
            return Err(IssueError::WrongAuthority { profile, authority });
        }
        self.check_validity(request, now)?;
        if let (Some(requested), Some(allowed)) = (request.clearance, self.max_clearance)
            && requested > allowed
        {
            return Err(IssueError::ClearanceAboveAuthority { requested, allowed });
        }
        Ok(())
    }

    fn check_validity(
        &self,
        request: &CertificateRequest,
        now: OffsetDateTime,
    ) -> Result<(), IssueError> {
        let own = self.validity();
        if now < own.not_before || now > own.not_after {
            return Err(IssueError::IssuerNotValid { now });
        }
        if request.validity.not_after > own.not_after {
            return Err(IssueError::OutlivesIssuer {
                not_after: request.validity.not_after,
                issuer_not_after: own.not_after,
            });
        }
        Ok(())
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The authority's own certificate in DER.
    #[must_use]
    pub fn certificate_der(&self) -> Vec<u8> {
        // It was parsed or built by us, so it encodes.
        self.certificate.to_der().unwrap_or_default()
    }

    /// What this authority issues; `None` for a root.
    #[must_use]
    pub fn kind(&self) -> Option<CaKind> {
        self.kind
    }

    /// The highest clearance it may grant; `None` if its certificate sets no bound.
    #[must_use]
    pub fn max_clearance(&self) -> Option<Clearance> {
        self.max_clearance
    }

    /// The period of the authority's certificate.
    #[must_use]
    pub fn validity(&self) -> Validity {
        let validity = &self.certificate.tbs_certificate.validity;
        Validity {
            not_before: from_x509_time(validity.not_before),
            not_after: from_x509_time(validity.not_after),
        }
    }

    pub(crate) fn key(&self) -> &dyn Signer {
        &*self.key
    }

    /// The identifier that certificates and CRLs of this authority name.
    pub(crate) fn key_id(&self) -> Result<SubjectKeyIdentifier, IssueError> {
        let own = decoded(&self.certificate, ID_CE_SUBJECT_KEY_IDENTIFIER)?;
        own.map_or_else(|| Ok(key_identifier(&self.key.spki())?), Ok)
    }
}

/// What an issuing authority's certificate says it issues; `Err` for a value that is unknown.
pub(crate) fn ca_kind(certificate: &Certificate, arc: &ExtensionArc) -> Result<Option<CaKind>, ()> {
    let name: Option<String> = decoded(certificate, arc.ca_kind).map_err(|_| ())?;
    name.map(|n| n.parse().map_err(|_| ())).transpose()
}

/// The clearance constraint in an authority's certificate.
pub(crate) fn authority_clearance(
    certificate: &Certificate,
    arc: &ExtensionArc,
) -> Result<Option<Clearance>, ClearanceError> {
    let extensions = certificate.tbs_certificate.extensions.as_ref();
    crate::extension::find(extensions, AUTHORITY_CLEARANCE_CONSTRAINTS)
        .map_err(|_| ClearanceError::Malformed)?
        .map(|der| Clearance::from_authority_constraints(der, arc.security_policy))
        .transpose()
}

/// The signer.
struct Signing<'a> {
    name: Name,
    key_id: SubjectKeyIdentifier,
    /// Its certificate; `None` of a root that signs itself.
    certificate: Option<&'a Certificate>,
    max_clearance: Option<Clearance>,
    key: &'a dyn Signer,
    arc: &'a ExtensionArc,
}

fn build(
    request: &CertificateRequest,
    spki: &SubjectPublicKeyInfoOwned,
    issuer: &Signing<'_>,
) -> Result<Certificate, IssueError> {
    let Validity {
        not_before,
        not_after,
    } = request.validity;
    if not_after < not_before {
        return Err(IssueError::ValidityInverted);
    }
    let definition = request
        .definition
        .as_ref()
        .or_else(|| request.profile.definition())
        .ok_or(IssueError::UnknownProfile(request.profile))?;
    let tbs_certificate = TbsCertificate {
        version: Version::V3,
        serial_number: serial(request.serial.as_deref())?,
        signature: issuer.key.signature_algorithm(),
        issuer: issuer.name.clone(),
        validity: x509_cert::time::Validity {
            not_before: to_x509_time(not_before)?,
            not_after: to_x509_time(not_after)?,
        },
        subject: request.subject.to_name()?,
        subject_public_key_info: spki.clone(),
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: Some(extensions(request, definition, spki, issuer)?),
    };
    let tbs = tbs_certificate.to_der()?;
    let rules = Rules {
        definition,
        kind: match request.profile {
            Profile::IssuingCa(kind) => Some(kind),
            _ => None,
        },
        issuer: issuer.certificate,
        highest_clearance: issuer.max_clearance,
        arc: issuer.arc,
    };
    let findings = rules.check(&tbs);
    if !findings.is_empty() {
        return Err(IssueError::Lint(findings));
    }
    let signature = issuer.key.sign(&tbs).map_err(IssueError::Sign)?;
    Ok(Certificate {
        signature_algorithm: tbs_certificate.signature.clone(),
        tbs_certificate,
        signature: BitString::from_bytes(&signature)?,
    })
}

fn serial(given: Option<&[u8]>) -> Result<SerialNumber, IssueError> {
    if let Some(bytes) = given {
        if bytes.iter().all(|b| *b == 0) {
            return Err(IssueError::Serial);
        }
        return SerialNumber::new(bytes).map_err(|_| IssueError::Serial);
    }
    let mut bytes = [0_u8; SERIAL_LEN];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| IssueError::Serial)?;
    // Positive and always of the same length: the first two bits are 01.
    if let Some(first) = bytes.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    SerialNumber::new(&bytes).map_err(|_| IssueError::Serial)
}
