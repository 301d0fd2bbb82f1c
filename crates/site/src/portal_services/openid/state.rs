//! The provider's state, which endpoints and tasks share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::Principal;
use audit::{RepeatBounds, Repeats};
use error_report::Report;
use oidc::{Ended, Provider};
use portal::{Epoch, PageError};
use time::OffsetDateTime;
use tokio::sync::Notify;

use super::database::Logins;
use crate::failure::{OrHint as _, Outcome};
use crate::parts::Site;

/// A client whose proof is refused is recorded once in this time, with how often it was refused meanwhile: anybody may name it.
const REFUSALS: RepeatBounds = RepeatBounds {
    recorded: 3,
    interval: Duration::from_secs(600),
    causes: 1000,
};

/// What is needed to decide about a login again.
#[derive(Clone, Debug)]
pub(crate) struct Tag {
    pub(super) principal: Principal,
    /// Of before the first decision: a right that was taken away since changes it.
    pub(super) epoch: Epoch,
}

/// The provider's state, which tasks and endpoints share.
pub(crate) struct OpenIdState {
    pub(super) issuer: String,
    provider: Mutex<Provider<Tag>>,
    pub(super) logins: Logins,
    pub(super) refusals: Mutex<Repeats>,
    /// There are logouts to deliver.
    pub(super) waiting: Notify,
}

impl OpenIdState {
    /// The provider at `issuer`, which has no path.
    pub(crate) async fn open(site: &Site, issuer: String) -> Outcome<Self> {
        let (keys, clock) = (Arc::clone(&site.openid_keys), OffsetDateTime::now_utc());
        // Decrypting keys takes its time.
        let opened = tokio::task::spawn_blocking(move || keys.open(clock)).await;
        opened.or_hint("cannot open the keys of OpenID Connect", "try again")??;
        let file = site.data.join("logins.sqlite");
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let logins = Logins::open(&file, now).await;
        Ok(Self {
            issuer,
            provider: Mutex::default(),
            logins: logins.or_hint(
                format!("cannot open {}", file.display()),
                "check the data folder and its disk",
            )?,
            refusals: Mutex::new(Repeats::new(REFUSALS)),
            waiting: Notify::new(),
        })
    }

    pub(super) fn provider(&self) -> MutexGuard<'_, Provider<Tag>> {
        self.provider.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the ends of logins wait for delivery. What cannot be written down is said in the log: the login has ended here.
    pub(super) async fn ended(&self, ended: &[Ended]) {
        if ended.is_empty() {
            return;
        }
        let now = OffsetDateTime::now_utc().unix_timestamp();
        if let Err(error) = self.logins.end(ended, now).await {
            tracing::error!(error = %Report(&error), "ended logins are not written down; a restart reports them");
        }
        self.waiting.notify_one();
    }

    pub(crate) async fn close(&self) {
        self.logins.close().await;
    }
}

pub(super) fn random() -> Result<[u8; 32], PageError> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| PageError::Failed("the system gives no random bytes".to_owned()))?;
    Ok(bytes)
}
