//! Invitations by their events, and certificates that rest on them.

use std::collections::{BTreeMap, HashMap};

use approval::Act;
use audit::Event;
use pki::Clearance;
use pki::name::WindowsAccount;
use serde_json::Value;

use super::recorded::{Recorded, account_of, names_of};
use super::tracked::{CarriedOut, Tracked};
use crate::origin::OriginKind;

/// An invitation by its event.
pub(super) struct Offered {
    by: String,
    request: Option<String>,
    holder: String,
    profile: String,
    clearance: Clearance,
    unit: Option<String>,
    renewals: u64,
    /// Names of a server.
    names: Vec<String>,
    account: Option<WindowsAccount>,
}

impl Offered {
    /// Reads an `enrolment.invite` event; gives the identifier too. `None` for a device's one-time code.
    pub(super) fn of_event(event: &Event) -> Option<(String, Self)> {
        let text = |name: &str| {
            let value = event.details.get(name).and_then(Value::as_str);
            value.map(str::to_owned)
        };
        let number = |name: &str| event.details.get(name).and_then(Value::as_u64);
        let level = u8::try_from(number("clearance")?).ok()?;
        let (_, holder) = event.resource.split_once('/')?;
        let offered = Self {
            by: event.actor.id.clone(),
            request: text("request"),
            holder: holder.to_owned(),
            profile: text("profile")?,
            clearance: Clearance::try_from(level).ok()?,
            unit: text("unit"),
            renewals: number("renewals")?,
            names: names_of(event),
            account: account_of(event),
        };
        Some((text("invitation")?, offered))
    }

    /// What a certificate says otherwise.
    fn differs_from(&self, one: &Recorded) -> Option<&'static str> {
        [
            (one.holder != self.holder, "holder"),
            (one.profile != self.profile, "profile"),
            (one.clearance != self.clearance, "clearance"),
            (one.unit != self.unit, "unit"),
            (one.request != self.request, "request"),
            (one.account != self.account, "account"),
            (
                !one.names.iter().all(|name| self.names.contains(name)),
                "name",
            ),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }

    /// What an approved act says otherwise.
    fn differs_from_act(&self, act: &Act) -> bool {
        let Act::Invite {
            subject,
            profile,
            clearance,
            unit,
            renewals,
            names,
            account,
            ..
        } = act
        else {
            return true;
        };
        *subject != self.holder
            || *profile != self.profile
            || *clearance != self.clearance
            || *unit != self.unit
            || u64::from(*renewals) != self.renewals
            || *names != self.names
            || *account != self.account
    }
}

/// All invitations of a log, with their requests and certificates.
pub(super) struct Offers<'a> {
    offered: &'a BTreeMap<String, Offered>,
    requests: &'a BTreeMap<String, Tracked>,
    /// By authority and serial number.
    certificates: HashMap<(&'a str, &'a str), &'a Recorded>,
    /// The certificate that each invitation's code gave first.
    first: HashMap<&'a str, &'a str>,
}

impl<'a> Offers<'a> {
    /// `recorded` are the certificates in the order of their events.
    pub(super) fn new(
        offered: &'a BTreeMap<String, Offered>,
        requests: &'a BTreeMap<String, Tracked>,
        recorded: &'a [Recorded],
    ) -> Self {
        let mut first = HashMap::new();
        for one in recorded {
            if let (Some(OriginKind::Invitation), Some(id)) = (one.origin, &one.invitation) {
                first.entry(id.as_str()).or_insert(one.serial.as_str());
            }
        }
        let named = |one: &'a Recorded| ((one.authority.as_str(), one.serial.as_str()), one);
        Self {
            offered,
            requests,
            certificates: recorded.iter().map(named).collect(),
            first,
        }
    }

    /// What the rules do not explain of a certificate that came by an invitation, or of a person's renewal.
    pub(super) fn unexplained(&self, one: &Recorded) -> Option<String> {
        let invitation = one
            .invitation
            .as_ref()
            .and_then(|id| Some((id, self.offered.get(id)?)));
        let Some((id, offered)) = invitation.filter(|_| one.prepared) else {
            return Some("there is no invitation before it".to_owned());
        };
        if let Some(what) = offered.differs_from(one) {
            return Some(format!("invitation {id} was for another {what}"));
        }
        let problem = match one.origin {
            Some(OriginKind::Invitation) => self.differs_from_first(id, one),
            _ => self.differs_from_renewed(id, offered, one),
        };
        problem.or_else(|| self.unapproved(id, offered, one.entry))
    }

    fn differs_from_first(&self, id: &str, one: &Recorded) -> Option<String> {
        let first = self.first.get(id)?;
        (*first != one.serial).then(|| format!("invitation {id} had given {first} before"))
    }

    /// Follows a renewal back to the certificate that the code gave.
    fn differs_from_renewed(&self, id: &str, offered: &Offered, one: &Recorded) -> Option<String> {
        let (mut next, mut depth) = (one, 0);
        while next.origin == Some(OriginKind::Renewal) {
            depth += 1;
            if depth > offered.renewals {
                let most = offered.renewals;
                return Some(format!("invitation {id} covers {most} renewals, not more"));
            }
            let renewed = next.renews.as_deref().unwrap_or_default();
            let found = self.certificates.get(&(one.authority.as_str(), renewed));
            let before = found.filter(|found| {
                found.entry < next.entry && found.invitation.as_deref() == Some(id)
            });
            match before {
                Some(before) => next = before,
                None => {
                    return Some(format!(
                        "it renews {renewed}, which is not of invitation {id}"
                    ));
                }
            }
        }
        None
    }

    /// What is missing of the approvals of an invitation that a certificate at `entry` rests on.
    fn unapproved(&self, id: &str, offered: &Offered, entry: u64) -> Option<String> {
        let Some(request) = &offered.request else {
            return Some(format!(
                "{} gave an invitation, without a request",
                offered.by
            ));
        };
        let tracked = self.requests.get(request);
        let done: Option<&CarriedOut> = tracked.and_then(|tracked| tracked.carried_out.as_ref());
        let Some(done) = done.filter(|done| done.result == id && done.entry < entry) else {
            return Some(format!(
                "request {request} was not carried out with invitation {id}"
            ));
        };
        if offered.differs_from_act(&done.act) {
            return Some(format!(
                "request {request} was for something else than invitation {id}"
            ));
        }
        (!done.enough).then(|| format!("request {request} had too few approvals"))
    }
}
