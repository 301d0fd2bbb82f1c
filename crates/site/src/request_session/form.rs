//! The portal's form of a request, and the order that it gives.

use access::Role;
use approval::{Act, HolderKind, HolderStep, Urgency};
use pki::name::WindowsAccount;
use pki::profile::{CaKind, Profile};
use portal_requests::RequestForm;
use registry::RequestRecord;

use crate::orders::{ActOrder, ChosenProfile, Holder, InviteOrder};

/// What the form asks for. Whether it makes sense is for the one who looks it up to say, as with a command.
pub(crate) fn order(form: &RequestForm) -> Result<ActOrder, String> {
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
            profile: chosen(form)?,
            by_password: false,
        },
        "invite" => ActOrder::Invite(InviteOrder {
            holder: holder(form)?,
            clearance: clearance(&form.clearance)?,
            unit: words(&form.units).and_then(|units| units.into_iter().next()),
            hours: number("hours", &form.hours)?.unwrap_or(72),
            renewals: number("renewals", &form.renewals)?.unwrap_or(0),
            names: words(&form.names).unwrap_or_default(),
            profile: chosen(form)?,
        }),
        "profile" => ActOrder::Profile {
            // A browser ends lines with two characters.
            definition: form.definition.replace("\r\n", "\n"),
        },
        "renew" => ActOrder::Renew {
            serial: named("a serial number", &form.serial)?.to_lowercase(),
        },
        "recover" => ActOrder::RecoverKey {
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
        "authority" => ActOrder::Authority {
            name: named("the name of an authority", &form.name)?,
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

fn number<T: std::str::FromStr>(what: &str, text: &str) -> Result<Option<T>, String> {
    match text.trim() {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| format!("{text:?} is no number of {what}")),
    }
}

fn chosen(form: &RequestForm) -> Result<ChosenProfile, String> {
    let name = form.profile.trim();
    let account = match (form.principal.trim(), form.sid.trim()) {
        ("", "") => None,
        (principal, sid) => {
            let account = WindowsAccount::new(principal, sid);
            Some(account.map_err(|error| error.to_string())?)
        }
    };
    Ok(ChosenProfile {
        name: (!name.is_empty()).then(|| name.to_owned()),
        account,
    })
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
    let der = pki::csr::from_pem(pem).map_err(|error| error.to_string())?;
    Ok(hex::encode(der))
}

/// The profile that this program itself knows by a name.
fn known(name: &str) -> Option<Profile> {
    let mut known = Profile::ON_REQUEST.into_iter();
    let named = || {
        let mut all = pki::profile::built_in();
        all.find(|(one, _)| one.name() == name)?.0.profile()
    };
    known.find(|one| one.to_string() == name).or_else(named)
}

/// The name of a profile for the form; nothing of the usual one of its holder.
fn usual(known: Option<Profile>, name: &str) -> String {
    match known {
        Some(Profile::Named { .. }) | None => name.to_owned(),
        Some(_) => String::new(),
    }
}

/// The request's content as a form, to be changed there.
pub(crate) fn filled(record: &RequestRecord) -> RequestForm {
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
            account,
            ..
        } => {
            let named = known(profile);
            let holder = match named.and_then(Profile::issued_by) {
                Some(CaKind::Devices) => "device",
                Some(CaKind::Services) => "server",
                _ => "person",
            };
            let account = account.as_ref();
            let text = |of: fn(&WindowsAccount) -> &str| account.map(of).unwrap_or_default();
            RequestForm {
                act: "issue".to_owned(),
                holder: holder.to_owned(),
                profile: usual(named, profile),
                principal: text(|account| &account.principal).to_owned(),
                sid: text(|account| account.sid.as_str()).to_owned(),
                name: subject.clone(),
                csr: csr.and_then(Result::ok).unwrap_or_default(),
                clearance: clearance.level().to_string(),
                tunnel_only: checked(named == Some(Profile::VpnDevice)),
                ..form
            }
        }
        Act::Invite {
            subject,
            profile,
            clearance,
            unit,
            hours,
            renewals,
            names,
            account,
            ..
        } => {
            let named = known(profile);
            let holder = match named {
                Some(Profile::NetworkServer) => "server",
                Some(Profile::VpnDevice) => "device",
                _ => "person",
            };
            let account = account.as_ref();
            let text = |of: fn(&WindowsAccount) -> &str| account.map(of).unwrap_or_default();
            let further = names.iter().skip(1).map(String::as_str);
            RequestForm {
                act: "invite".to_owned(),
                holder: holder.to_owned(),
                name: subject.clone(),
                clearance: clearance.level().to_string(),
                units: unit.clone().unwrap_or_default(),
                hours: hours.to_string(),
                renewals: renewals.to_string(),
                names: further.collect::<Vec<_>>().join(", "),
                profile: usual(named, profile),
                principal: text(|account| &account.principal).to_owned(),
                sid: text(|account| account.sid.as_str()).to_owned(),
                ..form
            }
        }
        Act::ChangeProfile { definition, .. } => RequestForm {
            act: "profile".to_owned(),
            definition: definition.clone(),
            ..form
        },
        Act::AddAuthority { name, .. } => RequestForm {
            act: "authority".to_owned(),
            name: name.clone(),
            ..form
        },
        Act::RecoverKey { serial, .. } => RequestForm {
            act: "recover".to_owned(),
            serial: serial.clone(),
            ..form
        },
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
        // The others cannot be asked for yet.
        _ => form,
    }
}
