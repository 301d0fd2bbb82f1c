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

/// Answers peers. The listener has admitted their keys.
pub(crate) fn router(local: Local) -> Router {
    Router::new()
        .route(PATH, post(answer))
        .layer(DefaultBodyLimit::max(LONGEST_QUESTION))
        .with_state(Arc::new(local))
}

async fn answer(State(local): State<Arc<Local>>, Json(question): Json<Question>) -> Json<Answer> {
    let answer = reply(&local, question).await;
    Json(answer.unwrap_or_else(Answer::from))
}

async fn reply(local: &Local, question: Question) -> Result<Answer, Refused> {
    Ok(match question {
        Question::Person { chain, from } => Answer::Person(person(local, &chain, from).await?),
        Question::Device { chain, from } => {
            let peer = chain.certificates().ok_or_else(malformed)?;
            Answer::Device(local.device(&peer, from).await?)
        }
        Question::Password {
            uid,
            password,
            from,
        } => {
            let (_, epoch) = local.password(&uid, &password, from).await?;
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

async fn person(
    local: &Local,
    chain: &Chain,
    from: Option<IpAddr>,
) -> Result<PersonRecord, Refused> {
    let peer = chain.certificates().ok_or_else(malformed)?;
    let principal = local.person(&peer, from).await?;
    // The person was admitted a moment ago; a refusal since then counts.
    local.record(principal.uid()).await
}

fn malformed() -> Refused {
    Refused {
        code: "malformed-question".to_owned(),
        message: "the certificates are not in base64".to_owned(),
        temporary: false,
    }
}
