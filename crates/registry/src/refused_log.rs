//! Revocations and refused holders, held against the audit log at a start.
//!
//! A row that somebody took out of the database would have a revoked certificate accepted again. Rows of revocations are only
//! added, and each but that of a superseded certificate has its event; states of holders change with theirs. The note of
//! `authority.issuing` has digests of both, so that a start reads no further back than to that.

use std::collections::{BTreeMap, BTreeSet};

use audit::Event;
use aws_lc_rs::digest;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use serde::Serialize;
use serde_json::Value;
use store::sqlx;

use crate::contradiction::Contradiction;
use crate::holders::HolderState;
use crate::{Registry, RegistryError};

/// The details of a note with the digests.
const REVOKED: &str = "revoked_sha256";
const HOLDERS: &str = "refused_holders_sha256";

/// Authority and serial number, or authority and name.
type Key = (String, String);

/// Revocations and refused holders of the database.
#[derive(Default)]
pub(crate) struct Refused {
    revoked: BTreeSet<Key>,
    /// Those that were superseded alone: nobody ordered it, and no event says so.
    superseded: BTreeSet<Key>,
    /// Holders that are not enrolled.
    holders: BTreeMap<Key, String>,
}

/// Their digests in a note.
#[derive(Default)]
pub(crate) struct NotedRefused {
    revoked: String,
    holders: String,
}

/// Changes of them by the events after the note, in their order.
#[derive(Default)]
pub(crate) struct RefusedSince {
    revoked: BTreeSet<Key>,
    /// Each with its state before and after.
    holders: BTreeMap<Key, (HolderState, HolderState)>,
}

/// The digest of rows, each as a line of JSON: whatever is in them, no row looks like several.
fn digest_of<T: Serialize>(rows: impl Iterator<Item = T>) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for row in rows {
        context.update(&serde_json::to_vec(&row).unwrap_or_default());
        context.update(b"\n");
    }
    hex::encode(context.finish())
}

impl NotedRefused {
    /// Reads a note; `None` of an earlier version's.
    pub(crate) fn of_event(event: &Event) -> Option<Self> {
        let text = |name: &str| {
            let value = event.details.get(name).and_then(Value::as_str);
            value.map(str::to_owned)
        };
        Some(Self {
            revoked: text(REVOKED)?,
            holders: text(HOLDERS)?,
        })
    }
}

impl RefusedSince {
    pub(crate) fn take(&mut self, event: &Event) {
        let text = |name: &str| event.details.get(name).and_then(Value::as_str);
        if event.action == "certificate.revoke" {
            let authority = event.resource.split('/').nth(1);
            let one = authority.zip(text("serial"));
            let one = one.map(|(authority, serial)| (authority.to_owned(), serial.to_owned()));
            self.revoked.extend(one);
            return;
        }
        let state = |name| text(name).and_then(|name| name.parse::<HolderState>().ok());
        let holder = event.resource.split_once('/');
        let authority = holder.and_then(|(noun, _)| match noun {
            "person" => Some(CaKind::Users),
            "device" => Some(CaKind::Devices),
            "gateway" | "server" => Some(CaKind::Services),
            _ => None,
        });
        if let (Some((_, name)), Some(authority), Some(old), Some(new)) =
            (holder, authority, state("old"), state("new"))
        {
            let key = (authority.name().to_owned(), name.to_owned());
            let (_, present) = self.holders.entry(key).or_insert((old, new));
            *present = new;
        }
    }
}

impl Refused {
    /// Adds the digests to a note.
    pub(crate) fn told(&self, event: Event) -> Event {
        event
            .with_detail(REVOKED, digest_of(self.revoked.iter()))
            .with_detail(HOLDERS, digest_of(self.holders.iter()))
    }

    /// Holds the database against a note, if it says anything of these, and what was recorded since.
    pub(crate) fn check(
        &self,
        noted: Option<&NotedRefused>,
        since: &RefusedSince,
    ) -> Result<(), Contradiction> {
        let missing = since
            .revoked
            .iter()
            .find(|key| !self.revoked.contains(*key) && !self.superseded.contains(*key));
        if let Some((_, serial)) = missing {
            return Err(Contradiction::NotRevoked(serial.clone()));
        }
        let mut before = self.holders.clone();
        for (key, (old, new)) in &since.holders {
            let enrolled = HolderState::Enrolled.name();
            let row = self.holders.get(key).map_or(enrolled, String::as_str);
            if row != new.name() {
                return Err(Contradiction::Holder {
                    name: key.1.clone(),
                    row: row.to_owned(),
                    logged: new.name(),
                });
            }
            before.remove(key);
            if *old != HolderState::Enrolled {
                before.insert(key.clone(), old.name().to_owned());
            }
        }
        let Some(noted) = noted else {
            return Ok(());
        };
        let revoked = self
            .revoked
            .iter()
            .filter(|key| !since.revoked.contains(*key));
        if digest_of(revoked) != noted.revoked {
            return Err(Contradiction::Refused("what is revoked"));
        }
        if digest_of(before.iter()) != noted.holders {
            return Err(Contradiction::Refused(
                "who is suspended, revoked or retired",
            ));
        }
        Ok(())
    }
}

impl Registry {
    /// Reads revocations and holders from the database. Whoever compares it with the log sees to it that nobody writes.
    pub(crate) async fn refused(&self) -> Result<Refused, RegistryError> {
        let rows: Vec<(String, String, String)> =
            sqlx::query_as("SELECT authority, serial, reason FROM revoked")
                .fetch_all(self.inner.sql.read())
                .await?;
        let mut refused = Refused::default();
        for (authority, serial, reason) in rows {
            let known = match reason == RevocationReason::Superseded.name() {
                true => &mut refused.superseded,
                false => &mut refused.revoked,
            };
            known.insert((authority, serial));
        }
        let rows: Vec<(String, String, String)> = sqlx::query_as(
            "SELECT authority, holder_id, state FROM holders WHERE state <> 'enrolled'",
        )
        .fetch_all(self.inner.sql.read())
        .await?;
        let holders = rows
            .into_iter()
            .map(|(authority, name, state)| ((authority, name), state));
        refused.holders = holders.collect();
        Ok(refused)
    }
}
