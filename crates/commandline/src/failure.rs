//! How the program reports that a command failed.

use std::process::ExitCode;

use service_kit::Failure;

use crate::output::{json_line, visible};

/// Turns a mistake that the command line parser found into our two lines instead of its paragraphs.
pub(crate) fn of_usage(error: &clap::Error) -> Failure {
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
    Failure::usage(words(message.trim_start_matches("error: ")), hint)
}

/// Prints the two lines for the program of this name, or one JSON object with the same.
pub(crate) fn report(failure: &Failure, program: &str, json: bool) -> ExitCode {
    if json {
        let object = serde_json::json!({
            "error": failure.message(),
            "to_do": failure.hint(),
            "exit_code": failure.code(),
        });
        eprintln!("{}", json_line(&object));
    } else {
        eprintln!("{program}: {}", visible(&failure.message()));
        eprintln!("  to do: {}", visible(failure.hint()));
    }
    ExitCode::from(failure.code())
}
