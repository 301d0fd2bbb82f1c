//! How a command, a role or a task fails: one line of what and where, one of what to do, and an exit code.

use std::fmt;
use std::io::ErrorKind;

use error_report::Report;

/// Advice about a full disk.
const MAKE_ROOM: &str = "make room on the disk, then ask again";

/// Whether a full disk is among the causes. SQLite says so in words, also where an error has come from another process.
fn is_full_disk(error: &anyhow::Error) -> bool {
    let is_full = |kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|error| is_full(error.kind()))
            || cause.to_string().ends_with("database or disk is full")
    })
}

#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    hint: String,
    code: u8,
}

/// The result of a command, a role or a task.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The operation was refused or failed: exit code 1.
    pub fn new(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> Self {
        let error = error.into();
        // A full disk is the cause of other errors.
        let hint = match is_full_disk(&error) {
            true => MAKE_ROOM.to_owned(),
            false => hint.into(),
        };
        Self {
            error,
            hint,
            code: 1,
        }
    }

    /// The call itself makes no sense: exit code 2.
    pub fn usage(message: impl fmt::Display, hint: impl Into<String>) -> Self {
        Self {
            error: anyhow::anyhow!("{message}"),
            hint: hint.into(),
            code: 2,
        }
    }

    /// A computation went wrong and was noticed: exit code 3.
    pub fn fault(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: hint.into(),
            code: 3,
        }
    }

    /// The error of this type among the causes, if there is one.
    pub fn find<E: std::error::Error + Send + Sync + 'static>(&self) -> Option<&E> {
        self.error.chain().find_map(|cause| cause.downcast_ref())
    }

    /// The second line.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    #[must_use]
    pub fn code(&self) -> u8 {
        self.code
    }

    /// The first line, for `--json` and logs.
    pub fn message(&self) -> String {
        Report(self.error.as_ref()).to_string()
    }
}

/// Adds the second line to any error.
pub trait OrHint<T> {
    /// Turns an error into a failure with `what` before it and `hint` below it.
    fn or_hint(self, what: impl fmt::Display, hint: impl Into<String>) -> Outcome<T>;
}

impl<T, E: Into<anyhow::Error>> OrHint<T> for Result<T, E> {
    fn or_hint(self, what: impl fmt::Display, hint: impl Into<String>) -> Outcome<T> {
        self.map_err(|e| Failure::new(e.into().context(what.to_string()), hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_a_full_disk_is_to_make_room() {
        let full = std::io::Error::from(ErrorKind::StorageFull);
        let failure = Err::<(), _>(full).or_hint("cannot write it", "check its rights");
        assert_eq!(failure.unwrap_err().hint(), MAKE_ROOM);
        let database = anyhow::anyhow!("(code: 13) database or disk is full").context("registry");
        assert_eq!(Failure::new(database, "see the log").hint(), MAKE_ROOM);
        let other = std::io::Error::from(ErrorKind::PermissionDenied);
        let failure = Err::<(), _>(other).or_hint("cannot write it", "check its rights");
        assert_eq!(failure.unwrap_err().hint(), "check its rights");
    }
}
