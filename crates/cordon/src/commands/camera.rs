//! `cordon camera`: the field agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use camera::{Agent, Clock, Config, Environment, NoEvents};
use tokio_util::sync::CancellationToken;

use crate::cli::Camera;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::secrets;

/// Runs the command.
pub(crate) async fn run(command: Camera) -> Outcome {
    let Camera::Run { config: file } = command;
    let (config, folder) = load(&file)?;
    let passphrase = secrets::passphrase(&folder, None)?;
    let environment = Environment {
        passphrase,
        events: Arc::new(NoEvents),
        clock: Clock::system(),
    };
    let agent = Agent::prepare(config, environment).await.or_hint(
        "cannot start the camera agent",
        "check the settings and the path to the centre",
    )?;
    let stop = CancellationToken::new();
    commandline::stop_on_signals(stop.clone())?;
    agent
        .run(stop.cancelled_owned())
        .await
        .or_hint("the camera agent ended", "see the log")
}

/// Reads the agent's settings; relative paths are taken from the file's own folder.
fn load(file: &Path) -> Outcome<(Config, PathBuf)> {
    const HINT: &str = "correct the file; docs/camera.md lists every setting";
    let text = std::fs::read_to_string(file).or_hint(
        format!("cannot read {}", file.display()),
        "name the file with --config",
    )?;
    let mut config: Config = toml::from_str(&text).map_err(|error| {
        let place = crate::config::place(&text, &error);
        let message = error.message().replace('\n', " ");
        Failure::usage(format!("{}:{place}: {message}", file.display()), HINT)
    })?;
    config
        .check()
        .map_err(|e| Failure::usage(format!("{}: {e}", file.display()), HINT))?;
    let folder = file
        .parent()
        .filter(|f| !f.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let paths = [
        Some(&mut config.watch.folder),
        Some(&mut config.watch.rejected),
        config.watch.keep_sealed.as_mut(),
        Some(&mut config.spool.folder),
        Some(&mut config.identity.file),
        Some(&mut config.trust.roots),
        config.trust.authorities.as_mut(),
        Some(&mut config.trust.recipients),
        config.enrolment.as_mut().and_then(|e| e.code_file.as_mut()),
    ];
    for path in paths.into_iter().flatten() {
        *path = folder.join(&*path);
    }
    for path in [
        &config.watch.folder,
        &config.watch.rejected,
        &config.spool.folder,
    ] {
        durable::create_dir_all(path).or_hint(
            format!("cannot make {}", path.display()),
            "check the folder's rights",
        )?;
    }
    Ok((config, folder.to_owned()))
}
