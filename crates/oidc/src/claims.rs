//! What tokens say of a person.

use serde_json::{Map, Value, json};

use crate::authorize::{ACR_CERTIFICATE, ACR_PASSWORD};

/// Seconds for which an ID token is good: applications read it at once.
const ID_TOKEN: i64 = 300;
/// Seconds for which a logout token is good (Back-Channel Logout 1.0, section 4: two minutes at most).
const LOGOUT_TOKEN: i64 = 120;
/// Member of `events` in a logout token.
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// Groups of claims that an application asks for; others are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Names.
    pub profile: bool,
    pub email: bool,
    /// Roles that the service names, and units that it names.
    pub roles: bool,
}

impl Scope {
    /// Reads a scope, which must contain `openid`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let has = |name: &str| text.split(' ').any(|one| one == name);
        has("openid").then(|| Self {
            profile: has("profile"),
            email: has("email"),
            roles: has("roles"),
        })
    }

    /// The scope as the token endpoint answers it.
    #[must_use]
    pub fn text(self) -> String {
        let more = [
            (self.profile, " profile"),
            (self.email, " email"),
            (self.roles, " roles"),
        ];
        let more = more.into_iter().filter(|(given, _)| *given);
        more.fold("openid".to_owned(), |text, (_, name)| text + name)
    }
}

/// Method by which a person logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginKind {
    Certificate,
    Password,
}

impl LoginKind {
    /// Authentication context of the login.
    #[must_use]
    pub const fn context(self) -> &'static str {
        match self {
            Self::Certificate => ACR_CERTIFICATE,
            Self::Password => ACR_PASSWORD,
        }
    }

    /// Method by RFC 8176: proof of possession of a key, or a password.
    const fn method(self) -> &'static str {
        match self {
            Self::Certificate => "pop",
            Self::Password => "pwd",
        }
    }
}

/// A person who opened a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    pub uid: String,
    pub name: String,
    pub given_name: String,
    pub family_name: String,
    pub email: String,
    /// Effective level, 0 to 4.
    pub clearance: u8,
    /// The person's roles among those that the service names.
    pub roles: Vec<String>,
    /// The person's units among those that the service names.
    pub units: Vec<String>,
    pub login: LoginKind,
    /// Time of the login, in seconds since the Unix epoch.
    pub since: i64,
    /// The session in the portal.
    pub session: String,
}

fn personal(person: &Person, scope: Scope) -> Map<String, Value> {
    let mut claims = Map::new();
    let mut put = |name: &str, value: Value| drop(claims.insert(name.to_owned(), value));
    put("sub", json!(person.uid));
    put("clearance", json!(person.clearance));
    if scope.profile {
        put("preferred_username", json!(person.uid));
        for (name, value) in [
            ("name", &person.name),
            ("given_name", &person.given_name),
            ("family_name", &person.family_name),
        ] {
            if !value.is_empty() {
                put(name, json!(value));
            }
        }
    }
    if scope.email {
        put("email", json!(person.email));
    }
    if scope.roles {
        put("roles", json!(person.roles));
        put("units", json!(person.units));
    }
    claims
}

/// Claims of an ID token.
#[must_use]
pub fn id_token(
    issuer: &str,
    client: &str,
    person: &Person,
    scope: Scope,
    nonce: Option<&str>,
    now: i64,
) -> Value {
    let mut claims = personal(person, scope);
    let more = json!({
        "iss": issuer,
        "aud": client,
        "iat": now,
        "exp": now.saturating_add(ID_TOKEN),
        "auth_time": person.since,
        "acr": person.login.context(),
        "amr": [person.login.method()],
        "sid": person.session,
    });
    if let Value::Object(more) = more {
        claims.extend(more);
    }
    if let Some(nonce) = nonce {
        claims.insert("nonce".to_owned(), json!(nonce));
    }
    Value::Object(claims)
}

/// Answer of the userinfo endpoint.
#[must_use]
pub fn userinfo(person: &Person, scope: Scope) -> Value {
    Value::Object(personal(person, scope))
}

/// Claims of a logout token, which has no nonce, so that it cannot pass for an ID token.
#[must_use]
pub fn logout_token(
    issuer: &str,
    client: &str,
    uid: &str,
    session: &str,
    id: &str,
    now: i64,
) -> Value {
    json!({
        "iss": issuer,
        "aud": client,
        "iat": now,
        "exp": now.saturating_add(LOGOUT_TOKEN),
        "jti": id,
        "sub": uid,
        "sid": session,
        "events": { LOGOUT_EVENT: {} },
    })
}
