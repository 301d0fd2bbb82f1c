//! The directory as LDAP shows it (RFC 4511 to 4519): entries, filters, and the protocol of one connection.
//!
//! No sockets, no clock, no database. [`Tree`] holds the entries of a site, made from [`Content`]. [`Session`] takes the
//! messages of one connection and returns either answers or a [`Step`] that its shell carries out: verify a bind, or run a
//! [`Search`]. What an asker may see is a [`View`], which the shell obtains from the access rules for each request; entries
//! and attributes outside of it do not exist for filters, results and comparisons.
//!
//! The directory is read only. Every write gets `unwillingToPerform`.
//!
//! Start with [`Session::receive`].
#![forbid(unsafe_code)]

mod content;
mod filter;
mod frame;
mod name;
mod schema;
mod search;
mod session;
mod sync;
#[cfg(test)]
mod tests;
mod tree;

pub use content::{Authority, Content, Member, entry_uuid};
pub use frame::{Framing, MAX_MESSAGE, frame_length};
pub use ldap3_proto::proto::LdapResultCode;
pub use name::{Name, NameError, escaped};
pub use schema::View;
pub use search::{Batch, Fetched, Search};
pub use session::{Bound, Compare, Proof, Session, Step, not_a_message};
pub use sync::ContentHash;
pub use tree::{Entry, Late, Tree};
