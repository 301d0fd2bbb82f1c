//! How a command fails: one line of what and where, one of what to do, and an exit code.

use error_report::Report;

use crate::output::{json_line, visible};
use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

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

/// Result of every command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The operation was refused or failed: exit code 1.
    pub fn new(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> Self {
        let error = error.into();
        // Whatever was tried, and whatever else may be wrong with it.
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

    /// Turns a mistake that the command line parser found into our two lines instead of its paragraphs.
    pub fn of_usage(error: &clap::Error) -> Self {
        let text = error.to_string();
        let (message, rest) = text.split_once("\n\n").unwrap_or((text.trim(), ""));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let hint = |start: &str| {
            rest.lines()
                .find_map(|line| line.trim().strip_prefix(start).map(words))
        };
        let hint = match (hint("tip: "), hint("Usage: ")) {
            (Some(tip), _) => tip,
            (None, Some(usage)) => format!("call it as `{usage}`"),
            (None, None) => "see the help with --help".to_owned(),
        };
        Self::usage(words(message.trim_start_matches("error: ")), hint)
    }

    /// Prints the two lines for the program of this name, or one JSON object with the same.
    #[must_use]
    pub fn report(&self, program: &str, json: bool) -> ExitCode {
        if json {
            let object = serde_json::json!({
                "error": self.message(),
                "to_do": self.hint,
                "exit_code": self.code,
            });
            eprintln!("{}", json_line(&object));
        } else {
            eprintln!("{program}: {}", visible(&self.message()));
            eprintln!("  to do: {}", visible(&self.hint));
        }
        ExitCode::from(self.code)
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
