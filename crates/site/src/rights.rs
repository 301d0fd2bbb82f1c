//! Answers that last no longer than the rights of their reader.
//!
//! A film may be read for hours. Its request was decided when it came, so what comes later is asked again while the answer is
//! under way. A reader who is revoked, suspended or cleared for less meanwhile gets no more of it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::Principal;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use hyper::body::Body as _;
use portal::Epoch;

use crate::gate::Gate;

/// Pause between two questions about one answer: what a reader gets at most after the rights have ended.
const PAUSE: Duration = Duration::from_secs(2);

struct Lasting {
    gate: Arc<Gate>,
    uid: String,
    epoch: Epoch,
    asked: Instant,
    pieces: BodyDataStream,
}

impl Lasting {
    /// Tells whether the rights are those with which it began; what cannot be known counts as no.
    async fn goes_on(&mut self) -> bool {
        if self.asked.elapsed() < PAUSE {
            return true;
        }
        self.asked = Instant::now();
        match self.gate.epoch(&self.uid).await {
            Ok(epoch) => epoch == self.epoch,
            Err(refused) => {
                tracing::info!(uid = %self.uid, reason = %refused.code, "an answer is broken off");
                false
            }
        }
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let piece = self.pieces.next().await?;
        if self.goes_on().await {
            return Some(piece.map_err(io::Error::other));
        }
        Some(Err(io::Error::other("the rights of who asked have ended")))
    }
}

/// Ends `body` with an error soon after the rights of `uid` differ from those of `epoch`.
pub(crate) fn while_they_last(gate: Arc<Gate>, uid: &str, epoch: Epoch, body: Body) -> Body {
    let lasting = Lasting {
        gate,
        uid: uid.to_owned(),
        epoch,
        asked: Instant::now(),
        pieces: body.into_data_stream(),
    };
    Body::from_stream(unfold(Some(lasting), async |lasting| {
        let mut lasting = lasting?;
        let piece = lasting.next().await?;
        let rest = piece.is_ok().then_some(lasting);
        Some((piece, rest))
    }))
}

/// Does so for every answer to a [`Principal`] that is not whole when it begins. The epoch is of before the decision, so that
/// nothing falls between the two.
pub(crate) async fn of_people(
    State(gate): State<Arc<Gate>>,
    request: Request,
    next: Next,
) -> Response {
    let who = request.extensions().get::<Principal>();
    let Some(uid) = who.map(|who| who.uid().to_owned()) else {
        return next.run(request).await;
    };
    let epoch = gate.epoch(&uid).await;
    let answer = next.run(request).await;
    if answer.body().size_hint().exact().is_some() {
        return answer;
    }
    let body = |body| match epoch {
        Ok(epoch) => while_they_last(gate, &uid, epoch, body),
        Err(refused) => {
            tracing::info!(%uid, reason = %refused.code, "an answer is not given");
            Body::from_stream(futures_util::stream::iter([Err::<Bytes, _>(
                io::Error::other("nobody can say what rights there are"),
            )]))
        }
    };
    answer.map(body)
}
