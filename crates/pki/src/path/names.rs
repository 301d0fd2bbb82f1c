//! Name constraints (RFC 5280, sections 4.2.1.10 and 6.1).
//!
//! Each authority's constraints are kept as they stand, and every name below must satisfy every set:
//! that is the same as intersecting permitted and joining excluded subtrees, without computing either.
//! A name that cannot be understood is refused where a constraint of its form applies.

use std::cell::Cell;
use std::net::IpAddr;

use const_oid::ObjectIdentifier;
use x509_cert::ext::pkix::NameConstraints;
use x509_cert::ext::pkix::constraints::name::GeneralSubtree;
use x509_cert::ext::pkix::name::GeneralName;

use super::certificate::ParsedCertificate;
use crate::name::canonical::CanonicalName;
use crate::name::shown;
use crate::oid::EMAIL_ADDRESS;

/// Comparisons of a name with a subtree for one end entity, in all paths that are tried; one that needs more
/// is refused. Our choice: a hundred times what national PKIs need, and less than a second of work.
pub(super) const MAX_COMPARISONS: usize = 1 << 18;
/// `id-on-SmtpUTF8Mailbox`: a mail address in another form, which constraints on mail also bind (RFC 9598).
const SMTP_UTF8_MAILBOX: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.8.9");

/// Why names and constraints do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameConstraintError {
    /// A name lies outside of what an authority may certify.
    #[error("{0} is not permitted")]
    NotPermitted(String),
    /// A name lies inside of what an authority may not certify.
    #[error("{0} is excluded")]
    Excluded(String),
    /// A name cannot be compared with a constraint of its form.
    #[error("{0} cannot be compared with the constraints")]
    Incomparable(String),
    /// A constraint that RFC 5280 does not allow, or one that nobody here processes.
    #[error("unusable constraint {0}")]
    Unusable(String),
    /// More names and constraints than anybody needs.
    #[error("more than {MAX_COMPARISONS} comparisons")]
    TooMany,
}

/// A name of a certificate, in the form that is compared.
#[derive(Debug)]
enum Held {
    Directory(CanonicalName),
    Dns(String),
    Mail(String),
    Uri(String),
    Ip(Vec<u8>),
    /// A form that is not processed; constraints on the same form refuse it.
    Other(Form),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Directory,
    Dns,
    Mail,
    Uri,
    Ip,
    OtherName,
    EdiParty,
    RegisteredId,
}

impl Held {
    const fn form(&self) -> Form {
        match self {
            Self::Directory(_) => Form::Directory,
            Self::Dns(_) => Form::Dns,
            Self::Mail(_) => Form::Mail,
            Self::Uri(_) => Form::Uri,
            Self::Ip(_) => Form::Ip,
            Self::Other(form) => *form,
        }
    }

    fn text(&self, certificate: &ParsedCertificate) -> String {
        match self {
            Self::Directory(_) => shown(&certificate.certificate.tbs_certificate.subject),
            Self::Dns(name) | Self::Mail(name) | Self::Uri(name) => format!("{name:?}"),
            Self::Ip(octets) => format!("address {}", hex::encode(octets)),
            Self::Other(form) => format!("a name of the form {form:?}"),
        }
    }
}

fn form(name: &GeneralName) -> Form {
    match name {
        GeneralName::OtherName(other) if other.type_id == SMTP_UTF8_MAILBOX => Form::Mail,
        GeneralName::OtherName(_) => Form::OtherName,
        GeneralName::Rfc822Name(_) => Form::Mail,
        GeneralName::DnsName(_) => Form::Dns,
        GeneralName::DirectoryName(_) => Form::Directory,
        GeneralName::EdiPartyName(_) => Form::EdiParty,
        GeneralName::UniformResourceIdentifier(_) => Form::Uri,
        GeneralName::IpAddress(_) => Form::Ip,
        GeneralName::RegisteredId(_) => Form::RegisteredId,
    }
}

/// The constraints of the authorities seen so far, from the anchor downwards.
#[derive(Debug)]
pub(super) struct Constraints<'a> {
    sets: Vec<&'a NameConstraints>,
    comparisons: &'a Cell<usize>,
}

impl<'a> Constraints<'a> {
    /// No constraints; comparisons are counted in `comparisons`.
    pub(super) const fn new(comparisons: &'a Cell<usize>) -> Self {
        Self {
            sets: Vec::new(),
            comparisons,
        }
    }

    /// Adds those of an authority, for everything below it.
    pub(super) fn add(&mut self, set: &'a NameConstraints) -> Result<(), NameConstraintError> {
        let unusable = |subtree: &GeneralSubtree| {
            subtree.minimum != 0 || subtree.maximum.is_some() || !is_well_formed(&subtree.base)
        };
        let both = [&set.permitted_subtrees, &set.excluded_subtrees];
        // RFC 5280 forbids the empty sequence: it says nothing, or everything.
        if both.iter().all(|list| list.is_none()) {
            return Err(NameConstraintError::Unusable("without subtrees".to_owned()));
        }
        for list in both.into_iter().flatten() {
            if list.is_empty() {
                return Err(NameConstraintError::Unusable("without subtrees".to_owned()));
            }
            if let Some(bad) = list.iter().find(|subtree| unusable(subtree)) {
                return Err(NameConstraintError::Unusable(format!(
                    "{:?}",
                    form(&bad.base)
                )));
            }
        }
        self.sets.push(set);
        Ok(())
    }

    /// Checks every name of a certificate: subject, mail addresses in it, alternative names.
    pub(super) fn check(&self, certificate: &ParsedCertificate) -> Result<(), NameConstraintError> {
        if self.sets.is_empty() {
            return Ok(());
        }
        for name in names_of(certificate) {
            for set in &self.sets {
                let lists = [&set.permitted_subtrees, &set.excluded_subtrees];
                let count: usize = lists.into_iter().flatten().map(Vec::len).sum();
                let comparisons = self.comparisons.get().saturating_add(count);
                self.comparisons.set(comparisons);
                if comparisons > MAX_COMPARISONS {
                    return Err(NameConstraintError::TooMany);
                }
                check_name(&name, set, certificate)?;
            }
        }
        Ok(())
    }
}

fn check_name(
    name: &Held,
    set: &NameConstraints,
    certificate: &ParsedCertificate,
) -> Result<(), NameConstraintError> {
    let same = |list: &Option<Vec<GeneralSubtree>>| -> Vec<GeneralName> {
        let of_form = list.iter().flatten();
        let of_form = of_form.filter(|subtree| form(&subtree.base) == name.form());
        of_form.map(|subtree| subtree.base.clone()).collect()
    };
    let (permitted, excluded) = (same(&set.permitted_subtrees), same(&set.excluded_subtrees));
    if permitted.is_empty() && excluded.is_empty() {
        return Ok(());
    }
    let incomparable = || NameConstraintError::Incomparable(name.text(certificate));
    for base in &excluded {
        if lies_in(name, base, List::Excluded).ok_or_else(incomparable)? {
            return Err(NameConstraintError::Excluded(name.text(certificate)));
        }
    }
    let mut inside = permitted.is_empty();
    for base in &permitted {
        inside |= lies_in(name, base, List::Permitted).ok_or_else(incomparable)?;
    }
    match inside {
        true => Ok(()),
        false => Err(NameConstraintError::NotPermitted(name.text(certificate))),
    }
}

fn names_of(certificate: &ParsedCertificate) -> Vec<Held> {
    let mut names = Vec::new();
    if !certificate.subject.is_empty() {
        names.push(Held::Directory(certificate.subject.clone()));
    }
    let subject = &certificate.certificate.tbs_certificate.subject;
    // Mail addresses in the subject are bound too (section 4.2.1.10, for lack of subjectAltName).
    for attribute in subject.0.iter().flat_map(|rdn| rdn.0.iter()) {
        if attribute.oid == EMAIL_ADDRESS {
            let text = std::str::from_utf8(attribute.value.value());
            names.push(text.map_or(Held::Other(Form::Mail), |text| Held::Mail(text.to_owned())));
        }
    }
    let held = certificate
        .alt_names
        .iter()
        .flatten()
        .map(|name| match name {
            GeneralName::DirectoryName(name) => Held::Directory(CanonicalName::of(name)),
            GeneralName::DnsName(name) => Held::Dns(name.as_str().to_owned()),
            GeneralName::Rfc822Name(name) => Held::Mail(name.as_str().to_owned()),
            GeneralName::UniformResourceIdentifier(name) => Held::Uri(name.as_str().to_owned()),
            GeneralName::IpAddress(octets) => Held::Ip(octets.as_bytes().to_vec()),
            other => Held::Other(form(other)),
        });
    names.extend(held);
    names
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Permitted,
    Excluded,
}

/// Whether a name lies in a subtree of its own form; `None` if that cannot be said.
fn lies_in(name: &Held, base: &GeneralName, list: List) -> Option<bool> {
    match (name, base) {
        (Held::Directory(name), GeneralName::DirectoryName(base)) => {
            Some(name.is_within(&CanonicalName::of(base)))
        }
        (Held::Dns(name), GeneralName::DnsName(base)) => dns(name, base.as_str(), list),
        (Held::Mail(name), GeneralName::Rfc822Name(base)) => mail(name, base.as_str()),
        (Held::Uri(name), GeneralName::UniformResourceIdentifier(base)) => {
            Some(host_in(&uri_host(name)?, base.as_str()))
        }
        (Held::Ip(name), GeneralName::IpAddress(base)) => ip(name, base.as_bytes()),
        _ => None,
    }
}

/// `example.org` holds itself and what is below it; `.example.org`, which RFC 5280 does not define but
/// authorities write, only what is below.
fn dns(name: &str, base: &str, list: List) -> Option<bool> {
    let (wildcard, host) = match name.strip_prefix("*.") {
        Some(parent) => (true, parent),
        None => (false, name),
    };
    if !is_host(host) {
        return None;
    }
    let (base, below_only) = match base.strip_prefix('.') {
        Some(parent) => (parent, true),
        None => (base, false),
    };
    if base.is_empty() {
        return Some(true);
    }
    let within =
        is_below(host, base) || (host.eq_ignore_ascii_case(base) && (!below_only || wildcard));
    // A wildcard stands for every name below its parent: one of them in an excluded subtree is enough.
    let covers = list == List::Excluded && wildcard && is_below(base, host);
    Some(within || covers)
}

fn is_below(host: &str, parent: &str) -> bool {
    let front = host.len().checked_sub(parent.len());
    let Some((front, end)) = front.and_then(|at| host.split_at_checked(at)) else {
        return false;
    };
    front.ends_with('.') && end.eq_ignore_ascii_case(parent)
}

/// Letters, digits, hyphens and underscores in labels of 1 to 63 characters.
fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    host.len() <= 253 && host.split('.').all(label)
}

/// A constraint is a mailbox, a host, or with a leading dot all hosts below a domain.
fn mail(name: &str, base: &str) -> Option<bool> {
    let (local, host) = name.rsplit_once('@')?;
    if local.is_empty() || local.contains('@') || !name.is_ascii() || !is_host(host) {
        return None;
    }
    Some(match base.rsplit_once('@') {
        Some((base_local, base_host)) => {
            base_local == local && host.eq_ignore_ascii_case(base_host)
        }
        None => base.is_empty() || host_in(host, base),
    })
}

fn host_in(host: &str, base: &str) -> bool {
    match base.strip_prefix('.') {
        Some(parent) => is_below(host, parent),
        None => host.eq_ignore_ascii_case(base),
    }
}

/// The host of a URI; none if it has no authority, or an address there (section 4.2.1.10).
fn uri_host(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once("://")?;
    if !scheme
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    {
        return None;
    }
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let host = match host.split_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        Some(_) => return None,
        None => host,
    };
    let is_name = is_host(host) && host.parse::<IpAddr>().is_err();
    is_name.then(|| host.to_owned())
}

/// Address and mask of the same family.
fn ip(name: &[u8], base: &[u8]) -> Option<bool> {
    if !matches!(name.len(), 4 | 16) {
        return None;
    }
    let Some((address, mask)) = base.split_at_checked(name.len()) else {
        return Some(false);
    };
    if mask.len() != name.len() {
        return Some(false);
    }
    let mut all = name.iter().zip(address).zip(mask);
    Some(all.all(|((name, address), mask)| name & mask == address & mask))
}

/// Whether a constraint can be compared at all. Forms that nobody processes are well formed: they refuse
/// names of their form, and only these.
fn is_well_formed(base: &GeneralName) -> bool {
    match base {
        GeneralName::DnsName(name) => {
            let name = name.as_str();
            name.is_empty() || is_host(name.strip_prefix('.').unwrap_or(name))
        }
        GeneralName::Rfc822Name(name) => {
            let name = name.as_str();
            let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
            let local = name.rsplit_once('@').map(|(local, _)| local);
            let dotted = local.is_none();
            let host = if dotted {
                host.strip_prefix('.').unwrap_or(host)
            } else {
                host
            };
            local != Some("") && (name.is_empty() || is_host(host))
        }
        GeneralName::UniformResourceIdentifier(name) => {
            let name = name.as_str();
            is_host(name.strip_prefix('.').unwrap_or(name))
        }
        GeneralName::IpAddress(octets) => is_network(octets.as_bytes()),
        _ => true,
    }
}

/// Address and mask of equal length, the mask being ones and then zeros.
fn is_network(octets: &[u8]) -> bool {
    if !matches!(octets.len(), 8 | 32) {
        return false;
    }
    let (_, mask) = octets.split_at(octets.len() / 2);
    let bits = mask
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1));
    let mut ended = false;
    let mut contiguous = true;
    for bit in bits {
        contiguous &= !(ended && bit);
        ended |= !bit;
    }
    contiguous
}

#[cfg(test)]
mod tests {
    use der::Decode as _;

    use super::*;

    fn constraints(der: &[u8]) -> NameConstraints {
        NameConstraints::from_der(der).unwrap()
    }

    #[test]
    fn dns_subtree_holds_itself_and_what_is_below() {
        let permitted = |name, base| dns(name, base, List::Permitted);
        assert_eq!(permitted("example.org", "example.org"), Some(true));
        assert_eq!(permitted("a.EXAMPLE.org", "example.org"), Some(true));
        assert_eq!(permitted("badexample.org", "example.org"), Some(false));
        assert_eq!(permitted("example.org", ".example.org"), Some(false));
        assert_eq!(permitted("*.example.org", "example.org"), Some(true));
        assert_eq!(permitted("*.org", "example.org"), Some(false));
        assert_eq!(permitted("a b.example.org", "example.org"), None);
        assert_eq!(permitted("example.org.", "example.org"), None);
        // A wildcard reaches into an excluded subtree from above.
        assert_eq!(dns("*.org", "example.org", List::Excluded), Some(true));
        assert_eq!(
            dns("*.example.org", "a.example.org", List::Excluded),
            Some(true)
        );
        assert_eq!(
            dns("*.example.com", "example.org", List::Excluded),
            Some(false)
        );
    }

    #[test]
    fn mail_constraint_is_mailbox_host_or_domain() {
        assert_eq!(mail("a@example.org", "a@example.org"), Some(true));
        assert_eq!(mail("A@example.org", "a@example.org"), Some(false));
        assert_eq!(mail("a@EXAMPLE.org", "example.org"), Some(true));
        assert_eq!(mail("a@b.example.org", "example.org"), Some(false));
        assert_eq!(mail("a@b.example.org", ".example.org"), Some(true));
        assert_eq!(mail("a@example.org", ".example.org"), Some(false));
        assert_eq!(mail("nobody", "example.org"), None);
        assert_eq!(mail("a@b@example.org", "example.org"), None);
    }

    #[test]
    fn uri_without_host_name_cannot_be_compared() {
        assert_eq!(
            uri_host("https://a.example.org:8443/x").as_deref(),
            Some("a.example.org")
        );
        assert_eq!(
            uri_host("ldap://user@example.org").as_deref(),
            Some("example.org")
        );
        for odd in [
            "urn:a:b",
            "http:///x",
            "http://192.0.2.1/",
            "http://[::1]/",
            "mailto:a@b",
        ] {
            assert_eq!(uri_host(odd), None, "{odd}");
        }
    }

    #[test]
    fn addresses_are_compared_under_the_mask() {
        assert_eq!(
            ip(&[192, 0, 2, 9], &[192, 0, 2, 0, 255, 255, 255, 0]),
            Some(true)
        );
        assert_eq!(
            ip(&[192, 0, 3, 9], &[192, 0, 2, 0, 255, 255, 255, 0]),
            Some(false)
        );
        assert_eq!(ip(&[0; 16], &[0; 8]), Some(false));
        assert_eq!(ip(&[0; 5], &[0; 8]), None);
        assert!(is_network(&[0; 8]));
        assert!(!is_network(&[0, 0, 0, 0, 255, 0, 255, 0]));
        assert!(!is_network(&[0; 9]));
    }

    #[test]
    fn constraint_without_subtrees_is_refused() {
        let empty = constraints(&[0x30, 0]);
        assert!(Constraints::new(&Cell::new(0)).add(&empty).is_err());
        let empty = constraints(&[0x30, 2, 0xa0, 0]);
        assert!(Constraints::new(&Cell::new(0)).add(&empty).is_err());
    }
}
