#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have clocks"))]
//! Keys, certificates, and the decisions about them.
//!
//! This crate makes and validates everything X.509 in Cordon: private keys ([`key`]), the certificate
//! profiles of the two-level hierarchy ([`profile`], [`issue`]), revocation lists ([`crl`]) and the
//! shared revocation status ([`status`]), OCSP responses and a client for them ([`ocsp`]), validation of a peer's chain down to an
//! [`path::Identity`] with its clearance ([`path`]), TLS configurations built on that ([`tls`]), and
//! the formats in which keys and certificates travel ([`csr`], [`crmf`], [`cmp`], [`pkcs7`], [`pkcs12`], [`file`]).
//!
//! It is *not* a registration authority: who gets which certificate, and the memory of what was
//! issued, is the business of the crate `registry`. Nothing here opens a socket, starts a thread or
//! reads the clock; `now` is an argument. The only files touched are those named in calls to
//! [`file`]. (rustls reads the clock in handshakes; that is outside the core.)
//!
//! The hierarchy: a self-signed root, needed only to set up, signs three issuing authorities, for
//! users, devices and services. *What* a certificate's holder is follows from which of the three
//! signed it. Authorities have P-384 keys, leaves P-256, by default; RSA and Ed25519 can be chosen.
//!
//! Clearance (levels 0 to 4) stands in certificates as RFC 5913 has it and as the plain integer
//! extension `lvl` of the published profile; each authority's certificate bounds what it may grant.
//! The extension with that bound is not critical, so that validators which do not know it still
//! accept the chain; ours enforce it. See [`oid::ExtensionArc`] for the identifiers to replace
//! before use, and [`profile`] for two points where the published profile meets a standard.
//!
//! # Example
//!
//! ```
//! use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
//! use pki::name::Subject;
//! use pki::oid::ExtensionArc;
//! use pki::path::{Purpose, TrustStore};
//! use pki::profile::{CaKind, Profile};
//! use pki::{CertificateChain, Clearance, KeyAlgorithm, PrivateKey};
//! use time::{Duration, macros::datetime};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = datetime!(2026-11-21 12:00 UTC);
//! let arc = ExtensionArc::default();
//! let request = |profile, name: &str, key: &PrivateKey, days| {
//!     let validity = Validity::starting(now, Duration::days(days));
//!     CertificateRequest::new(profile, Subject::new(name), key.spki(), validity)
//! };
//!
//! // The root signs the authority for devices, which may grant clearances up to "secret".
//! let key = PrivateKey::generate(KeyAlgorithm::EcdsaP384)?;
//! let root = request(Profile::Root, "Root CA", &key, 7300);
//! let root = CertificateAuthority::create_root(&root, key, arc)?;
//! let key = PrivateKey::generate(KeyAlgorithm::EcdsaP384)?;
//! let mut devices = request(Profile::IssuingCa(CaKind::Devices), "Devices CA", &key, 3650);
//! devices.clearance = Some(Clearance::Secret);
//! let devices = CertificateAuthority::new(root.issue(&devices, now)?, key, arc)?;
//!
//! // The authority certifies a camera.
//! let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256)?;
//! let mut camera = request(Profile::Device, "camera-17", &key, 365);
//! camera.clearance = Some(Clearance::Restricted);
//! let camera = devices.issue(&camera, now)?;
//! let chain = CertificateChain::new(vec![camera, devices.certificate().clone()])?;
//!
//! // Whoever trusts the root recognises it.
//! let trust = TrustStore::new(&[root.certificate().clone()], &[])?;
//! let identity = trust.validate(chain.ders(), Purpose::ClientDevice, now)?;
//! assert_eq!(identity.common_name, "camera-17");
//! assert_eq!(identity.clearance, Clearance::Restricted);
//! assert!(trust.validate(chain.ders(), Purpose::ClientUser, now).is_err());
//! # Ok(())
//! # }
//! ```

pub mod acme;
pub mod cert;
pub mod clearance;
pub mod cmp;
pub mod crl;
pub mod crmf;
pub mod csr;
mod extension;
pub mod file;
pub mod issue;
mod issuer_id;
pub mod key;
pub mod lint;
pub mod name;
pub mod ocsp;
pub mod oid;
pub mod path;
mod pem;
pub mod pkcs12;
pub mod pkcs7;
pub mod profile;
pub mod scep;
pub mod spki;
pub mod status;
pub mod tls;

pub use cert::{Certificate, CertificateChain};
pub use clearance::Clearance;
pub use key::{KeyAlgorithm, KeyError, Passphrase, PrivateKey};
