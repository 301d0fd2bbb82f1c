//! The listener's side: answers the hosts that the configuration names.

use std::net::IpAddr;
use std::sync::Arc;

use access::PersonRecord;
use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use portal::{Epoch, Refused};

use super::local::Local;
use super::seam::Admission as _;
use super::wire::{Answer, Chain, LONGEST_QUESTION, PATH, Question};
use crate::gate::Gate;

/// Answers peers. The listener has admitted their keys.
pub(crate) fn router(local: Local, gate: Arc<Gate>) -> Router {
    Router::new()
        .route(PATH, post(answer))
        .layer(DefaultBodyLimit::max(LONGEST_QUESTION))
        .with_state(Door { local, gate })
}

#[derive(Clone)]
struct Door {
    local: Local,
    /// Records refusals in this host's log: another host may be an attacker's.
    gate: Arc<Gate>,
}

async fn answer(State(door): State<Door>, Json(question): Json<Question>) -> Json<Answer> {
    let answer = reply(&door, question).await;
    Json(answer.unwrap_or_else(Answer::from))
}

async fn reply(door: &Door, question: Question) -> Result<Answer, Refused> {
    let local = &door.local;
    Ok(match question {
        Question::Person { chain, from } => Answer::Person(person(door, &chain, from).await?),
        Question::Device { chain, from } => {
            let peer = chain.certificates().ok_or_else(malformed)?;
            Answer::Device(door.gate.device(&peer, from).await?.0)
        }
        Question::Password {
            uid,
            password,
            from,
        } => {
            let (_, epoch) = door.gate.password(&uid, &password, from).await?;
            Answer::Login(local.record(&uid).await?, epoch.0)
        }
        Question::Session { uid, epoch } => {
            local.session(&uid, Epoch(epoch), None).await?;
            Answer::Login(local.record(&uid).await?, epoch)
        }
        Question::Epoch { uid } => Answer::Epoch(local.epoch(&uid).await?.0),
        Question::Record { uid } => Answer::Person(local.record(&uid).await?),
        Question::RefusedDevices => Answer::Devices(local.refused_devices().await?),
    })
}

async fn person(door: &Door, chain: &Chain, from: Option<IpAddr>) -> Result<PersonRecord, Refused> {
    let peer = chain.certificates().ok_or_else(malformed)?;
    let principal = door.gate.person(&peer, from).await?;
    // The person was admitted a moment ago; a refusal since then counts.
    door.local.record(principal.uid()).await
}

fn malformed() -> Refused {
    Refused {
        code: "malformed-question".to_owned(),
        message: "the certificates are not in base64".to_owned(),
        temporary: false,
    }
}
