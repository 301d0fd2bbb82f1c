//! A site: its parts, its roles, and what connects them.
//!
//! [`parts`] opens the parts of a data folder in the order in which they need one another, `roles` brings them into a process,
//! and [`up`] runs all of them. [`control`] carries out the orders of commands, on a running site or on its folder.
#![forbid(unsafe_code)]

pub mod administration;
pub mod administrator;
mod admission;
pub mod at_rest;
pub mod audit_host;
pub mod authorities;
mod authority_keys;
pub mod authority_texts;
pub mod clock;
pub mod config;
pub mod console;
pub mod control;
pub mod credentials;
mod databases;
mod disabled_people;
mod export;
mod failure;
mod forwarding;
pub mod founding;
pub mod gate;
pub mod giver;
mod issuing;
pub mod keys;
pub mod last_checkpoint;
mod ldap_services;
mod log_proof;
pub mod notices;
pub mod openid_keys;
mod openvpn;
pub mod orders;
pub mod owner;
pub mod parts;
mod peers;
mod portal_services;
pub mod read;
pub mod registration;
mod renewal;
mod request_session;
mod rights;
mod roles;
pub mod run;
pub mod service_orders;
mod settings;
mod silence;
pub mod site_control;
pub mod trust_bundle;
pub mod trust_state;
mod uninterrupted;
pub mod up;

pub use parts::Site;
