//! Keys of the control channel: one for each device, which the server unwraps (tls-crypt-v2).
//!
//! ```text
//! server key = Ke (64 bytes, 32 in use) || Ka (64 bytes, 32 in use)
//! T          = HMAC-SHA256(Ka, length || Kc || metadata)
//! client key = Kc (256 bytes) || T || AES-256-CTR(Ke, T[0..16], Kc || metadata) || length
//! ```
//!
//! The length (16 bits) is that of everything after the first Kc. OpenVPN's `doc/tls-crypt-v2.txt` has the format.

use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Bytes of a server's key (from the format).
pub const SERVER_KEY_LEN: usize = 128;
/// Bytes of a device's key before it is wrapped (from the format).
pub const DEVICE_KEY_LEN: usize = 256;
/// Offset of Ka in a server's key, and the bytes of Ke and Ka that are in use (from the format).
const KA_AT: usize = 64;
const HALF_LEN: usize = 32;
/// Bytes of the tag T, and of the part of it that is the counter's start (from the format).
const TAG_LEN: usize = 32;
const IV_LEN: usize = 16;
/// Bytes of metadata without their type at most (from the format).
const MAX_METADATA: usize = 733;
/// Type of metadata that is not OpenVPN's own (from the format).
const USER_METADATA: u8 = 0;

const SERVER_LABEL: &str = "OpenVPN tls-crypt-v2 server key";
const DEVICE_LABEL: &str = "OpenVPN tls-crypt-v2 client key";
/// Content of our keys' metadata.
const DEVICE: &str = "device=";

/// Why a key cannot be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlKeyError {
    #[error("it is no tls-crypt-v2 key of a server")]
    Damaged,
    #[error("the device's name is too long for a key")]
    Name,
    #[error("the cryptographic library refused the key")]
    Library,
}

/// A server's key, with which it unwraps those of devices. Who has it can make keys for devices.
pub struct ServerKey(Zeroizing<[u8; SERVER_KEY_LEN]>);

impl ServerKey {
    #[must_use]
    pub fn new(random: &[u8; SERVER_KEY_LEN]) -> Self {
        Self(Zeroizing::new(*random))
    }

    /// Reads a key in OpenVPN's format.
    ///
    /// # Errors
    /// [`ControlKeyError::Damaged`].
    pub fn from_pem(text: &str) -> Result<Self, ControlKeyError> {
        let bytes = decode(text, SERVER_LABEL).ok_or(ControlKeyError::Damaged)?;
        let key: &[u8; SERVER_KEY_LEN] = bytes
            .as_slice()
            .try_into()
            .map_err(|_| ControlKeyError::Damaged)?;
        Ok(Self::new(key))
    }

    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        encode(SERVER_LABEL, self.0.as_slice())
    }

    /// The key of a device in OpenVPN's format. The server learns from it which device it belongs to, before anything else of
    /// the device is read.
    ///
    /// # Errors
    /// [`ControlKeyError::Name`], [`ControlKeyError::Library`].
    pub fn device_key(
        &self,
        random: &[u8; DEVICE_KEY_LEN],
        device: &str,
    ) -> Result<Zeroizing<String>, ControlKeyError> {
        let said = format!("{DEVICE}{device}");
        if said.len() > MAX_METADATA {
            return Err(ControlKeyError::Name);
        }
        let mut wrapped = Zeroizing::new(Vec::with_capacity(1024));
        wrapped.extend_from_slice(random);
        wrapped.push(USER_METADATA);
        wrapped.extend_from_slice(said.as_bytes());
        let len = TAG_LEN.saturating_add(wrapped.len()).saturating_add(2);
        let len = u16::try_from(len).map_err(|_| ControlKeyError::Name)?;
        let tag = self.tag(len, &wrapped);
        self.encrypt(&tag, &mut wrapped)?;
        let mut key = Zeroizing::new(Vec::with_capacity(2048));
        key.extend_from_slice(random);
        key.extend_from_slice(tag.as_ref());
        key.extend_from_slice(&wrapped);
        key.extend_from_slice(&len.to_be_bytes());
        Ok(encode(DEVICE_LABEL, &key))
    }

    fn tag(&self, len: u16, plain: &[u8]) -> hmac::Tag {
        let key = self.0.get(KA_AT..KA_AT + HALF_LEN).unwrap_or_default();
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
        context.update(&len.to_be_bytes());
        context.update(plain);
        context.sign()
    }

    fn encrypt(&self, tag: &hmac::Tag, bytes: &mut [u8]) -> Result<(), ControlKeyError> {
        let key = self.0.get(..HALF_LEN).unwrap_or_default();
        let key = UnboundCipherKey::new(&AES_256, key).map_err(|_| ControlKeyError::Library)?;
        let key = EncryptingKey::ctr(key).map_err(|_| ControlKeyError::Library)?;
        let iv = tag.as_ref().first_chunk::<IV_LEN>().copied();
        let iv = FixedLength::from(iv.unwrap_or_default());
        key.less_safe_encrypt(bytes, EncryptionContext::Iv128(iv))
            .map(drop)
            .map_err(|_| ControlKeyError::Library)
    }
}

/// The device of a key that the server has unwrapped: its metadata and their type, as OpenVPN gives them to
/// `tls-crypt-v2-verify`.
#[must_use]
pub fn device_of(kind: &str, metadata: &[u8]) -> Option<String> {
    let said = std::str::from_utf8(metadata).ok()?;
    let device = said.strip_prefix(DEVICE)?;
    let is_name = !device.is_empty() && !device.chars().any(char::is_control);
    (kind == "0" && is_name).then(|| device.to_owned())
}

fn encode(label: &str, bytes: &[u8]) -> Zeroizing<String> {
    const LINE: usize = 64;
    // What a growing string leaves behind is not wiped.
    let room = bytes.len().saturating_mul(2).saturating_add(256);
    let mut text = Zeroizing::new(String::with_capacity(room));
    let body = Zeroizing::new(STANDARD.encode(bytes));
    text.push_str(&format!("-----BEGIN {label}-----\n"));
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, others) = rest.split_at(LINE.min(rest.len()));
        text.push_str(line);
        text.push('\n');
        rest = others;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

fn decode(text: &str, label: &str) -> Option<Zeroizing<Vec<u8>>> {
    let body = text
        .trim()
        .strip_prefix(&format!("-----BEGIN {label}-----"));
    let body = body?.strip_suffix(&format!("-----END {label}-----"))?;
    let mut plain = Zeroizing::new(String::with_capacity(body.len()));
    plain.extend(body.chars().filter(|c| !c.is_ascii_whitespace()));
    STANDARD.decode(plain.as_bytes()).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by OpenVPN 2.6.14: `--genkey tls-crypt-v2-server`, then `--tls-crypt-v2 … --genkey tls-crypt-v2-client` with the
    /// metadata `device=camera-17`.
    const SERVER: &str = "-----BEGIN OpenVPN tls-crypt-v2 server key-----
vJwprT7hbzT1RDHgKMVWkfcGGID/Xr5mIDbgI0EESfX9hRK95r9uj7MV9naQ59Re
tHRdm4kmoKhuQ4LBD6VbhsCqMKZBHUbwJW6DvseyeeuTlHPjWjUHCHnBgR/TvezY
lFHdj4PbTd1FXF/pRfnf0diUZXEpCRPe1tsU9nRtkqY=
-----END OpenVPN tls-crypt-v2 server key-----
";
    const CLIENT: &str = "-----BEGIN OpenVPN tls-crypt-v2 client key-----
G45l+2C5tvtWCi0bBMJGugLY2BSTbQOA7Q6cBgjZsHJRqmEasdvKaPI2D3NVbYf8
dEbxNrl3J5ntWb2BQMCrhFJgGofG2kJYaGWad0FJbwdaf1PdYNu9HnDUujzbn3lC
IBnQU0toutAsi4lvuqpN+5OVxUNvIMNWl4A5ALqdsWWcyrtLgSfD9YKYZ3o4s0VJ
yyTFlalVLwCWeU3uIbBJ5jwy35CRHFxh8HV00GI0b1xM40GrEB5FVd86ki06x+jX
/sQBpWzutRk9d13G65/m2oDjkujAdqjWXP6zZ07oTPgicvfg0KKkWFGwU9ROTPGM
r0cP+qwZ/Lt0dNwE0BUIjaoptG9cu+mxNySVef/qX0w3xi+kIvwdq0uE8t8q791u
pCZw3etSm5lFmJRN9FSrhEMFnVwcuk7AnT7CNxecBLl3zeYxbg5KABgg5dgphU2S
hdP7vXAULnnGagisi5eb0RT7qOdcX0U3LzISTkGo33Ilip52MA6ouSvr1bmySF1T
HgDjhH2BETk3NbDupuJn382fX8KbgEV8I1O61jXEoGruszXXHP5/gpKuCpB9+vMx
Qkc1y3ejJp7FL5baIBV/QcCHuEj3kll018glH78m8HLEXlSjaFGBdSZxXEclUKu9
4yC0bLy6n7y8Fv0RofUJtAJRxl3Y+CTP0VRZ367XJsUllC31VhIw8JzrQc73Hpj9
mXRhcxuJ49Qh85K7SRI240xjl15PwIceS4FKbnKvYAtDATM=
-----END OpenVPN tls-crypt-v2 client key-----
";

    #[test]
    fn device_key_is_what_openvpn_makes_of_the_same_random_bytes() {
        let server = ServerKey::from_pem(SERVER).unwrap();
        assert_eq!(server.to_pem().as_str(), SERVER);
        let theirs = decode(CLIENT, DEVICE_LABEL).unwrap();
        let random = theirs[..DEVICE_KEY_LEN].try_into().unwrap();
        let ours = server.device_key(random, "camera-17").unwrap();
        assert_eq!(ours.as_str(), CLIENT);
        assert_ne!(*ours, *server.device_key(random, "camera-18").unwrap());
        let other = ServerKey::new(&[7; SERVER_KEY_LEN]);
        assert_ne!(*ours, *other.device_key(random, "camera-17").unwrap());
    }

    #[test]
    fn server_key_that_is_none_and_name_that_does_not_fit_are_refused() {
        let short = encode(SERVER_LABEL, &[1; SERVER_KEY_LEN - 1]);
        for bad in ["", CLIENT, short.as_str(), "-----BEGIN", &SERVER[..120]] {
            assert!(ServerKey::from_pem(bad).is_err(), "{bad}");
        }
        let server = ServerKey::new(&[7; SERVER_KEY_LEN]);
        let key = |len: usize| server.device_key(&[1; DEVICE_KEY_LEN], &"x".repeat(len));
        let most = MAX_METADATA - DEVICE.len();
        assert!(key(most).is_ok());
        assert_eq!(key(most + 1).unwrap_err(), ControlKeyError::Name);
    }

    #[test]
    fn metadata_of_others_name_no_device() {
        assert_eq!(device_of("0", b"device=a").as_deref(), Some("a"));
        let others: [(&str, &[u8]); 6] = [
            ("1", b"device=a"),
            ("", b"device=a"),
            ("0", b"device="),
            ("0", b"a"),
            ("0", b"device=a\nb"),
            ("0", b"device=\xff"),
        ];
        for (kind, metadata) in others {
            assert_eq!(device_of(kind, metadata), None, "{kind} {metadata:?}");
        }
    }
}
