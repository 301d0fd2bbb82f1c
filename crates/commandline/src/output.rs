//! Results on standard output.

use std::io::{Read, Write as _};
use std::path::Path;

use serde_json::Value;
use untrusted_text::{escape_invisible, is_invisible};
use zeroize::Zeroizing;

use crate::{Failure, OrHint as _, Outcome};

/// Bytes of the largest text that a command takes from a file or its standard input.
const MAX_TEXT: u64 = 64 << 20;

/// Options of every command about what it prints.
#[derive(Clone, Debug, clap::Args)]
pub struct OutputArgs {
    /// Print one JSON object for machines instead of text for people.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,rustls=debug`.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "CORDON_LOG",
        default_value = "info"
    )]
    pub log: String,
}

/// Prints a result: text for people, or one JSON object.
pub fn print(json: bool, value: &Value, text: &str) -> Outcome {
    let mut line = if json {
        json_line(value)
    } else {
        // What others wrote must not move the cursor or change colours.
        text.trim_end()
            .split('\n')
            .map(visible)
            .collect::<Vec<_>>()
            .join("\n")
    };
    line.push('\n');
    write_out(line.as_bytes())
}

/// Writes control and format characters as escapes, so that a line of a terminal stays one line and reads as it is.
#[must_use]
pub fn visible(text: &str) -> String {
    escape_invisible(text).into_owned()
}

/// JSON on one line, with the escapes of JSON for what a terminal would not show.
///
/// Outside of strings JSON has no such characters, so replacing them everywhere changes no value.
#[must_use]
pub fn json_line(value: &Value) -> String {
    let mut line = String::new();
    for c in value.to_string().chars() {
        if is_invisible(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                line += &format!("\\u{unit:04x}");
            }
        } else {
            line.push(c);
        }
    }
    line
}

/// The text in field `name` of an answer; empty when there is none.
pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list in field `name` of an answer.
pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The field `name` of an answer, whatever it is.
pub fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
pub fn write_out(bytes: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.or_hint("cannot write the result", "check where the output goes"),
    }
}

/// Reads a file, or standard input for `-`.
pub fn read_text(path: &Path) -> Outcome<Zeroizing<String>> {
    const HINT: &str = "check the file's name and rights";
    let what = || format!("cannot read {}", path.display());
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).or_hint(what(), HINT)?)
    };
    let mut text = Zeroizing::new(String::new());
    let mut source = source.take(MAX_TEXT + 1);
    source.read_to_string(&mut text).or_hint(what(), HINT)?;
    if text.len() as u64 > MAX_TEXT {
        let error = anyhow::anyhow!("{}: more than {MAX_TEXT} bytes", what());
        return Err(Failure::new(error, HINT));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{json_line, visible};

    #[test]
    fn escapes_of_terminals_and_directions_are_shown() {
        let text = "\u{1b}[2K\rgood\u{202e}\n";
        assert_eq!(visible(text), "\\u{1b}[2K\\u{d}good\\u{202e}\\u{a}");
        assert_eq!(visible("Žofia, 88 km/h ✓"), "Žofia, 88 km/h ✓");
    }

    #[test]
    fn json_on_a_terminal_has_escapes_and_the_same_value() {
        let value = serde_json::json!({ "name": "a\n\u{85}\u{202e}\u{e0041}č" });
        let line = json_line(&value);
        assert_eq!(line, r#"{"name":"a\n\u0085\u202e\udb40\udc41č"}"#);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let failure = super::read_text(std::path::Path::new("/dev/zero")).unwrap_err();
        assert!(
            failure.message().contains("more than"),
            "{}",
            failure.message()
        );
    }
}
