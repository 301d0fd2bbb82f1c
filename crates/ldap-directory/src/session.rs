//! The protocol of one connection.
//!
//! ```text
//!  message ─► Session::receive ─► Step::Answer(bytes)      an answer is ready
//!                                 Step::Bind(Proof)        the shell verifies it, then calls accept or refuse
//!                                 Step::Search(Search)     the shell runs it with a View, then calls found and done
//!                                 Step::Compare(Compare)   likewise, then calls compared
//!                                 Step::WhoAmI             the shell checks that the bind still stands
//!                                 Step::Nothing            no answer is due
//!                                 Step::End(bytes)         the connection ends
//! ```
//!
//! Messages are handled one after the other, so an abandon request always comes too late and needs no answer.

use bytes::BytesMut;
use ldap3_proto::LdapCodec;
use ldap3_proto::control::LdapControl;
use ldap3_proto::proto::{
    LdapBindCred, LdapBindRequest, LdapBindResponse, LdapCompareRequest, LdapExtendedRequest,
    LdapExtendedResponse, LdapMsg, LdapOp, LdapResult, LdapResultCode, LdapSearchRequest,
    SyncRequestMode,
};
use tokio_util::codec::{Decoder as _, Encoder as _};
use zeroize::Zeroizing;

use crate::frame::{self, Envelope, MAX_MESSAGE, Operation};
use crate::name::Name;
use crate::schema::{self, View};
use crate::search::{Fetched, Page, Search};
use crate::sync::{self, Copy, SYNC};
use crate::tree::{Entry, MANAGE_DSA_IT, PAGED, Tree, WHO_AM_I};

/// Nested elements of a message at most. A filter at its own bound takes about twice its levels.
const MAX_NESTING: usize = 96;
/// Abandon requests beyond the number of other requests. Our choice: a client abandons what it asked for.
const MAX_ABANDONED: u32 = 16;
/// Requests of a name in place of the operation (RFC 4511, section 4.14; RFC 3062).
const START_TLS: &str = "1.3.6.1.4.1.1466.20037";
const MODIFY_PASSWORD: &str = "1.3.6.1.4.1.4203.1.11.1";
/// Name of the notice of disconnection (RFC 4511, section 4.4.1).
const DISCONNECTION: &str = "1.3.6.1.4.1.1466.20036";
/// The way to what this server does not do.
const READ_ONLY: &str = "this directory is read only over LDAP: an administrator changes people with `cordon directory import`";
const NO_PASSWORDS: &str =
    "passwords are not set over LDAP: an administrator sets them with `cordon directory password`";

/// The bound identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound<I> {
    /// Name of the person's entry.
    pub dn: String,
    /// Proof by which the shell checks later whether the bind still stands.
    pub identity: I,
}

/// Proof of a bind request.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// Name of an entry, and a password.
    Password {
        name: Name,
        password: Zeroizing<String>,
    },
    /// The certificate of the TLS connection (SASL EXTERNAL, RFC 4422, appendix A), as this person if one is named.
    Certificate { authorization: Option<String> },
}

/// Without the password.
impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Password { .. } => "Password",
            Self::Certificate { .. } => "Certificate",
        })
    }
}

/// A comparison that the client asks for.
#[derive(Debug)]
pub struct Compare {
    id: i32,
    name: Name,
    attribute: Option<&'static schema::Attribute>,
    prepared: Option<String>,
}

/// What the shell does with a message.
#[derive(Debug)]
pub enum Step {
    Nothing,
    /// Send these bytes.
    Answer(Vec<u8>),
    /// Verify the proof.
    Bind(Proof),
    Search(Box<Search>),
    Compare(Compare),
    WhoAmI,
    /// Send these bytes, if any, and close the connection.
    End(Vec<u8>),
}

/// One connection. `I` is the shell's proof of who is bound.
#[derive(Debug)]
pub struct Session<I> {
    bound: Option<Bound<I>>,
    /// Id of the request that the shell works on.
    id: i32,
    is_sasl: bool,
    requests: u32,
    abandoned: u32,
}

impl<I> Default for Session<I> {
    fn default() -> Self {
        Self {
            bound: None,
            id: 0,
            is_sasl: false,
            requests: 0,
            abandoned: 0,
        }
    }
}

impl<I> Session<I> {
    /// Who is bound; `None` is anonymous.
    #[must_use]
    pub const fn bound(&self) -> Option<&Bound<I>> {
        self.bound.as_ref()
    }

    /// Takes one message, as [`frame_length`](crate::frame_length) cut it.
    pub fn receive(&mut self, message: &[u8]) -> Step {
        let Some(envelope) = frame::envelope(message) else {
            return end(
                LdapResultCode::ProtocolError,
                "the message is not an LDAP request",
            );
        };
        let Envelope { id, operation, .. } = envelope;
        if matches!(operation, Operation::Unbind) {
            return Step::End(Vec::new());
        }
        if matches!(operation, Operation::Abandon) {
            self.abandoned = self.abandoned.saturating_add(1);
            return match self.abandoned > self.requests.saturating_add(MAX_ABANDONED) {
                true => end(
                    LdapResultCode::ProtocolError,
                    "more requests are abandoned than were made",
                ),
                false => Step::Nothing,
            };
        }
        self.requests = self.requests.saturating_add(1);
        self.id = id;
        if id == 0 {
            // RFC 4511, section 4.1.1.1: 0 is for the server's notices.
            return end(
                LdapResultCode::ProtocolError,
                "a request has the message id 0",
            );
        }
        // A bind request ends the former bind, even if it fails (section 4.2.1).
        if operation == Operation::Bind {
            self.bound = None;
            self.is_sasl = false;
        }
        if let Some(unknown) = unknown_critical(&envelope) {
            let message = format!("the critical control {unknown} is not supported here");
            return self.failed(
                operation,
                LdapResultCode::UnavailableCriticalExtension,
                &message,
            );
        }
        let mut bytes = BytesMut::from(message);
        let decoded = LdapCodec::new(Some(MAX_MESSAGE), Some(MAX_NESTING)).decode(&mut bytes);
        let Ok(Some(LdapMsg { op, ctrl, .. })) = decoded else {
            return self.failed(
                operation,
                LdapResultCode::ProtocolError,
                "the request cannot be decoded",
            );
        };
        match op {
            LdapOp::BindRequest(request) => self.bind(request),
            LdapOp::SearchRequest(request) => self.search(&request, ctrl),
            LdapOp::CompareRequest(request) => self.compare(request),
            LdapOp::ExtendedRequest(request) => self.extended(&request),
            _ => self.failed(operation, LdapResultCode::UnwillingToPerform, READ_ONLY),
        }
    }

    fn bind(&mut self, request: LdapBindRequest) -> Step {
        let refuse = |this: &Self, code, message: &str| this.failed(Operation::Bind, code, message);
        if request.version != 3 {
            return refuse(
                self,
                LdapResultCode::ProtocolError,
                "this server has LDAP version 3 only",
            );
        }
        let name = match Name::parse(&request.dn) {
            Ok(name) => name,
            Err(error) => {
                return refuse(self, LdapResultCode::InvalidDNSyntax, &error.to_string());
            }
        };
        let is_anonymous = name == Name::default();
        match request.cred {
            LdapBindCred::Simple(password) => match (is_anonymous, password.is_empty()) {
                (true, true) => Step::Answer(self.answer(LdapOp::BindResponse(LdapBindResponse {
                    res: result(LdapResultCode::Success, ""),
                    saslcreds: None,
                }))),
                // RFC 4513, section 5.1.2: clients take success for proof of the password.
                (false, true) => refuse(
                    self,
                    LdapResultCode::UnwillingToPerform,
                    "a name without a password proves nothing: send both, or neither",
                ),
                (true, false) => refuse(self, LdapResultCode::InvalidCredentials, ""),
                (false, false) => Step::Bind(Proof::Password {
                    name,
                    password: Zeroizing::new(password),
                }),
            },
            LdapBindCred::SASL(credentials) if credentials.mechanism == "EXTERNAL" => {
                self.is_sasl = true;
                let Ok(authorization) = String::from_utf8(credentials.credentials) else {
                    return refuse(self, LdapResultCode::InvalidCredentials, "");
                };
                Step::Bind(Proof::Certificate {
                    authorization: (!authorization.is_empty()).then_some(authorization),
                })
            }
            LdapBindCred::SASL(_) | LdapBindCred::Unsupported => refuse(
                self,
                LdapResultCode::AuthMethodNotSupported,
                "this server has simple binds and SASL EXTERNAL",
            ),
        }
    }

    /// The bind that was asked for stands.
    pub fn accept(&mut self, bound: Bound<I>) -> Vec<u8> {
        self.bound = Some(bound);
        self.answer(LdapOp::BindResponse(LdapBindResponse {
            res: result(LdapResultCode::Success, ""),
            saslcreds: None,
        }))
    }

    /// The bind, search or comparison that was asked for fails.
    pub fn refuse(&mut self, step: &Step, code: LdapResultCode, message: &str) -> Vec<u8> {
        let result = result(code, message);
        self.answer(match step {
            Step::Search(_) => LdapOp::SearchResultDone(result),
            Step::Compare(_) => LdapOp::CompareResult(result),
            Step::WhoAmI => LdapOp::ExtendedResponse(LdapExtendedResponse {
                res: result,
                name: None,
                value: None,
            }),
            _ => LdapOp::BindResponse(LdapBindResponse {
                res: result,
                saslcreds: None,
            }),
        })
    }

    /// The bind does not stand any more: says so and ends the connection. RFC 4511, section 4.4.1, has this code for an
    /// association that failed.
    pub fn lost(&mut self) -> Vec<u8> {
        self.bound = None;
        notice(
            LdapResultCode::StrongerAuthRequired,
            "your bind has ended, as your rights or your password changed: bind again",
        )
    }

    fn search(&mut self, request: &LdapSearchRequest, controls: Vec<LdapControl>) -> Step {
        let (mut page, mut copy) = (None, None);
        for control in controls {
            match control {
                LdapControl::SimplePagedResults { size, cookie } => page = Some((size, cookie)),
                LdapControl::SyncRequest { mode, cookie, .. } => copy = Some((mode, cookie)),
                _ => {}
            }
        }
        let search = match Search::new(self.id, request, page) {
            Ok(search) => search,
            Err(refused) => return self.failed(Operation::Search, refused.code, &refused.message),
        };
        match copy {
            None => Step::Search(Box::new(search)),
            Some((SyncRequestMode::RefreshOnly, cookie)) => {
                let copy = Copy::new(cookie.as_deref());
                Step::Search(Box::new(search.synchronising(copy)))
            }
            Some((SyncRequestMode::RefreshAndPersist, _)) => {
                let message = "this server has refreshOnly: set `type=refreshOnly` and an interval";
                self.failed(
                    Operation::Search,
                    LdapResultCode::UnwillingToPerform,
                    message,
                )
            }
        }
    }

    /// An entry for a copy of the state `csn`.
    pub fn synchronised(
        &self,
        search: &Search,
        entry: &Entry,
        view: View,
        late: &Fetched,
        csn: &str,
    ) -> Vec<u8> {
        let mut result = search.result(entry, view, late);
        let controls = sync::state(entry, &mut result, csn).into_iter().collect();
        let entry = LdapOp::SearchResultEntry(result);
        encoded(LdapMsg::new_with_ctrls(search.id, entry, controls))
    }

    /// A refresh has ended: the copy is that of `csn`.
    pub fn refreshed(&self, search: &Search, csn: &str) -> Vec<u8> {
        let done = LdapOp::SearchResultDone(result(LdapResultCode::Success, ""));
        let controls = search.copy.iter().map(|copy| copy.done(csn)).collect();
        encoded(LdapMsg::new_with_ctrls(search.id, done, controls))
    }

    /// An entry that a search found.
    pub fn found(&self, search: &Search, entry: &Entry, view: View, late: &Fetched) -> Vec<u8> {
        let entry = search.result(entry, view, late);
        encoded(LdapMsg::new(search.id, LdapOp::SearchResultEntry(entry)))
    }

    /// A search has ended.
    pub fn done(&self, search: &Search, code: LdapResultCode, message: &str) -> Vec<u8> {
        let done = LdapOp::SearchResultDone(result(code, message));
        let controls = match search.page {
            Some(Page { .. }) => vec![LdapControl::SimplePagedResults {
                // The number of all results, which is not known (RFC 2696, section 3).
                size: 0,
                cookie: search.cookie(),
            }],
            None => Vec::new(),
        };
        encoded(LdapMsg::new_with_ctrls(search.id, done, controls))
    }

    fn compare(&self, request: LdapCompareRequest) -> Step {
        let name = match Name::parse(&request.dn) {
            Ok(name) => name,
            Err(error) => {
                let code = LdapResultCode::InvalidDNSyntax;
                return self.failed(Operation::Compare, code, &error.to_string());
            }
        };
        let attribute = schema::by_name(&request.atype);
        let text = String::from_utf8(request.val).ok();
        let prepared = attribute.zip(text);
        Step::Compare(Compare {
            id: self.id,
            name,
            attribute,
            prepared: prepared.and_then(|(attribute, text)| attribute.syntax.prepared(&text)),
        })
    }

    /// The answer to a comparison for an asker with `view`.
    pub fn compared(&self, compare: &Compare, tree: &Tree, view: View) -> Vec<u8> {
        let entry = tree.find(&compare.name.key()).map(|(_, entry)| entry);
        let entry = entry.filter(|entry| entry.is_visible(view));
        let values = compare.attribute.zip(entry);
        let values = values.and_then(|(attribute, entry)| entry.values(attribute, view));
        let code = match (entry, values) {
            (None, _) => LdapResultCode::NoSuchObject,
            (_, None) => LdapResultCode::NoSuchAttribute,
            (_, Some(values)) => {
                let same = values
                    .iter()
                    .any(|value| Some(&value.prepared) == compare.prepared.as_ref());
                match same {
                    true => LdapResultCode::CompareTrue,
                    false => LdapResultCode::CompareFalse,
                }
            }
        };
        let result = LdapOp::CompareResult(result(code, ""));
        encoded(LdapMsg::new(compare.id, result))
    }

    fn extended(&mut self, request: &LdapExtendedRequest) -> Step {
        let (code, message) = match request.name.as_str() {
            WHO_AM_I => return Step::WhoAmI,
            // RFC 4511, section 4.14.2: TLS is there already.
            START_TLS => (
                LdapResultCode::OperationsError,
                "TLS protects this connection already",
            ),
            MODIFY_PASSWORD => (LdapResultCode::UnwillingToPerform, NO_PASSWORDS),
            _ => (
                LdapResultCode::ProtocolError,
                "this extended operation is not supported",
            ),
        };
        self.failed(Operation::Extended, code, message)
    }

    /// The answer to "Who am I?" (RFC 4532).
    pub fn who_am_i(&self) -> Vec<u8> {
        let name = self.bound.as_ref().map(|bound| format!("dn:{}", bound.dn));
        self.answer(LdapOp::ExtendedResponse(LdapExtendedResponse {
            res: result(LdapResultCode::Success, ""),
            name: None,
            value: Some(name.unwrap_or_default().into_bytes()),
        }))
    }

    fn answer(&self, operation: LdapOp) -> Vec<u8> {
        encoded(LdapMsg::new(self.id, operation))
    }

    /// Answers a request of `operation` that is not carried out.
    fn failed(&self, operation: Operation, code: LdapResultCode, message: &str) -> Step {
        let result = result(code, message);
        Step::Answer(self.answer(match operation {
            Operation::Bind => LdapOp::BindResponse(LdapBindResponse {
                res: result,
                saslcreds: None,
            }),
            Operation::Search => LdapOp::SearchResultDone(result),
            Operation::Modify => LdapOp::ModifyResponse(result),
            Operation::Add => LdapOp::AddResponse(result),
            Operation::Delete => LdapOp::DelResponse(result),
            Operation::ModifyName => LdapOp::ModifyDNResponse(result),
            Operation::Compare => LdapOp::CompareResult(result),
            // These two are handled before anything can fail.
            Operation::Unbind | Operation::Abandon | Operation::Extended => {
                LdapOp::ExtendedResponse(LdapExtendedResponse {
                    res: result,
                    name: None,
                    value: None,
                })
            }
        }))
    }
}

/// The notice for a connection whose next octets are not a message of an acceptable size.
#[must_use]
pub fn not_a_message() -> Vec<u8> {
    let message = format!("not an LDAP message of at most {MAX_MESSAGE} octets");
    notice(LdapResultCode::ProtocolError, &message)
}

fn end(code: LdapResultCode, message: &str) -> Step {
    Step::End(notice(code, message))
}

fn notice(code: LdapResultCode, message: &str) -> Vec<u8> {
    let response = LdapExtendedResponse {
        res: result(code, message),
        name: Some(DISCONNECTION.to_owned()),
        value: None,
    };
    encoded(LdapMsg::new(0, LdapOp::ExtendedResponse(response)))
}

fn result(code: LdapResultCode, message: &str) -> LdapResult {
    LdapResult {
        code,
        matcheddn: String::new(),
        message: message.to_owned(),
        referral: Vec::new(),
    }
}

fn encoded(message: LdapMsg) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    // Writing to memory does not fail.
    let _ = LdapCodec::default().encode(message, &mut bytes);
    bytes.to_vec()
}

/// A critical control that the operation does not have (RFC 4511, section 4.1.11).
fn unknown_critical(envelope: &Envelope) -> Option<&str> {
    let known: &[&str] = match envelope.operation {
        Operation::Search => &[PAGED, MANAGE_DSA_IT, SYNC],
        Operation::Compare => &[MANAGE_DSA_IT],
        _ => &[],
    };
    let mut critical = envelope.critical.iter().map(String::as_str);
    critical.find(|control| !known.contains(control))
}
