//! Enrolment over the Automatic Certificate Management Environment (RFC 8555), of servers of the network.
//!
//! ```text
//! newAccount   with the binding of an invitation  ─► the account is that server's, and the code is forgotten
//! newOrder     names that the invitation has      ─► ready at once: the binding has authorized it
//! finalize     first                              ─► as an invitation is used over EST
//!              later                              ─► a renewal, as many as the invitation covers
//! certificate  its first download                 ─► its server has it; what it renewed ends with the next renewal
//! revokeCert   by account or by the key           ─► revocation, if an order is enough for it
//! ```
//!
//! No challenge is ever offered: nothing that somebody writes here has the site connect to anywhere. Who gets which
//! certificate is said by `invited`, what is revoked by `revoke`, as for every other way to ask; here are the messages.
//!
//! What a client sent is not taken twice: each request has a nonce of ours, which is good once, for a quarter of an hour, and
//! until the process ends.

mod accounts;
mod answer;
mod bounds;
mod certify;
mod http;
mod nonces;
mod refusal;
mod renew;
mod renewal_info;
mod revoke;
mod serve;
mod state;

pub use self::http::router;
pub use self::refusal::AcmeRefusal;
pub(crate) use self::state::Acme;
pub use self::state::binding_key;
