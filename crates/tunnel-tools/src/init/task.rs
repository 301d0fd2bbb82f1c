//! Steps of `init` once everything is answered: says it, makes room, has certificates issued, writes, prepares the host.

use std::path::Path;

use commandline::{Failure, Outcome, print};
use serde_json::json;
use vpn::host::Finding;

use super::Common;
use super::files::{Files, Reserved};
use super::issued::Issued;
use super::questions::Questions;
use crate::check;
use crate::prepare::{self, Step};

/// Everything that is known before anything is done.
pub(super) struct Task<'a> {
    pub(super) common: &'a Common,
    pub(super) ask: Questions,
    pub(super) files: Files,
    /// Name of the file with this host's settings.
    pub(super) settings: &'a str,
    /// Whether the files are for other hosts.
    pub(super) files_only: bool,
    /// Names and networks, a line each.
    pub(super) facts: Vec<String>,
    /// Steps left to the person.
    pub(super) next: String,
    pub(super) json: bool,
}

/// A task that was agreed to, with room for its files.
pub(super) struct Begun {
    reserved: Reserved,
    steps: Vec<Step>,
    said: Vec<String>,
    lines: Vec<String>,
}

impl Task<'_> {
    /// Does all of it, where nothing is issued.
    pub(super) async fn run(mut self) -> Outcome {
        match self.begin()? {
            Some(begun) => self.finish(begun, None).await,
            None => Ok(()),
        }
    }

    /// Says what is going to be done, has it confirmed, and makes sure that the files can be written: nothing is issued whose key
    /// could not be stored. None after a dry run.
    pub(super) fn begin(&mut self) -> Outcome<Option<Begun>> {
        self.files.check()?;
        let file = self.files.path(self.settings);
        let steps = match (self.files_only, self.files.text(self.settings)) {
            (false, Some(text)) => prepare::steps_of(&text, &file)?,
            _ => Vec::new(),
        };
        let said: Vec<String> = steps.iter().map(Step::to_string).collect();
        let mut lines = self.facts.clone();
        lines.extend(self.files.describe());
        lines.extend(said.iter().cloned());
        if self.common.dry_run {
            lines.insert(0, "would do, and has not done:".to_owned());
            let value = self.value(&said, false, &[]);
            print(self.json, &value, &lines.join("\n"))?;
            return Ok(None);
        }
        if !self.ask.may_go_on(&lines)? {
            return Err(Failure::new(
                anyhow::anyhow!("nothing was done"),
                "answer y to continue",
            ));
        }
        let reserved = self.files.reserve()?;
        Ok(Some(Begun {
            reserved,
            steps,
            said,
            lines,
        }))
    }

    /// Writes the files and prepares this host, unless these are for another one.
    pub(super) async fn finish(self, begun: Begun, issued: Option<Issued>) -> Outcome {
        let Begun {
            reserved,
            steps,
            said,
            mut lines,
        } = begun;
        let file = self.files.path(self.settings);
        reserved
            .write(&self.files)
            .map_err(|failure| match &issued {
                Some(issued) => issued.lost(&failure),
                None => failure,
            })?;
        prepare::carry_out(&steps)?;
        let findings = match self.files_only {
            true => Vec::new(),
            false => check::findings(&file).await?,
        };
        lines.extend(findings.iter().map(check::line));
        lines.push(self.next.clone());
        if !self.files_only {
            lines.push(start_of(&file));
        }
        let value = self.value(&said, true, &findings);
        print(self.json, &value, &lines.join("\n"))?;
        check::refuse_errors(&file, &findings)
    }

    fn value(&self, steps: &[String], done: bool, findings: &[Finding]) -> serde_json::Value {
        json!({ "files": self.files.names(), "steps": steps, "done": done, "findings": findings })
    }
}

fn start_of(file: &Path) -> String {
    let file = file.display();
    format!(
        "start the tunnel with\n  cordon vpn up --config {file}\nand try it with\n  cordon vpn ping --config {file}"
    )
}
