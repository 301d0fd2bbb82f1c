//! Parameters of requests, as `application/x-www-form-urlencoded`.

use std::collections::BTreeMap;

/// Longest query or form in bytes: a client assertion has some hundred, a state some thousand.
pub const MAX_PARAMETERS: usize = 8 * 1024;
/// Parameters of a request at most; the standards name about twenty.
const MAX_COUNT: usize = 40;

/// Parameters of one request, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

/// Why parameters cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("the request is too long")]
    TooLong,
    /// Two readers of one request might choose different values (RFC 6749, section 3.1).
    #[error("a parameter is given twice")]
    Twice,
}

impl Parameters {
    /// Reads a query or form. Parameters without a value count as absent (RFC 6749, section 3.1).
    ///
    /// # Errors
    /// [`ParameterError`].
    pub fn parse(text: &str) -> Result<Self, ParameterError> {
        if text.len() > MAX_PARAMETERS {
            return Err(ParameterError::TooLong);
        }
        let mut found = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if found.len() >= MAX_COUNT {
                return Err(ParameterError::TooLong);
            }
            if found
                .insert(name.into_owned(), value.into_owned())
                .is_some()
            {
                return Err(ParameterError::Twice);
            }
        }
        found.retain(|_, value| !value.is_empty());
        Ok(Self(found))
    }

    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// `address` with further parameters in its query.
pub(crate) fn with_query(address: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        query.append_pair(name, value);
    }
    let joint = if address.contains('?') { '&' } else { '?' };
    format!("{address}{joint}{}", query.finish())
}
