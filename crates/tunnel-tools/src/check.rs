//! `cordon vpn check`: mistakes in a configuration, and what would not work or leave in the clear on this host.

use std::path::Path;

use commandline::{Failure, OrHint as _, Outcome, print, text};
use serde_json::json;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use vpn::config::DaemonConfig;
use vpn::firewall::Firewall;
use vpn::host::{self, Finding, Host, Severity};

use crate::client::{Request, ask};
use crate::load::{folder_of, load_all, read_settings};
use crate::{firewall, key_process};

pub(crate) async fn run(path: &Path, json: bool) -> Outcome {
    let found = findings(path).await?;
    let mut lines: Vec<String> = found.iter().map(line).collect();
    if lines.is_empty() {
        lines.push(format!("nothing to say against {}", path.display()));
    }
    let value = json!({ "config": path, "errors": errors(&found), "findings": found });
    print(json, &value, &lines.join("\n"))?;
    refuse_errors(path, &found)
}

/// Fails where there are errors.
pub(super) fn refuse_errors(path: &Path, found: &[Finding]) -> Outcome {
    match errors(found) {
        0 => Ok(()),
        errors => Err(Failure::new(
            anyhow::anyhow!(
                "{}: {errors} of {} findings are errors",
                path.display(),
                found.len()
            ),
            "correct what the lines above name; warnings alone do not fail",
        )),
    }
}

fn errors(found: &[Finding]) -> usize {
    let is_error = |one: &&Finding| one.severity == Severity::Error;
    found.iter().filter(is_error).count()
}

/// One line; what a file or the system says may have several.
pub(super) fn line(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Error => "error  ",
        Severity::Warning => "warning",
    };
    let Finding {
        setting,
        found,
        remedy,
        ..
    } = finding;
    let text = format!("{severity}  {setting}  {found}: {remedy}");
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Finds what `up` would find, and what it would not notice.
pub(super) async fn findings(path: &Path) -> Outcome<Vec<Finding>> {
    let file = read_settings(path)?;
    let folder = folder_of(path);
    let signer = key_process::start()?;
    let mut found = Vec::new();
    let config = match load_all(path, &file, &signer) {
        Ok(loaded) => {
            found.extend(loaded.certificate_findings(folder, OffsetDateTime::now_utc()));
            Some(loaded.config)
        }
        Err(mistakes) => {
            let each = mistakes.into_iter();
            found.extend(each.map(|one| Finding::error(one.setting, one.found, one.remedy)));
            // The file itself is still checked against this host if files that it names cannot be read.
            let parsed: Option<DaemonConfig> = toml::from_str(&file).ok();
            parsed.map(|mut config| {
                config.status = folder.join(&config.status);
                config
            })
        }
    };
    let Some(mut config) = config else {
        return Ok(found);
    };
    // It is named from here now, while the other files are named from the file's folder.
    config.status = std::path::absolute(&config.status).or_hint(
        format!("status socket {}", config.status.display()),
        "choose another path for `status`",
    )?;
    let state = ask(&config.status, &Request::Status).await.ok();
    let interface = state.as_ref().map(|state| text(state, "interface"));
    let is_serving = interface == Some(config.interface.name.as_str());
    if let Some(other) = interface.filter(|_| !is_serving) {
        found.push(Finding::error(
            "status",
            format!(
                "at {} another tunnel answers, that of interface {other}",
                config.status.display()
            ),
            "name another path",
        ));
    }
    found.extend(host::findings(
        &config,
        &Host::look(&config, folder, is_serving),
    ));
    if let Some(metrics) = config.metrics.as_ref().filter(|_| !is_serving)
        && let Err(error) = TcpListener::bind(metrics.listen).await
    {
        found.push(Finding::error(
            "metrics.listen",
            format!("{}: {error}", metrics.listen),
            "choose a free address of this host",
        ));
    }
    if let Some(firewall) = Firewall::of_daemon(&config)
        && let Err(failure) = firewall::check(&firewall, path)
    {
        found.push(Finding::error(
            "firewall",
            failure.message(),
            failure.hint(),
        ));
    }
    // Errors first; within each kind the order in which they were looked for.
    found.sort_by_key(|one| one.severity);
    Ok(found)
}
