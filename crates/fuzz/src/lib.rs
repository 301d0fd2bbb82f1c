//! Properties of everything that reads bytes from outside, as functions of those bytes.
//!
//! The tests run each over its corpus and over seeded mutations of it; `scripts/fuzz` runs the same
//! functions under libFuzzer, which looks for inputs by coverage. An input that it finds becomes a small
//! file in `corpus/TARGET` and is replayed for ever.
//!
//! ```
//! let (_, run) = fuzz::TARGETS.iter().find(|(name, _)| *name == "manifest").unwrap();
//! run(b"{}");
//! ```

pub mod support;
pub mod targets;

/// A property of bytes from outside.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("accelerator", targets::accelerator::run),
    ("acme_request", targets::acme_request::run),
    ("block", targets::block::run),
    ("certificates", targets::certificates::run),
    ("cmp_message", targets::cmp_message::run),
    ("cms", targets::cms::run),
    ("ibc_container", targets::ibc_container::run),
    ("ike_daemon", targets::ike_daemon::run),
    ("ike_eap", targets::ike_eap::run),
    ("ike_exchange", targets::ike_exchange::run),
    ("ike_message", targets::ike_message::run),
    ("ldap", targets::ldap::run),
    ("leaf", targets::leaf::run),
    ("manifest", targets::manifest::run),
    ("openid_request", targets::openid_request::run),
    ("packets", targets::packets::run),
    ("profile", targets::profile::run),
    ("provider", targets::provider::run),
    ("receipt", targets::receipt::run),
    ("replay", targets::replay::run),
    ("scep_message", targets::scep_message::run),
    ("spd", targets::spd::run),
    ("tiles", targets::tiles::run),
    ("trust_bundle", targets::trust_bundle::run),
    ("upload", targets::upload::run),
];
