//! The authorization request: what an application asks for, and what has to hold before it gets a code.

use services::Client;

use crate::claims::{LoginKind, Scope};
use crate::parameters::{Parameters, with_query};

/// Authentication context: the person proved a key with a certificate of this site.
pub const ACR_CERTIFICATE: &str = "urn:cordon:acr:certificate";
/// Authentication context: the person typed a password.
pub const ACR_PASSWORD: &str = "urn:cordon:acr:password";

/// Length of a S256 challenge: base64url of 32 bytes (RFC 7636, section 4.2).
const CHALLENGE: usize = 43;
/// Longest state and nonce in bytes. Our choice: libraries send some dozens, and the state comes back in an address.
const MAX_OPAQUE: usize = 2048;
/// Seconds for which a login counts as new. `max_age=0` would otherwise ask for another login after each one.
const FRESH: u64 = 30;

/// A request that names a registered client and one of its redirect addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationRequest {
    pub client: String,
    pub redirect: String,
    pub scope: Scope,
    pub state: Option<String>,
    pub nonce: Option<String>,
    /// The S256 challenge.
    pub challenge: String,
    /// `prompt=none`: no page may be shown.
    pub silent: bool,
    /// Age in seconds that the login may have.
    pub max_age: Option<u64>,
    /// Authentication contexts of which one must be reached; empty for any.
    pub contexts: Vec<String>,
}

/// An error that goes back to the application (RFC 6749, section 4.1.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    pub redirect: String,
    pub state: Option<String>,
    pub error: &'static str,
    pub description: &'static str,
}

/// Why an authorization request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizeError {
    /// The redirect address is not known to be the client's: the person gets a page, and is sent nowhere.
    Page(&'static str),
    Redirect(ErrorResponse),
}

/// What is missing before a code may be issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The person must log in again.
    Login,
    Refused(ErrorResponse),
}

impl ErrorResponse {
    /// The address to which the browser goes.
    #[must_use]
    pub fn location(&self, issuer: &str) -> String {
        let mut answer = vec![
            ("error", self.error),
            ("error_description", self.description),
            ("iss", issuer),
        ];
        answer.extend(self.state.as_deref().map(|state| ("state", state)));
        with_query(&self.redirect, &answer)
    }
}

impl AuthorizationRequest {
    /// Reads a request of the registered client `id`.
    ///
    /// # Errors
    /// [`AuthorizeError`]: nothing is sent to an address that is not exactly one of the client's.
    pub fn read(
        parameters: &Parameters,
        id: &str,
        client: &Client,
    ) -> Result<Self, AuthorizeError> {
        let redirect = parameters.get("redirect_uri").ok_or(AuthorizeError::Page(
            "the application names no redirect_uri",
        ))?;
        if !client.redirects.iter().any(|known| known == redirect) {
            let what = "the application is not registered with this redirect_uri";
            return Err(AuthorizeError::Page(what));
        }
        let state = parameters.get("state").map(str::to_owned);
        let refuse = |(error, description): Wrong| {
            // A state of any length would come back in an address.
            let state = state.clone().filter(|state| state.len() <= MAX_OPAQUE);
            AuthorizeError::Redirect(ErrorResponse {
                redirect: redirect.to_owned(),
                state,
                error,
                description,
            })
        };
        check_flow(parameters).map_err(refuse)?;
        let scope = Scope::parse(parameters.get("scope").unwrap_or_default());
        let scope = scope.ok_or_else(|| refuse(("invalid_scope", "the scope lacks openid")))?;
        let challenge = challenge(parameters).map_err(refuse)?;
        let nonce = parameters.get("nonce").map(str::to_owned);
        let is_long = |text: &Option<String>| text.as_ref().is_some_and(|t| t.len() > MAX_OPAQUE);
        if is_long(&state) || is_long(&nonce) {
            return Err(refuse(invalid("state and nonce have at most 2048 bytes")));
        }
        let (silent, max_age) = demands(parameters).map_err(refuse)?;
        let contexts = parameters.get("acr_values").unwrap_or_default();
        let contexts = contexts.split(' ').filter(|one| !one.is_empty());
        Ok(Self {
            client: id.to_owned(),
            redirect: redirect.to_owned(),
            scope,
            state,
            nonce,
            challenge,
            silent,
            max_age,
            contexts: contexts.map(str::to_owned).collect(),
        })
    }

    /// An error for the application.
    #[must_use]
    pub fn refused(&self, error: &'static str, description: &'static str) -> ErrorResponse {
        ErrorResponse {
            redirect: self.redirect.clone(),
            state: self.state.clone(),
            error,
            description,
        }
    }

    /// Checks the strength and age of a login of `kind` that was proved `age` seconds ago.
    ///
    /// # Errors
    /// [`Need`]. Only a login by password can be repeated: a certificate is proved by the connection, which the portal
    /// cannot have the browser open again.
    pub fn check(&self, kind: LoginKind, age: u64) -> Result<(), Need> {
        // A certificate is the stronger proof, and serves where a password is enough.
        let reached = |context: &String| match kind {
            LoginKind::Certificate => context == ACR_CERTIFICATE || context == ACR_PASSWORD,
            LoginKind::Password => context == ACR_PASSWORD,
        };
        if !self.contexts.is_empty() && !self.contexts.iter().any(reached) {
            let what = "the login does not reach acr_values";
            let error = "unmet_authentication_requirements";
            return Err(Need::Refused(self.refused(error, what)));
        }
        if self.max_age.is_some_and(|most| age > most.max(FRESH)) {
            return Err(match (kind, self.silent) {
                (LoginKind::Password, false) => Need::Login,
                _ => Need::Refused(self.refused("login_required", "the login is too old")),
            });
        }
        Ok(())
    }

    /// The address to which the browser brings a code (with `iss` of RFC 9207).
    #[must_use]
    pub fn answer(&self, issuer: &str, code: &str) -> String {
        let mut answer = vec![("code", code), ("iss", issuer)];
        answer.extend(self.state.as_deref().map(|state| ("state", state)));
        with_query(&self.redirect, &answer)
    }
}

/// Error and description.
type Wrong = (&'static str, &'static str);

const fn invalid(description: &'static str) -> Wrong {
    ("invalid_request", description)
}

/// Refuses every flow but the authorization code, and parameters that would carry another request.
fn check_flow(parameters: &Parameters) -> Result<(), Wrong> {
    for (name, error) in [
        ("request", "request_not_supported"),
        ("request_uri", "request_uri_not_supported"),
        ("registration", "registration_not_supported"),
    ] {
        if parameters.get(name).is_some() {
            return Err((error, "this parameter is not supported"));
        }
    }
    if parameters.get("response_type") != Some("code") {
        let what = "only response_type=code is supported";
        return Err(("unsupported_response_type", what));
    }
    match parameters.get("response_mode") {
        None | Some("query") => Ok(()),
        Some(_) => Err(invalid("only response_mode=query is supported")),
    }
}

/// The challenge of PKCE.
fn challenge(parameters: &Parameters) -> Result<String, Wrong> {
    let challenge = parameters.get("code_challenge");
    let challenge = challenge.ok_or(invalid("PKCE is required: code_challenge"))?;
    if parameters.get("code_challenge_method") != Some("S256") {
        return Err(invalid("only code_challenge_method=S256 is supported"));
    }
    let is_base64url = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    match challenge.len() == CHALLENGE && challenge.bytes().all(is_base64url) {
        true => Ok(challenge.to_owned()),
        false => Err(invalid("the code_challenge is not one of S256")),
    }
}

/// Whether no page may be shown, and which age the login may have.
fn demands(parameters: &Parameters) -> Result<(bool, Option<u64>), Wrong> {
    let prompts = parameters.get("prompt").unwrap_or_default();
    let has = |name: &str| prompts.split(' ').any(|one| one == name);
    if has("none") && prompts != "none" {
        return Err(invalid("prompt=none goes with no other value"));
    }
    let max_age = match parameters.get("max_age").map(str::parse) {
        None => None,
        Some(Ok(age)) => Some(age),
        Some(Err(_)) => return Err(invalid("max_age is not a number of seconds")),
    };
    Ok((has("none"), if has("login") { Some(0) } else { max_age }))
}
