//! How `cordon vpn up` asks OCSP responders (RFC 6960 Appendix A).

use gateway::ike::{ANSWER_MAX, AskResponder};
use tokio::runtime::Handle;

use super::vpn_http;
use crate::failure::Outcome;

/// Refuses responders that cannot be asked.
pub(super) fn check(urls: &[String]) -> Outcome {
    vpn_http::check(urls, "ocsp_responder", "http://ocsp.example.org/")
}

/// Asks in tasks of `runtime`.
pub(super) fn asker(runtime: Handle) -> AskResponder {
    Box::new(move |question| {
        runtime.spawn(async move {
            let (url, request) = (question.url(), question.request().to_vec());
            let asked = vpn_http::post(url, "application/ocsp-request", request, ANSWER_MAX);
            let answer = match tokio::time::timeout(question.patience(), asked).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(format!("{error:#}")),
                Err(_) => Err("no answer in time".to_owned()),
            };
            question.answer(answer);
        });
    })
}
