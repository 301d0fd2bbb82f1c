//! One module per command; each parses no more than its arguments and calls a crate.

pub(crate) mod audit;
pub(crate) mod camera;
pub(crate) mod config;
pub(crate) mod directory;
pub(crate) mod evidence;
pub(crate) mod lab;
pub(crate) mod openvpn;
pub(crate) mod pki;
pub(crate) mod registry;
pub(crate) mod up;
pub(crate) mod vpn;
mod vpn_crls;
mod vpn_firewall;
mod vpn_http;
mod vpn_ocsp;
pub(crate) mod vpn_profile;
pub(crate) mod vpn_up;

use std::io::{Read as _, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::failure::{OrHint as _, Outcome};

/// Prints a result: text for people, or one JSON object.
pub(crate) fn print(json: bool, value: &Value, text: &str) -> Outcome {
    let mut line = if json {
        value.to_string()
    } else {
        text.trim_end().to_owned()
    };
    line.push('\n');
    write_out(line.as_bytes())
}

/// The text in field `name` of an answer; empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list in field `name` of an answer.
pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The field `name` of an answer, whatever it is.
pub(crate) fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
pub(crate) fn write_out(bytes: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.or_hint("cannot write the result", "check where the output goes"),
    }
}

/// Reads a file, or standard input for `-`.
pub(crate) fn read_text(path: &Path) -> Outcome<Zeroizing<String>> {
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

/// `cordon openapi`.
pub(crate) fn openapi() -> Outcome {
    let text = centre::Centre::openapi().to_pretty_json();
    write_out(format!("{}\n", text.or_hint("cannot describe", "report this")?).as_bytes())
}

/// `cordon completions`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut crate::cli::Cli::command(),
        "cordon",
        &mut script,
    );
    write_out(&script)
}
