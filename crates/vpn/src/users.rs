//! Names and passwords of those who log in with EAP-MSCHAPv2.
//!
//! The protocol needs the password itself or its NT hash, MD4 without salt, which is as good as the
//! password to whoever reads it and quickly searched for short ones. The directory keeps verifiers from
//! which neither can be had, and so it should stay: these are passwords of their own, in a file that
//! only its owner may read.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use ikev2::eap::NtHash;
use zeroize::Zeroizing;

/// In front of an NT hash that stands in place of a password.
const HASHED: &[u8] = b"$NT$";
/// Longest name, in bytes.
const MAX_NAME: usize = 256;

/// Entry of one user.
#[derive(Clone)]
pub(super) struct User {
    hash: NtHash,
    /// Tells whether the password is another one than before.
    source: Zeroizing<[u8; SHA256_OUTPUT_LEN]>,
}

#[derive(Clone, Default)]
pub(super) struct Users(BTreeMap<String, User>);

/// Why a file of users cannot be used; says nothing about passwords.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UsersError {
    /// A line is not as it should be.
    #[error("line {0} is not NAME:PASSWORD or NAME:$NT$HASH")]
    Line(usize),
    /// Nobody knows which of the two counts.
    #[error("line {0}: this name was there before")]
    Twice(usize),
}

impl User {
    fn new(secret: &[u8]) -> Option<Self> {
        let hash = match secret.strip_prefix(HASHED) {
            Some(digits) => {
                let mut hash = Zeroizing::new([0; 16]);
                hex::decode_to_slice(digits, hash.as_mut()).ok()?;
                NtHash::new(*hash)
            }
            None => {
                NtHash::of_password(std::str::from_utf8(secret).ok().filter(|s| !s.is_empty())?)
            }
        };
        let mut source = Zeroizing::new([0; SHA256_OUTPUT_LEN]);
        // Compared on reload, so that the password itself need not be kept.
        source.copy_from_slice(digest(&SHA256, secret).as_ref());
        Some(Self { hash, source })
    }
}

impl Users {
    /// Reads a file: one user a line, `#` begins a line of words.
    ///
    /// # Errors
    /// [`UsersError`].
    pub(super) fn parse(file: &[u8]) -> Result<Self, UsersError> {
        let mut users = BTreeMap::new();
        for (number, line) in (1..).zip(file.split(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let colon = line.iter().position(|byte| *byte == b':');
            let parts = colon.and_then(|at| line.split_at_checked(at));
            let (name, secret) = parts.ok_or(UsersError::Line(number))?;
            let secret = secret.get(1..).unwrap_or_default();
            let name = valid_name(name).ok_or(UsersError::Line(number))?;
            let user = User::new(secret).ok_or(UsersError::Line(number))?;
            if users.insert(name, user).is_some() {
                return Err(UsersError::Twice(number));
            }
        }
        Ok(Self(users))
    }

    /// Only one: ourselves, as we log in elsewhere.
    pub(super) fn one(name: &str, password: &[u8]) -> Option<Self> {
        let name = valid_name(name.as_bytes())?;
        Some(Self(BTreeMap::from([(name, User::new(password)?)])))
    }

    /// The password of a user, hashed.
    pub(super) fn password(&self, name: &str) -> Option<NtHash> {
        self.0.get(name).map(|user| user.hash.clone())
    }

    /// Whether a user has the same password there as here.
    pub(super) fn agrees_with(&self, other: &Self, name: &str) -> bool {
        let source = |users: &Self| users.0.get(name).map(|user| user.source.clone());
        // Somebody who is in neither file has not the same password, but none.
        source(self).is_some() && source(self) == source(other)
    }
}

/// Names that are the same in the file, on the wire and in the log.
fn valid_name(name: &[u8]) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\\\"'".contains(byte);
    let valid = (1..=MAX_NAME).contains(&name.len()) && name.iter().all(plain);
    valid.then(|| String::from_utf8(name.to_vec()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_file_with_passwords_and_hashes_is_read() {
        let file = b"# ours\nanna:pass:word\r\n\nberta:$NT$8846f7eaee8fb117ad06bdd830b7586c\n";
        let users = Users::parse(file).unwrap();
        assert!(users.password("anna").is_some() && users.password("carla").is_none());
        // The hash of "password", as everybody knows it.
        let plain = Users::one("berta", b"password").unwrap();
        let shown = |users: &Users| format!("{:?}", users.password("berta"));
        assert_eq!(shown(&users), "Some(NtHash)", "hashes are not shown");
        assert!(!plain.agrees_with(&users, "berta"), "the source differs");
        let other = Users::parse(b"anna:pass:word\nberta:other").unwrap();
        assert!(users.agrees_with(&other, "anna") && !users.agrees_with(&other, "berta"));
        assert!(!users.agrees_with(&users, "carla"));
    }

    #[test]
    fn users_file_error_names_its_line() {
        let of = |file: &[u8]| Users::parse(file).err();
        for bad in [
            &b"anna"[..],
            b"anna:",
            b":secret",
            b"an na:secret",
            b"anna:$NT$00",
            b"a\\b:x",
            b"anna:\xff",
        ] {
            assert_eq!(of(&[b"berta:x\n", bad].concat()), Some(UsersError::Line(2)));
        }
        assert_eq!(of(b"anna:x\nanna:y"), Some(UsersError::Twice(2)));
        let name = [b'a'; MAX_NAME + 1];
        assert_eq!(of(&[&name[..], b":x"].concat()), Some(UsersError::Line(1)));
        assert_eq!(of(&[&name[1..], b":x"].concat()), None);
    }
}
