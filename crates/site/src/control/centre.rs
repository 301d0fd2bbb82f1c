//! Orders about evidence, which a host with a centre carries out, wherever the registry is.

use serde_json::{Value, json};
use service_kit::Health;
use time::OffsetDateTime;

use super::journal;
use super::request::Request;
use crate::failure::{OrHint as _, Outcome};
use crate::giver::Giver;
use crate::parts::centre_parts::CentreParts;
use crate::silence::Silence;
use crate::{administration, export};

/// What became of an order.
pub(super) enum Carried {
    Out(Value),
    /// It is not about evidence.
    Not(Box<Request>),
}

/// Tells whether an order is about evidence that a centre has. Journals of gateways and revocation lists are not.
pub(super) const fn is_about_evidence(request: &Request) -> bool {
    matches!(
        request,
        Request::Export { .. } | Request::Trust | Request::Quarantine(_)
    )
}

/// Carries an order about evidence out.
pub(super) async fn execute(
    parts: &CentreParts,
    request: Request,
    giver: &Giver,
) -> Outcome<Carried> {
    let done = match request {
        Request::Export { id, out } => {
            export::into_folder(parts, &giver.principal, &id, &out).await?
        }
        Request::Trust => {
            let trust = export::trust_file(parts)?;
            serde_json::to_value(trust).or_hint("cannot write the trust file", "see the log")?
        }
        Request::Journal { first, events } => journal::record(parts, first, events).await?,
        Request::Quarantine(order) => {
            administration::quarantine(parts, order, &giver.principal).await?
        }
        Request::Crls => json!({
            // Before the lists: if one changes between the two, the mark is that of the older ones.
            "lists_mark": parts.trust.crls_mark(),
            "crl_pem": parts.trust.crls_pem().concat(),
            "root_pem": parts.trust.root_pem()?,
        }),
        other => return Ok(Carried::Not(Box::new(other))),
    };
    Ok(Carried::Out(done))
}

/// Looks for silent journals, so that the health that follows knows of them.
pub(super) async fn look_for_silence(parts: &CentreParts, now: OffsetDateTime) -> Outcome {
    let silence = Silence {
        centre: parts.centre.clone(),
        admission: std::sync::Arc::clone(&parts.admission),
        hours: parts.config.intake.journal_silence_hours,
    };
    silence.look(now).await
}

/// The answer to [`Request::Status`].
pub(super) fn status(health: &Health, accelerator: &Value) -> Value {
    json!({
        "problems": health.problems,
        "warnings": health.warnings,
        "accelerator": accelerator,
    })
}
