//! Certificates over EST (RFC 7030) for the owner of the key: `cordon id …` for people, `cordon pki renew` for gateways of
//! tunnels and for OpenVPN.
//!
//! Keys are made here and stay here. `id` has the commands of a person, [`Invitation`] is the file that a registrar hands
//! over, `folder` is where a person's key and certificate are, `est_client` is the connection.
#![forbid(unsafe_code)]

mod est_client;
mod folder;
mod id;
mod invitation;
mod renew;

pub use id::{Id, run as id};
pub use invitation::Invitation;
pub use renew::{Renew, run as renew};
