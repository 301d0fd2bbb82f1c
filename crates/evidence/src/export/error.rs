//! Why a package could not be made.

use std::io;
use std::path::PathBuf;

use pki::key::KeyError;

use crate::cms::CmsError;
use crate::manifest::ManifestError;
use crate::open::OpenError;
use crate::receipt::ReceiptError;

/// Why a package could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The folder exists already.
    #[error("folder {path:?} exists already")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The manifest's or receipt's signature is not valid.
    #[error("signature of the {part} is not valid")]
    Signature {
        /// The part, of two.
        part: &'static str,
        source: CmsError,
    },
    /// The signed content is not a manifest.
    #[error("manifest is not acceptable")]
    Manifest(#[source] ManifestError),
    /// The signed content is not a receipt.
    #[error("receipt is not acceptable")]
    Receipt(#[source] ReceiptError),
    /// Two parts do not belong together.
    #[error("{part} does not match the rest of the package")]
    Inconsistent {
        /// The part that differs.
        part: &'static str,
    },
    /// A medium could not be decrypted.
    #[error("cannot read medium {index}")]
    Medium {
        /// Its index, from 0.
        index: usize,
        source: OpenError,
    },
    /// The centre's key could not sign the package.
    #[error("cannot sign the package")]
    Sign(#[source] KeyError),
    /// A certificate or structure could not be encoded.
    #[error("cannot encode {part}")]
    Encode { part: &'static str },
    /// The folder could not be written.
    #[error("cannot write the package")]
    Io(#[source] io::Error),
}

impl ExportError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Exists { .. } => "export-exists",
            Self::Signature { .. } => "export-signature",
            Self::Manifest(_) => "export-manifest",
            Self::Receipt(_) => "export-receipt",
            Self::Inconsistent { .. } => "export-inconsistent",
            Self::Medium { .. } => "export-medium",
            Self::Sign(_) => "export-sign",
            Self::Encode { .. } => "export-encode",
            Self::Io(_) => "export-io",
        }
    }
}
