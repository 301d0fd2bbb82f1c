//! Whose certificates are believed.
//!
//! Paths are built and checked by rustls-webpki, revocation is looked up in pki's cache, which is fed
//! from files. What is demanded of a certificate for IKE is RFC 4945 §5: if it limits its use at all,
//! then to signatures, and to IKE, TLS servers or TLS clients.

use std::time::Duration;

use const_oid::db::rfc5912::ID_CE_KEY_USAGE;
use der::{Decode as _, Encode as _};
use ikev2::wire::Identification;
use pki::crl::{self, CrlError};
use pki::status::{IssuerId, StatusCache};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_cert::Certificate;
use x509_cert::ext::pkix::KeyUsage as Usage;

use super::identity;
use super::ocsp::{self, About, OcspPolicy, Said};
use super::requirement::{Requirement, Unmet};

/// Uses that we take, as DER contents of their identifiers: IKE, TLS server, TLS client.
const USES: [&[u8]; 3] = [
    &[0x2b, 6, 1, 5, 5, 7, 3, 17],
    &[0x2b, 6, 1, 5, 5, 7, 3, 1],
    &[0x2b, 6, 1, 5, 5, 7, 3, 2],
];

/// Why a certificate was not accepted, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Distrust {
    /// None came.
    #[error("no certificate came")]
    Empty,
    /// Not a certificate.
    #[error("unreadable certificate")]
    Unreadable,
    /// No path to an anchor.
    #[error("certificate of {subject}: unknown authority {issuer}")]
    UnknownAuthority {
        /// Whose it is.
        subject: String,
        /// Who issued it.
        issuer: String,
    },
    /// Too late.
    #[error("certificate of {subject} expired at {at}")]
    Expired {
        /// Whose it is.
        subject: String,
        /// Since when.
        at: String,
    },
    /// Too early.
    #[error("certificate of {subject} is not valid before {at}")]
    NotYetValid {
        /// Whose it is.
        subject: String,
        /// From when on.
        at: String,
    },
    /// On a revocation list.
    #[error("certificate of {subject} was revoked at {at} ({reason})")]
    Revoked {
        /// Whose it is.
        subject: String,
        /// Since when.
        at: String,
        /// Why.
        reason: String,
    },
    /// There must be a current revocation list and there is none.
    #[error("no current revocation list of {issuer}")]
    NoCrl {
        /// The authority.
        issuer: String,
    },
    /// There must be a current OCSP response and none came.
    #[error("no current OCSP response for the certificate of {subject}")]
    NoOcsp {
        /// Whose it is.
        subject: String,
    },
    /// The same, though responders were asked.
    #[error("no current OCSP response for the certificate of {subject}: {why}")]
    Unanswered {
        /// Whose it is.
        subject: String,
        /// Who was asked, and why that came to nothing.
        why: String,
    },
    /// It says that its holder is somebody else.
    #[error("certificate of {subject} does not say that its holder is {claimed}")]
    Identity {
        /// Whose it is.
        subject: String,
        /// Who the peer says it is.
        claimed: String,
    },
    /// It is for something else.
    #[error("certificate of {subject} is not for signatures in IKE")]
    Purpose {
        /// Whose it is.
        subject: String,
    },
    /// It is valid, but not for this connection.
    #[error("certificate of {subject} is not for this connection: {unmet}")]
    Requirement {
        /// Whose it is.
        subject: String,
        /// What is missing.
        unmet: Unmet,
    },
    /// Something else of RFC 5280 is violated.
    #[error("certificate of {subject}: {reason}")]
    Path {
        /// Whose it is.
        subject: String,
        /// What.
        reason: String,
    },
}

/// The anchors could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("{0} cannot be a trust anchor")]
pub(super) struct BadAnchor(String);

/// A certificate that was accepted, and what may end that.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    /// Its subject.
    pub(super) subject: String,
    /// Why it was accepted without an answer though a responder was to be asked.
    pub(super) unanswered: Option<String>,
    not_after: OffsetDateTime,
    links: Vec<Link>,
}

/// A chain that passed every check, except that perhaps no OCSP response speaks for the peer's certificate.
pub(super) struct Passed {
    key: Vec<u8>,
    accepted: Accepted,
    /// The certificate, if one was to come and none did.
    unsaid: Option<Unsaid>,
}

/// A certificate of which no response says anything, and those who may have issued it.
struct Unsaid {
    certificate: Certificate,
    issuers: Vec<Certificate>,
}

impl Passed {
    /// What a responder can be asked; none when all was said already.
    pub(super) fn question(&self) -> Option<About> {
        let unsaid = self.unsaid.as_ref()?;
        let issuers: Vec<&Certificate> = unsaid.issuers.iter().collect();
        About::new(&unsaid.certificate, &issuers)
    }

    /// Whether no response speaks for the peer's certificate though one was to come.
    pub(super) const fn is_unsaid(&self) -> bool {
        self.unsaid.is_some()
    }

    /// The same after a responder has said that the certificate is good.
    pub(super) fn good(self) -> Self {
        Self {
            unsaid: None,
            ..self
        }
    }
}

#[derive(Clone, Debug)]
struct Link {
    subject: String,
    issuer: IssuerId,
    issuer_name: String,
    serial: Vec<u8>,
}

/// Anchors, known authorities, revocation.
pub(super) struct Trust {
    anchors: Vec<TrustAnchor<'static>>,
    /// Anchors and other known authorities.
    authorities: Vec<Certificate>,
    intermediates: Vec<CertificateDer<'static>>,
    status: StatusCache,
    require_crl: bool,
    ocsp: OcspPolicy,
    responders: Vec<String>,
}

impl Trust {
    /// Believes what leads to `anchors`.
    ///
    /// # Errors
    /// [`BadAnchor`].
    pub(super) fn new(
        anchors: &[Certificate],
        intermediates: &[Certificate],
        require_crl: bool,
    ) -> Result<Self, BadAnchor> {
        let der = |certificate: &Certificate| {
            let der = certificate.to_der().map(CertificateDer::from);
            der.map_err(|_| BadAnchor(subject(certificate)))
        };
        let anchor = |certificate| {
            let anchor = anchor_from_trusted_cert(&der(certificate)?).map(|a| a.to_owned());
            anchor.map_err(|_| BadAnchor(subject(certificate)))
        };
        Ok(Self {
            anchors: anchors.iter().map(anchor).collect::<Result<_, _>>()?,
            intermediates: intermediates.iter().map(der).collect::<Result<_, _>>()?,
            authorities: anchors.iter().chain(intermediates).cloned().collect(),
            status: StatusCache::new(),
            require_crl,
            ocsp: OcspPolicy::Off,
            responders: Vec::new(),
        })
    }

    /// The same with another policy about OCSP, and who is asked.
    pub(super) fn with_ocsp(self, ocsp: OcspPolicy, responders: &[String]) -> Self {
        Self {
            ocsp,
            responders: responders.to_vec(),
            ..self
        }
    }

    /// Addresses of OCSP responders, in the order in which they are asked.
    pub(super) fn responders(&self) -> &[String] {
        &self.responders
    }

    /// What is asked of OCSP.
    pub(super) const fn ocsp(&self) -> OcspPolicy {
        self.ocsp
    }

    /// The authorities above a chain (the leaf first), as far as they are in it or known here.
    pub(super) fn above(&self, chain: &[Certificate]) -> Vec<Certificate> {
        const LEVELS: usize = 8;
        let mut above: Vec<Certificate> = chain.iter().skip(1).cloned().collect();
        while above.len() < LEVELS {
            let Some(top) = above.last().or(chain.first()) else {
                break;
            };
            if top.tbs_certificate.issuer == top.tbs_certificate.subject {
                break;
            }
            let mut known = self.authorities.iter();
            match known.find(|known| is_issued(top, known)) {
                Some(known) => above.push(known.clone()),
                None => break,
            }
        }
        above
    }

    /// SHA-1 of the public keys of all authorities, for certificate requests.
    pub(super) fn key_hashes(&self) -> Vec<[u8; 20]> {
        key_hashes(&self.authorities)
    }

    /// Takes a revocation list (DER) of one of the authorities.
    ///
    /// # Errors
    /// [`CrlError`].
    pub(super) fn accept_crl(&self, der: &[u8], now: OffsetDateTime) -> Result<(), CrlError> {
        let name = crl::parse(der)?.tbs_cert_list.issuer;
        let mut outcome = Err(CrlError::UnknownIssuer {
            issuer: name.to_string(),
        });
        for authority in &self.authorities {
            if authority.tbs_certificate.subject == name {
                outcome = crl::verify(der, authority, now);
                if outcome.is_ok() {
                    break;
                }
            }
        }
        self.status.apply(&outcome?)
    }

    /// Decides about a chain (DER, the peer's own first) and whether it speaks for `id`. `ocsp` is what
    /// responders said of it (DER); none is asked. The public key comes back as DER SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// [`Distrust`].
    pub(super) fn verify(
        &self,
        chain: &[Vec<u8>],
        ocsp: &[Vec<u8>],
        id: &Identification,
        requirement: &Requirement,
        now: OffsetDateTime,
    ) -> Result<(Vec<u8>, Accepted), Distrust> {
        self.conclude(self.examine(chain, ocsp, id, requirement, now)?, None)
    }

    /// The decision once nothing more is to be heard. `unanswered` is why asking came to nothing.
    ///
    /// # Errors
    /// [`Distrust::NoOcsp`], [`Distrust::Unanswered`].
    pub(super) fn conclude(
        &self,
        passed: Passed,
        unanswered: Option<String>,
    ) -> Result<(Vec<u8>, Accepted), Distrust> {
        let Passed {
            key,
            mut accepted,
            unsaid,
        } = passed;
        match (unsaid.is_some(), unanswered) {
            (true, None) if self.ocsp == OcspPolicy::Required => {
                let subject = accepted.subject;
                Err(Distrust::NoOcsp { subject })
            }
            (true, Some(why)) if self.ocsp == OcspPolicy::Required => {
                let subject = accepted.subject;
                Err(Distrust::Unanswered { subject, why })
            }
            (true, why) => {
                accepted.unanswered = why;
                Ok((key, accepted))
            }
            (false, _) => Ok((key, accepted)),
        }
    }

    /// Everything of [`Self::verify`] but whether an OCSP response must speak for the peer's certificate.
    ///
    /// # Errors
    /// [`Distrust`].
    pub(super) fn examine(
        &self,
        chain: &[Vec<u8>],
        ocsp: &[Vec<u8>],
        id: &Identification,
        requirement: &Requirement,
        now: OffsetDateTime,
    ) -> Result<Passed, Distrust> {
        let (first, rest) = chain.split_first().ok_or(Distrust::Empty)?;
        let leaf = pki::cert::from_der(first).map_err(|_| Distrust::Unreadable)?;
        let first = CertificateDer::from(first.as_slice());
        let end = EndEntityCert::try_from(&first).map_err(|error| judge(&error, &leaf))?;
        let sent = rest.iter().map(|der| CertificateDer::from(der.as_slice()));
        let intermediates: Vec<_> = sent.chain(self.intermediates.iter().cloned()).collect();
        let above = self.path(&end, &leaf, &intermediates, now)?;
        let name = subject(&leaf);
        if !may_sign(&leaf) {
            return Err(Distrust::Purpose { subject: name });
        }
        let claimed = identity::show(id);
        if !identity::speaks_for(&leaf, id) {
            let subject = name;
            return Err(Distrust::Identity { subject, claimed });
        }
        // The anchor is not among them, and may be the issuer.
        let mut authorities = above.clone();
        let top = above.last().unwrap_or(&leaf);
        let anchor = self.authorities.iter().find(|known| is_issued(top, known));
        authorities.extend(anchor.cloned());
        if let Err(unmet) = requirement.check(&leaf, id, &authorities) {
            let subject = name;
            return Err(Distrust::Requirement { subject, unmet });
        }
        let path = || std::iter::once(&leaf).chain(&above);
        let ends = path().map(|c| c.tbs_certificate.validity.not_after.to_unix_duration());
        let accepted = Accepted {
            subject: name,
            unanswered: None,
            not_after: at(ends.min().unwrap_or_default()),
            links: path().map(Link::of).collect(),
        };
        self.recheck(&accepted, now)?;
        let unsaid = match self.ocsp {
            OcspPolicy::Off => None,
            _ => self.check_ocsp(ocsp, &leaf, &above, now)?,
        };
        Ok(Passed {
            key: end.subject_public_key_info().to_vec(),
            accepted,
            unsaid,
        })
    }

    /// What responders say of a certificate and of the authorities above it. The certificate comes back if
    /// they say nothing of it.
    fn check_ocsp(
        &self,
        responses: &[Vec<u8>],
        leaf: &Certificate,
        above: &[Certificate],
        now: OffsetDateTime,
    ) -> Result<Option<Unsaid>, Distrust> {
        let mut unsaid = None;
        for (level, certificate) in std::iter::once(leaf).chain(above).enumerate() {
            let issuer = &certificate.tbs_certificate.issuer;
            let known = above.iter().chain(&self.authorities);
            let issuers = known.filter(|known| known.tbs_certificate.subject == *issuer);
            let issuers: Vec<&Certificate> = issuers.collect();
            match ocsp::look_up(responses, certificate, &issuers, now) {
                Some(Said::Revoked(at)) => {
                    return Err(Distrust::Revoked {
                        subject: subject(certificate),
                        at: text(at),
                        reason: "an OCSP responder says".to_owned(),
                    });
                }
                None if level == 0 => {
                    unsaid = Some(Unsaid {
                        certificate: certificate.clone(),
                        issuers: issuers.into_iter().cloned().collect(),
                    });
                }
                Some(Said::Good) | None => {}
            }
        }
        Ok(unsaid)
    }

    /// The authorities between a certificate and its anchor.
    fn path(
        &self,
        end: &EndEntityCert<'_>,
        leaf: &Certificate,
        intermediates: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<Vec<Certificate>, Distrust> {
        let seconds = u64::try_from(now.unix_timestamp()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let mut outcome = Err(Distrust::Purpose {
            subject: subject(leaf),
        });
        for usage in USES {
            let usage = KeyUsage::required_if_present(usage);
            let algorithms = webpki::ALL_VERIFICATION_ALGS;
            let verified = end.verify_for_usage(
                algorithms,
                &self.anchors,
                intermediates,
                now,
                usage,
                None,
                None,
            );
            match verified {
                Ok(path) => {
                    let ders = path.intermediate_certificates().map(|c| c.der());
                    let read = ders.map(|der| pki::cert::from_der(&der));
                    return read
                        .collect::<Result<_, _>>()
                        .map_err(|_| Distrust::Unreadable);
                }
                Err(error) => outcome = Err(judge(&error, leaf)),
            }
            if !matches!(outcome, Err(Distrust::Purpose { .. })) {
                break;
            }
        }
        outcome
    }

    /// Whether an accepted certificate still is. Costs no signature.
    ///
    /// # Errors
    /// [`Distrust::Expired`], [`Distrust::Revoked`], [`Distrust::NoCrl`].
    pub(super) fn recheck(&self, accepted: &Accepted, now: OffsetDateTime) -> Result<(), Distrust> {
        if now > accepted.not_after {
            return Err(Distrust::Expired {
                subject: accepted.subject.clone(),
                at: text(accepted.not_after),
            });
        }
        for link in &accepted.links {
            let revocation = self.status.lookup(link.issuer, &link.serial);
            if let Some(revocation) = revocation.filter(|revocation| revocation.at <= now) {
                return Err(Distrust::Revoked {
                    subject: link.subject.clone(),
                    at: text(revocation.at),
                    reason: revocation.reason.to_string(),
                });
            }
            let window = self.status.crl_window(link.issuer);
            if self.require_crl && window.is_none_or(|window| window.next_update < now) {
                let issuer = link.issuer_name.clone();
                return Err(Distrust::NoCrl { issuer });
            }
        }
        Ok(())
    }
}

impl Link {
    fn of(certificate: &Certificate) -> Self {
        let tbs = &certificate.tbs_certificate;
        Self {
            subject: subject(certificate),
            issuer: IssuerId::of(&tbs.issuer),
            issuer_name: tbs.issuer.to_string(),
            serial: tbs.serial_number.as_bytes().to_vec(),
        }
    }
}

/// Whether a certificate is by this issuer: by its name and its key.
pub(super) fn is_issued(certificate: &Certificate, issuer: &Certificate) -> bool {
    let (tbs, issuer) = (&certificate.tbs_certificate, &issuer.tbs_certificate);
    let is_signed = || {
        let data = tbs.to_der().ok()?;
        let spki = issuer.subject_public_key_info.to_der().ok()?;
        let signature = certificate.signature.as_bytes()?;
        pki::key::verify(&spki, &certificate.signature_algorithm, &data, signature).ok()
    };
    tbs.issuer == issuer.subject && is_signed().is_some()
}

/// SHA-1 of public keys, by which certificates are asked for (RFC 7296 §3.7).
pub(super) fn key_hashes(authorities: &[Certificate]) -> Vec<[u8; 20]> {
    use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
    let of = |certificate: &Certificate| {
        let spki = &certificate.tbs_certificate.subject_public_key_info;
        let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &spki.to_der().ok()?);
        sum.as_ref().try_into().ok()
    };
    authorities.iter().filter_map(of).collect()
}

/// Digital signature or non-repudiation, if the extension is there (RFC 4945 §5.1.3.2).
fn may_sign(certificate: &Certificate) -> bool {
    let extensions = certificate.tbs_certificate.extensions.iter().flatten();
    let mut usage = extensions.filter(|extension| extension.extn_id == ID_CE_KEY_USAGE);
    usage.all(|extension| {
        Usage::from_der(extension.extn_value.as_bytes())
            .is_ok_and(|usage| usage.digital_signature() || usage.non_repudiation())
    })
}

fn subject(certificate: &Certificate) -> String {
    certificate.tbs_certificate.subject.to_string()
}

fn at(since_1970: Duration) -> OffsetDateTime {
    let seconds = i64::try_from(since_1970.as_secs()).ok();
    seconds
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn text(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}

fn judge(error: &webpki::Error, leaf: &Certificate) -> Distrust {
    use webpki::Error;
    let subject = subject(leaf);
    let time = |time: UnixTime| text(at(Duration::from_secs(time.as_secs())));
    match error {
        Error::UnknownIssuer => Distrust::UnknownAuthority {
            subject,
            issuer: leaf.tbs_certificate.issuer.to_string(),
        },
        Error::CertExpired { not_after, .. } => Distrust::Expired {
            subject,
            at: time(*not_after),
        },
        Error::CertNotValidYet { not_before, .. } => Distrust::NotYetValid {
            subject,
            at: time(*not_before),
        },
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => {
            Distrust::Purpose { subject }
        }
        other => Distrust::Path {
            subject,
            reason: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests;
