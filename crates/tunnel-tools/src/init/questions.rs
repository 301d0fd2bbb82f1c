//! Questions on a terminal, each with a default where there is one.

use std::fmt::Display;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::str::FromStr;

use commandline::{Failure, OrHint as _, Outcome};
use tunnel::config::Prefix;

use super::Common;

/// Bytes of an answer at most.
const MAX_ANSWER: u64 = 4096;
/// Wrong answers to one question at most.
const TRIES: usize = 3;

/// Asks what no option says.
pub(super) struct Questions {
    is_silent: bool,
    is_agreed: Option<bool>,
}

impl Questions {
    pub(super) fn new(common: &Common) -> Self {
        let terminals = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Self {
            is_silent: common.yes || common.dry_run || !terminals,
            is_agreed: common.yes.then_some(true),
        }
    }

    /// Returns a value: that of the option, else the answer, else the default.
    pub(super) fn one<T: FromStr + Display>(
        &mut self,
        what: &str,
        given: Option<T>,
        default: Option<T>,
    ) -> Outcome<T>
    where
        T::Err: Display,
    {
        if let Some(given) = given {
            return Ok(given);
        }
        let shown = default.as_ref().map(ToString::to_string);
        let mut default = default;
        self.ask(what, shown.as_deref(), |answer| match answer {
            "" => default
                .take()
                .ok_or_else(|| "an answer is needed".to_owned()),
            text => text.parse().map_err(|error: T::Err| error.to_string()),
        })
    }

    /// Returns the name of a file or folder.
    pub(super) fn path(&mut self, what: &str, given: Option<PathBuf>) -> Outcome<PathBuf> {
        match given {
            Some(given) => Ok(given),
            None => self.one::<String>(what, None, None).map(PathBuf::from),
        }
    }

    /// Returns networks, of which there is one at least.
    pub(super) fn networks(
        &mut self,
        what: &str,
        given: Vec<Prefix>,
        default: &[Prefix],
    ) -> Outcome<Vec<Prefix>> {
        if !given.is_empty() {
            return Ok(given);
        }
        let shown: Vec<String> = default.iter().map(super::text::prefix).collect();
        let shown = shown.join(" ");
        let known = Some(&*shown).filter(|text| !text.is_empty());
        self.ask(what, known, |answer| {
            let text = if answer.is_empty() { &*shown } else { answer };
            let all = text.split([' ', ',']).filter(|word| !word.is_empty());
            let all = all
                .map(str::parse)
                .collect::<Result<Vec<Prefix>, String>>()?;
            match all.is_empty() {
                true => Err("a network is needed, such as 10.1.0.0/16".to_owned()),
                false => Ok(all),
            }
        })
    }

    fn ask<T>(
        &self,
        what: &str,
        default: Option<&str>,
        mut parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Outcome<T> {
        if self.is_silent {
            let missing = |error| {
                let hint = "name it by its option (see --help), or run the command on a terminal without --yes";
                Failure::usage(format!("{what}: {error}"), hint)
            };
            return parse("").map_err(missing);
        }
        for _ in 0..TRIES {
            let default = default.map(|text| format!(" [{text}]")).unwrap_or_default();
            let answer = prompt(&format!("{what}{default}: "))?;
            match parse(&answer) {
                Ok(value) => return Ok(value),
                Err(error) => eprintln!("  {error}"),
            }
        }
        Err(Failure::usage(
            format!("{what}: no answer that can be used"),
            "see --help for examples",
        ))
    }

    /// Shows what is going to be done and has it confirmed, unless that was done.
    pub(super) fn may_go_on(&mut self, lines: &[String]) -> Outcome<bool> {
        if let Some(agreed) = self.is_agreed {
            return Ok(agreed);
        }
        if self.is_silent {
            return Err(Failure::usage(
                "there is no terminal to confirm on",
                "say --yes, or --dry-run",
            ));
        }
        eprintln!("{}", lines.join("\n"));
        let answer = prompt("Go on? [y/N]: ")?;
        let agreed = ["y", "yes"].contains(&answer.to_ascii_lowercase().as_str());
        self.is_agreed = Some(agreed);
        Ok(agreed)
    }
}

/// Asks on standard error: standard output is the result.
fn prompt(text: &str) -> Outcome<String> {
    use std::io::Read as _;
    const HINT: &str = "use the options and --yes without a terminal";
    eprint!("{text}");
    std::io::stderr().flush().or_hint("cannot ask", HINT)?;
    let mut answer = String::new();
    let mut input = std::io::stdin().lock().take(MAX_ANSWER);
    let read = input.read_line(&mut answer).or_hint("no answer", HINT)?;
    if read == 0 {
        return Err(Failure::usage("the answers ended", HINT));
    }
    Ok(answer.trim().to_owned())
}
