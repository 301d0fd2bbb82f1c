//! One module per command; each parses no more than its arguments and calls a crate.

pub(crate) mod audit;
pub(crate) mod audit_host;
mod authorities;
mod ceremony;
pub(crate) mod config;
pub(crate) mod directory;
pub(crate) mod evidence;
mod founding;
mod index;
pub(crate) mod laboratory;
pub(crate) mod pki;
mod pki_audit;
mod pki_profile;
pub(crate) mod quarantine;
pub(crate) mod registry;
pub(crate) mod request;
mod request_export;
pub(crate) mod run;
pub(crate) mod service;
pub(crate) mod site_data;
pub(crate) mod up;

use std::path::Path;

use clap::CommandFactory as _;
pub(crate) use commandline::{field, list, print, read_text, text, write_out};
pub(crate) use site::read::{MAX_SMALL_FILE, read_regular};

use commandline::{OrHint as _, Outcome};

/// Longest file with revocation lists.
pub(crate) const MAX_LISTS: u64 = 64 << 20;

pub(crate) fn openapi() -> Outcome {
    let text = centre::Centre::openapi().to_pretty_json();
    write_out(format!("{}\n", text.or_hint("cannot describe", "report this")?).as_bytes())
}

pub(crate) fn man(folder: &Path, json: bool) -> Outcome {
    let hint = "name a folder that can be written";
    let what = || format!("cannot write to {}", folder.display());
    durable::create_dir_all(folder).or_hint(what(), hint)?;
    clap_mangen::generate_to(crate::cli::Cli::command(), folder).or_hint(what(), hint)?;
    let value = serde_json::json!({ "folder": folder });
    let text = format!("wrote the manual pages to {}", folder.display());
    print(json, &value, &text)
}

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
