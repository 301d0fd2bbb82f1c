//! `cordon site`: the data of a site.

use std::path::Path;

use serde_json::json;

use crate::cli::Site;
use commandline::{Failure, OrHint as _, Outcome};
use site::control::{Request, ask_running};

pub(crate) async fn run(command: Site, json: bool) -> Outcome {
    match command {
        Site::Found { site, from, out } => {
            super::founding::run(&site, from.as_deref(), &out, json).await
        }
        Site::Check { data } => check(&data, json).await,
        Site::Status { data } => status(&data, json).await,
    }
}

async fn status(data: &Path, json: bool) -> Outcome {
    let state = ask_running(data, &Request::Status).await?;
    let mut lines = Vec::new();
    for (name, label) in [("problems", "problem"), ("warnings", "warning")] {
        let found = super::list(&state, name).iter();
        lines.extend(found.map(|one| format!("{label}: {}", one.as_str().unwrap_or_default())));
    }
    if lines.is_empty() {
        lines.push("no problem and no warning".to_owned());
    }
    lines.extend(tunnel_tools::describe_accelerator(&state));
    super::print(json, &state, &lines.join("\n"))
}

async fn check(data: &Path, json: bool) -> Outcome {
    let differences = centre::check::index(&data.join("centre"))
        .await
        .or_hint("cannot check the index", "give the folder of a site")?;
    let text: Vec<String> = differences
        .iter()
        .map(|found| {
            format!(
                "{}: {} differ: {}",
                found.what,
                found.count,
                found.at.join(", ")
            )
        })
        .collect();
    let text = match text.as_slice() {
        [] => "the counters and the search fit the rows".to_owned(),
        lines => lines.join("\n"),
    };
    let encryption = site::at_rest::examine(data);
    let text = format!("{text}\nencryption of the file system: {encryption}");
    let fits = differences.is_empty();
    super::print(
        json,
        &json!({
            "fits": fits,
            "differences": differences,
            "at_rest": { "state": encryption.name(), "detail": encryption.detail() },
        }),
        &text,
    )?;
    if fits {
        return Ok(());
    }
    let message = "counters or search entries of the index differ from its rows";
    Err(Failure::new(
        anyhow::anyhow!(message),
        "lists and figures may be wrong, evidence is not touched; restore the index from a backup",
    ))
}
