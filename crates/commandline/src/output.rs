//! Results on standard output.

use std::io::{Read as _, Write as _};
use std::path::Path;

use serde_json::Value;
use zeroize::Zeroizing;

use crate::{OrHint as _, Outcome};

/// Prints a result: text for people, or one JSON object.
pub fn print(json: bool, value: &Value, text: &str) -> Outcome {
    let mut line = if json {
        value.to_string()
    } else {
        text.trim_end().to_owned()
    };
    line.push('\n');
    write_out(line.as_bytes())
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
    let mut text = Zeroizing::new(String::new());
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::File::open(path).and_then(|mut f| f.read_to_string(&mut text).map(drop))
    };
    read.or_hint(
        format!("cannot read {}", path.display()),
        "check the file's name and rights",
    )?;
    Ok(text)
}
