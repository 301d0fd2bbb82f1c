//! Reading many people from a file, one JSON object a line.

use std::collections::BTreeSet;

use audit::Actor;
use pki::clearance::Clearance;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::{Directory, DirectoryError, Person, change, entry_in};

/// Longest line, in bytes.
const MAX_LINE: usize = 16 * 1024;

/// One line of an import: a person and, optionally, a first password.
#[derive(serde::Deserialize)]
struct ImportLine {
    #[serde(flatten)]
    person: PersonFields,
    #[serde(default)]
    password: Option<Zeroizing<String>>,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// People who are new.
    pub added: usize,
    /// People whose entry or password changed.
    pub changed: usize,
    /// People whose line says what is known already.
    pub unchanged: usize,
    /// People who were disabled and stay so, although their line does not say it.
    pub kept_disabled: Vec<String>,
}

/// `flatten` and `deny_unknown_fields` exclude one another, so the fields are listed once more
/// by way of a map and checked by [`Person`]'s own rules.
type PersonFields = serde_json::Map<String, serde_json::Value>;

/// A line that cannot be imported; nothing of the import is.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Not a person in JSON.
    #[error("line {line}: not a person in JSON")]
    Malformed {
        /// Number from 1.
        line: usize,
        source: serde_json::Error,
    },
    /// Longer than any person.
    #[error("line {line}: longer than {MAX_LINE} bytes")]
    TooLong {
        /// Number from 1.
        line: usize,
    },
    /// A person stands in two lines; which of them counts must not depend on their order.
    #[error("line {line}: the user id {uid} stands in an earlier line")]
    Twice {
        /// Number from 1.
        line: usize,
        uid: String,
    },
    /// The import as a whole failed.
    #[error("nothing was imported")]
    Failed(#[source] DirectoryError),
    /// The directory refuses it.
    #[error("line {line}")]
    Refused {
        /// Number from 1.
        line: usize,
        source: DirectoryError,
    },
}

/// A line that was read and checked.
struct Checked {
    person: Person,
    verifier: Option<String>,
}

/// What an import may change beside names.
#[derive(Clone, Copy)]
struct Admit {
    /// Let in who is disabled.
    enable: bool,
    /// Clearance, roles and units.
    rights: bool,
}

/// Whether a person has the same rights after as before; who is new had none.
fn keeps_rights(old: Option<&Person>, new: &Person) -> bool {
    match old {
        None => {
            new.clearance == Clearance::default() && new.roles.is_empty() && new.units.is_empty()
        }
        Some(old) => {
            (old.clearance, &old.roles, &old.units) == (new.clearance, &new.roles, &new.units)
        }
    }
}

impl Directory {
    /// Adds or updates everybody in `text`, one JSON object a line: all or nobody, with an event
    /// for each person who changes.
    ///
    /// Who is disabled stays so, whatever the line says, unless `enable` is set: a list from
    /// elsewhere must not let somebody in again whom an administrator keeps out.
    ///
    /// # Errors
    /// [`ImportError`] with the line.
    pub async fn import(
        &self,
        text: &str,
        enable: bool,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<Imported, ImportError> {
        self.import_with(
            text,
            Admit {
                enable,
                rights: true,
            },
            actor,
            now,
        )
        .await
    }

    /// The same where rights are given on request only: nobody's clearance, roles and units change, and who is
    /// new has none.
    ///
    /// # Errors
    /// [`ImportError`]; [`DirectoryError::Rights`] among its causes.
    pub async fn import_keeping_rights(
        &self,
        text: &str,
        enable: bool,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<Imported, ImportError> {
        let admit = Admit {
            enable,
            rights: false,
        };
        self.import_with(text, admit, actor, now).await
    }

    async fn import_with(
        &self,
        text: &str,
        admit: Admit,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<Imported, ImportError> {
        let lines = self.check_lines(text).await?;
        let outcome = self.import_all(lines, admit, &actor, now).await;
        outcome.map_err(ImportError::Failed)
    }

    /// Everything that takes time or may be wrong, before the transaction begins.
    async fn check_lines(&self, text: &str) -> Result<Vec<Checked>, ImportError> {
        let mut seen = BTreeSet::new();
        let mut checked = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let line = index + 1;
            if content.trim().is_empty() {
                continue;
            }
            if content.len() > MAX_LINE {
                return Err(ImportError::TooLong { line });
            }
            let malformed = |source| ImportError::Malformed { line, source };
            let parsed: ImportLine = serde_json::from_str(content).map_err(malformed)?;
            let person: Person = serde_json::from_value(parsed.person.into()).map_err(malformed)?;
            let refused = |source| ImportError::Refused { line, source };
            person.check().map_err(|e| refused(e.into()))?;
            if !seen.insert(person.uid.clone()) {
                let uid = person.uid;
                return Err(ImportError::Twice { line, uid });
            }
            let verifier = match parsed.password {
                Some(password) => Some(self.hashed(&person.uid, &password).await.map_err(refused)?),
                None => None,
            };
            checked.push(Checked { person, verifier });
        }
        Ok(checked)
    }

    async fn import_all(
        &self,
        lines: Vec<Checked>,
        admit: Admit,
        actor: &Actor,
        now: OffsetDateTime,
    ) -> Result<Imported, DirectoryError> {
        let mut imported = Imported::default();
        let mut events = Vec::new();
        let mut tx = self.begin().await?;
        for Checked {
            mut person,
            verifier,
        } in lines
        {
            let old = entry_in(&mut tx, &person.uid).await?;
            if !admit.rights && !keeps_rights(old.as_ref(), &person) {
                return Err(DirectoryError::Rights(person.uid));
            }
            if person.active && !admit.enable && old.as_ref().is_some_and(|old| !old.active) {
                person.active = false;
                imported.kept_disabled.push(person.uid.clone());
            }
            let before = events.len();
            events.extend(change::put(&mut tx, old.as_ref(), &person, actor, now).await?);
            if let Some(verifier) = verifier {
                let event = change::put_password(&mut tx, &person.uid, &verifier, actor, now);
                events.push(event.await?);
            }
            let count = match &old {
                None => &mut imported.added,
                Some(_) if events.len() > before => &mut imported.changed,
                Some(_) => &mut imported.unchanged,
            };
            *count += 1;
        }
        self.finish(tx, events).await?;
        Ok(imported)
    }
}
