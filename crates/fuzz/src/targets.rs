//! The targets, a module each: a function of any bytes that panics when a property does not hold.

pub mod accelerator;
pub mod acme_request;
pub mod block;
pub mod certificates;
pub mod cmp_message;
pub mod cms;
pub mod ibc_container;
pub mod ike_daemon;
pub mod ike_eap;
pub mod ike_exchange;
pub mod ike_message;
pub mod ldap;
pub mod leaf;
pub mod manifest;
pub mod openid_request;
pub mod packets;
pub mod profile;
pub mod provider;
pub mod receipt;
pub mod replay;
pub mod scep_message;
pub mod spd;
pub mod tiles;
pub mod trust_bundle;
pub mod upload;
