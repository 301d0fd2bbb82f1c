//! Passwords: Argon2id verifiers and a policy; `attempts` bounds how often they may be tried.

use std::net::IpAddr;
use std::sync::OnceLock;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use store::sqlx;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::{Directory, DirectoryError, Entry};

/// OWASP Password Storage Cheat Sheet, Argon2id: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// NIST SP 800-63B-4 asks for 15 characters where a password is the only factor; password logins
/// here open nothing above level 1, so 12 stand as the least.
const MIN_LENGTH: usize = 12;
/// Longer input is refused before it is hashed.
const MAX_LENGTH: usize = 256;

/// A password that must not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordPolicyError {
    #[error("the password has {0} characters, at least {MIN_LENGTH} are needed")]
    TooShort(usize),
    #[error("the password has more than {MAX_LENGTH} bytes")]
    TooLong,
    /// Contains the user id.
    #[error("the password contains the user id")]
    ContainsUserId,
    #[error("the password repeats one character")]
    Monotonous,
}

/// Why somebody was not logged in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// Name or password is wrong; which, is not said.
    #[error("the name or the password is wrong")]
    Wrong,
    #[error("too many failed attempts; try again in {0} seconds")]
    Locked(i64),
    /// The person may not log in.
    #[error("this account is disabled")]
    Disabled,
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

impl LoginError {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Wrong => "wrong-password",
            Self::Locked(_) => "locked-out",
            Self::Disabled => "account-disabled",
            Self::Directory(_) => "directory-failed",
        }
    }
}

pub(crate) fn check_policy(uid: &str, password: &str) -> Result<(), PasswordPolicyError> {
    let count = password.chars().count();
    if count < MIN_LENGTH {
        return Err(PasswordPolicyError::TooShort(count));
    }
    if password.len() > MAX_LENGTH {
        return Err(PasswordPolicyError::TooLong);
    }
    if password.to_lowercase().contains(&uid.to_lowercase()) {
        return Err(PasswordPolicyError::ContainsUserId);
    }
    let mut chars = password.chars();
    let first = chars.next();
    if chars.all(|c| Some(c) == first) {
        return Err(PasswordPolicyError::Monotonous);
    }
    Ok(())
}

fn hasher() -> Argon2<'static> {
    // The constants are within the bounds that `Params` checks, so the default is never taken.
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).unwrap_or_default();
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

pub(crate) fn hash(password: &str) -> Result<String, argon2::password_hash::Error> {
    Ok(hasher().hash_password(password.as_bytes())?.to_string())
}

fn matches(verifier: &str, password: &str) -> bool {
    PasswordHash::new(verifier)
        .is_ok_and(|phc| hasher().verify_password(password.as_bytes(), &phc).is_ok())
}

/// The verifier that unknown names are checked against.
fn dummy() -> &'static str {
    static DUMMY: OnceLock<String> = OnceLock::new();
    DUMMY.get_or_init(|| hash("nobody has this password").unwrap_or_default())
}

pub(crate) async fn login(
    directory: &Directory,
    uid: &str,
    password: &str,
    from: Option<IpAddr>,
    now: OffsetDateTime,
) -> Result<Entry, LoginError> {
    if password.len() > MAX_LENGTH || uid.len() > 64 {
        return Err(LoginError::Wrong);
    }
    directory
        .attempts
        .begin(uid, from, now)
        .map_err(LoginError::Locked)?;
    let known = verifier_of(directory, uid).await?;
    let exists = known.is_some();
    let (verifier, epoch) = known.unzip();
    let password = Zeroizing::new(password.to_owned());
    let check = move || {
        let verifier = verifier.as_deref().unwrap_or_else(|| dummy());
        matches(verifier, &password)
    };
    let checked = directory.passwords.run(check).await;
    let fits = checked.map_err(DirectoryError::from)?;
    if !exists || !fits {
        return Err(LoginError::Wrong);
    }
    directory.attempts.succeeded(uid, from);
    match directory.get(uid).await? {
        // The epoch of the password that was checked: one set meanwhile has opened nothing.
        Some(person) if person.active => Ok(Entry {
            person,
            epoch: epoch.unwrap_or_default(),
        }),
        _ => Err(LoginError::Disabled),
    }
}

/// The verifier to check against and its epoch, `None` for an unknown name. Nothing is written: the
/// time of that would tell whether there is such a name.
async fn verifier_of(
    directory: &Directory,
    uid: &str,
) -> Result<Option<(String, i64)>, DirectoryError> {
    Ok(sqlx::query_as(
        "SELECT w.verifier, p.epoch
         FROM passwords w JOIN people p ON p.uid = w.uid WHERE w.uid = ?",
    )
    .bind(uid)
    .fetch_optional(directory.sql.read())
    .await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_refuses_on_both_sides_of_its_bounds() {
        let refused = |password: &str| check_policy("ana", password).unwrap_err();
        assert_eq!(refused("elevenchars"), PasswordPolicyError::TooShort(11));
        assert!(check_policy("ana", "twelve chars").is_ok());
        assert!(check_policy("ana", &"xy".repeat(128)).is_ok());
        assert_eq!(refused(&"xy".repeat(129)), PasswordPolicyError::TooLong);
        assert_eq!(
            refused("hello-ANA-hello"),
            PasswordPolicyError::ContainsUserId
        );
        assert_eq!(refused("zzzzzzzzzzzzzz"), PasswordPolicyError::Monotonous);
    }

    #[test]
    fn verifiers_are_argon2id_with_the_stated_cost() {
        let verifier = hash("correct horse battery").unwrap();
        assert!(
            verifier.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{verifier}"
        );
        assert!(matches(&verifier, "correct horse battery"));
        assert!(!matches(&verifier, "correct horse batterz"));
        assert!(!matches("nonsense", "correct horse battery"));
    }
}
