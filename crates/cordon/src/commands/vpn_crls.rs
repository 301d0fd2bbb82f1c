//! Revocation lists from where authorities publish them, for `cordon vpn up`.
//!
//! Only addresses of the configuration are asked, never those in a peer's certificate: whoever could name
//! them could have us ask anybody (CVE-2022-40617). Lists are signed, so plain HTTP is enough.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use gateway::ike::daemon::{DaemonHandle, split_crls};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};

/// Bytes of a list at most.
const MAX_LIST: usize = 16 * 1024 * 1024;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failure, at most.
const SOON: Duration = Duration::from_secs(5);

/// The newest list (DER) of each address.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Known {
    /// All lists.
    pub(super) fn lists(&self) -> Vec<Vec<u8>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = known.values();
        each.flat_map(|list| split_crls(list.clone())).collect()
    }

    /// Remembers a list; true if it is another one than before.
    fn learn(&self, url: &str, list: &[u8]) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = known.insert(url.to_owned(), list.to_vec());
        old.as_deref() != Some(list)
    }
}

/// Where a list is: host and port, and the address as it was written.
fn target(url: &str) -> anyhow::Result<(String, Uri)> {
    let uri: Uri = url.parse()?;
    anyhow::ensure!(uri.scheme_str() == Some("http"), "it is no http:// address");
    let authority = uri.authority().context("it names no host")?;
    let port = authority.port_u16().unwrap_or(80);
    let host = authority.host();
    Ok((format!("{host}:{port}"), uri))
}

/// Refuses addresses that cannot be asked.
pub(super) fn check(urls: &[String]) -> Outcome {
    for url in urls {
        target(url).map_err(|error| {
            let error = error.context(format!("`crl_urls` of [trust]: {url}"));
            Failure::new(
                error,
                "name addresses like http://registry.example.org/crl/devices.crl",
            )
        })?;
    }
    Ok(())
}

async fn fetch(url: &str) -> anyhow::Result<Vec<u8>> {
    let (host, uri) = target(url)?;
    let stream = TcpStream::connect(&host).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(header::HOST, &host)
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    anyhow::ensure!(status == StatusCode::OK, "the server says {status}");
    let body = Limited::new(response.into_body(), MAX_LIST).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?;
    driver.abort();
    Ok(body.to_bytes().to_vec())
}

/// Asks for each list again and again, and hands changed ones to the daemon.
pub(super) fn follow(
    urls: Vec<String>,
    every: Duration,
    handle: &DaemonHandle,
    known: &Known,
    stop: &CancellationToken,
) {
    for url in urls {
        let (handle, known, stop) = (handle.clone(), known.clone(), stop.clone());
        tokio::spawn(async move {
            loop {
                let fetched = tokio::time::timeout(PATIENCE, fetch(&url)).await;
                let fetched = fetched.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in time")));
                let pause = match fetched {
                    Ok(list) => {
                        if known.learn(&url, &list) {
                            tracing::info!(%url, "a revocation list has changed");
                            let handle = handle.clone();
                            let lists = split_crls(list);
                            // It may wait for the thread that judges.
                            tokio::task::spawn_blocking(move || handle.revocation_lists(lists));
                        }
                        every
                    }
                    Err(error) => {
                        tracing::warn!(%url, "a revocation list is not to be had: {error:#}");
                        every.min(SOON)
                    }
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        let (host, uri) = target("http://crl.example.org/a.crl?x").unwrap();
        assert_eq!(host, "crl.example.org:80");
        assert_eq!(uri.path_and_query().unwrap().as_str(), "/a.crl?x");
        assert_eq!(target("http://[::1]:8080/a").unwrap().0, "[::1]:8080");
        for bad in [
            "https://crl.example.org/",
            "/a.crl",
            "ftp://x/",
            "http://",
            "crl.example.org",
        ] {
            assert!(check(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_changed_lists_are_handed_over() {
        let known = Known::default();
        assert!(known.learn("a", b"1") && !known.learn("a", b"1") && known.learn("b", b"1"));
        assert!(known.learn("a", b"2"));
        assert_eq!(known.lists(), [b"2", b"1"]);
    }
}
