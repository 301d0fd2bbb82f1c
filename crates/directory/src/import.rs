//! Reading many people from a file, one JSON object a line.

use zeroize::Zeroizing;

use crate::{Directory, DirectoryError, Person};

/// Longest line, in bytes.
const MAX_LINE: usize = 16 * 1024;

/// One line of an import: a person and, optionally, a first password.
#[derive(serde::Deserialize)]
pub struct ImportLine {
    /// The person.
    #[serde(flatten)]
    person: PersonFields,
    /// First password.
    #[serde(default)]
    password: Option<Zeroizing<String>>,
}

/// `flatten` and `deny_unknown_fields` exclude one another, so the fields are listed once more
/// by way of a map and checked by [`Person`]'s own rules.
type PersonFields = serde_json::Map<String, serde_json::Value>;

/// A line that cannot be imported; the lines before it are.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Not a person in JSON.
    #[error("line {line}: not a person in JSON")]
    Malformed {
        /// Number from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// Longer than any person.
    #[error("line {line}: longer than {MAX_LINE} bytes")]
    TooLong {
        /// Number from 1.
        line: usize,
    },
    /// The directory refuses it.
    #[error("line {line}")]
    Refused {
        /// Number from 1.
        line: usize,
        /// Why.
        source: DirectoryError,
    },
}

impl Directory {
    /// Adds or updates everybody in `text`, one JSON object a line; returns how many.
    ///
    /// # Errors
    /// [`ImportError`] with the line; people before it are kept, so that the rest can be corrected
    /// and the import repeated.
    pub async fn import(&self, text: &str) -> Result<usize, ImportError> {
        let mut count = 0;
        for (index, content) in text.lines().enumerate() {
            let line = index + 1;
            if content.trim().is_empty() {
                continue;
            }
            if content.len() > MAX_LINE {
                return Err(ImportError::TooLong { line });
            }
            let parsed: ImportLine = serde_json::from_str(content)
                .map_err(|source| ImportError::Malformed { line, source })?;
            let person: Person = serde_json::from_value(parsed.person.into())
                .map_err(|source| ImportError::Malformed { line, source })?;
            self.import_one(&person, parsed.password)
                .await
                .map_err(|source| ImportError::Refused { line, source })?;
            count += 1;
        }
        Ok(count)
    }

    async fn import_one(
        &self,
        person: &Person,
        password: Option<Zeroizing<String>>,
    ) -> Result<(), DirectoryError> {
        match self.add(person).await {
            Err(DirectoryError::Taken(_)) => self.update(person).await?,
            other => other?,
        }
        if let Some(password) = password {
            self.set_password(&person.uid, &password).await?;
        }
        Ok(())
    }
}
