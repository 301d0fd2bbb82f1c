//! Answers as they go out.

use ::http::StatusCode;
use pki::acme::JwsError;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::accounts::Account;
use super::refusal::Problem;
use super::renewal_info::Window;
use crate::orders::ServerOrder;

/// The last part of types of errors (RFC 8555, section 6.7).
const ERROR: &str = "urn:ietf:params:acme:error:";

/// Addresses of this site as a client wrote it, from `https://` to the host.
#[derive(Clone, Copy)]
pub(super) struct Base<'a>(pub(super) &'a str);

impl Base<'_> {
    pub(super) fn directory(self) -> String {
        format!("{}/acme/directory", self.0)
    }

    pub(super) fn account(self, id: &str) -> String {
        format!("{}/acme/account/{id}", self.0)
    }

    pub(super) fn order(self, id: &str) -> String {
        format!("{}/acme/order/{id}", self.0)
    }

    fn authorization(self, id: &str, number: usize) -> String {
        format!("{}/acme/authorization/{id}/{number}", self.0)
    }
}

/// What a request is answered with.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Body,
    /// Address of what it is about.
    pub(super) location: Option<String>,
}

pub(super) enum Body {
    Nothing,
    Json(Value),
    /// Certificates in PEM.
    Chain(String),
}

impl Answer {
    pub(super) const fn json(status: StatusCode, value: Value) -> Self {
        Self {
            status,
            body: Body::Json(value),
            location: None,
        }
    }

    pub(super) fn at(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }
}

/// RFC 8555, section 7.1.1.
pub(super) fn directory(base: Base<'_>) -> Value {
    let at = |name: &str| format!("{}/acme/{name}", base.0);
    json!({
        "newNonce": at("new-nonce"),
        "newAccount": at("new-account"),
        "newOrder": at("new-order"),
        "revokeCert": at("revoke-cert"),
        "keyChange": at("key-change"),
        "renewalInfo": at("renewal-info"),
        "meta": { "externalAccountRequired": true },
    })
}

/// RFC 8555, section 7.1.2. Nobody's address is kept, so there is no contact.
pub(super) fn account(base: Base<'_>, account: &Account) -> Value {
    json!({
        "status": account.state,
        "orders": format!("{}/orders", base.account(&account.id)),
    })
}

/// RFC 8555, section 7.1.3.
pub(super) fn order(base: Base<'_>, order: &ServerOrder, now: OffsetDateTime) -> Value {
    let identifier = |name: &String| json!({ "type": "dns", "value": name });
    let identifiers: Vec<Value> = order.names.iter().map(identifier).collect();
    let numbers = 0..order.names.len();
    let authorizations: Vec<String> = numbers
        .map(|number| base.authorization(&order.id, number))
        .collect();
    let mut value = json!({
        "status": order.status(now),
        "expires": instant(order.expires_at),
        "identifiers": identifiers,
        "authorizations": authorizations,
        "finalize": format!("{}/finalize", base.order(&order.id)),
    });
    if let (Some(fields), Some(_)) = (value.as_object_mut(), &order.serial) {
        let address = format!("{}/certificate", base.order(&order.id));
        fields.insert("certificate".to_owned(), address.into());
    }
    value
}

/// RFC 8555, section 7.1.4: it is valid without any challenge, by the binding of the account.
pub(super) fn authorization(order: &ServerOrder, number: usize) -> Option<Value> {
    let name = order.names.get(number)?;
    Some(json!({
        "status": "valid",
        "expires": instant(order.expires_at),
        "identifier": { "type": "dns", "value": name },
        "challenges": [],
    }))
}

/// RFC 7807, with the members of RFC 8555, section 6.7.
pub(super) fn problem(problem: &Problem) -> Value {
    let mut value = json!({
        "type": format!("{ERROR}{}", problem.kind),
        "detail": problem.detail,
        "status": problem.status.as_u16(),
    });
    let Some(fields) = value.as_object_mut() else {
        return value;
    };
    if !problem.identifiers.is_empty() {
        let sub = problem.identifiers.iter().map(|(identifier, kind)| {
            let detail = match *kind {
                "rejectedIdentifier" => "it is none of the invitation's names",
                _ => "identifiers are of type dns",
            };
            json!({
                "type": format!("{ERROR}{kind}"),
                "detail": detail,
                "identifier": { "type": identifier.kind, "value": identifier.value },
            })
        });
        fields.insert("subproblems".to_owned(), sub.collect());
    }
    if problem.algorithms {
        let algorithms = JwsError::algorithms().map(Value::from);
        fields.insert("algorithms".to_owned(), algorithms.to_vec().into());
    }
    value
}

/// RFC 9773, section 4.2.
pub(super) fn renewal_info(window: Window) -> Value {
    let (start, end) = (window.start.unix_timestamp(), window.end.unix_timestamp());
    json!({ "suggestedWindow": { "start": instant(start), "end": instant(end) } })
}

fn instant(at: i64) -> String {
    let at = OffsetDateTime::from_unix_timestamp(at).ok();
    at.and_then(|at| at.format(&Rfc3339).ok())
        .unwrap_or_default()
}
