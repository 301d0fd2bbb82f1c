//! Requests for acts that need approval: kept here, with every change in the audit log before it takes effect.
//!
//! [`approval`] says what may become of a request; this module keeps it. A step goes
//!
//! ```text
//! note which step begins ─► record its event ─► change the row, drop the note
//! ```
//!
//! and what ends between the last two has an event without effect. The note says so at the next step or
//! start, as an event of its own (`request.interrupted`), so that the log tells what did not happen. Steps
//! are made one at a time; each names the version that its author saw.

mod carry;
mod changes;
mod checks;
mod error;
mod lists;
mod overdue;
mod records;
mod rights;
mod steps;
mod store;
mod taken_up;

pub use self::carry::CarryError;
pub(crate) use self::carry::names_without_unit;
pub use self::changes::NumberedChange;
pub use self::checks::{MAX_INVITATION_HOURS, MAX_INVITED_RENEWALS};
pub(crate) use self::checks::{check_account, check_invitation, check_new_key};
pub use self::error::RequestError;
pub use self::records::{
    MAX_BEGUN_PER_DAY, MAX_OPEN, MAX_OPEN_OF_ONE, MAX_VERSIONS, RequestChange, RequestContent,
    RequestCursor, RequestFilter, RequestPage, RequestRecord, RequestSummary, Wanted,
};
pub use self::steps::Step;
