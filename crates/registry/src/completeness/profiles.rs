//! Which file of each profile was in force when, by the log.

use std::collections::BTreeMap;

use approval::Act;
use audit::Event;
use serde_json::Value;

use super::tracked::CarriedOut;
use crate::sha256::sha256;

/// A change of a profile by its event.
struct Change {
    entry: u64,
    transaction: u64,
    sha256: String,
    /// Digest of the file before, as the event has it; `None` of a profile that is new.
    old: Option<String>,
    request: Option<String>,
    by: String,
}

#[derive(Default)]
pub(super) struct Profiles {
    /// By name, in the order of their events.
    changes: BTreeMap<String, Vec<Change>>,
}

impl Profiles {
    /// Takes the event of a change; `false` if it does not say of what.
    pub(super) fn changed(&mut self, entry: u64, transaction: u64, event: &Event) -> bool {
        let text = |name: &str| event.details.get(name).and_then(Value::as_str);
        let name = event.resource.strip_prefix("profile/");
        let Some((name, sha256)) = name.zip(text("sha256")) else {
            return false;
        };
        self.changes
            .entry(name.to_owned())
            .or_default()
            .push(Change {
                entry,
                transaction,
                sha256: sha256.to_owned(),
                old: text("old_sha256").map(str::to_owned),
                request: text("request").map(str::to_owned),
                by: event.actor.id.clone(),
            });
        true
    }

    /// Of what was recorded so far, transactions after `committed` have no effect.
    pub(super) fn opened(&mut self, committed: u64) {
        for changes in self.changes.values_mut() {
            changes.retain(|one| one.transaction <= committed);
        }
    }

    /// Explains that a certificate by the file of this digest, `None` of one that is built in, cannot be issued now; `None` if it
    /// can.
    pub(super) fn unexplained(&self, profile: &str, file: Option<&str>) -> Option<String> {
        let changes = self.changes.get(profile);
        let in_force = changes.and_then(|changes| changes.last());
        let in_force = in_force.map(|change| change.sha256.as_str());
        if in_force == file {
            return None;
        }
        let called = |file: Option<&str>| match file {
            Some(sha256) => format!("the file {sha256}"),
            None => "what is built in".to_owned(),
        };
        let (file, in_force) = (called(file), called(in_force));
        Some(format!(
            "it was issued by {file} of the profile {profile}, and {in_force} was in force"
        ))
    }

    /// Entry and reason of each change that does not follow the one before, or has not enough approvals. `carried_out` gives
    /// the act of a request.
    pub(super) fn unapproved<'a>(
        &self,
        carried_out: impl Fn(&str) -> Option<&'a CarriedOut>,
    ) -> Vec<(u64, String)> {
        let mut gaps = Vec::new();
        for (name, changes) in &self.changes {
            let mut before: Option<&Change> = None;
            for change in changes {
                // What was built in before the first one, another version of the program may have said otherwise.
                if let Some(before) = before.replace(change)
                    && change.old.as_ref() != Some(&before.sha256)
                {
                    let what = format!("profile {name}: its event names another file before it");
                    gaps.push((change.entry, what));
                }
                let done = change.request.as_deref().map(&carried_out);
                if let Some(what) = change.disapproved(name, done) {
                    gaps.push((change.entry, format!("profile {name}: {what}")));
                }
            }
        }
        gaps
    }
}

impl Change {
    /// What is missing of its approvals; `done` is its request's act, if it names one.
    fn disapproved(&self, name: &str, done: Option<Option<&CarriedOut>>) -> Option<String> {
        let (Some(id), Some(done)) = (&self.request, done) else {
            return Some(format!("{} put it in force, without a request", self.by));
        };
        let Some(done) = done.filter(|done| done.result == self.sha256) else {
            return Some(format!("request {id} was not carried out with it"));
        };
        let is_same = matches!(&done.act, Act::ChangeProfile { profile, definition, .. }
            if profile == name && sha256(definition) == self.sha256);
        match (is_same, done.enough) {
            (false, _) => Some(format!("request {id} was for something else")),
            (true, false) => Some(format!("request {id} had too few approvals")),
            (true, true) => None,
        }
    }
}
