//! Requests for acts that need approval, on an open site: commands reach it by `control`, people in the portal by `request_session`.

mod acts;
mod carrying;
mod inviting;
pub mod profiles;
mod refusal;

use access::Principal;
use approval::Request;
use registry::Step;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::failure::{Failure, OrHint as _, Outcome};
use crate::giver::Giver;
use crate::orders::{ActOrder, RequestOrder, StepOrder};
use crate::parts::Site;

pub(crate) use self::acts::cause;
pub use self::acts::{authority_of, rights_of, subject_of};
pub use self::carrying::{Carried, carry};
pub use self::inviting::invite;
pub use self::refusal::direct;
use self::refusal::told;

/// Carries an order about requests out.
pub async fn carry_out(
    site: &Site,
    order: RequestOrder,
    giver: &Giver,
    now: OffsetDateTime,
) -> Outcome<Value> {
    match order {
        RequestOrder::List { open } => {
            let requests = site.registry.requests(open, now).await;
            let requests = requests.or_hint("cannot list requests", "see the log")?;
            Ok(json!({ "requests": requests }))
        }
        RequestOrder::Show { id } => show(site, &id).await,
        RequestOrder::New {
            wanted,
            reason,
            submit,
        } => {
            let request = begin(site, giver, wanted, &reason, submit, now).await?;
            show(site, &request.id().0).await
        }
        RequestOrder::Edit {
            id,
            seen,
            wanted,
            reason,
        } => {
            edit(site, giver, (&id, seen), wanted, reason, now).await?;
            show(site, &id).await
        }
        RequestOrder::Step { id, seen, step } => {
            make(site, giver, (&id, seen), step, now).await?;
            show(site, &id).await
        }
        RequestOrder::CarryOut { id, seen, cmp } => {
            let carried = carry(site, giver, (&id, seen), cmp, now).await?;
            let mut value = show(site, &id).await?;
            let Some(fields) = value.as_object_mut() else {
                return Ok(value);
            };
            match carried {
                Carried::Issued(issued) => {
                    let chain = issued.chain.to_pem();
                    let chain = chain.or_hint("cannot write the certificate", "report this")?;
                    fields.insert("serial".to_owned(), issued.serial.into());
                    fields.insert("chain_pem".to_owned(), chain.into());
                }
                Carried::Invited(invited, uid) => {
                    inviting::tell(site, fields, &invited, uid.as_deref())?;
                }
                Carried::Recovered(envelope) => {
                    fields.insert("envelope_hex".to_owned(), hex::encode(envelope).into());
                }
                Carried::Done => {}
            }
            Ok(value)
        }
    }
}

/// Begins a request of `giver`, and hands it in if `submit`.
pub async fn begin(
    site: &Site,
    giver: &Giver,
    wanted: ActOrder,
    reason: &str,
    submit: bool,
    now: OffsetDateTime,
) -> Outcome<Request> {
    let (by, _) = person(giver)?;
    let registry = &site.registry;
    let wanted = wanted.look_up(site).await?;
    let draft = told(registry.draft_request(wanted, by, reason, now).await)?;
    if !submit {
        return Ok(draft);
    }
    let id = &draft.id().0;
    let step = registry.step_request(id, draft.version(), Step::Submit, by, now);
    told(step.await)
}

/// Changes the content of a request, of which `giver` saw the version of `seen`.
pub async fn edit(
    site: &Site,
    giver: &Giver,
    seen: (&str, u64),
    wanted: ActOrder,
    reason: String,
    now: OffsetDateTime,
) -> Outcome<Request> {
    let (by, _) = person(giver)?;
    let wanted = wanted.look_up(site).await?;
    let step = Step::Edit {
        wanted: Box::new(wanted),
        reason,
    };
    told(
        site.registry
            .step_request(seen.0, seen.1, step, by, now)
            .await,
    )
}

/// Makes a step with a request, of which `giver` saw the version of `seen`.
pub async fn make(
    site: &Site,
    giver: &Giver,
    seen: (&str, u64),
    step: StepOrder,
    now: OffsetDateTime,
) -> Outcome<Request> {
    let (by, certificate) = person(giver)?;
    let step = match step {
        StepOrder::Submit => Step::Submit,
        StepOrder::Withdraw => Step::Withdraw,
        StepOrder::Return { reason } => Step::Return { reason },
        StepOrder::Refuse { reason } => Step::Refuse { reason },
        StepOrder::Approve { signature } => Step::Approve {
            certificate: certificate.to_vec(),
            signature: hex::decode(signature)
                .or_hint("signature", "use the same version of cordon")?,
        },
    };
    told(
        site.registry
            .step_request(seen.0, seen.1, step, by, now)
            .await,
    )
}

/// The person who gives the command, with the certificate shown.
fn person(giver: &Giver) -> Outcome<(&Principal, &[u8])> {
    giver.person().ok_or_else(|| {
        Failure::new(
            anyhow::anyhow!("each step of a registration request needs a person's certificate"),
            "name a person's PKCS#12 or PEM file with --as FILE and --as-password-file FILE",
        )
    })
}

async fn show(site: &Site, id: &str) -> Outcome<Value> {
    let record = told(site.registry.request(id).await)?;
    let request = &record.request;
    let statement = request.statement().or_hint("statement", "report this")?;
    let policy = crate::parts::policy(&site.config);
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
        "root_pem": site.trust.root_pem()?,
        "authorities_pem": crate::authority_texts::authorities_pem(&site.registry)?,
    }))
}
