//! Explanations of failures: the setting in which both sides differ, and its value on either side.

use std::collections::BTreeSet;

use crate::config::{Connection, RemoteAuth};
use crate::wire::{AuthMethod, Authentication, Identification};

/// Values of connections that an explanation lists; our choice.
const LISTED: usize = 8;

/// A setting that both sides have, each from its own point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Who the peer says it is, and whom we want.
    PeerIdentity,
    /// Whom the peer wants, and who we are.
    OwnIdentity,
    /// The kind of the peer's proof.
    PeerProof,
    /// The shared secret.
    Secret,
    /// The post-quantum preshared key.
    Ppk,
    /// The peer's certificate, and what we demand of it.
    PeerCertificate,
    /// Our proof, which the peer did not take.
    OwnProof,
    /// User, password or method of a login by EAP.
    Login,
    /// Algorithms of the IKE SA.
    IkeAlgorithms,
    /// Algorithms of the Child SA.
    ChildAlgorithms,
    /// Networks of the Child SA.
    Traffic,
    /// Addresses inside the tunnel.
    Addresses,
}

/// A setting in which the sides differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The setting.
    pub setting: Setting,
    /// The peer's value, as far as it shows.
    pub theirs: String,
    /// Our value.
    pub ours: String,
}

impl Difference {
    /// Puts the values together.
    pub fn new(setting: Setting, theirs: impl ToString, ours: impl ToString) -> Self {
        Self {
            setting,
            theirs: theirs.to_string(),
            ours: ours.to_string(),
        }
    }
}

/// Why somebody did not prove who they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct AuthenticationFailure {
    /// The failure in one line.
    pub what: String,
    /// The setting behind it, where it is known.
    pub difference: Option<Box<Difference>>,
}

impl AuthenticationFailure {
    /// Names the setting behind the failure.
    pub fn new(what: impl Into<String>, difference: Difference) -> Self {
        Self {
            what: what.into(),
            difference: Some(Box::new(difference)),
        }
    }
}

impl From<String> for AuthenticationFailure {
    fn from(what: String) -> Self {
        Self {
            what,
            difference: None,
        }
    }
}

impl From<&str> for AuthenticationFailure {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

/// Explains why no connection is for an initiator with this identity, for the responder that it wants (IDr), and with
/// this proof. Of several causes, the first that leaves no connection counts.
pub(crate) fn no_connection<'a>(
    known: impl Iterator<Item = &'a Connection> + Clone,
    id: &Identification,
    wanted: Option<&Identification>,
    proof: Option<&Authentication>,
) -> AuthenticationFailure {
    let list = |of: &dyn Fn(&Connection) -> String, among: &dyn Fn(&Connection) -> bool| {
        let all: BTreeSet<String> = known.clone().filter(|one| among(one)).map(of).collect();
        let rest = all.len().saturating_sub(LISTED);
        let more = (rest > 0).then(|| format!("{rest} more"));
        let listed = all.into_iter().take(LISTED).chain(more);
        listed.collect::<Vec<_>>().join("; ")
    };
    let method = proof.map_or("EAP".to_owned(), |proof| proof.method.to_string());
    let what = format!("no connection for {id} with {method}");
    let is_named = |one: &Connection| one.remote_id.accepts(id);
    let is_wanted = |one: &Connection| {
        is_named(one) && wanted.is_none_or(|wanted| wanted.is_same(&one.local_id))
    };
    let (difference, cause) = match wanted {
        _ if !known.clone().any(is_named) => {
            let ours = list(&|one| one.remote_id.to_string(), &|_| true);
            let difference = Difference::new(Setting::PeerIdentity, id, ours);
            (difference, "none is for this peer")
        }
        Some(wanted) if !known.clone().any(is_wanted) => {
            let ours = list(&|one| one.local_id.to_string(), &is_named);
            let difference = Difference::new(Setting::OwnIdentity, wanted, ours);
            (difference, "the peer wants somebody else (IDr)")
        }
        _ => {
            let theirs = proof.map_or("EAP", |proof| method_name(proof.method));
            let ours = list(&|one| proof_name(&one.remote_auth).to_owned(), &is_wanted);
            let difference = Difference::new(Setting::PeerProof, theirs, ours);
            (difference, "the peer's proof is of another kind")
        }
    };
    AuthenticationFailure::new(format!("{what}: {cause}"), difference)
}

const fn method_name(method: AuthMethod) -> &'static str {
    match method {
        AuthMethod::SHARED_KEY => "a shared secret",
        _ => "a certificate",
    }
}

/// The proof that a connection wants, in words.
pub(crate) const fn proof_name(auth: &RemoteAuth) -> &'static str {
    match auth {
        RemoteAuth::Psk(_) => "a shared secret",
        RemoteAuth::Certificate { .. } => "a certificate",
        RemoteAuth::Eap { .. } => "EAP",
    }
}
