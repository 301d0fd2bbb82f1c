//! What the host with the registry tells the others, as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evidence::digest::Sha256Digest;
use serde::{Deserialize, Serialize};

pub(super) const TRUST: &str = "/site/v1/trust";
pub(super) const ISSUE: &str = "/site/v1/issue";
pub(super) const OCSP: &str = "/site/v1/ocsp";
pub(super) const ANNOUNCE: &str = "/site/v1/recipients";

/// Bytes of a question at most: a few certificates.
pub(super) const LONGEST_QUESTION: usize = 64 << 10;
/// Bytes of an answer at most: the devices' list with 200 000 entries.
pub(super) const LONGEST_ANSWER: usize = 16 << 20;

/// Asks for authorities and lists, if they are others than those that the asker knows.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrustQuestion {
    /// The tag of the last answer.
    pub(super) known: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TrustAnswer {
    pub(super) tag: String,
    /// Whether the services' authority issues now.
    pub(super) issues: bool,
    /// [`tag_of`] the sealing certificates of the asker that are kept; empty without.
    pub(super) recipients: String,
    /// None if the tag is the known one.
    pub(super) content: Option<TrustContent>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TrustContent {
    pub(super) root: Base64,
    pub(super) authorities: Vec<ToldAuthority>,
    pub(super) lists: Vec<List>,
}

/// Tells two texts apart: the SHA-256 in hexadecimal digits.
pub(super) fn tag_of(text: &str) -> String {
    Sha256Digest::of(text.as_bytes()).to_string()
}

/// An authority of the site.
#[derive(Serialize, Deserialize)]
pub(super) struct ToldAuthority {
    pub(super) id: String,
    pub(super) certificate: Base64,
    /// Whether cameras know it.
    pub(super) is_told: bool,
    /// Whether certificates by it are to be replaced.
    pub(super) is_replaced: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct List {
    /// The authority; the root without one.
    pub(super) of: Option<String>,
    pub(super) der: Base64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OwnName {
    Server,
    Receipts,
    TrustBundle,
    Sealing(u32),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IssueQuestion {
    pub(super) own: OwnName,
    /// The public key as `SubjectPublicKeyInfo` in DER.
    pub(super) spki: Base64,
    /// Of a server.
    pub(super) names: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum IssueAnswer {
    Chain(Vec<Base64>),
    Refused { message: String, hint: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OcspQuestion {
    pub(super) certificate: Base64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct OcspAnswer {
    pub(super) response: Option<Base64>,
}

/// The certificates that cameras seal to, which the centre's host has.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Announcement {
    pub(super) recipients_pem: String,
}

/// Octets, written in base64.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Base64(pub(super) Vec<u8>);

impl TryFrom<String> for Base64 {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        STANDARD.decode(text).map(Self)
    }
}

impl From<Base64> for String {
    fn from(octets: Base64) -> Self {
        STANDARD.encode(octets.0)
    }
}
