//! Rules for names of the subject.

use std::collections::BTreeSet;

use const_oid::ObjectIdentifier;
use const_oid::db::rfc4519::{
    COMMON_NAME, COUNTRY_NAME, GIVEN_NAME, ORGANIZATION_NAME, ORGANIZATIONAL_UNIT_NAME, SN,
};
use const_oid::db::rfc5912::ID_CE_SUBJECT_ALT_NAME;
use der::{Tag, Tagged};
use x509_cert::certificate::TbsCertificate;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::{Extensions, Findings, Rules, sid};
use crate::name::{AltName, is_mailbox, is_plain};
use crate::oid::{EMAIL_ADDRESS, UID};
use crate::profile::Presence;

const SUBJECT: &str = "subject";
const ALT_NAMES: &str = "alternative-names";

/// Form of an attribute's value, and its longest length in characters (RFC 5280, appendix A).
const ATTRIBUTES: [(ObjectIdentifier, &[Tag], usize); 8] = [
    (COUNTRY_NAME, &[Tag::PrintableString], 2),
    (ORGANIZATION_NAME, TEXT, 64),
    (ORGANIZATIONAL_UNIT_NAME, TEXT, 64),
    (COMMON_NAME, TEXT, 64),
    (GIVEN_NAME, TEXT, 64),
    (SN, TEXT, 64),
    (UID, TEXT, 64),
    (EMAIL_ADDRESS, &[Tag::Ia5String], 255),
];
/// RFC 5280, section 4.1.2.4.
const TEXT: &[Tag] = &[Tag::Utf8String, Tag::PrintableString];

pub(super) fn check(
    rules: &Rules<'_>,
    tbs: &TbsCertificate,
    extensions: &Extensions<'_>,
    findings: &mut Findings,
) {
    let subject = subject(tbs, findings);
    let wanted = rules.definition.names();
    let alt_names = alt_names(tbs, extensions, findings);
    for name in &alt_names {
        let known = AltName::from_general_name(name);
        let is_allowed = known
            .as_ref()
            .is_some_and(|name| rules.definition.allows(name));
        findings.unless(
            is_allowed,
            ALT_NAMES,
            "an alternative name has a form that the profile does not have",
        );
        match &known {
            Some(AltName::Email(address)) => {
                findings.unless(
                    is_mailbox(address),
                    ALT_NAMES,
                    "a mail address is none (RFC 5280, section 4.2.1.6)",
                );
            }
            Some(AltName::Upn(name)) => {
                findings.unless(is_mailbox(name), ALT_NAMES, "a principal name is none");
            }
            Some(AltName::Dns(name)) => {
                let good = !name.is_empty() && name.len() <= 253 && !name.starts_with('.');
                findings.unless(
                    good,
                    ALT_NAMES,
                    "a name of a host is none (RFC 5280, section 4.2.1.6)",
                );
            }
            Some(AltName::Ip(_)) | None => {}
        }
    }
    let known: Vec<AltName> = alt_names
        .iter()
        .filter_map(AltName::from_general_name)
        .collect();
    let count = |of: fn(&AltName) -> bool| known.iter().filter(|name| of(name)).count();
    let hosts = count(|name| matches!(name, AltName::Dns(_) | AltName::Ip(_)));
    let principals = count(|name| matches!(name, AltName::Upn(_)));
    let emails = count(|name| matches!(name, AltName::Email(_)));
    for (presence, number, what) in [
        (wanted.email, emails, "the profile demands a mail address"),
        (wanted.host, hosts, "the profile demands the name of a host"),
        (
            wanted.principal,
            principals,
            "the profile demands a principal name",
        ),
    ] {
        let is_there = presence != Presence::Required || number > 0;
        findings.unless(is_there, ALT_NAMES, what);
    }
    findings.unless(principals <= 1, ALT_NAMES, "there are two principal names");
    if let Some(email) = &subject.email {
        let repeated = known.contains(&AltName::Email(email.clone()));
        findings.unless(
            repeated,
            ALT_NAMES,
            "the subject's mail address is not repeated (RFC 5280, section 4.1.2.6)",
        );
    }
    let user_id: Option<String> = extensions.value(rules.arc.user_id, false, "user-id", findings);
    findings.unless(
        user_id == subject.uid,
        "user-id",
        "the extension with the user id is not that of the name",
    );
    findings.unless(
        wanted.uid != Presence::Required || user_id.is_some(),
        "user-id",
        "the profile demands a user id",
    );
    let sid = sid(extensions, findings);
    findings.unless(
        wanted.security_identifier != Presence::Required || sid.is_some(),
        "security-identifier",
        "the profile demands a security identifier",
    );
}

/// Names with which other parts of a certificate are compared.
#[derive(Default)]
struct Compared {
    uid: Option<String>,
    email: Option<String>,
}

fn subject(tbs: &TbsCertificate, findings: &mut Findings) -> Compared {
    let mut compared = Compared::default();
    let mut seen = BTreeSet::new();
    for rdn in &tbs.subject.0 {
        findings.unless(
            rdn.0.len() == 1,
            SUBJECT,
            "a part of the name has several attributes",
        );
        for attribute in rdn.0.iter() {
            let oid = attribute.oid;
            if !seen.insert(oid) {
                findings.add(SUBJECT, format!("attribute {oid} is there twice"));
            }
            let known = ATTRIBUTES.iter().find(|(one, ..)| *one == oid);
            let Some((_, forms, longest)) = known else {
                findings.add(SUBJECT, format!("attribute {oid} is in no profile"));
                continue;
            };
            let value = &attribute.value;
            let text = std::str::from_utf8(value.value()).unwrap_or_default();
            let is_right = forms.contains(&value.tag())
                && !text.is_empty()
                && text.chars().count() <= *longest
                && is_plain(text)
                && text.trim() == text;
            if !is_right {
                findings.add(SUBJECT, format!("attribute {oid} has not the form or length that it must have (RFC 5280, appendix A)"));
            }
            match oid {
                COUNTRY_NAME => {
                    let code = text.len() == 2 && text.bytes().all(|b| b.is_ascii_uppercase());
                    findings.unless(code, SUBJECT, "the country is no code of two letters");
                }
                UID => compared.uid = Some(text.to_owned()),
                EMAIL_ADDRESS => compared.email = Some(text.to_owned()),
                _ => {}
            }
        }
    }
    compared
}

fn alt_names(
    tbs: &TbsCertificate,
    extensions: &Extensions<'_>,
    findings: &mut Findings,
) -> Vec<GeneralName> {
    let nameless = tbs.subject.0.is_empty();
    let names: Option<SubjectAltName> =
        extensions.value(ID_CE_SUBJECT_ALT_NAME, nameless, ALT_NAMES, findings);
    let Some(SubjectAltName(names)) = names else {
        findings.unless(
            !nameless,
            SUBJECT,
            "there is no name at all (RFC 5280, section 4.1.2.6)",
        );
        return Vec::new();
    };
    findings.unless(
        !names.is_empty(),
        ALT_NAMES,
        "alternative names are there, and none of them (RFC 5280, section 4.2.1.6)",
    );
    names
}
