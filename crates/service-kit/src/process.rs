//! Runs roles together, until one of their tasks ends or a stop is asked for.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Failure, Opened, OrHint as _, Outcome, Role, Task};

/// Roles that run. [`Self::until_stopped`] must be awaited, or nothing is closed.
pub struct Process {
    roles: Vec<Arc<dyn Role>>,
    tasks: JoinSet<(&'static str, Outcome)>,
    stop: CancellationToken,
}

impl Process {
    /// Opens `roles` in their order and serves what they bring. A role that cannot be opened closes those before it.
    ///
    /// # Errors
    /// The first role that cannot be opened.
    pub async fn start(roles: Vec<Arc<dyn Role>>) -> Outcome<Self> {
        let stop = CancellationToken::new();
        let mut process = Self {
            roles: Vec::with_capacity(roles.len()),
            tasks: JoinSet::new(),
            stop,
        };
        let mut opened = Vec::with_capacity(roles.len());
        for role in roles {
            match role.open(&process.stop).await {
                Ok(new) => opened.push(new),
                Err(failure) => {
                    process.close().await;
                    return Err(failure);
                }
            }
            process.roles.push(role);
        }
        for new in opened {
            process.run(new);
        }
        Ok(process)
    }

    fn run(&mut self, opened: Opened) {
        for listener in opened.listeners {
            let (name, stop) = (listener.name, self.stop.clone());
            self.tasks.spawn(async move {
                let served = listener.serve(stop).await;
                (
                    name,
                    served.or_hint(format!("listener {name}"), "see the log"),
                )
            });
        }
        for Task { name, work } in opened.tasks {
            self.tasks.spawn(async move { (name, work.await) });
        }
    }

    /// A token that stops the process when it is cancelled.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until a stop is asked for or a task ends by itself, then ends all tasks and closes the roles, the last one first.
    ///
    /// # Errors
    /// Why a task ended that should not have.
    pub async fn until_stopped(mut self) -> Outcome {
        let mut outcome = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            let (name, ended) = ended.unwrap_or_else(|panic| {
                let died = anyhow::anyhow!("a task died: {panic}");
                (
                    "",
                    Err(Failure::new(died, "see the log for where, and start again")),
                )
            });
            if !self.stop.is_cancelled() {
                self.stop.cancel();
                outcome = ended.and_then(|()| {
                    let ended = anyhow::anyhow!("the task {name} ended by itself");
                    Err(Failure::new(ended, "see the log"))
                });
            } else if outcome.is_ok() {
                outcome = ended;
            }
        }
        self.close().await;
        outcome
    }

    async fn close(&mut self) {
        while let Some(role) = self.roles.pop() {
            role.close().await;
        }
    }
}

#[cfg(test)]
mod tests;
