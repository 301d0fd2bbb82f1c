//! The portal's form of a request, and the order that it stands for.

use access::Role;
use approval::{Act, HolderKind, HolderStep, Urgency};
use pki::profile::Profile;
use portal::RequestForm;
use registry::RequestRecord;

use crate::orders::{ActOrder, Holder};

/// What the form asks for. Whether it makes sense is for the one who looks it up to say, as with a command.
pub(super) fn order(form: &RequestForm) -> Result<ActOrder, String> {
    let words = |text: &str| -> Option<Vec<String>> {
        let words: Vec<String> = text
            .split(',')
            .map(|word| word.trim().to_owned())
            .filter(|word| !word.is_empty())
            .collect();
        (!words.is_empty()).then_some(words)
    };
    let given = |text: &str| !text.is_empty();
    Ok(match form.act.as_str() {
        "issue" => ActOrder::Issue {
            holder: holder(form)?,
            tunnel_only: given(&form.tunnel_only),
            csr: csr(&form.csr)?,
            clearance: clearance(&form.clearance)?,
        },
        "renew" => ActOrder::Renew {
            serial: named("a serial number", &form.serial)?.to_lowercase(),
        },
        "revoke" => ActOrder::Revoke {
            serial: named("a serial number", &form.serial)?.to_lowercase(),
            cause: form.cause.clone(),
            emergency: given(&form.emergency),
        },
        "holder" => ActOrder::Holder {
            holder: holder(form)?,
            change: form.change.clone(),
            cause: form.cause.clone(),
            emergency: given(&form.emergency),
        },
        "person" => ActOrder::Person {
            uid: named("a user id", &form.name)?,
            clearance: clearance(&form.clearance)?,
            roles: words(&form.roles),
            units: words(&form.units),
        },
        other => return Err(format!("there is no act called {other:?}")),
    })
}

fn named(what: &str, text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err(format!("{what} is missing")),
        text => Ok(text.to_owned()),
    }
}

fn holder(form: &RequestForm) -> Result<Holder, String> {
    let name = named("a user id or name", &form.name)?;
    match form.holder.as_str() {
        "person" => Ok(Holder::Uid(name)),
        "device" => Ok(Holder::Device(name)),
        "gateway" => Ok(Holder::Gateway(name)),
        "server" => Ok(Holder::Server(name)),
        other => Err(format!("{other:?} is no kind of holder")),
    }
}

fn clearance(text: &str) -> Result<Option<u8>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let level = text.parse();
    level
        .map(Some)
        .map_err(|_| format!("{text:?} is no clearance"))
}

fn csr(pem: &str) -> Result<String, String> {
    let der = pki::csr::from_pem(pem.trim()).map_err(|error| error.to_string())?;
    Ok(hex::encode(der))
}

/// The request's content as a form, to be changed there.
pub(super) fn filled(record: &RequestRecord) -> RequestForm {
    let checked = |is: bool| if is { "yes".to_owned() } else { String::new() };
    let urgent = |urgency: Urgency| checked(urgency == Urgency::Emergency);
    let csr = record.csr.as_deref().map(pki::csr::to_pem);
    let reason = record.request.reason().to_owned();
    let form = RequestForm {
        reason,
        ..RequestForm::default()
    };
    match record.request.act() {
        Act::Issue {
            subject,
            profile,
            clearance,
            ..
        } => {
            let profile = registry::profile(profile);
            let is_person = matches!(profile, Some(Profile::User { .. }));
            let kind = if is_person { "person" } else { "device" };
            RequestForm {
                act: "issue".to_owned(),
                holder: kind.to_owned(),
                name: subject.clone(),
                csr: csr.and_then(Result::ok).unwrap_or_default(),
                clearance: clearance.level().to_string(),
                tunnel_only: checked(profile == Some(Profile::VpnDevice)),
                ..form
            }
        }
        Act::Renew { serial, .. } => RequestForm {
            act: "renew".to_owned(),
            serial: serial.clone(),
            ..form
        },
        Act::Revoke {
            serial,
            cause,
            urgency,
            ..
        } => RequestForm {
            act: "revoke".to_owned(),
            serial: serial.clone(),
            cause: cause.name().to_owned(),
            emergency: urgent(*urgency),
            ..form
        },
        Act::ChangeHolder {
            subject,
            holder,
            change,
            urgency,
            ..
        } => {
            let (change, cause) = match change {
                HolderStep::Suspend => ("suspend", ""),
                HolderStep::Resume => ("resume", ""),
                HolderStep::Retire => ("retire", ""),
                HolderStep::Readmit => ("readmit", ""),
                HolderStep::Revoke(cause) => ("revoke", cause.name()),
            };
            let holder = match holder {
                HolderKind::Person => "person",
                HolderKind::Device => "device",
                HolderKind::Gateway => "gateway",
                HolderKind::Server => "server",
            };
            RequestForm {
                act: "holder".to_owned(),
                holder: holder.to_owned(),
                name: subject.clone(),
                change: change.to_owned(),
                cause: cause.to_owned(),
                emergency: urgent(*urgency),
                ..form
            }
        }
        Act::ChangePerson { subject, new, .. } => {
            let roles: Vec<&str> = new.roles.iter().copied().map(Role::name).collect();
            let units: Vec<&str> = new.units.iter().map(String::as_str).collect();
            RequestForm {
                act: "person".to_owned(),
                name: subject.clone(),
                clearance: new.clearance.level().to_string(),
                roles: roles.join(", "),
                units: units.join(", "),
                ..form
            }
        }
        // Nobody can ask for the others yet.
        _ => form,
    }
}
