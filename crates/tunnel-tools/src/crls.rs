//! Revocation lists from where authorities publish them, for `cordon vpn up`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use commandline::Outcome;
use error_report::Report;
use tokio_util::sync::CancellationToken;
use vpn::daemon::{DaemonHandle, split_crls};

use crate::fetcher::{Fetcher, MAX_BODY};
use crate::http_client;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failure, at most.
const SOON: Duration = Duration::from_secs(5);
/// Pause where none is configured and the publisher marks its list with an entity tag: then the question whether it has
/// changed costs some hundred bytes, so a revocation can count within five seconds.
const TAGGED: Duration = Duration::from_secs(2);
/// Pause where none is configured and the whole list comes each time.
const UNTAGGED: Duration = Duration::from_secs(300);

/// The newest list (DER) of each address.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Known {
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

/// Refuses addresses that cannot be asked.
pub(super) fn check(urls: &[String]) -> Outcome {
    let example = "http://registry.example.org/crl/devices.crl";
    http_client::check(urls, "crl_urls", example)
}

/// Asks for each list again and again, and hands changed ones to the daemon.
pub(super) fn follow(
    urls: Vec<String>,
    every: Option<Duration>,
    (handle, fetcher): (&DaemonHandle, &Fetcher),
    known: &Known,
    stop: &CancellationToken,
) {
    for url in urls {
        let (handle, fetcher) = (handle.clone(), fetcher.clone());
        let (known, stop) = (known.clone(), stop.clone());
        tokio::spawn(async move {
            let mut tag = None::<String>;
            loop {
                let asked = fetcher.get_changed(&url, tag.as_deref(), MAX_BODY);
                let fetched = tokio::time::timeout(PATIENCE, asked).await;
                let fetched = fetched.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in time")));
                let pause = match fetched {
                    Ok(fetched) => {
                        tag = match fetched.body {
                            Some(_) => fetched.tag,
                            None => tag,
                        };
                        if let Some(list) = fetched.body
                            && known.learn(&url, &list)
                        {
                            tracing::info!(%url, "a revocation list has changed");
                            let handle = handle.clone();
                            let lists = split_crls(list);
                            // It may wait for the thread that judges.
                            tokio::task::spawn_blocking(move || handle.revocation_lists(lists));
                        }
                        pause(every, tag.is_some())
                    }
                    Err(error) => {
                        tracing::warn!(%url, "cannot fetch a revocation list: {}", Report(&*error));
                        pause(every, tag.is_some()).min(SOON)
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

/// Pause before the next question.
fn pause(configured: Option<Duration>, is_tagged: bool) -> Duration {
    configured.unwrap_or(if is_tagged { TAGGED } else { UNTAGGED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lists_are_not_fetched_every_two_seconds() {
        assert_eq!(pause(None, true), TAGGED);
        assert_eq!(pause(None, false), UNTAGGED);
        let configured = Duration::from_secs(60);
        for is_tagged in [true, false] {
            assert_eq!(pause(Some(configured), is_tagged), configured);
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
