//! Configurations for other people's IKEv2 clients: strongSwan on Linux and Android, Apple, Windows.
//!
//! Each is a text made from one [`Profile`]; files and keys are the caller's. Names come into quoted
//! places of four languages, so a profile only takes [plain](is_plain) ones.

mod android;
mod apple;
mod swanctl;
mod windows;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Proposals for IKE of all clients, in strongSwan's words: the first for ourselves, the last
/// for Windows, whose IKE has no AES-GCM.
const IKE: [&str; 3] = [
    "aes256gcm16-prfsha256-x25519",
    "aes256gcm16-prfsha256-ecp256",
    "aes256-sha256-ecp256",
];

/// The same for ESP. The group is for replacing: without it the first rekeying would fail (`docs/ikev2.md`).
const ESP: [&str; 2] = ["aes256gcm16-x25519", "aes256gcm16-ecp256"];

/// The tail of the first proposal where ML-KEM-768 is wanted on top (RFC 9370). A proposal without it stays as well: the
/// gateway may be an older one.
const ML_KEM: &str = "-ke1_mlkem768";

/// Longest name that goes into a profile, in characters.
const MAX_NAME: usize = 128;

/// A client's proof of its identity.
pub enum Credential<'a> {
    /// With a certificate; the files hold a password-protected PKCS#12, except strongSwan's on Linux.
    Certificate {
        /// The subject as text, in the order of its encoding (`O=LEA-EU, CN=camera-17`).
        subject: &'a str,
        /// PKCS#12 with the key.
        pkcs12: &'a [u8],
    },
    /// With the name and a password that the client's program asks for.
    Password,
}

/// Facts that a client needs.
pub struct Profile<'a> {
    name: &'a str,
    gateway: &'a str,
    networks: &'a [String],
    local: Option<&'a str>,
    root_der: &'a [u8],
    credential: Credential<'a>,
    uuids: [Uuid; 4],
}

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A name has characters that some client's format would read as something else.
    #[error("{0:?} has characters other than letters, digits and . - _ @ : /")]
    Name(String),
    /// There is nothing to be reached.
    #[error("no network behind the gateway is named")]
    NoNetwork,
}

/// Whether a text means itself in every format.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_@:/".contains(c);
    !text.is_empty() && text.len() <= MAX_NAME && text.chars().all(plain)
}

/// A random UUID (RFC 9562 §5.4).
#[derive(Clone, Copy)]
struct Uuid(u128);

impl Uuid {
    const fn from_random(random: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(random);
        let bits = bits & !(0xf << 76) | (4 << 76);
        Self(bits & !(0b11 << 62) | (0b10 << 62))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range));
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("-"))
    }
}

impl<'a> Profile<'a> {
    /// A profile of the client `name` (a device, or a user) for the gateway with that host name, for
    /// traffic to `networks`. The client uses `local` as its own network, or asks the gateway for an
    /// address if there is none. `random` makes the profile's UUIDs.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn new(
        (name, gateway): (&'a str, &'a str),
        networks: &'a [String],
        local: Option<&'a str>,
        root_der: &'a [u8],
        credential: Credential<'a>,
        random: [[u8; 16]; 4],
    ) -> Result<Self, ProfileError> {
        let texts = networks.iter().map(String::as_str).chain(local);
        for text in texts.chain([name, gateway]) {
            if !is_plain(text) {
                return Err(ProfileError::Name(text.to_owned()));
            }
        }
        // In quotes everywhere, but not of our making.
        if let Credential::Certificate { subject, .. } = &credential
            && subject
                .chars()
                .any(|c| c.is_control() || "\"'<>&$`".contains(c))
        {
            return Err(ProfileError::Name((*subject).to_owned()));
        }
        if networks.is_empty() {
            return Err(ProfileError::NoNetwork);
        }
        Ok(Self {
            name,
            gateway,
            networks,
            local,
            root_der,
            credential,
            uuids: random.map(Uuid::from_random),
        })
    }

    /// `swanctl.conf` for strongSwan on Linux. It names `x509/NAME.pem`, `private/NAME.key` and
    /// `x509ca/`, which the caller puts beside it.
    pub fn swanctl(&self) -> String {
        swanctl::render(self, false)
    }

    /// The same for strongSwan 6 and later, with ML-KEM; earlier ones refuse a file with algorithms that they do not know.
    pub fn swanctl_6(&self) -> String {
        swanctl::render(self, true)
    }

    /// A `.sswan` file for strongSwan's Android app.
    pub fn android(&self) -> Zeroizing<String> {
        android::render(self)
    }

    /// A `.mobileconfig` for iOS, iPadOS and macOS.
    pub fn apple(&self) -> Zeroizing<String> {
        apple::render(self)
    }

    /// A PowerShell script for Windows 10 and later. With a certificate it wants the PKCS#12 as
    /// `NAME.p12` beside it, and asks for its password.
    pub fn windows(&self) -> String {
        windows::render(self)
    }

    fn root_base64(&self) -> String {
        STANDARD.encode(self.root_der)
    }
}

#[cfg(test)]
mod tests;
