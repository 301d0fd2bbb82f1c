//! Questions to the audit log: from the newest entry backwards, no further than to what decides.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use audit::rows::{LOSS, TRANSACTION};
use audit::{Event, Logged, Outcome};
use event_catalogue::registry::State;
use event_catalogue::request::{Interrupted, PREFIX};
use event_catalogue::{Recorded as _, action_text};
use serde_json::Value;

use crate::contradiction::Contradiction;
use crate::writing::is_settled;
use crate::{Registry, RegistryError};

/// The newest step of a request that took effect.
#[derive(Debug, Default)]
pub(crate) struct NewestStep {
    pub(crate) version: u64,
    /// Its name, as in history.
    pub(crate) step: String,
    /// That in which it took effect, if it names one.
    pub(crate) transaction: Option<u64>,
    /// Rights of the person that was asked about were changed after it.
    pub(crate) rights_changed: bool,
}

/// The part of a log that is known not to have taken effect; read newest first.
#[derive(Default)]
struct Voids {
    /// Transactions with higher numbers, by each `registry.open` so far.
    above: Option<u64>,
    /// Versions of the request that was asked about.
    versions: BTreeSet<u64>,
}

impl Voids {
    fn opened(&mut self, event: &Event) {
        let number = number_of(event, TRANSACTION);
        self.above = match (self.above, number) {
            (Some(above), Some(number)) => Some(above.min(number)),
            (above, number) => above.or(number),
        };
    }

    fn is_void(&self, event: &Event) -> bool {
        let above = self.above.zip(number_of(event, TRANSACTION));
        let version = number_of(event, "version");
        above.is_some_and(|(above, number)| number > above)
            || version.is_some_and(|version| self.versions.contains(&version))
    }
}

fn number_of(event: &Event, name: &str) -> Option<u64> {
    event.details.get(name).and_then(Value::as_u64)
}

/// The look of a canonical event that has this action or resource.
fn field(name: &str, value: &str) -> String {
    format!("\"{name}\":\"{value}\"")
}

/// Changes of a person's rights, not those of names or of a password.
fn changes_rights(event: &Event) -> bool {
    ["clearance.new", "roles.new", "units.new"]
        .iter()
        .any(|name| event.details.contains_key(*name))
}

impl Registry {
    /// Tells whether a person let the site go on with a log that lacks what was lost.
    pub(crate) async fn has_lost_log(&self) -> Result<bool, RegistryError> {
        let wanted = vec![action_text(LOSS)];
        self.look_back(wanted, |found: &mut bool, logged| {
            *found = logged.is_loss();
            match *found {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
        .await
    }

    /// Looks back on a thread that may block.
    async fn look_back<T: Default + Send + 'static>(
        &self,
        wanted: Vec<String>,
        mut each: impl FnMut(&mut T, Logged) -> ControlFlow<()> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let audit = Arc::clone(&self.inner.audit);
        let looked = self.inner.pool.run(move || {
            let mut found = T::default();
            let wanted = |text: &str| wanted.iter().any(|part| text.contains(part));
            let outcome = audit.look_back(&wanted, &mut |logged| each(&mut found, logged));
            outcome.map(|()| found)
        });
        let found = looked.await.map_err(|_| RegistryError::Interrupted)?;
        found.map_err(RegistryError::Log)
    }

    /// Refuses a database of which the log has later transactions. One may be missing: it was not committed.
    pub(crate) async fn check_not_older(&self, committed: i64) -> Result<(), RegistryError> {
        let wanted = vec![format!("\"{TRANSACTION}\":"), action_text(LOSS)];
        let newest: Option<u64> = self
            .look_back(wanted, |found: &mut Option<u64>, logged| {
                if logged.is_loss() {
                    return ControlFlow::Break(());
                }
                let number = number_of(&logged.event, TRANSACTION).filter(|_| logged.is_own);
                match (number, is_settled(&logged.event)) {
                    (None, _) => return ControlFlow::Continue(()),
                    // This one took effect for sure.
                    (Some(number), true) => *found = Some(number),
                    (Some(number), false) => *found = Some(number.saturating_sub(1)),
                }
                ControlFlow::Break(())
            })
            .await?;
        let database = u64::try_from(committed).unwrap_or_default();
        match newest {
            Some(log) if log > database => Err(Contradiction::Older { database, log }.into()),
            _ => Ok(()),
        }
    }

    /// The newest step of a request that took effect; `None` where the log was lost since, and the database counts. With a
    /// `person` it tells whether that one's rights were changed after the step.
    pub(crate) async fn newest_step(
        &self,
        id: &str,
        person: Option<&str>,
    ) -> Result<Option<NewestStep>, RegistryError> {
        #[derive(Default)]
        struct Found {
            step: NewestStep,
            voids: Voids,
            is_lost: bool,
        }
        let request = format!("request/{id}");
        let person = person.map(|uid| format!("person/{uid}"));
        let mut wanted = vec![
            field("resource", &request),
            action_text(State::Open.action()),
            action_text(LOSS),
        ];
        wanted.extend(person.iter().map(|person| field("resource", person)));
        let each = move |found: &mut Found, logged: Logged| {
            let event = &logged.event;
            if logged.is_loss() {
                found.is_lost = true;
                return ControlFlow::Break(());
            }
            if event.outcome == Outcome::Ok && Some(&event.resource) == person.as_ref() {
                found.step.rights_changed |= changes_rights(event);
            }
            if !logged.is_own {
                return ControlFlow::Continue(());
            }
            match event.action.strip_prefix(PREFIX) {
                _ if event.action == State::Open.action() => found.voids.opened(event),
                Some(step) if event.resource == request => {
                    if Interrupted::is(event) {
                        found.voids.versions.extend(number_of(event, "version"));
                    } else if event.outcome == Outcome::Ok && !found.voids.is_void(event) {
                        found.step.version = number_of(event, "version").unwrap_or_default();
                        step.clone_into(&mut found.step.step);
                        found.step.transaction = number_of(event, TRANSACTION);
                        return ControlFlow::Break(());
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let found: Found = self.look_back(wanted, each).await?;
        Ok((!found.is_lost).then_some(found.step))
    }
}
