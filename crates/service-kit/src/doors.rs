//! Listeners of one process: their bounds and counters are shared.

use std::sync::Arc;

use axum::Router;
use listener::{Bounds, Deadlines, Listener, Service};
use tokio::net::TcpListener;

/// Makes the listeners of a process; clones count the same things.
#[derive(Clone)]
pub struct Doors {
    bounds: Bounds,
    metrics: listener::Metrics,
}

impl Doors {
    /// Bounds for this process, which depend on how many files it may open.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bounds: listener::bounds_for_this_process(),
            metrics: listener::Metrics::default(),
        }
    }

    /// Counters of all listeners.
    #[must_use]
    pub const fn metrics(&self) -> &listener::Metrics {
        &self.metrics
    }

    /// A listener without TLS, for people and programs on a fast network.
    #[must_use]
    pub fn plain(&self, name: &'static str, socket: TcpListener, router: Router) -> Listener {
        self.listener(name, socket, router.into())
    }

    fn listener(&self, name: &'static str, socket: TcpListener, service: Service) -> Listener {
        Listener {
            name,
            socket,
            tls: None,
            service,
            bounds: self.bounds,
            deadlines: listener::PEOPLE,
            metrics: self.metrics.clone(),
            anew: None,
        }
    }

    /// A listener with TLS.
    #[must_use]
    pub fn secure(
        &self,
        name: &'static str,
        socket: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        deadlines: Deadlines,
        service: impl Into<Service>,
    ) -> Listener {
        Listener {
            tls: Some(tls),
            deadlines,
            ..self.listener(name, socket, service.into())
        }
    }
}

impl Default for Doors {
    fn default() -> Self {
        Self::new()
    }
}
