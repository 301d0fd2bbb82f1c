//! Checks of a certificate before it is signed: against its profile, and against RFC 5280.
//!
//! They read the very bytes that are to be signed and share nothing with what made these but tables of names, so that a
//! mistake there is not made twice. What breaks a rule is not signed. Each rule has a stable name and says in which section
//! it stands; `pkilint` and `zlint` check the same certificates in the tests.

mod names;

use std::collections::BTreeSet;
use std::fmt;

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5280::ID_CE_FRESHEST_CRL;
use const_oid::db::rfc5912::{
    ID_AD_CA_ISSUERS, ID_AD_OCSP, ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_BASIC_CONSTRAINTS,
    ID_CE_CRL_DISTRIBUTION_POINTS, ID_CE_EXT_KEY_USAGE, ID_CE_KEY_USAGE, ID_CE_SUBJECT_ALT_NAME,
    ID_CE_SUBJECT_DIRECTORY_ATTRIBUTES, ID_CE_SUBJECT_KEY_IDENTIFIER, ID_PE_AUTHORITY_INFO_ACCESS,
};
use const_oid::db::rfc6960::ID_PKIX_OCSP_NOCHECK;
use der::{Decode, Encode};
use x509_cert::attr::Attribute;
use x509_cert::certificate::{Certificate, TbsCertificate, Version};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::crl::CrlDistributionPoints;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    AuthorityInfoAccessSyntax, AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage,
    KeyUsage, SubjectAltName, SubjectKeyIdentifier,
};
use x509_cert::time::Time;

use crate::clearance::Clearance;
use crate::extension::{from_x509_time, key_identifier};
use crate::name::SecurityIdentifier;
use crate::oid::eku::{ANY, TIME_STAMPING};
use crate::oid::{AUTHORITY_CLEARANCE_CONSTRAINTS, CLEARANCE, ExtensionArc, NTDS_CA_SECURITY};
use crate::profile::{CaKind, Definition, Presence};

/// A rule that a certificate breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable name of the rule, in kebab case.
    pub rule: &'static str,
    /// Description of the error, with the section of the standard if it is one's.
    pub what: String,
}

/// All rules that a certificate breaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Tells whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, rule: &'static str, what: impl Into<String>) {
        let what = what.into();
        self.0.push(Finding { rule, what });
    }

    fn unless(&mut self, holds: bool, rule: &'static str, what: &str) {
        if !holds {
            self.add(rule, what);
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, finding) in self.0.iter().enumerate() {
            let between = if number > 0 { "; " } else { "" };
            write!(f, "{between}{} ({})", finding.what, finding.rule)?;
        }
        Ok(())
    }
}

/// Rules for a certificate.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    pub definition: &'a Definition,
    /// Kind of an issuing authority.
    pub kind: Option<CaKind>,
    /// The issuer's certificate; `None` of a root, which signs itself.
    pub issuer: Option<&'a Certificate>,
    /// The highest clearance that the issuer may grant.
    pub highest_clearance: Option<Clearance>,
    pub arc: &'a ExtensionArc,
}

/// Extensions by their identifiers, each once.
struct Extensions<'a> {
    all: &'a [Extension],
}

impl<'a> Extensions<'a> {
    fn get(&self, oid: ObjectIdentifier) -> Option<&'a Extension> {
        self.all.iter().find(|one| one.extn_id == oid)
    }

    /// The value of an extension that is there and has the criticality that it must have.
    fn value<T: Decode<'a>>(
        &self,
        oid: ObjectIdentifier,
        critical: bool,
        rule: &'static str,
        findings: &mut Findings,
    ) -> Option<T> {
        let one = self.get(oid)?;
        if one.critical != critical {
            let must = if critical { "must be" } else { "must not be" };
            findings.add(rule, format!("extension {oid} {must} critical"));
        }
        match T::from_der(one.extn_value.as_bytes()) {
            Ok(value) => Some(value),
            Err(_) => {
                findings.add(rule, format!("extension {oid} cannot be read"));
                None
            }
        }
    }
}

impl Rules<'_> {
    /// Holds the part of a certificate that is signed (`TBSCertificate` in DER) against the rules.
    #[must_use]
    pub fn check(&self, tbs_der: &[u8]) -> Findings {
        let mut findings = Findings::default();
        let Ok(tbs) = TbsCertificate::from_der(tbs_der) else {
            findings.add("der", "what would be signed is no certificate");
            return findings;
        };
        let same = tbs.to_der().is_ok_and(|again| again == tbs_der);
        findings.unless(
            same,
            "der",
            "the encoding is not DER (RFC 5280, section 4.1)",
        );
        let all = tbs.extensions.as_deref().unwrap_or_default();
        let extensions = Extensions { all };
        self.frame(&tbs, &mut findings);
        self.dates(&tbs, &mut findings);
        self.known(&tbs, &extensions, &mut findings);
        self.usage(&tbs, &extensions, &mut findings);
        self.key_identifiers(&tbs, &extensions, &mut findings);
        names::check(self, &tbs, &extensions, &mut findings);
        self.addresses(&extensions, &mut findings);
        self.clearance(&extensions, &mut findings);
        findings
    }

    fn frame(&self, tbs: &TbsCertificate, findings: &mut Findings) {
        findings.unless(
            tbs.version == Version::V3,
            "version",
            "extensions need version 3 (RFC 5280, section 4.1.2.1)",
        );
        let serial = tbs.serial_number.as_bytes();
        let positive = serial.first().is_some_and(|first| first & 0x80 == 0)
            && serial.iter().any(|byte| *byte != 0);
        findings.unless(
            positive && serial.len() <= 20,
            "serial",
            "the serial number is no positive integer of at most 20 bytes (RFC 5280, section 4.1.2.2)",
        );
        let unique = tbs.issuer_unique_id.is_none() && tbs.subject_unique_id.is_none();
        findings.unless(
            unique,
            "unique-identifiers",
            "there are unique identifiers (RFC 5280, section 4.1.2.8)",
        );
        let issuer = match self.issuer {
            Some(issuer) => &issuer.tbs_certificate.subject,
            None => &tbs.subject,
        };
        findings.unless(
            tbs.issuer == *issuer && !tbs.issuer.0.is_empty(),
            "issuer-name",
            "the issuer's name is not that of its certificate (RFC 5280, section 4.1.2.4)",
        );
    }

    fn dates(&self, tbs: &TbsCertificate, findings: &mut Findings) {
        let (from, until) = (tbs.validity.not_before, tbs.validity.not_after);
        for time in [from, until] {
            let short = matches!(time, Time::UtcTime(_));
            findings.unless(
                short == (from_x509_time(time).year() <= 2049),
                "date-form",
                "dates are UTCTime up to 2049 and GeneralizedTime after (RFC 5280, section 4.1.2.5)",
            );
        }
        let (from, until) = (from_x509_time(from), from_x509_time(until));
        findings.unless(from <= until, "dates", "it ends before it begins");
        if let Some(issuer) = self.issuer {
            let end = from_x509_time(issuer.tbs_certificate.validity.not_after);
            findings.unless(until <= end, "outlives-issuer", "it outlives its issuer");
        }
        // What is dated back for slow clocks is not counted.
        let longest = self.definition.lifetime();
        let is_short = longest.is_none_or(|most| until - from <= most + time::Duration::HOUR);
        findings.unless(
            is_short,
            "lifetime",
            "it lives longer than the profile says",
        );
    }

    /// Extensions are there once, and none is there that the profile does not know.
    fn known(&self, tbs: &TbsCertificate, extensions: &Extensions<'_>, findings: &mut Findings) {
        let mut seen = BTreeSet::new();
        let once = extensions.all.iter().all(|one| seen.insert(one.extn_id));
        findings.unless(
            once,
            "extension-twice",
            "an extension is there twice (RFC 5280, section 4.2)",
        );
        let definition = self.definition;
        let is_ca = definition.is_ca();
        let names = definition.names();
        let with_clearance = definition.clearance() != Presence::None;
        let has_names = [names.email, names.principal, names.host]
            .iter()
            .any(|one| *one != Presence::None);
        let arc = self.arc;
        for one in extensions.all {
            let oid = one.extn_id;
            let allowed = match oid {
                ID_CE_KEY_USAGE
                | ID_CE_SUBJECT_KEY_IDENTIFIER
                | ID_CE_AUTHORITY_KEY_IDENTIFIER
                | ID_CE_CRL_DISTRIBUTION_POINTS
                | ID_CE_FRESHEST_CRL
                | ID_PE_AUTHORITY_INFO_ACCESS => true,
                ID_CE_BASIC_CONSTRAINTS => is_ca,
                ID_CE_EXT_KEY_USAGE => !is_ca,
                ID_CE_SUBJECT_ALT_NAME => has_names,
                ID_PKIX_OCSP_NOCHECK => definition.has_no_check(),
                NTDS_CA_SECURITY => names.security_identifier != Presence::None,
                AUTHORITY_CLEARANCE_CONSTRAINTS => is_ca && with_clearance,
                ID_CE_SUBJECT_DIRECTORY_ATTRIBUTES => !is_ca && with_clearance,
                oid if oid == arc.level => !is_ca && with_clearance,
                oid if oid == arc.user_id => names.uid != Presence::None,
                oid if oid == arc.ca_kind => is_ca && self.kind.is_some(),
                _ => false,
            };
            if !allowed {
                let name = definition.name();
                findings.add(
                    "extension",
                    format!("the profile {name} has no extension {oid}"),
                );
            }
        }
        findings.unless(
            definition.has_no_check() == extensions.get(ID_PKIX_OCSP_NOCHECK).is_some(),
            "ocsp-no-check",
            "a signer of OCSP responses says that nobody need ask about it (RFC 6960, section 4.2.2.2.1)",
        );
        // RFC 5280, section 4.1.2.6: an authority is named.
        findings.unless(
            !is_ca || !tbs.subject.0.is_empty(),
            "subject",
            "an authority has no name",
        );
    }

    fn usage(&self, tbs: &TbsCertificate, extensions: &Extensions<'_>, findings: &mut Findings) {
        let definition = self.definition;
        let basic: Option<BasicConstraints> =
            extensions.value(ID_CE_BASIC_CONSTRAINTS, true, "basic-constraints", findings);
        let right = match (&basic, definition.is_ca()) {
            (None, false) => true,
            (Some(basic), true) => basic.ca && basic.path_len_constraint == definition.path_len(),
            _ => false,
        };
        findings.unless(
            right,
            "basic-constraints",
            "basic constraints are not those of the profile (RFC 5280, section 4.2.1.9)",
        );
        let usage: Option<KeyUsage> =
            extensions.value(ID_CE_KEY_USAGE, true, "key-usage", findings);
        match definition.usage_of_key(&tbs.subject_public_key_info) {
            Err(error) => findings.add("key", format!("the key is not accepted: {error}")),
            Ok(of_profile) => findings.unless(
                usage.is_some() && usage == of_profile,
                "key-usage",
                "key usage is not that of the profile (RFC 5280, section 4.2.1.3)",
            ),
        }
        let signs_certificates = usage.is_some_and(|usage| usage.key_cert_sign());
        findings.unless(
            signs_certificates == definition.is_ca(),
            "key-usage",
            "only authorities sign certificates (RFC 5280, section 4.2.1.9)",
        );
        let critical = definition.has_critical_purposes();
        let purposes: Option<ExtendedKeyUsage> =
            extensions.value(ID_CE_EXT_KEY_USAGE, critical, "purposes", findings);
        let purposes = purposes.map_or_else(Vec::new, |purposes| purposes.0);
        findings.unless(
            purposes == definition.purposes(),
            "purposes",
            "extended key usages are not those of the profile",
        );
        findings.unless(
            !purposes.contains(&ANY),
            "purposes",
            "a purpose is named, not any (RFC 5280, section 4.2.1.12)",
        );
        if purposes.contains(&TIME_STAMPING) {
            let is_critical = extensions
                .get(ID_CE_EXT_KEY_USAGE)
                .is_some_and(|one| one.critical);
            findings.unless(
                is_critical,
                "time-stamping",
                "time stamping is critical (RFC 3161, section 2.3)",
            );
            findings.unless(
                purposes.len() == 1 || definition.has_time_stamping_among_others(),
                "time-stamping",
                "time stamping is the only purpose (RFC 3161, section 2.3)",
            );
        }
    }

    fn key_identifiers(
        &self,
        tbs: &TbsCertificate,
        extensions: &Extensions<'_>,
        findings: &mut Findings,
    ) {
        const RULE: &str = "key-identifier";
        let own: Option<SubjectKeyIdentifier> =
            extensions.value(ID_CE_SUBJECT_KEY_IDENTIFIER, false, RULE, findings);
        let computed = key_identifier(&tbs.subject_public_key_info).ok();
        findings.unless(
            own.is_some() && own == computed,
            RULE,
            "the subject's key identifier is not that of the key (RFC 5280, section 4.2.1.2)",
        );
        let of_issuer: Option<AuthorityKeyIdentifier> =
            extensions.value(ID_CE_AUTHORITY_KEY_IDENTIFIER, false, RULE, findings);
        let of_issuer = of_issuer.and_then(|identifier| identifier.key_identifier);
        let wanted = match self.issuer {
            None => computed.map(|identifier| identifier.0),
            Some(issuer) => {
                let all = issuer.tbs_certificate.extensions.as_deref();
                let issuer_extensions = Extensions {
                    all: all.unwrap_or_default(),
                };
                let named = issuer_extensions.get(ID_CE_SUBJECT_KEY_IDENTIFIER);
                let named = named
                    .and_then(|one| SubjectKeyIdentifier::from_der(one.extn_value.as_bytes()).ok());
                let key = &issuer.tbs_certificate.subject_public_key_info;
                named
                    .or_else(|| key_identifier(key).ok())
                    .map(|identifier| identifier.0)
            }
        };
        findings.unless(
            of_issuer.is_some() && of_issuer == wanted,
            RULE,
            "the authority's key identifier is not the issuer's (RFC 5280, section 4.2.1.1)",
        );
    }

    /// Checks the addresses of lists and of the OCSP responder.
    fn addresses(&self, extensions: &Extensions<'_>, findings: &mut Findings) {
        const RULE: &str = "addresses";
        let is_address = |name: &GeneralName| match name {
            GeneralName::UniformResourceIdentifier(url) => {
                let schemes = ["http://", "https://", "ldap://"];
                let url = url.as_str();
                schemes.iter().any(|scheme| {
                    url.strip_prefix(scheme)
                        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
                })
            }
            _ => false,
        };
        for oid in [ID_CE_CRL_DISTRIBUTION_POINTS, ID_CE_FRESHEST_CRL] {
            let points: Option<CrlDistributionPoints> =
                extensions.value(oid, false, RULE, findings);
            let Some(points) = points else { continue };
            let good = points.0.iter().all(|point| {
                let named = match &point.distribution_point {
                    Some(DistributionPointName::FullName(names)) => {
                        !names.is_empty() && names.iter().all(is_address)
                    }
                    _ => false,
                };
                named && point.reasons.is_none() && point.crl_issuer.is_none()
            });
            findings.unless(
                good && !points.0.is_empty(),
                RULE,
                "a list is where a URL says, for all reasons (RFC 5280, section 4.2.1.13)",
            );
        }
        let access: Option<AuthorityInfoAccessSyntax> =
            extensions.value(ID_PE_AUTHORITY_INFO_ACCESS, false, RULE, findings);
        let good = access.is_none_or(|access| {
            let mut all = access.0.iter();
            !access.0.is_empty()
                && all.all(|one| {
                    [ID_AD_OCSP, ID_AD_CA_ISSUERS].contains(&one.access_method)
                        && is_address(&one.access_location)
                })
        });
        findings.unless(
            good,
            RULE,
            "a responder or issuer is where a URL says (RFC 5280, section 4.2.2.1)",
        );
    }

    fn clearance(&self, extensions: &Extensions<'_>, findings: &mut Findings) {
        const RULE: &str = "clearance";
        let policy = self.arc.security_policy;
        let attributes: Option<Vec<Attribute>> =
            extensions.value(ID_CE_SUBJECT_DIRECTORY_ATTRIBUTES, false, RULE, findings);
        let values = attributes.as_deref().map(|attributes| {
            let of = |one: &Attribute| match (one.oid == CLEARANCE, one.values.get(0)) {
                (true, Some(value)) if one.values.len() == 1 => {
                    Clearance::from_rfc5913(&value.to_der().ok()?, policy).ok()
                }
                _ => None,
            };
            match attributes {
                [one] => of(one),
                _ => None,
            }
        });
        let level: Option<u8> = extensions.value(self.arc.level, false, RULE, findings);
        let level = level.map(|level| Clearance::try_from(level).ok());
        let highest = match extensions.get(AUTHORITY_CLEARANCE_CONSTRAINTS) {
            None => None,
            Some(one) => {
                findings.unless(
                    !one.critical,
                    RULE,
                    "clearance constraints must not be critical",
                );
                let der = one.extn_value.as_bytes();
                Some(Clearance::from_authority_constraints(der, policy).ok())
            }
        };
        findings.unless(
            values == level && values != Some(None),
            RULE,
            "the clearance attribute and the level do not agree (RFC 5913, section 2)",
        );
        findings.unless(
            highest != Some(None),
            RULE,
            "the authority's bound cannot be read",
        );
        let granted = values.or(highest).flatten();
        let is_there = granted.is_some();
        let definition = self.definition;
        findings.unless(
            is_there || definition.clearance() != Presence::Required,
            RULE,
            "the profile demands a clearance, and there is none",
        );
        for bound in [self.highest_clearance, definition.highest_clearance()] {
            if let (Some(granted), Some(bound)) = (granted, bound)
                && granted > bound
            {
                let what = format!(
                    "clearance {granted} is above {bound}, the bound of profile or authority"
                );
                findings.add(RULE, what);
            }
        }
        let kind: Option<String> = extensions.value(self.arc.ca_kind, false, "kind", findings);
        findings.unless(
            kind.as_deref() == self.kind.map(CaKind::name),
            "kind",
            "the kind of authority is not that of the request",
        );
    }
}

/// The security identifier of a certificate.
fn sid(extensions: &Extensions<'_>, findings: &mut Findings) -> Option<SecurityIdentifier> {
    let value: SubjectAltName =
        extensions.value(NTDS_CA_SECURITY, false, "security-identifier", findings)?;
    let sid = SecurityIdentifier::from_extension(&value);
    findings.unless(
        sid.is_some(),
        "security-identifier",
        "the extension names no account of a domain (Microsoft KB5014754)",
    );
    sid
}

#[cfg(test)]
mod tests;
