//! Acts as people ask for them, with what the site knows of their subjects.

use approval::{Act, HolderKind, HolderStep, Rights, Urgency};
use directory::Person;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::Subject;
use pki::profile::{CaKind, Profile};
use registry::{RequestError, Wanted};

use super::profiles;
use super::refusal::told;
use crate::config::Config;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::orders::{ActOrder, ChosenProfile, Holder};
use crate::parts::Site;

pub(super) fn level(level: Option<u8>, otherwise: Clearance) -> Outcome<Clearance> {
    let Some(level) = level else {
        return Ok(otherwise);
    };
    Clearance::try_from(level).or_hint("clearance", "use 0 to 4")
}

const fn urgency(emergency: bool) -> Urgency {
    if emergency {
        Urgency::Emergency
    } else {
        Urgency::Regular
    }
}

/// Reads the reason of a revocation, which is for good.
pub(crate) fn cause(name: &str) -> Outcome<RevocationReason> {
    let reason = name.parse().or_hint(
        "unknown reason of revocation",
        "see `cordon pki revoke --help`",
    )?;
    match reason {
        RevocationReason::CertificateHold => Err(Failure::new(
            anyhow::anyhow!("{reason} is a suspension, not a reason to revoke"),
            "suspend the holder with `cordon registry suspend`, or by a request for the change `suspend`",
        )),
        reason => Ok(reason),
    }
}

impl ActOrder {
    /// The act with what the site knows of its subject: the requester does not choose the level by which approvers are counted.
    pub(super) async fn look_up(self, site: &Site) -> Outcome<Wanted> {
        let act = match self {
            Self::Issue {
                holder,
                tunnel_only,
                csr,
                clearance,
                profile,
                by_password,
            } => {
                let wanted = CertificateOrder {
                    holder,
                    tunnel_only,
                    clearance,
                    profile,
                    by_password,
                };
                return issue(site, wanted, &csr).await;
            }
            Self::RecoverKey { serial } => {
                let (kind, record) = certificate(site, &serial).await?;
                let subject = record.uid.unwrap_or(record.holder);
                Act::RecoverKey {
                    clearance: record.clearance.unwrap_or_default(),
                    rights: rights_in(site, kind, &subject).await?,
                    subject,
                    serial,
                }
            }
            Self::Profile { definition } => {
                let parsed = profiles::parse(&definition)?;
                let clearance = site.registry.clearance_of_profile(&parsed);
                Act::ChangeProfile {
                    profile: parsed.name().to_owned(),
                    clearance: clearance.or_hint("profile", profiles::HINT)?,
                    definition,
                }
            }
            Self::Invite(order) => super::inviting::act(site, order).await?,
            Self::Renew { serial } => {
                let (kind, record) = certificate(site, &serial).await?;
                let subject = record.uid.unwrap_or(record.holder);
                Act::Renew {
                    clearance: record.clearance.unwrap_or_default(),
                    rights: rights_in(site, kind, &subject).await?,
                    subject,
                    serial,
                }
            }
            Self::Revoke {
                serial,
                cause: name,
                emergency,
            } => {
                let (_, record) = certificate(site, &serial).await?;
                Act::Revoke {
                    clearance: record.clearance.unwrap_or_default(),
                    subject: record.uid.unwrap_or(record.holder),
                    serial,
                    cause: cause(&name)?,
                    urgency: urgency(emergency),
                }
            }
            Self::Holder {
                holder,
                change,
                cause: name,
                emergency,
            } => {
                let (holder, subject) = match holder {
                    Holder::Uid(uid) => (HolderKind::Person, uid),
                    Holder::Device(device) => (HolderKind::Device, device),
                    Holder::Gateway(gateway) => (HolderKind::Gateway, gateway),
                    Holder::Server(server) => (HolderKind::Server, server),
                };
                let clearance = site
                    .registry
                    .holder_clearance(authority_of(holder), &subject);
                let clearance = clearance.await;
                let change = step(&change, &name)?;
                Act::ChangeHolder {
                    clearance: clearance.or_hint("cannot read the registry", "see the log")?,
                    rights: match change.grants() {
                        true => rights_in(site, authority_of(holder), &subject).await?,
                        false => None,
                    },
                    subject,
                    holder,
                    change,
                    urgency: urgency(emergency),
                }
            }
            Self::Authority { name } => {
                let id = name.parse().map_err(RequestError::UnknownAuthority);
                let act = site.registry.activation(told(id)?);
                act.or_hint("no such authority", "`cordon pki authorities` shows them")?
            }
            Self::Person {
                uid,
                clearance,
                roles,
                units,
            } => {
                let entry = entry(site, &uid).await?;
                let old = rights_of(&entry);
                let roles = roles.map(|roles| roles.iter().map(|role| role.parse()).collect());
                let roles: Option<Result<_, access::UnknownRole>> = roles;
                let roles = roles
                    .transpose()
                    .or_hint("role", "see docs/operations.md")?;
                let new = Rights {
                    clearance: level(clearance, old.clearance)?,
                    roles: roles.unwrap_or_else(|| old.roles.clone()),
                    units: units.map_or_else(|| old.units.clone(), |u| u.into_iter().collect()),
                };
                let changed = Person {
                    units: new.units.clone(),
                    ..entry
                };
                changed
                    .check()
                    .or_hint("units", "see `cordon directory import --help`")?;
                Act::ChangePerson {
                    subject: uid,
                    old,
                    new,
                }
            }
        };
        Ok(Wanted { act, csr: None })
    }
}

fn step(change: &str, name: &str) -> Outcome<HolderStep> {
    Ok(match change {
        "suspend" => HolderStep::Suspend,
        "resume" => HolderStep::Resume,
        "retire" => HolderStep::Retire,
        "readmit" => HolderStep::Readmit,
        "revoke" => HolderStep::Revoke(cause(name)?),
        _ => {
            let error = anyhow::anyhow!("{change:?} is no change of a holder");
            return Err(Failure::new(
                error,
                "use suspend, resume, revoke, retire or readmit",
            ));
        }
    })
}

/// Whose certificate, and which.
struct CertificateOrder {
    holder: Holder,
    tunnel_only: bool,
    clearance: Option<u8>,
    profile: ChosenProfile,
    by_password: bool,
}

async fn issue(site: &Site, wanted: CertificateOrder, csr: &str) -> Outcome<Wanted> {
    let CertificateOrder {
        holder,
        tunnel_only,
        clearance,
        profile: ChosenProfile { name, account },
        by_password,
    } = wanted;
    let (mut rights, mut distinguished_name) = (None, None);
    let (subject, profile, otherwise) = match (holder, &name) {
        (Holder::Uid(uid), name) => {
            let entry = entry(site, &uid).await?;
            rights = Some(rights_of(&entry));
            distinguished_name = Some(names_of(site, &entry)?);
            let profile = profiles::of_person(site, &entry, name.as_deref())?;
            let most = profiles::highest_clearance(site, profile)?;
            (uid, profile, entry.clearance.min(most))
        }
        (Holder::Device(device), Some(name)) => {
            let profile = profiles::named(site, name, CaKind::Devices)?;
            let most = profiles::highest_clearance(site, profile)?;
            (device, profile, Clearance::Restricted.min(most))
        }
        (Holder::Server(server), Some(name)) => {
            let profile = profiles::named(site, name, CaKind::Services)?;
            (server, profile, Clearance::Unclassified)
        }
        (Holder::Device(name), None) if tunnel_only => {
            (name, Profile::VpnDevice, Clearance::Unclassified)
        }
        (Holder::Device(name), None) => (name, Profile::Device, Clearance::Restricted),
        (Holder::Gateway(_), _) => {
            let what = "a certificate of a gateway on request".to_owned();
            return told(Err(RequestError::NotAvailable(what)));
        }
        (Holder::Server(_), None) => {
            let what = "a certificate of a server without an invitation".to_owned();
            return told(Err(RequestError::NotAvailable(what)));
        }
    };
    let der =
        hex::decode(csr).or_hint("certification request", "use the same version of cordon")?;
    let csr = pki::csr::parse_and_verify(&der);
    let csr = told(csr.map_err(RequestError::from))?;
    let spki = pki::spki::spki_sha256(&csr.spki).or_hint("key", "make another request")?;
    Ok(Wanted {
        act: Act::Issue {
            subject,
            profile: profile.to_string(),
            clearance: level(clearance, otherwise)?,
            spki_sha256: spki,
            account,
            rights,
            distinguished_name,
            by_password,
        },
        csr: Some(der),
    })
}

/// The names of a person's certificate.
pub fn subject_of(config: &Config, person: &Person) -> Subject {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let of_site = || config.site.country.clone();
    Subject {
        country: Some(filled(&person.country).unwrap_or_else(of_site)),
        organisation: filled(&person.organisation),
        given_name: filled(&person.given_name),
        surname: filled(&person.surname),
        uid: Some(person.uid.clone()),
        email: filled(&person.email),
        ..Subject::new(&person.name)
    }
}

pub(super) async fn entry(site: &Site, uid: &str) -> Outcome<Person> {
    let entry = site.directory.get(uid).await;
    let entry = entry.or_hint("cannot read the directory", "see the log")?;
    entry.ok_or_else(|| {
        let error = anyhow::anyhow!("nobody in the directory has the user id {uid}");
        Failure::new(error, "add the person with `cordon directory import` first")
    })
}

pub(super) async fn certificate(
    site: &Site,
    serial: &str,
) -> Outcome<(CaKind, registry::IssuedRecord)> {
    let found = site.registry.find(serial).await;
    let found = found.or_hint("cannot read the registry", "see the log")?;
    found.ok_or_else(|| {
        let error = anyhow::anyhow!("no certificate has the serial number {serial}");
        Failure::new(error, "`cordon pki list` shows what was issued")
    })
}

/// The names of a person's certificate, as approvers see them.
pub(super) fn names_of(site: &Site, person: &Person) -> Outcome<String> {
    let names = subject_of(&site.config, person).distinguished_name();
    names.or_hint("names of the person", "correct the directory entry")
}

/// What the holder of a certificate may do, where that is a person.
async fn rights_in(site: &Site, authority: CaKind, holder: &str) -> Outcome<Option<Rights>> {
    if authority != CaKind::Users {
        return Ok(None);
    }
    let entry = site.directory.get(holder).await;
    let entry = entry.or_hint("cannot read the directory", "see the log")?;
    Ok(entry.as_ref().map(rights_of))
}

pub fn rights_of(person: &Person) -> Rights {
    Rights {
        clearance: person.clearance,
        roles: person.roles.clone(),
        units: person.units.clone(),
    }
}

pub const fn authority_of(holder: HolderKind) -> CaKind {
    match holder {
        HolderKind::Person => CaKind::Users,
        HolderKind::Device => CaKind::Devices,
        HolderKind::Gateway | HolderKind::Server => CaKind::Services,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_is_refused_as_reason_of_a_revocation() {
        for reason in RevocationReason::ALL {
            match cause(reason.name()) {
                Ok(read) => {
                    assert_eq!(read, reason);
                    assert_ne!(reason, RevocationReason::CertificateHold);
                }
                Err(failure) => {
                    assert_eq!(reason, RevocationReason::CertificateHold);
                    assert!(failure.message().contains("certificate-hold"));
                    assert!(failure.hint().contains("cordon registry suspend"));
                }
            }
        }
        assert!(cause("lost").is_err());
    }
}
