//! Codes, access tokens and logins.
//!
//! ```text
//!   begin            redeem                         end, expire
//!  ───────► code ───────────► login + access token ─────────────► Ended (the shell delivers a logout token)
//!             │ again: the code was stolen
//!             └──────────────────────────────────────► Ended
//! ```
//!
//! Secrets are kept as hashes. Everything is in memory: after a restart codes and access tokens are void, and the shell ends
//! the logins that it wrote down.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use crate::TokenError;
use crate::authorize::AuthorizationRequest;
use crate::claims::{Person, Scope};
use crate::client_proof::Assertion;

/// Seconds for which a code is good (RFC 6749 recommends ten minutes at most; the application has it at once).
const CODE_LIFETIME: i64 = 60;
/// Seconds for which a used code is remembered, so that its replay ends what came of it.
const CODE_MEMORY: i64 = 300;
/// Seconds for which an access token is good. There are no refresh tokens.
pub const TOKEN_LIFETIME: i64 = 300;
/// Seconds after which a login ends in any case: a shift, as sessions of the portal.
pub const LOGIN_LIFETIME: i64 = 8 * 3600;
/// Codes, fresh and used; a full table refuses new ones. It is enough for thirteen logins a second.
const MAX_CODES: usize = 4000;
/// Fresh codes of one person; more replace the oldest.
const MAX_CODES_OF_PERSON: usize = 16;
/// Logins of the site; a full table refuses new ones.
const MAX_LOGINS: usize = 20_000;
/// Logins of one person; more end the oldest.
const MAX_LOGINS_OF_PERSON: usize = 64;
/// Access tokens of one login; more replace the oldest.
const MAX_TOKENS_OF_LOGIN: usize = 8;
/// Assertions that are remembered of one client; a full table refuses new ones, until the oldest expire.
const MAX_ASSERTIONS: usize = 5000;

type Hash = [u8; 32];
/// Client and session of a login.
type Key = (String, String);

/// A table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many logins are under way")]
pub struct Full;

/// What a code stands for. `T` is what the shell needs to decide again.
#[derive(Clone, Debug)]
pub struct Grant<T> {
    pub request: AuthorizationRequest,
    pub person: Person,
    pub tag: T,
}

#[derive(Clone, Debug)]
struct Code<T> {
    grant: Grant<T>,
    issued: i64,
    /// It was presented: by which client it became which login, if any.
    used: Option<Option<Key>>,
}

/// A person who is logged in to an application.
#[derive(Clone, Debug)]
pub struct Login<T> {
    pub client: String,
    pub person: Person,
    pub scope: Scope,
    pub tag: T,
    pub began: i64,
}

#[derive(Clone, Debug)]
struct Token {
    login: Key,
    issued: i64,
}

/// Why a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The person logged out, or the session in the portal ended.
    Session,
    /// The person or the service changed, so that the rules refuse.
    Rights,
    /// A code was presented twice.
    Replay,
    /// The longest time of a login is over.
    Lifetime,
    /// The person has more logins than may be.
    Displaced,
    /// The site was started again.
    Restart,
}

impl Cause {
    /// The name in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Rights => "rights",
            Self::Replay => "replay",
            Self::Lifetime => "lifetime",
            Self::Displaced => "displaced",
            Self::Restart => "restart",
        }
    }
}

/// A login that ended; its application has to hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub client: String,
    pub session: String,
    pub uid: String,
    pub cause: Cause,
}

/// Result of a code, with logins that ended because of it.
#[derive(Debug)]
pub struct Redemption<T> {
    pub outcome: Result<Redeemed<T>, TokenError>,
    /// The code had been used: it was stolen, or the application sent it twice.
    pub replayed: Option<Grant<T>>,
    pub ended: Vec<Ended>,
}

/// A code that became a login.
#[derive(Clone, Debug)]
pub struct Redeemed<T> {
    pub login: Login<T>,
    pub nonce: Option<String>,
    pub access_token: String,
}

/// The state of the provider.
#[derive(Debug)]
pub struct Provider<T> {
    codes: BTreeMap<Hash, Code<T>>,
    tokens: BTreeMap<Hash, Token>,
    logins: BTreeMap<Key, Login<T>>,
    assertions: BTreeMap<(String, String), i64>,
}

impl<T> Default for Provider<T> {
    fn default() -> Self {
        Self {
            codes: BTreeMap::new(),
            tokens: BTreeMap::new(),
            logins: BTreeMap::new(),
            assertions: BTreeMap::new(),
        }
    }
}

impl<T: Clone> Provider<T> {
    /// Issues a code for a request that the access rules permit. `random` is fresh.
    ///
    /// # Errors
    /// [`Full`].
    pub fn begin(&mut self, grant: Grant<T>, random: [u8; 32], now: i64) -> Result<String, Full> {
        let of_person =
            |code: &&Code<T>| code.used.is_none() && code.grant.person.uid == grant.person.uid;
        if self.codes.values().filter(of_person).count() >= MAX_CODES_OF_PERSON {
            let mut own = self.codes.iter().filter(|(_, code)| of_person(code));
            let first = own.next();
            let oldest = own.fold(first, |oldest, one| match oldest {
                Some(old) if old.1.issued <= one.1.issued => Some(old),
                _ => Some(one),
            });
            if let Some(hash) = oldest.map(|(hash, _)| *hash) {
                self.codes.remove(&hash);
            }
        }
        if self.codes.len() >= MAX_CODES {
            self.codes
                .retain(|_, code| now.saturating_sub(code.issued) < CODE_MEMORY);
        }
        if self.codes.len() >= MAX_CODES {
            return Err(Full);
        }
        let text = URL_SAFE_NO_PAD.encode(random);
        let code = Code {
            grant,
            issued: now,
            used: None,
        };
        self.codes.insert(hash(&text), code);
        Ok(text)
    }

    /// Remembers an assertion until it expires.
    ///
    /// # Errors
    /// [`TokenError::InvalidClient`] if it came before, or if the client has too many.
    pub fn accept(
        &mut self,
        client: &str,
        assertion: &Assertion,
        now: i64,
    ) -> Result<(), TokenError> {
        let first = (client.to_owned(), String::new());
        let of_client = |all: &BTreeMap<(String, String), i64>| {
            let from = all.range(first.clone()..);
            from.take_while(|((of, _), _)| of == client).count()
        };
        if of_client(&self.assertions) >= MAX_ASSERTIONS {
            self.assertions.retain(|_, until| *until > now);
        }
        if of_client(&self.assertions) >= MAX_ASSERTIONS {
            return Err(TokenError::InvalidClient("too many assertions"));
        }
        let key = (client.to_owned(), assertion.id.clone());
        // One that has expired is refused before, so that an old entry need not be looked at.
        match self.assertions.insert(key, assertion.until) {
            None => Ok(()),
            Some(_) => Err(TokenError::InvalidClient("the assertion came before")),
        }
    }

    /// The grant of a fresh code, for the shell to decide again before [`Self::redeem`].
    #[must_use]
    pub fn grant(&self, code: &str) -> Option<&Grant<T>> {
        let code = self.codes.get(&hash(code))?;
        code.used.is_none().then_some(&code.grant)
    }

    /// Takes a code of the authenticated client `client`. Whatever comes of it, the code is used up: one that comes with a
    /// wrong verifier, address or client has leaked.
    pub fn redeem(
        &mut self,
        client: &str,
        code: &str,
        redirect: &str,
        verifier: &str,
        random: [u8; 32],
        now: i64,
    ) -> Redemption<T> {
        let invalid = |what, replayed, ended| Redemption {
            outcome: Err(TokenError::InvalidGrant(what)),
            replayed,
            ended,
        };
        let Some(found) = self.codes.get_mut(&hash(code)) else {
            return invalid("the code is unknown or has expired", None, vec![]);
        };
        if let Some(login) = found.used.clone() {
            let grant = found.grant.clone();
            let ended = login.and_then(|key| self.end_one(&key, Cause::Replay));
            let what = "the code was used before";
            return invalid(what, Some(grant), ended.into_iter().collect());
        }
        found.used = Some(None);
        let request = &found.grant.request;
        if now.saturating_sub(found.issued) >= CODE_LIFETIME {
            return invalid("the code is unknown or has expired", None, vec![]);
        }
        if request.client != client {
            return invalid("the code is another client's", None, vec![]);
        }
        if request.redirect != redirect {
            return invalid("redirect_uri is not that of the request", None, vec![]);
        }
        if !is_verifier(verifier, &request.challenge) {
            return invalid("code_verifier does not fit the challenge", None, vec![]);
        }
        let grant = found.grant.clone();
        let key = (client.to_owned(), grant.person.session.clone());
        found.used = Some(Some(key.clone()));
        let login = Login {
            client: client.to_owned(),
            scope: grant.request.scope,
            person: grant.person,
            tag: grant.tag,
            began: now,
        };
        let ended = match self.keep(&key, &login) {
            Ok(ended) => ended,
            Err(Full) => return invalid("the site has too many logins", None, vec![]),
        };
        let access_token = URL_SAFE_NO_PAD.encode(random);
        self.keep_token(key, &access_token, now);
        Redemption {
            outcome: Ok(Redeemed {
                login,
                nonce: grant.request.nonce,
                access_token,
            }),
            replayed: None,
            ended,
        }
    }

    /// Keeps a login in place of an earlier one of the same session, and ends the person's oldest one if there are too many.
    fn keep(&mut self, key: &Key, login: &Login<T>) -> Result<Vec<Ended>, Full> {
        let mut ended = Vec::new();
        if !self.logins.contains_key(key) {
            if self.logins.len() >= MAX_LOGINS {
                return Err(Full);
            }
            let own = self.logins.iter();
            let own = own.filter(|(_, other)| other.person.uid == login.person.uid);
            let mut own: Vec<(i64, Key)> =
                own.map(|(key, login)| (login.began, key.clone())).collect();
            if own.len() >= MAX_LOGINS_OF_PERSON {
                own.sort_unstable();
                let oldest = own.first().map(|(_, key)| key.clone());
                ended.extend(oldest.and_then(|key| self.end_one(&key, Cause::Displaced)));
            }
        }
        self.logins.insert(key.clone(), login.clone());
        Ok(ended)
    }

    fn keep_token(&mut self, key: Key, token: &str, now: i64) {
        let own = self.tokens.iter().filter(|(_, one)| one.login == key);
        let mut own: Vec<(i64, Hash)> = own.map(|(hash, one)| (one.issued, *hash)).collect();
        if own.len() >= MAX_TOKENS_OF_LOGIN {
            own.sort_unstable();
            if let Some((_, oldest)) = own.first() {
                self.tokens.remove(oldest);
            }
        }
        let token_of = Token {
            login: key,
            issued: now,
        };
        self.tokens.insert(hash(token), token_of);
    }

    /// The login behind an access token.
    #[must_use]
    pub fn of_token(&self, token: &str, now: i64) -> Option<&Login<T>> {
        let token = self.tokens.get(&hash(token))?;
        let is_good = now.saturating_sub(token.issued) < TOKEN_LIFETIME;
        is_good.then(|| self.logins.get(&token.login)).flatten()
    }

    /// All logins.
    pub fn logins(&self) -> impl Iterator<Item = &Login<T>> {
        self.logins.values()
    }

    /// Tells whether a login has not ended.
    #[must_use]
    pub fn has(&self, client: &str, session: &str) -> bool {
        let key = (client.to_owned(), session.to_owned());
        self.logins.contains_key(&key)
    }

    /// Ends a login whose session `session` and client are these.
    pub fn end(&mut self, client: &str, session: &str, cause: Cause) -> Option<Ended> {
        self.end_one(&(client.to_owned(), session.to_owned()), cause)
    }

    /// Ends all logins of a session, and the codes that would begin others.
    pub fn end_session(&mut self, session: &str) -> Vec<Ended> {
        self.codes
            .retain(|_, code| code.used.is_some() || code.grant.person.session != session);
        let keys = self.logins.keys().filter(|(_, of)| of == session);
        let keys: Vec<Key> = keys.cloned().collect();
        let ended = keys
            .iter()
            .filter_map(|key| self.end_one(key, Cause::Session));
        ended.collect()
    }

    /// Forgets what has expired, and ends logins that have lasted long enough.
    pub fn expire(&mut self, now: i64) -> Vec<Ended> {
        self.codes
            .retain(|_, code| now.saturating_sub(code.issued) < CODE_MEMORY);
        self.tokens
            .retain(|_, token| now.saturating_sub(token.issued) < TOKEN_LIFETIME);
        self.assertions.retain(|_, until| *until > now);
        let over = |login: &Login<T>| now.saturating_sub(login.began) >= LOGIN_LIFETIME;
        let keys = self.logins.iter().filter(|(_, login)| over(login));
        let keys: Vec<Key> = keys.map(|(key, _)| key.clone()).collect();
        let ended = keys
            .iter()
            .filter_map(|key| self.end_one(key, Cause::Lifetime));
        ended.collect()
    }

    /// Ends a login with its access tokens.
    fn end_one(&mut self, key: &Key, cause: Cause) -> Option<Ended> {
        let login = self.logins.remove(key)?;
        self.tokens.retain(|_, token| token.login != *key);
        Some(Ended {
            client: login.client,
            session: login.person.session,
            uid: login.person.uid,
            cause,
        })
    }
}

fn hash(secret: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    hash
}

/// Whether a verifier is one of RFC 7636 (section 4.1) and fits the challenge.
fn is_verifier(verifier: &str, challenge: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let found = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
    (43..=128).contains(&verifier.len())
        && verifier.bytes().all(allowed)
        && bool::from(found.as_bytes().ct_eq(challenge.as_bytes()))
}
