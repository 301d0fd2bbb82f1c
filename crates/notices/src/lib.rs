//! Notices by mail of what becomes of registration requests.
//!
//! What others have to know of changes waits in a queue (`queue`), a file, until the relay (RFC 5321, `relay` over `smtp`) has
//! taken the mail: a crash loses no notice, and repeats one mail at most. Changes and people come from a [`Source`].
#![forbid(unsafe_code)]

mod mail;
mod message;
mod metrics;
mod queue;
mod relay;
mod sender;
mod smtp;
mod source;

pub use mail::{Mail, Security};
pub use message::Occasion;
pub use metrics::Metrics;
pub use relay::Relay;
pub use sender::{Notices, send_test};
pub use source::{Change, Source};
