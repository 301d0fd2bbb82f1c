//! What `cordon vpn up` gives up before it has a second thread.

use std::path::{Path, PathBuf};

use commandline::{Failure, OrHint as _, Outcome};
use keyhost::KeyHost;
use sys::privileges;
use toml::{Table, Value};
use vpn::confinement::{self, ConfinementError, Files};

use crate::key_process;
use crate::load::read_settings;

/// Folders that systemd makes for a service.
const OF_SERVICE: [&str; 2] = ["STATE_DIRECTORY", "RUNTIME_DIRECTORY"];

/// Starts the process with the private keys, and confines this one: to the files that the configuration
/// names, and to the system calls that tunnels take. What is started later is confined as well; the process of
/// the keys, which has its own bounds, is not.
///
/// # Errors
/// What the kernel refuses. A kernel without Landlock is accepted with a line in the log.
pub(crate) fn begin(config: &Path) -> Outcome<KeyHost> {
    let hint = "see docs/tunnels/security.md, \"What the daemon cannot do\"";
    privileges::forbid_dumps().or_hint("the tunnels cannot start", hint)?;
    let signer = key_process::start()?;
    let text = read_settings(config)?;
    let table: Table = toml::from_str(&text).map_err(|error| {
        let error = anyhow::anyhow!("{}: {error}", config.display());
        Failure::new(
            error,
            "see docs/tunnels/settings.md for what the file holds",
        )
    })?;
    let folder = config.parent().unwrap_or(Path::new("."));
    match confinement::restrict_files(&files(&table, folder)) {
        Err(error @ ConfinementError::NoLandlock) => {
            tracing::warn!("the daemon is not confined to its files: {error}");
        }
        other => other.or_hint("the tunnels cannot start", hint)?,
    }
    confinement::restrict_calls().or_hint("the tunnels cannot start", hint)?;
    Ok(signer)
}

/// The folder of the configuration and of files that it names, to read; those of what the daemon keeps, to
/// write.
fn files(table: &Table, folder: &Path) -> Files {
    let own = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let mut files = Files {
        read: vec![own.to_owned()],
        system: true,
        // For the process that fetches.
        programs: vec![PathBuf::from("/proc/self/exe")],
        ..Files::default()
    };
    named(&Value::Table(table.clone()), own, &mut files.read);
    let further = table.get("folders").and_then(Value::as_array);
    let further = further.into_iter().flatten().filter_map(Value::as_str);
    files.read.extend(further.map(|folder| own.join(folder)));
    let text = |value: &Value| value.as_str().map(|text| own.join(text));
    let parent = |file: PathBuf| file.parent().map(Path::to_owned);
    let keeps =
        ["status", "crash_secret", "session_tickets"].map(|key| table.get(key).and_then(text));
    files.write = keeps.into_iter().flatten().filter_map(parent).collect();
    let journal = table.get("audit").and_then(|audit| audit.get("folder"));
    files.write.extend(journal.and_then(text).map(existing));
    let device = table.get("accelerator").and_then(|one| one.get("uio"));
    files.write.extend(device.and_then(text));
    for name in OF_SERVICE {
        let folders = std::env::var_os(name);
        let folders = folders.iter().flat_map(std::env::split_paths);
        files.write.extend(folders.collect::<Vec<_>>());
    }
    files
}

/// The folder itself, or the one above in which it will be made.
fn existing(folder: PathBuf) -> PathBuf {
    let mut above = folder.ancestors();
    above
        .find(|path| path.is_dir())
        .map_or_else(|| folder.clone(), Path::to_owned)
}

/// Folders of the files that a value names.
fn named(value: &Value, folder: &Path, found: &mut Vec<PathBuf>) {
    match value {
        Value::String(text) => {
            let file = folder.join(text);
            if file.is_file()
                && let Some(parent) = file.parent()
            {
                found.push(parent.to_owned());
            }
        }
        Value::Array(values) => values.iter().for_each(|value| named(value, folder, found)),
        Value::Table(table) => table.values().for_each(|value| named(value, folder, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_from_the_configuration() {
        let home = tempfile::tempdir().unwrap();
        let keys = home.path().join("keys");
        std::fs::create_dir(&keys).unwrap();
        std::fs::write(keys.join("ca.pem"), "").unwrap();
        let text = r#"
            status = "run/control.sock"
            audit = { folder = "state/journal" }
            accelerator = { uio = "/dev/uio0" }
            folders = ["more"]
            [trust]
            anchors = ["keys/ca.pem"]
            [[connection]]
            remote_id = "/etc"
            local_id = "keys"
        "#;
        let found = files(&toml::from_str(text).unwrap(), home.path());
        assert_eq!(
            found.read,
            [home.path().to_owned(), keys, home.path().join("more")]
        );
        // Of the journal there is nothing yet.
        assert_eq!(
            found.write,
            [
                home.path().join("run"),
                home.path().to_owned(),
                PathBuf::from("/dev/uio0"),
            ]
        );
    }
}
