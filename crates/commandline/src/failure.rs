//! How a command fails: one line of what and where, one of what to do, and an exit code.

use error_report::Report;

use crate::output::visible;
use std::fmt;
use std::process::ExitCode;

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
        Self {
            error: error.into(),
            hint: hint.into(),
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

    /// Prints the two lines for the program of this name.
    #[must_use]
    pub fn report(&self, program: &str) -> ExitCode {
        eprintln!("{program}: {}", visible(&self.message()));
        eprintln!("  to do: {}", visible(&self.hint));
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
