//! Enrolment over the Certificate Management Protocol (RFC 9810), in the lightweight profile (RFC 9483), over HTTP (RFC 9811).
//!
//! ```text
//! ir, p10cr   protected by an invitation's code      ─► as an invitation is used over EST
//! cr, kur,
//! p10cr       protected by the present certificate   ─► as a certificate is renewed over EST
//! rr          protected by the very certificate      ─► revocation, if an order is enough for it
//! certConf    protected as its request               ─► the code is forgotten, or an unwanted certificate superseded
//! ```
//!
//! Only the messages are decided here: who gets which certificate is said by `invited` and `enrol`, and what is revoked by
//! `revoke`, as for every other way to ask. A message is protected by itself, so that TLS is not needed for it; a message
//! that holds is taken once, within [`CLOCK_WINDOW`] of our clock.
//!
//! Answers to messages whose protection holds are protected in the same way. Others are refused with a signature by the
//! site, as there is no secret that both know.

mod authenticate;
mod bounds;
mod http;
mod refusal;
mod respond;
mod serve;
mod state;
mod transactions;

pub use self::bounds::CLOCK_WINDOW;
pub use self::http::router;
pub use self::refusal::CmpRefusal;
pub use self::respond::CmpError;
pub(crate) use self::state::Cmp;
