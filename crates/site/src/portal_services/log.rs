//! The audit log for the portal's pages.

use std::sync::Arc;

use access::{Action, Context, Principal, Resource};
use audit::Leaf;
use portal::PageError;
use portal_audit::{AuditPage, AuditRow, Log};
use time::OffsetDateTime;

use crate::gate::Gate;
use crate::parts::centre_parts::CentreParts;

/// Audit events on one page.
const AUDIT_PAGE: u64 = 100;

/// The audit log of a site.
pub(crate) struct SiteLog {
    pub(crate) parts: CentreParts,
    pub(crate) gate: Arc<Gate>,
}

impl Log for SiteLog {
    async fn read(&self, who: &Principal, before: Option<u64>) -> Result<AuditPage, PageError> {
        let resource = Resource::system();
        let decision =
            self.parts
                .access
                .decide(who, Action::AuditRead, &resource, &Context::default());
        let now = OffsetDateTime::now_utc();
        let event = decision.event(now, who, Action::AuditRead, &resource);
        let event = match before {
            // As text: an event's numbers end where those of JSON do.
            Some(before) => event.with_detail("before", before.to_string()),
            None => event,
        };
        if !self.gate.note(event).await {
            let message = "the audit log cannot be written".to_owned();
            return Err(PageError::Failed(message));
        }
        if !decision.allowed {
            let (reasons, policies) = (decision.reasons, decision.determining);
            return Err(PageError::Denied { reasons, policies });
        }
        let audit = self.parts.audit.clone();
        let page = self
            .parts
            .audit_pool
            .run(move || audit_page(&audit, before))
            .await;
        match page {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot read the audit log");
                Err(PageError::Failed("the audit log cannot be read".to_owned()))
            }
            Err(_) => Err(PageError::Failed("the audit log cannot be read".to_owned())),
        }
    }
}

fn audit_page(
    audit: &audit::SharedLog,
    before: Option<u64>,
) -> Result<AuditPage, Box<dyn std::error::Error + Send + Sync>> {
    let view = audit.view()?;
    let end = before.unwrap_or(u64::MAX).min(view.size());
    let start = end.saturating_sub(AUDIT_PAGE);
    let mut rows = Vec::new();
    for index in (start..end).rev() {
        rows.push(audit_row(index, &Leaf::decode(&view.entry(index)?)?));
    }
    Ok(AuditPage {
        rows,
        older: (start > 0).then_some(start),
        size: view.size(),
        checkpoint: view.note().to_owned(),
    })
}

fn audit_row(index: u64, leaf: &Leaf) -> AuditRow {
    let event = &leaf.event;
    let mut why = event.reason.clone().unwrap_or_default();
    if !event.policies.is_empty() {
        why = format!("{why} [{}]", event.policies.join(", "))
            .trim_start()
            .to_owned();
    }
    AuditRow {
        index,
        at: event
            .at
            .format(&time::format_description::well_known::Rfc3339)
            .unwrap_or_default(),
        role: leaf.role.clone(),
        actor: event.actor.shown().to_owned(),
        action: event.action.clone(),
        resource: event.resource.clone(),
        outcome: event.outcome.to_string(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use audit::{Actor, Event, Outcome};

    use super::*;

    #[test]
    fn actor_without_name_is_shown_by_identifier() {
        let row = |name: Option<&str>| {
            let actor = Actor {
                name: name.map(str::to_owned),
                ..Actor::user("clerk-1", "")
            };
            let now = OffsetDateTime::UNIX_EPOCH;
            let event = Event::new(now, actor, "request.draft", "request/r-1", Outcome::Ok);
            let leaf = Leaf {
                event,
                prev: String::new(),
                role: "registry".to_owned(),
                seq: 1,
            };
            audit_row(7, &leaf).actor
        };
        assert_eq!(row(None), "clerk-1");
        assert_eq!(row(Some("")), "clerk-1");
        assert_eq!(row(Some("C. Lerk")), "C. Lerk");
    }
}
