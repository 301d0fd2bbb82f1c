//! Requests for acts that need approval, on an open site; reached by `control`.

use std::collections::BTreeMap;

use access::{PersonRecord, Principal, Role};
use approval::{Act, HolderKind, HolderStep, People, Rights, Urgency};
use audit::Actor;
use directory::Person;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::Subject;
use pki::profile::{CaKind, Profile};
use registry::{Order, RegistryError, RequestError, RequestRecord, Step, Wanted, Warrant};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::failure::{Failure, OrHint as _, Outcome};
use crate::giver::Giver;
use crate::orders::{ActOrder, Holder, RequestOrder, StepOrder};
use crate::site::Site;

const LOOK: &str = "`cordon registry request show` has the request as it is";

/// A warrant for a direct order of `who`; where approvals are required, the way to them.
pub(crate) fn direct(site: &Site, who: &Actor, instead: &str) -> Outcome<Warrant> {
    let hint = format!("ask for it with `cordon registry request new {instead}`");
    site.registry
        .direct(who.clone())
        .map_err(|error| Failure::new(anyhow::Error::new(error), hint))
}

/// Carries an order about requests out.
pub(crate) async fn carry_out(
    site: &Site,
    order: RequestOrder,
    giver: &Giver,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let registry = &site.registry;
    match order {
        RequestOrder::List { open } => {
            let requests = registry.requests(open, now).await;
            let requests = requests.or_hint("cannot list requests", "see the log")?;
            Ok(json!({ "requests": requests }))
        }
        RequestOrder::Show { id } => show(site, &id).await,
        RequestOrder::New {
            wanted,
            reason,
            submit,
        } => {
            let (by, _) = person(giver)?;
            let wanted = wanted.look_up(site).await?;
            let draft = told(registry.draft_request(wanted, by, &reason, now).await)?;
            let (id, version) = (draft.id().0.clone(), draft.version());
            if submit {
                let step = registry.step_request(&id, version, Step::Submit, by, now);
                told(step.await)?;
            }
            show(site, &id).await
        }
        RequestOrder::Edit {
            id,
            seen,
            wanted,
            reason,
        } => {
            let wanted = wanted.look_up(site).await?;
            let step = Step::Edit { wanted, reason };
            make(site, &id, seen, step, giver, now).await
        }
        RequestOrder::Step { id, seen, step } => {
            let step = match step {
                StepOrder::Submit => Step::Submit,
                StepOrder::Withdraw => Step::Withdraw,
                StepOrder::Return { reason } => Step::Return { reason },
                StepOrder::Refuse { reason } => Step::Refuse { reason },
                StepOrder::Approve { signature } => Step::Approve {
                    certificate: person(giver)?.1.to_vec(),
                    signature: hex::decode(signature)
                        .or_hint("signature", "use the same version of cordon")?,
                },
            };
            make(site, &id, seen, step, giver, now).await
        }
        RequestOrder::CarryOut { id, seen } => act(site, &id, seen, giver, now).await,
    }
}

async fn make(
    site: &Site,
    id: &str,
    seen: u64,
    step: Step,
    giver: &Giver,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let (by, _) = person(giver)?;
    told(site.registry.step_request(id, seen, step, by, now).await)?;
    show(site, id).await
}

/// The person who gives the command, with the certificate shown.
fn person(giver: &Giver) -> Outcome<(&Principal, &[u8])> {
    giver
        .person
        .as_ref()
        .map(|(p, der)| (p, &**der))
        .ok_or_else(|| {
            Failure::new(
                anyhow::anyhow!("requests are people's, who show a certificate"),
                "name a person's PKCS#12 or PEM file with --as FILE and --as-password-file FILE",
            )
        })
}

/// A refusal with its stable name, and what to do about it.
fn told<T>(outcome: Result<T, RequestError>) -> Outcome<T> {
    outcome.map_err(|error| {
        let hint = match &error {
            RequestError::Unknown(_) => "`cordon registry request list --all` names every request",
            RequestError::NotAvailable(_) => "see `cordon registry request new --help`",
            _ => LOOK,
        };
        let code = error.code();
        Failure::new(
            anyhow::Error::new(error).context(format!("refused ({code})")),
            hint,
        )
    })
}

async fn show(site: &Site, id: &str) -> Outcome<Value> {
    let record = told(site.registry.request(id).await)?;
    let request = &record.request;
    let statement = request.statement().or_hint("statement", "report this")?;
    let policy = crate::site::policy(&site.config);
    let pem = |der: &Vec<u8>| {
        pki::cert::from_der(der)
            .and_then(|certificate| pki::cert::to_pem(&certificate))
            .or_hint("cannot write a certificate", "report this")
    };
    let certificates = record.certificates.iter().map(pem);
    Ok(json!({
        "id": id,
        "version": request.version(),
        "state": request.state().name(),
        "act": request.act().name(),
        "approvals_needed": policy.confirmations(request.act()),
        "request": request,
        "statement": String::from_utf8_lossy(&statement),
        "history": record.history,
        "csr_hex": record.csr.map(hex::encode),
        "certificates_pem": certificates.collect::<Outcome<Vec<String>>>()?,
        "root_pem": site.root_pem()?,
        "authorities_pem": site.authorities_pem()?,
    }))
}

/// The directory and the approvers' certificates at one instant.
#[derive(Default)]
struct Snapshot {
    people: BTreeMap<String, PersonRecord>,
    certificates: BTreeMap<String, Vec<u8>>,
}

impl People for Snapshot {
    fn person(&self, uid: &str) -> Option<PersonRecord> {
        self.people.get(uid).cloned()
    }

    fn certificate(&self, sha256: &str) -> Option<Vec<u8>> {
        self.certificates.get(sha256).cloned()
    }
}

impl Snapshot {
    async fn of(site: &Site, record: &RequestRecord, now: OffsetDateTime) -> Outcome<Self> {
        let mut snapshot = Self::default();
        let id = &record.request.id().0;
        for approval in record.request.state().approvals() {
            let entry = site.directory.get(approval.uid()).await;
            if let Some(entry) = entry.or_hint("cannot read the directory", "see the log")? {
                snapshot.people.insert(entry.uid.clone(), entry.record());
            }
            let sha256 = approval.certificate_sha256();
            let found = site.registry.approver_certificate(id, sha256, now).await;
            if let Some(der) = told(found)? {
                snapshot.certificates.insert(sha256.to_owned(), der);
            }
        }
        Ok(snapshot)
    }
}

/// Carries out what was approved.
async fn act(
    site: &Site,
    id: &str,
    seen: u64,
    giver: &Giver,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let (by, _) = person(giver)?;
    let record = told(site.registry.request(id).await)?;
    let people = Snapshot::of(site, &record, now).await?;
    let registry = &site.registry;
    let actor = giver.actor.clone();
    let warrant = registry.authorize_request(id, seen, &people, by, actor.clone(), now);
    let warrant = told(warrant.await)?;
    let mut issued = None;
    match record.request.act() {
        Act::Issue {
            subject,
            profile,
            clearance,
            ..
        } => {
            let order = order(site, subject, profile, *clearance, &record).await?;
            issued = Some(done(registry.issue(order, warrant, now).await)?);
        }
        Act::Renew { .. } => issued = Some(done(registry.renew(warrant, now).await)?),
        Act::Revoke { serial, cause, .. } => {
            let (kind, _) = certificate(site, serial).await?;
            done(registry.revoke(kind, serial, *cause, warrant, now).await)?;
        }
        Act::ChangeHolder {
            subject,
            holder,
            change,
            ..
        } => {
            let (kind, change) = (authority_of(*holder), (*change).into());
            done(
                registry
                    .change_holder(kind, subject, change, warrant, now)
                    .await,
            )?;
        }
        Act::ChangePerson { subject, old, new } => {
            let mut entry = entry(site, subject).await?;
            let present = rights_of(&entry);
            // One that an interrupted attempt has changed already is as it should be.
            if present != *old && present != *new {
                let what = anyhow::anyhow!("the rights of {subject} were changed meanwhile");
                return Err(Failure::new(what, "have the request refused, and ask anew"));
            }
            (entry.clearance, entry.roles, entry.units) =
                (new.clearance, new.roles.clone(), new.units.clone());
            let update = site.directory.update(&entry, actor, now);
            let done = registry.carry_out_elsewhere(warrant, subject, update, now);
            done.await.or_hint("not carried out", LOOK)?;
        }
        other => return told(Err(RequestError::NotAvailable(other.name().to_owned()))),
    }
    let mut value = show(site, id).await?;
    if let (Some(issued), Some(fields)) = (issued, value.as_object_mut()) {
        let chain = issued.chain.to_pem();
        let chain = chain.or_hint("cannot write the certificate", "report this")?;
        fields.insert("serial".to_owned(), issued.serial.into());
        fields.insert("chain_pem".to_owned(), chain.into());
    }
    Ok(value)
}

fn done<T>(outcome: Result<T, RegistryError>) -> Outcome<T> {
    outcome.or_hint("not carried out", LOOK)
}

async fn order(
    site: &Site,
    subject: &str,
    profile: &str,
    clearance: Clearance,
    record: &RequestRecord,
) -> Outcome<Order> {
    let csr = record.csr.as_deref().unwrap_or_default();
    let csr = pki::csr::parse_and_verify(csr).or_hint("certification request", "ask anew")?;
    let Some(profile) = registry::profile(profile) else {
        return told(Err(RequestError::NotAvailable(profile.to_owned())));
    };
    let names = match profile {
        Profile::User { .. } => subject_of(site, &entry(site, subject).await?),
        _ => Subject::new(subject),
    };
    Ok(Order::new(profile, names, csr.spki).with_clearance(clearance))
}

/// The names of a person's certificate.
pub(crate) fn subject_of(site: &Site, person: &Person) -> Subject {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Subject {
        country: Some(site.config.site.country.clone()),
        organisation: filled(&person.organisation),
        given_name: filled(&person.given_name),
        surname: filled(&person.surname),
        uid: Some(person.uid.clone()),
        email: filled(&person.email),
        ..Subject::new(&person.name)
    }
}

async fn entry(site: &Site, uid: &str) -> Outcome<Person> {
    let entry = site.directory.get(uid).await;
    let entry = entry.or_hint("cannot read the directory", "see the log")?;
    entry.ok_or_else(|| {
        let error = anyhow::anyhow!("nobody in the directory has the user id {uid}");
        Failure::new(error, "add the person with `cordon directory import` first")
    })
}

async fn certificate(site: &Site, serial: &str) -> Outcome<(CaKind, registry::IssuedRecord)> {
    let found = site.registry.find(serial).await;
    let found = found.or_hint("cannot read the registry", "see the log")?;
    found.ok_or_else(|| {
        let error = anyhow::anyhow!("no certificate has the serial number {serial}");
        Failure::new(error, "`cordon pki list` shows what was issued")
    })
}

fn rights_of(person: &Person) -> Rights {
    Rights {
        clearance: person.clearance,
        roles: person.roles.clone(),
        units: person.units.clone(),
    }
}

const fn authority_of(holder: HolderKind) -> CaKind {
    match holder {
        HolderKind::Person => CaKind::Users,
        HolderKind::Device => CaKind::Devices,
        HolderKind::Gateway => CaKind::Services,
    }
}

fn level(level: Option<u8>, otherwise: Clearance) -> Outcome<Clearance> {
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

fn cause(name: &str) -> Outcome<RevocationReason> {
    name.parse().or_hint(
        "unknown reason of revocation",
        "see `cordon pki revoke --help`",
    )
}

impl ActOrder {
    /// The act with what the site knows of its subject: nobody chooses the level by which approvers are counted.
    async fn look_up(self, site: &Site) -> Outcome<Wanted> {
        let act = match self {
            Self::Issue {
                holder,
                tunnel_only,
                csr,
                clearance,
            } => return issue(site, holder, tunnel_only, &csr, clearance).await,
            Self::Renew { serial } => {
                let (_, record) = certificate(site, &serial).await?;
                Act::Renew {
                    clearance: record.clearance.unwrap_or_default(),
                    subject: record.uid.unwrap_or(record.holder),
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
                };
                let clearance = site
                    .registry
                    .holder_clearance(authority_of(holder), &subject);
                let clearance = clearance.await;
                Act::ChangeHolder {
                    clearance: clearance.or_hint("cannot read the registry", "see the log")?,
                    subject,
                    holder,
                    change: step(&change, &name)?,
                    urgency: urgency(emergency),
                }
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

async fn issue(
    site: &Site,
    holder: Holder,
    tunnel_only: bool,
    csr: &str,
    clearance: Option<u8>,
) -> Outcome<Wanted> {
    let (subject, profile, otherwise) = match holder {
        Holder::Uid(uid) => {
            let entry = entry(site, &uid).await?;
            let administrator = entry.roles.contains(&Role::Administrator);
            (uid, Profile::User { administrator }, entry.clearance)
        }
        Holder::Device(name) if tunnel_only => (name, Profile::VpnDevice, Clearance::Unclassified),
        Holder::Device(name) => (name, Profile::Device, Clearance::Restricted),
        Holder::Gateway(_) => {
            let what = "a certificate of a gateway on request".to_owned();
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
        },
        csr: Some(der),
    })
}
