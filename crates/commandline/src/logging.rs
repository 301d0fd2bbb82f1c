//! The log: one event a line on standard error.

use std::fmt::Write as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;

use untrusted_text::EscapeInvisible;

use crate::{Failure, Outcome};

/// Starts the log. It goes to standard error, so that standard output is the result and nothing else.
///
/// # Errors
/// Wrong usage if `filter` is not a filter.
pub fn start_logging(filter: &str) -> Outcome {
    let filter = EnvFilter::try_new(filter)
        .map_err(|e| Failure::usage(format!("--log: {e}"), "use for instance --log info"))?;
    tracing_subscriber::fmt()
        .fmt_fields(fields())
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .init();
    Ok(())
}

/// Formats message and fields so that no value ends the line, moves the cursor or reorders what is read.
///
/// Values come from peers and file systems: a message or `Display` with a line break in it would forge a line.
fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(|writer, field, value| {
        let mut line = EscapeInvisible(writer);
        match field.name() {
            "message" => write!(line, "{value:?}"),
            // The place in the source of records of the crate `log`.
            name if name.starts_with("log.") => Ok(()),
            name => write!(line, "{}={value:?}", name.trim_start_matches("r#")),
        }
    })
    .delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn values_in_a_log_line_cannot_forge_another() {
        let lines = Lines::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(fields())
            .without_time()
            .with_writer(move || to.clone())
            .with_ansi(false)
            .with_target(false)
            .finish();
        let hostile = "CN=x\u{85}y\nERROR forged\u{1b}[2K\u{202e}";
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("peer", name = %hostile);
            let _entered = span.enter();
            tracing::warn!(peer = %hostile, text = hostile, count = 3, "peer refused: {hostile}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.chars().any(untrusted_text::is_invisible), "{line:?}");
        let shown = r"CN=x\u{85}y\u{a}ERROR forged\u{1b}[2K\u{202e}";
        assert!(line.contains(&format!("peer refused: {shown}")), "{line}");
        assert!(line.contains(&format!("peer={shown}")), "{line}");
        assert!(line.contains(&format!("name={shown}")), "{line}");
        assert!(line.contains("count=3"), "{line}");
    }
}
