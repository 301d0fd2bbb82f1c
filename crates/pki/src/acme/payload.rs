//! Payloads of requests. Members that are unknown are left out of account (RFC 8555, section 7).

use serde::Deserialize;

use super::base64url::from_base64url;
use super::jws::{Binding, Flattened, JwsError};
use crate::crl::RevocationReason;

/// Names in one order at most. Our choice: a server that goes by more is several.
const MAX_IDENTIFIERS: usize = 16;

/// Why what is asked for cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    /// The binding of an account.
    #[error(transparent)]
    Binding(#[from] JwsError),
    /// A reason by which nobody revokes their own certificate.
    #[error(
        "a certificate is revoked with reason 0, 1, 3, 4 or 5: unspecified, keyCompromise, affiliationChanged, superseded, \
         cessationOfOperation"
    )]
    Reason,
}

fn read<'a, T: Deserialize<'a>>(json: &'a [u8], form: &'static str) -> Result<T, PayloadError> {
    serde_json::from_slice(json).map_err(|_| PayloadError::Malformed(form))
}

/// A new account (RFC 8555, section 7.3). How to reach its owner is known of the invitation, and not asked for.
#[derive(Debug)]
pub struct NewAccount {
    pub only_existing: bool,
    pub binding: Option<Binding>,
}

impl NewAccount {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Payload {
            #[serde(default)]
            only_return_existing: bool,
            external_account_binding: Option<Flattened>,
        }
        let one: Payload = read(json, "it is no new account")?;
        let binding = one.external_account_binding.as_ref();
        let binding = binding.map(Binding::of_parts);
        Ok(Self {
            only_existing: one.only_return_existing,
            binding: binding.transpose()?,
        })
    }
}

/// The change of an account (RFC 8555, sections 7.3.2 and 7.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountUpdate {
    /// Nothing that is kept here.
    Nothing,
    Deactivate,
}

impl AccountUpdate {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        #[derive(Deserialize)]
        struct Payload {
            status: Option<String>,
        }
        let one: Payload = read(json, "it is no account")?;
        match one.status.as_deref() {
            None => Ok(Self::Nothing),
            Some("deactivated") => Ok(Self::Deactivate),
            Some(_) => Err(PayloadError::Malformed("an account is deactivated only")),
        }
    }
}

/// What a certificate is to name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Identifier {
    #[serde(rename = "type")]
    pub kind: String,
    pub value: String,
}

/// An order (RFC 8555, section 7.4).
#[derive(Debug)]
pub struct NewOrder {
    pub identifiers: Vec<Identifier>,
}

impl NewOrder {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`PayloadError`]; for times as well, which the site chooses.
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Payload {
            identifiers: Vec<Identifier>,
            not_before: Option<String>,
            not_after: Option<String>,
        }
        let one: Payload = read(json, "it is no order")?;
        if one.not_before.is_some() || one.not_after.is_some() {
            return Err(PayloadError::Malformed(
                "the site chooses the time of validity",
            ));
        }
        if one.identifiers.is_empty() || one.identifiers.len() > MAX_IDENTIFIERS {
            return Err(PayloadError::Malformed("an order has 1 to 16 identifiers"));
        }
        Ok(Self {
            identifiers: one.identifiers,
        })
    }
}

/// The certification request of an order (RFC 8555, section 7.4), in DER.
#[derive(Debug)]
pub struct Finalize {
    pub csr: Vec<u8>,
}

impl Finalize {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        #[derive(Deserialize)]
        struct Payload {
            csr: String,
        }
        let one: Payload = read(json, "it has no csr")?;
        let csr = from_base64url(&one.csr);
        let csr = csr.ok_or(PayloadError::Malformed("csr is not base64url"))?;
        Ok(Self { csr })
    }
}

/// A revocation (RFC 8555, section 7.6).
#[derive(Debug)]
pub struct Revoke {
    /// The certificate in DER.
    pub certificate: Vec<u8>,
    pub reason: RevocationReason,
}

impl Revoke {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        #[derive(Deserialize)]
        struct Payload {
            certificate: String,
            reason: Option<u64>,
        }
        let one: Payload = read(json, "it names no certificate")?;
        let certificate = from_base64url(&one.certificate);
        let certificate =
            certificate.ok_or(PayloadError::Malformed("the certificate is not base64url"))?;
        let reason = match one.reason.unwrap_or(0) {
            0 => RevocationReason::Unspecified,
            1 => RevocationReason::KeyCompromise,
            3 => RevocationReason::AffiliationChanged,
            4 => RevocationReason::Superseded,
            5 => RevocationReason::CessationOfOperation,
            _ => return Err(PayloadError::Reason),
        };
        Ok(Self {
            certificate,
            reason,
        })
    }
}
