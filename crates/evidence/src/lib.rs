#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have clocks"))]
//! Sealed evidence: blocks, receipts, the spool that holds them, and packages for a court.
//!
//! A camera *seals* what it saw ([`seal`]): facts and the hashes of all media go into a
//! [`manifest`], the manifest is signed, and everything is encrypted to the centre in one
//! [`block`]. The block waits in the [`spool`] until the centre's signed [`receipt`] names it. The
//! centre *opens* it ([`open`]), follows each camera's [`chain`] of manifests, and can [`export`]
//! a package that others [`check`], also with `openssl` and a script alone.
//!
//! What this crate is not: it does no network, starts no threads and reads no clock (times are
//! arguments); it keeps files only in the spool and in exported packages. It verifies signatures
//! but does not decide whom to trust: certificate chains go to `pki::path`, and [`check`] gets a
//! trust file.
//!
//! Sealing and opening, with a key pair for each side:
//!
//! ```
//! use evidence::cms::RecipientKey;
//! use evidence::open::Opener;
//! use evidence::seal::{ManifestDraft, MediumSource, Sealer};
//! # use pki::{Certificate, CertificateChain, PrivateKey};
//! # use time::OffsetDateTime;
//! # fn demo(
//! #     camera_key: PrivateKey, camera_chain: CertificateChain,
//! #     centre_key: PrivateKey, centre: Certificate,
//! #     draft: ManifestDraft, picture: &[u8], now: OffsetDateTime,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let sealer = Sealer::new(camera_key, camera_chain, vec![centre.clone()])?;
//! let picture = MediumSource {
//!     name: "front.jpg".into(),
//!     media_type: "image/jpeg".into(),
//!     reader: Box::new(picture),
//! };
//! let mut block = Vec::new();
//! let sealed = sealer.seal(draft, vec![picture], now, &mut block)?;
//!
//! let opener = Opener::new(vec![RecipientKey::new(centre_key, centre)?]);
//! let mut opened = opener.open(std::io::Cursor::new(block))?;
//! assert_eq!(opened.manifest, sealed.manifest);
//! let mut picture = Vec::new();
//! opened.read_medium(0, &mut picture)?;
//! # Ok(()) }
//! ```

pub mod block;
pub mod bundle;
pub mod chain;
pub mod check;
pub mod cms;
pub mod digest;
pub mod export;
pub mod manifest;
mod names;
pub mod open;
mod package;
pub mod receipt;
pub mod seal;
pub mod spool;
