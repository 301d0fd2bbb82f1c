//! Enrolment over the Simple Certificate Enrolment Protocol (RFC 8894), of routers and cameras that know no other.
//!
//! ```text
//! PKCSReq     signed with the new key; code of an invitation or device as challenge password ─► as EST's simpleenroll
//! RenewalReq  signed with the present certificate                                          ─► as EST's simplereenroll
//! ```
//!
//! Who gets which certificate is said by `invited` and `enrol`, as for every other protocol; here are the messages. A request
//! that comes again gives the same certificate for the same key, and nothing for another one, so it needs no memory of
//! transactions. Nothing is ever pending, and lists and certificates are to be had over HTTP: `CertPoll`, `GetCert` and
//! `GetCRL` are refused.

mod http;
mod refusal;
mod respond;
mod serve;
mod state;

pub use self::http::router;
pub use self::refusal::ScepRefusal;
pub use self::respond::ScepError;
pub(crate) use self::state::Scep;
