//! `docs/commands.md`, from the same definition as `--help`.
//!
//! `CORDON_WRITE_REFERENCE=1 cargo test --workspace commands_page` writes it.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};

const HEAD: &str = "# Commands

Every command of `cordon`, as `cordon COMMAND --help` says it. All of them take `--json` (one JSON object on standard
output) and `--log FILTER` (what goes to standard error). They end with 0 when done, with 1 when refused or failed, with
2 for wrong usage. `cordon man --out DIR` writes the same as manual pages, `cordon completions SHELL` completes it.
`cordon lab` and `cordon ibc` are described in [lab.md](lab.md) and [ibc.md](ibc.md); `cordon-camera` is `cordon camera`
alone.
";

/// Appends a section for `command` and one for each of its subcommands.
fn describe(page: &mut String, command: &Command, path: &str) {
    if command.is_hide_set() {
        return;
    }
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let mut subcommands = command.get_subcommands().filter(|c| c.get_name() != "help");
    if command.get_subcommands().next().is_none() {
        let level = if path.matches(' ').count() == 1 {
            "##"
        } else {
            "###"
        };
        let _ = write!(page, "\n{level} {path}\n\n{}\n", sentence(&about));
        arguments(page, command);
        if let Some(examples) = command.get_after_help() {
            let _ = write!(page, "\n```text\n{}\n```\n", examples.to_string().trim());
        }
    } else if path.contains(' ') {
        let _ = write!(page, "\n## {path}\n\n{}\n", sentence(&about));
    }
    subcommands.by_ref().for_each(|subcommand| {
        describe(
            page,
            subcommand,
            &format!("{path} {}", subcommand.get_name()),
        );
    });
}

/// One line of help with its full stop, which the command line leaves out.
fn sentence(help: &str) -> String {
    let mut line = help.split_whitespace().collect::<Vec<_>>().join(" ");
    if !line.is_empty() && !line.ends_with(['.', ':', '!', '?']) {
        line.push('.');
    }
    line
}

fn arguments(page: &mut String, command: &Command) {
    let shown: Vec<&Arg> = command
        .get_arguments()
        .filter(|a| {
            !a.is_hide_set() && !["help", "version", "json", "log"].contains(&a.get_id().as_str())
        })
        .collect();
    if shown.is_empty() {
        return;
    }
    page.push('\n');
    for argument in shown {
        let names: Vec<String> = argument
            .get_value_names()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect();
        let takes = argument.get_action().takes_values();
        let values = if takes {
            names.join(" ")
        } else {
            String::new()
        };
        let name = match argument.get_long() {
            Some(long) => format!("--{long} {values}"),
            None => values,
        };
        let help = argument.get_long_help().or(argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let help = sentence(&help);
        let needed = if argument.is_required_set() {
            " (required)"
        } else {
            ""
        };
        let defaults: Vec<String> = argument
            .get_default_values()
            .iter()
            .map(|v| v.to_string_lossy().into_owned())
            .collect();
        let default = if takes && !defaults.is_empty() {
            format!(" Default: `{}`.", defaults.join(" "))
        } else {
            String::new()
        };
        let _ = writeln!(page, "- `{}`{needed}: {help}{default}", name.trim());
    }
}

#[test]
fn the_commands_page_is_that_of_the_command_line() {
    let mut page = HEAD.to_owned();
    let mut command = super::Cli::command();
    command.build();
    describe(&mut page, &command, "cordon");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("CORDON_WRITE_REFERENCE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let first = page.lines().zip(found.lines()).position(|(a, b)| a != b);
    assert!(
        page == found,
        "docs/commands.md differs from line {:?} on: write it anew as this file's head says",
        first.map(|line| line + 1)
    );
}
