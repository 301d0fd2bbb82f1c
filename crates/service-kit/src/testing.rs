//! A role for tests.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::{Failure, Health, Opened, Outcome, Role, Task};

pub(crate) type Journal = Arc<Mutex<Vec<String>>>;
pub(crate) type Work = Box<dyn Fn(CancellationToken) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A role that writes down what happens to it.
pub(crate) struct Recorded {
    pub(crate) name: &'static str,
    pub(crate) opens: bool,
    pub(crate) work: Option<Work>,
    pub(crate) problem: Option<&'static str>,
    pub(crate) measured: Gauge,
    pub(crate) journal: Journal,
}

impl Recorded {
    pub(crate) fn new(name: &'static str) -> Self {
        Self::in_journal(name, &Journal::default())
    }

    pub(crate) fn in_journal(name: &'static str, journal: &Journal) -> Self {
        Self {
            name,
            opens: true,
            work: None,
            problem: None,
            measured: Gauge::default(),
            journal: journal.clone(),
        }
    }

    fn note(&self, what: &str) {
        self.journal
            .lock()
            .unwrap()
            .push(format!("{what} {}", self.name));
    }
}

impl Role for Recorded {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        self.note("open");
        let opened = match self.opens {
            true => Ok(Opened {
                listeners: Vec::new(),
                tasks: self
                    .work
                    .iter()
                    .map(|work| Task::new(self.name, work(stop.clone())))
                    .collect(),
            }),
            false => Err(Failure::new(
                anyhow::anyhow!("{} is damaged", self.name),
                "mend it",
            )),
        };
        Box::pin(std::future::ready(opened))
    }

    fn register(&self, metrics: &mut Registry) {
        metrics.register(self.name, "test", self.measured.clone());
    }

    fn measure(&self, _now: OffsetDateTime) {
        self.measured.set(1);
    }

    fn health(&self, _now: OffsetDateTime) -> BoxFuture<'_, Health> {
        let problems = self.problem.iter().map(|text| (*text).to_owned()).collect();
        let warnings = vec![format!("{} is watched", self.name)];
        Box::pin(std::future::ready(Health { problems, warnings }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.note("close");
        Box::pin(std::future::ready(()))
    }
}
