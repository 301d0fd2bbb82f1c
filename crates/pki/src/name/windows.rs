//! Accounts of Windows, as certificates for logging on name them.

use std::fmt;
use std::str::FromStr;

use der::asn1::{Any, OctetString};
use serde::{Deserialize, Serialize};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::{GeneralName, OtherName};

use super::is_mailbox;
use crate::oid::NTDS_OBJECT_SID;

/// Beginning of the identifiers of a domain's accounts ([MS-DTYP], section 2.4.2.4): what comes after is the domain, of three
/// numbers, and the account.
const OF_DOMAIN: &str = "S-1-5-21-";
/// The lowest number of an account that an administrator made; those below are built in, as the domain's administrator.
const LEAST_ACCOUNT: u32 = 1000;

/// The security identifier (SID) of a domain's account that an administrator made: `S-1-5-21-1-2-3-1104`.
///
/// No other is taken: the identifiers of the system and of built-in accounts are nobody's to log on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecurityIdentifier(String);

/// An account of Windows in both ways in which a domain controller looks it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowsAccount {
    /// User principal name: `officer@police.example`.
    pub principal: String,
    pub sid: SecurityIdentifier,
}

/// Not the identifier or principal name of an account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no account of a Windows domain")]
pub struct NotAnAccount(pub String);

impl WindowsAccount {
    /// An account by its two names.
    ///
    /// # Errors
    /// [`NotAnAccount`].
    pub fn new(principal: impl Into<String>, sid: &str) -> Result<Self, NotAnAccount> {
        let account = Self {
            principal: principal.into(),
            sid: sid.parse()?,
        };
        account.check()?;
        Ok(account)
    }

    /// Makes sure that the principal name is one.
    ///
    /// # Errors
    /// [`NotAnAccount`].
    pub fn check(&self) -> Result<(), NotAnAccount> {
        // User principal names have the form of mail addresses (RFC 822 in [MS-ADTS], section 5.1.1.1.1).
        match is_mailbox(&self.principal) {
            true => Ok(()),
            false => Err(NotAnAccount(self.principal.clone())),
        }
    }
}

impl SecurityIdentifier {
    /// The identifier as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the extension that names it.
    pub(crate) fn to_extension(&self) -> der::Result<SubjectAltName> {
        let text = OctetString::new(self.0.as_bytes())?;
        Ok(SubjectAltName(vec![GeneralName::OtherName(OtherName {
            type_id: NTDS_OBJECT_SID,
            value: Any::encode_from(&text)?,
        })]))
    }

    /// The identifier in the value of the extension; `None` if it is another one or none.
    pub(crate) fn from_extension(value: &SubjectAltName) -> Option<Self> {
        let [GeneralName::OtherName(name)] = value.0.as_slice() else {
            return None;
        };
        let text: OctetString = name.value.decode_as().ok()?;
        let text = std::str::from_utf8(text.as_bytes()).ok()?;
        text.parse()
            .ok()
            .filter(|_| name.type_id == NTDS_OBJECT_SID)
    }
}

impl FromStr for SecurityIdentifier {
    type Err = NotAnAccount;

    fn from_str(text: &str) -> Result<Self, NotAnAccount> {
        // One spelling for each: no signs, no leading zeros.
        let number = |part: &str| {
            let value: u32 = part.parse().ok()?;
            (value.to_string() == part).then_some(value)
        };
        let numbers: Option<Vec<u32>> = text
            .strip_prefix(OF_DOMAIN)
            .and_then(|rest| rest.split('-').map(number).collect());
        match numbers.as_deref() {
            Some([_, _, _, account]) if *account >= LEAST_ACCOUNT => Ok(Self(text.to_owned())),
            _ => Err(NotAnAccount(text.to_owned())),
        }
    }
}

impl TryFrom<String> for SecurityIdentifier {
    type Error = NotAnAccount;

    fn try_from(text: String) -> Result<Self, NotAnAccount> {
        text.parse()
    }
}

impl From<SecurityIdentifier> for String {
    fn from(sid: SecurityIdentifier) -> Self {
        sid.0
    }
}

impl fmt::Display for SecurityIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use der::Encode as _;

    use super::*;

    #[test]
    fn only_accounts_that_somebody_made_are_taken() {
        let good = "S-1-5-21-3623811015-3361044348-30300820-1013";
        let sid: SecurityIdentifier = good.parse().unwrap();
        let value = sid.to_extension().unwrap();
        assert_eq!(SecurityIdentifier::from_extension(&value), Some(sid));
        "S-1-5-21-1-2-3-1000".parse::<SecurityIdentifier>().unwrap();
        for bad in [
            "",
            // The system, and everybody's administrators.
            "S-1-5-18",
            "S-1-5-32-544",
            // The domain's administrator.
            "S-1-5-21-1-2-3-500",
            "S-1-5-21-1-2-3-999",
            "S-1-5-21-1-2-1000",
            "S-1-5-21-1-2-3-4-1000",
            "S-1-5-21-1-2-3-01000",
            "S-1-5-21-1-2-3-+1000",
            "S-1-5-21-1-2-4294967296-1000",
            "s-1-5-21-1-2-3-1000",
            "S-1-5-21-1-2-3-1000\n",
        ] {
            assert!(bad.parse::<SecurityIdentifier>().is_err(), "{bad}");
        }
        for bad in [
            "officer",
            "a b@police.example",
            "@police.example",
            "-x@police.example",
        ] {
            assert!(WindowsAccount::new(bad, good).is_err(), "{bad}");
        }
    }

    /// The bytes of an extension that a domain's authority made (Microsoft KB5014754).
    #[test]
    fn extension_has_the_bytes_that_windows_writes() {
        let sid: SecurityIdentifier = "S-1-5-21-1-2-3-1104".parse().unwrap();
        let der = sid.to_extension().unwrap().to_der().unwrap();
        let text = hex::encode("S-1-5-21-1-2-3-1104");
        assert_eq!(
            hex::encode(der),
            format!("3025a023060a2b060104018237190201a015 0413{text}").replace(' ', "")
        );
    }
}
