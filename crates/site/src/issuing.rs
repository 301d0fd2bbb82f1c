//! The site's authorities as its services need them: what others are to trust, and certificates for keys of the services.
//!
//! A registry of this host answers for itself. A host without one asks the host that has it, over a connection between peers
//! ([`Remote`]), and knows of authorities and lists what that one said last.

mod door;
mod local;
mod remote;
mod seam;
mod wire;

pub(crate) use door::{Announced, Hosts, router};
pub(crate) use remote::Remote;
pub(crate) use seam::{Issuing, Own};
