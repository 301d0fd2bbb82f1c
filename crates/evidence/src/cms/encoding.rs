//! The one encoding that messages may have.

use der::{Decode, Encode};

use super::error::{CmsError, MAX_MESSAGE_LEN};

/// Decodes strict DER within the size bound.
pub(super) fn decode<T: for<'a> Decode<'a> + Encode>(der: &[u8]) -> Result<T, CmsError> {
    if der.len() > MAX_MESSAGE_LEN {
        return Err(CmsError::TooLarge { len: der.len() });
    }
    let value = T::from_der(der).map_err(CmsError::from_decode)?;
    // The decoder sorts sets and forgives some encodings; what we sign and hash is one form only.
    if value.to_der().map_err(CmsError::Encode)? != der {
        return Err(CmsError::NotDer);
    }
    Ok(value)
}
