//! Requests and their subjects as the portal shows them.

use std::collections::BTreeMap;

use access::Principal;
use approval::{Act, Policy, Refusal, Request, Rights, State};
use directory::Person;
use pki::clearance::Clearance;
use pki::profile::CaKind;
use portal_requests::{
    CertificateRow, ChangedValue, RequestApproval, RequestChange, RequestConflict, RequestPage,
    RequestPlace, RequestRow, RequestSteps, RequestView, SubjectView,
};
use registry::{IssuedRecord, RequestContent, RequestRecord};
use serde_json::Value;
use time::OffsetDateTime;

use super::form;
use crate::failure::{OrHint as _, Outcome};
use crate::parts::Site;
use crate::registration::{authority_of, rights_of};

const LOG: &str = "see the log";

pub(crate) fn page(page: registry::RequestPage) -> RequestPage {
    let row = |row: registry::RequestSummary| RequestRow {
        id: row.id,
        act: row.act,
        subject: row.subject,
        requester: row.requester,
        state: row.state,
        changed_at: row.changed_at,
        overdue: row.overdue,
    };
    RequestPage {
        rows: page.rows.into_iter().map(row).collect(),
        older: page.older.map(|place| RequestPlace {
            changed_at: place.changed_at,
            id: place.id,
        }),
    }
}

/// A request as `viewer` sees it; `about` is the newest requests about the same subject.
pub(crate) async fn request(
    site: &Site,
    viewer: &Principal,
    record: RequestRecord,
    about: RequestPage,
) -> Outcome<RequestView> {
    let request = &record.request;
    let policy = crate::parts::policy(&site.config);
    let id = &request.id().0;
    let is_other = |row: &RequestRow| row.id != *id && is_waiting(&row.state);
    let approval = |approval: &approval::Approval| RequestApproval {
        uid: approval.uid().to_owned(),
        at: approval.at(),
        certificate_sha256: approval.certificate_sha256().to_owned(),
    };
    Ok(RequestView {
        id: id.clone(),
        version: request.version(),
        state: request.state().name().to_owned(),
        act: request.act().name().to_owned(),
        subject: request.act().subject().unwrap_or_default().to_owned(),
        requester: request.requester().to_owned(),
        reason: request.reason().to_owned(),
        values: values(site, request).await?,
        history: history(&record),
        approvals: request.state().approvals().iter().map(approval).collect(),
        needed: policy.confirmations(request.act()),
        missing: missing(request, &policy),
        others: about.rows.into_iter().filter(is_other).collect(),
        form: form::filled(&record),
        may: steps(request, viewer),
    })
}

fn is_waiting(state: &str) -> bool {
    matches!(state, "draft" | "submitted" | "returned" | "approved")
}

/// Steps that the rules would let `by` make, found by asking them.
fn steps(request: &Request, by: &Principal) -> RequestSteps {
    let (uid, version, now) = (by.uid(), request.version(), OffsetDateTime::now_utc());
    let (act, reason) = (request.act().clone(), request.reason().to_owned());
    let approval = request.check_approval_by(by);
    let is_party = request.check_party(by).is_ok();
    RequestSteps {
        edit: request
            .edit(uid, Some(by), version, act, reason.clone(), now)
            .is_ok(),
        submit: request.submit(uid, version, now).is_ok(),
        withdraw: request.withdraw(uid, version, now).is_ok(),
        object: request.send_back(by, version, reason, now).is_ok(),
        approve: approval.is_ok(),
        no_approval: match approval {
            // A request that needs no approval shows nothing about it.
            Ok(()) | Err(Refusal::State { .. }) => String::new(),
            Err(_) if !waits_for_approvals(request.state()) => String::new(),
            Err(refusal) => refusal.to_string(),
        },
        carry_out: is_party && matches!(request.state(), State::Approved { .. }),
        collect: is_party && serial(request).is_some(),
    }
}

const fn waits_for_approvals(state: &State) -> bool {
    matches!(
        state,
        State::Submitted { .. }
            | State::Approved { .. }
            | State::Issued {
                confirm_by: Some(_),
                ..
            }
    )
}

/// Serial number of the certificate that came out of a request.
pub(crate) fn serial(request: &Request) -> Option<&str> {
    match (request.act(), request.state()) {
        (
            Act::Issue { .. } | Act::Renew { .. },
            State::Issued { result, .. } | State::Delivered { result, .. },
        ) => Some(result),
        _ => None,
    }
}

/// The certificate with this serial number and its issuer, in PEM.
pub(crate) async fn chain(site: &Site, serial: &str) -> Outcome<String> {
    let found = site.registry.find(serial).await;
    let found = found.or_hint("cannot read the registry", LOG)?;
    let unknown = || anyhow::anyhow!("no certificate has the serial number {serial}");
    let (_, record) = found.ok_or_else(unknown).or_hint("certificate", LOG)?;
    let leaf = pki::cert::from_der(&record.certificate)
        .and_then(|leaf| pki::cert::to_pem(&leaf))
        .or_hint("cannot write the certificate", LOG)?;
    Ok(leaf + &crate::authority_texts::issuer_pem(&site.registry, &record)?)
}

fn missing(request: &Request, policy: &Policy) -> Vec<String> {
    let act = request.act();
    let approvals = |needed: usize, have: usize| {
        let role = act.approver_role();
        let count = match needed.saturating_sub(have) {
            1 => format!("one approval of a {role}"),
            more => format!("{more} approvals of {role}s"),
        };
        let level = match act.granted() {
            Some(clearance) => format!(", cleared for {clearance} or higher"),
            None => String::new(),
        };
        format!("{count}{level}, by nobody who wrote part of it or is its subject")
    };
    let requester = request.requester();
    match request.state() {
        State::Draft => vec![format!("{requester} hands it in")],
        State::Returned { .. } => vec![format!("{requester} corrects it and hands it in again")],
        State::Submitted { approvals: have } => {
            let mut missing = vec![approvals(policy.approvals_before(act), have.len())];
            if policy.confirmations(act) > policy.approvals_before(act) {
                missing.push("another approval after it was carried out".to_owned());
            }
            missing
        }
        State::Approved { .. } => {
            vec!["the requester or an approver has it carried out".to_owned()]
        }
        State::Issued {
            approvals: have,
            confirm_by: Some(by),
            ..
        } => {
            let until = by.date();
            let more = approvals(policy.confirmations(act), have.len());
            vec![format!(
                "{more}, until {until} {:02}:{:02} UTC",
                by.hour(),
                by.minute()
            )]
        }
        _ => Vec::new(),
    }
}

fn history(record: &RequestRecord) -> Vec<RequestChange> {
    let mut former: Option<&RequestContent> = None;
    let mut changes = Vec::new();
    for change in &record.history {
        let content = change.content.as_ref();
        changes.push(RequestChange {
            version: change.version,
            at: change.at,
            by: change.by.clone(),
            step: change.step.clone(),
            state: change.state.clone(),
            reason: change.reason.clone(),
            changes: match (former, content) {
                (Some(old), Some(new)) => difference(old, new),
                _ => Vec::new(),
            },
        });
        former = content.or(former);
    }
    changes
}

/// Who changed the request after version `shown`, and what.
pub(crate) fn conflict(record: &RequestRecord, shown: u64) -> RequestConflict {
    let current = record.request.version();
    let last = record.history.last();
    let seen = record.history.iter().rev().find_map(|change| {
        let is_before = u64::try_from(change.version).is_ok_and(|version| version <= shown);
        change.content.as_ref().filter(|_| is_before)
    });
    let now = RequestContent {
        act: record.request.act().clone(),
        reason: record.request.reason().to_owned(),
    };
    RequestConflict {
        shown,
        current,
        by: last.map(|change| change.by.clone()).unwrap_or_default(),
        step: last.map(|change| change.step.clone()).unwrap_or_default(),
        at: last.map_or_else(OffsetDateTime::now_utc, |change| change.at),
        changes: seen.map(|seen| difference(seen, &now)),
    }
}

/// Values in which two contents differ.
fn difference(old: &RequestContent, new: &RequestContent) -> Vec<ChangedValue> {
    let (old, mut new) = (fields(old), fields(new));
    let mut changes = Vec::new();
    for (name, old) in old {
        let new = new.remove(&name).unwrap_or_default();
        if old != new {
            changes.push(ChangedValue { name, old, new });
        }
    }
    changes.extend(new.into_iter().map(|(name, new)| ChangedValue {
        name,
        old: String::new(),
        new,
    }));
    changes
}

/// Every value of a content by its name.
fn fields(content: &RequestContent) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::from([("reason".to_owned(), content.reason.clone())]);
    if let Ok(act) = serde_json::to_value(&content.act) {
        flatten("", &act, &mut fields);
    }
    fields
}

fn flatten(name: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    let text = match value {
        Value::Object(members) => {
            for (member, value) in members {
                let name = format!("{name} {member}");
                flatten(name.trim_start(), value, fields);
            }
            return;
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| item.as_str().unwrap_or_default());
            items.collect::<Vec<_>>().join(", ")
        }
        Value::Number(number) if name.ends_with("clearance") => {
            let level = number.as_u64().and_then(|level| u8::try_from(level).ok());
            let clearance = level.and_then(|level| Clearance::try_from(level).ok());
            clearance.map_or_else(|| number.to_string(), leveled)
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    fields.insert(name.replace('_', " "), text);
}

fn leveled(clearance: Clearance) -> String {
    format!("{clearance} ({})", clearance.level())
}

/// What is so now, and what the act makes of it.
async fn values(site: &Site, request: &Request) -> Outcome<Vec<ChangedValue>> {
    let value = |name: &str, old: String, new: String| ChangedValue {
        name: name.to_owned(),
        old,
        new,
    };
    let values = match request.act() {
        Act::Issue {
            subject,
            profile,
            clearance,
            spki_sha256,
            account,
            ..
        } => {
            let present = valid(certificates(site, subject).await?);
            let highest = present.iter().filter_map(|record| record.clearance).max();
            vec![
                value("certificates", serials(&present), "one more".to_owned()),
                value("kind", kinds(&present), profile.clone()),
                value(
                    "clearance",
                    highest.map(leveled).unwrap_or_default(),
                    leveled(*clearance),
                ),
                value("key (SHA-256)", String::new(), spki_sha256.clone()),
            ]
            .into_iter()
            .chain(account.iter().flat_map(|account| {
                [
                    value("Windows account", String::new(), account.principal.clone()),
                    value(
                        "security identifier",
                        String::new(),
                        account.sid.to_string(),
                    ),
                ]
            }))
            .collect()
        }
        Act::ChangeProfile {
            profile,
            clearance,
            definition,
        } => {
            let mut known = site.registry.profiles().into_iter();
            let present = known.find(|one| one.name == *profile);
            let old = present.map(|present| present.text).unwrap_or_default();
            vec![
                value("profile", String::new(), profile.clone()),
                value("highest clearance", String::new(), leveled(*clearance)),
                value("file", old, definition.clone()),
            ]
        }
        Act::Renew {
            serial, clearance, ..
        } => vec![
            value(
                "certificate",
                serial.clone(),
                "a new one for the same key".to_owned(),
            ),
            value("clearance", leveled(*clearance), leveled(*clearance)),
        ],
        Act::Revoke { serial, cause, .. } => {
            let found = site.registry.find(serial).await;
            let found = found.or_hint("cannot read the registry", LOG)?;
            let status = found.map(|(_, record)| status(&record).0);
            let what = format!("certificate {serial}");
            let new = format!("revoked ({})", cause.name());
            vec![value(&what, status.unwrap_or_default(), new)]
        }
        Act::ChangeHolder {
            subject,
            holder,
            change,
            clearance,
            ..
        } => {
            let state = site.registry.holder_state(authority_of(*holder), subject);
            let state = state.await.or_hint("cannot read the registry", LOG)?;
            let old = state.map(|(state, _)| state.to_string());
            let new = registry::HolderChange::from(*change);
            vec![
                value("state", old.unwrap_or_default(), new.name().to_owned()),
                value("clearance", leveled(*clearance), leveled(*clearance)),
            ]
        }
        Act::ChangePerson { old, new, .. } => rights(old, new),
        other => {
            let content = RequestContent {
                act: other.clone(),
                reason: String::new(),
            };
            let fields = fields(&content).into_iter();
            fields
                .filter(|(name, _)| !name.starts_with("rights ") && name != "distinguished name")
                .map(|(name, new)| value(&name, String::new(), new))
                .collect()
        }
    };
    let act = request.act();
    let names = act.distinguished_name().into_iter();
    let names = names.map(|name| value("name", String::new(), name.to_owned()));
    let password = "a password and nothing else: make sure who asks".to_owned();
    let proof = act
        .is_by_password()
        .then(|| value("asked with", String::new(), password));
    let of_person = act.rights().into_iter().flat_map(of_person);
    let all = values.into_iter().chain(names).chain(proof);
    Ok(all.chain(of_person).collect())
}

/// By what the approvals of a person's certificate count.
fn of_person(rights_now: &Rights) -> Vec<ChangedValue> {
    let mut values = rights(rights_now, rights_now);
    for value in &mut values {
        value.name = format!("{} of the person", value.name);
    }
    values
}

fn rights(old: &Rights, new: &Rights) -> Vec<ChangedValue> {
    let roles = |rights: &Rights| {
        let names = rights.roles.iter().map(|role| role.name());
        names.collect::<Vec<_>>().join(", ")
    };
    let units = |rights: &Rights| {
        let names = rights.units.iter().map(String::as_str);
        names.collect::<Vec<_>>().join(", ")
    };
    let value = |name: &str, old, new| ChangedValue {
        name: name.to_owned(),
        old,
        new,
    };
    vec![
        value("clearance", leveled(old.clearance), leveled(new.clearance)),
        value("roles", roles(old), roles(new)),
        value("units", units(old), units(new)),
    ]
}

async fn certificates(site: &Site, holder: &str) -> Outcome<Vec<IssuedRecord>> {
    let records = site.registry.certificates_of(holder).await;
    records.or_hint("cannot read the registry", LOG)
}

/// The certificates of a person, device or gateway.
pub(crate) async fn certificates_of(site: &Site, holder: &str) -> Outcome<Vec<CertificateRow>> {
    let row = |record: &IssuedRecord| {
        let (status, valid) = status(record);
        CertificateRow {
            serial: record.serial.clone(),
            profile: record.profile.clone(),
            clearance: record.clearance.map(leveled).unwrap_or_default(),
            issued_at: record.issued_at,
            not_after: record.not_after,
            status,
            valid,
        }
    };
    Ok(certificates(site, holder).await?.iter().map(row).collect())
}

fn valid(records: Vec<IssuedRecord>) -> Vec<IssuedRecord> {
    let records = records.into_iter();
    records.filter(|record| status(record).1).collect()
}

fn serials(records: &[IssuedRecord]) -> String {
    let serials = records.iter().map(|record| record.serial.as_str());
    serials.collect::<Vec<_>>().join(", ")
}

fn kinds(records: &[IssuedRecord]) -> String {
    let mut kinds: Vec<&str> = records.iter().map(|r| r.profile.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.join(", ")
}

/// Words for a certificate's status, and whether it counts.
fn status(record: &IssuedRecord) -> (String, bool) {
    match &record.revoked {
        Some(revoked) => (format!("revoked ({})", revoked.reason), false),
        None if record.not_after < OffsetDateTime::now_utc() => ("expired".to_owned(), false),
        None => ("valid".to_owned(), true),
    }
}

/// Organisation and country in a person's certificates.
fn origin(site: &Site, person: &Person) -> String {
    let country = match person.country.as_str() {
        "" => &site.config.site.country,
        own => own,
    };
    format!("{} ({country})", person.organisation)
}

/// Everything that is known of `name`; `requests` is a page of those about it.
pub(crate) async fn subject(
    site: &Site,
    name: &str,
    requests: RequestPage,
) -> Outcome<SubjectView> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, new: String| {
        facts.push(ChangedValue {
            name: name.to_owned(),
            old: String::new(),
            new,
        });
    };
    let entry = site.directory.get(name).await;
    if let Some(person) = entry.or_hint("cannot read the directory", LOG)? {
        let active = if person.active { "" } else { ", disabled" };
        fact(
            "person",
            format!("{}, {}{active}", person.name, origin(site, &person)),
        );
        for value in rights(&Rights::default(), &rights_of(&person)) {
            fact(&value.name, value.new);
        }
    }
    for kind in CaKind::ALL {
        let state = site.registry.holder_state(kind, name).await;
        if let Some((state, _)) = state.or_hint("cannot read the registry", LOG)? {
            fact(&format!("state as one of the {kind}"), state.to_string());
        }
    }
    let certificates = certificates_of(site, name).await?;
    Ok(SubjectView {
        name: name.to_owned(),
        warnings: warnings(&certificates, &requests.rows),
        facts,
        certificates,
        requests,
    })
}

fn warnings(certificates: &[CertificateRow], requests: &[RequestRow]) -> Vec<String> {
    let mut warnings = Vec::new();
    let valid = certificates.iter().filter(|row| row.valid).count();
    if valid > 1 {
        warnings.push(format!("{valid} certificates are valid at once."));
    }
    let mut waiting: Vec<&str> = requests
        .iter()
        .filter(|row| is_waiting(&row.state))
        .map(|row| row.act.as_str())
        .collect();
    waiting.sort_unstable();
    let twice = waiting.windows(2).find(|pair| pair.first() == pair.last());
    if let Some(act) = twice.and_then(|pair| pair.first()) {
        warnings.push(format!(
            "Several requests for the act “{act}” wait at once."
        ));
    }
    let refused = requests.iter().filter(|row| row.state == "refused").count();
    if refused > 0 {
        warnings.push(format!("{refused} of the requests below were refused."));
    }
    warnings
}
