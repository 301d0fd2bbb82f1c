//! What a role brings into its process.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::BoxFuture;
use listener::Listener;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::{Health, OrHint as _, Outcome};

/// One part of the product that a process can run.
pub trait Role: Send + Sync {
    /// Name on the command line and in logs, such as `centre`.
    fn name(&self) -> &'static str;

    /// Opens what serves others and what runs by itself. Tasks end when `stop` is cancelled; one that ends earlier ends the process.
    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>>;

    /// Adds the role's metrics.
    fn register(&self, _metrics: &mut Registry) {}

    /// Brings those metrics up to date that are computed when they are read.
    fn measure(&self, _now: OffsetDateTime) {}

    /// What a person has to know at `now`.
    fn health(&self, _now: OffsetDateTime) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(Health::default()))
    }

    /// Ends in order, after all tasks of all roles have ended.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The listeners and tasks of an open role.
#[derive(Default)]
pub struct Opened {
    pub listeners: Vec<Listener>,
    pub tasks: Vec<Task>,
}

/// Work that a role does until it is stopped.
pub struct Task {
    pub name: &'static str,
    pub work: BoxFuture<'static, Outcome>,
}

impl Task {
    /// A task of this name; it must end when the process is stopped.
    #[must_use]
    pub fn new(name: &'static str, work: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self {
            name,
            work: Box::pin(work),
        }
    }
}

/// Does `work` at once and then every `interval`, until `stop`. A machine that was suspended does it once afterwards.
pub async fn every<W: Future<Output = ()>>(
    interval: Duration,
    stop: CancellationToken,
    mut work: impl FnMut() -> W,
) -> Outcome {
    let mut tick = tokio::time::interval(interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        work().await;
    }
}

/// Where a listener is: as the settings say, and once it is bound.
pub struct Place {
    setting: &'static str,
    configured: SocketAddr,
    bound: OnceLock<SocketAddr>,
}

impl Place {
    /// The address that `setting` of the configuration gives; port 0 takes any free one.
    #[must_use]
    pub const fn new(setting: &'static str, configured: SocketAddr) -> Self {
        Self {
            setting,
            configured,
            bound: OnceLock::new(),
        }
    }

    /// Binds it.
    ///
    /// # Errors
    /// An address that is in use or is not of this host.
    pub async fn bind(&self) -> Outcome<TcpListener> {
        let (setting, address) = (self.setting, self.configured);
        let what = format!("cannot listen on {address} ({setting})");
        let hint = "stop what uses the port, or set another one in the configuration";
        let socket = TcpListener::bind(address).await.or_hint(&what, hint)?;
        let bound = socket.local_addr().or_hint(&what, hint)?;
        // Bound twice, the first address is the one that was shown.
        self.bound.get_or_init(|| bound);
        Ok(socket)
    }

    /// The address as it is bound, or as it is configured before that.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.bound.get().copied().unwrap_or(self.configured)
    }
}
