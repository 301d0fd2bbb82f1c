//! HTTP transport of `cordon vpn up` for OCSP (RFC 6960 Appendix A).

use commandline::Outcome;
use error_report::Report;
use tokio::runtime::Handle;
use vpn::{MAX_OCSP_RESPONSE_LEN, OcspTransport};

use crate::fetcher::Fetcher;
use crate::http_client;

/// Refuses responders that cannot be asked.
pub(super) fn check(urls: &[String]) -> Outcome {
    http_client::check(urls, "ocsp_responder", "http://ocsp.example.org/")
}

/// Sends requests in tasks of `runtime`.
pub(super) fn transport(runtime: Handle, fetcher: Fetcher) -> OcspTransport {
    Box::new(move |outgoing| {
        let fetcher = fetcher.clone();
        runtime.spawn(async move {
            let (url, request) = (outgoing.url(), outgoing.request());
            let media_type = "application/ocsp-request";
            let sent = fetcher.post(url, media_type, request, MAX_OCSP_RESPONSE_LEN);
            let response = match tokio::time::timeout(outgoing.time_limit(), sent).await {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(error)) => Err(Report(&*error).to_string()),
                Err(_) => Err("no answer in time".to_owned()),
            };
            outgoing.respond(response);
        });
    })
}
