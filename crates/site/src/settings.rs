//! Changes of `cordon.toml` as events: who switches a demand off leaves a trace before it is off.
//!
//! The settings of the last start lie in `settings.json`, with an authenticator under the log's key. At the next start each one that
//! differs is an event with both values. Without the file, and with one that no site has written, there is one event that says
//! which settings the site begins with, so that removing or changing it hides nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use audit::{Authenticator, Event, SharedLog};
use event_catalogue::context::Repeated;
use event_catalogue::site::{SettingChanged, SettingsBegun};
use event_catalogue::{Details as _, Recorded as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use crate::config::Config;
use crate::failure::{Failure, OrHint as _, Outcome};

/// Changes of one start that have an event each; the last one counts those beyond.
const MOST: usize = 100;
/// Characters of a value in an event.
const LONGEST: usize = 512;

/// Settings that decide who may give commands, and where plates and places lie.
const DEMANDS: [&str; 3] = [
    "administration.require",
    "registration.approvals",
    "storage.at_rest",
];
/// The setting by which this host has no registry: without it, a command would make one.
const ELSEWHERE: &str = "registry_host.address";

/// Settings by dotted name.
type Settings = BTreeMap<String, Value>;

/// Contents of `settings.json`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Kept {
    Authentic {
        settings: Settings,
        /// Of the settings as JSON without spaces, in hexadecimal.
        authenticator: String,
    },
    /// Of earlier versions.
    Bare(Settings),
}

impl Kept {
    fn new(settings: Settings, key: &Authenticator) -> Result<Self, serde_json::Error> {
        let authenticator = hex::encode(key.tag(&serde_json::to_vec(&settings)?));
        Ok(Self::Authentic {
            settings,
            authenticator,
        })
    }

    /// The settings, if a process with the log's key has written them.
    fn authentic(&self, key: &Authenticator) -> Option<&Settings> {
        let Self::Authentic {
            settings,
            authenticator,
        } = self
        else {
            return None;
        };
        let bytes = serde_json::to_vec(settings).ok()?;
        key.holds(&bytes, &hex::decode(authenticator).ok()?)
            .then_some(settings)
    }

    const fn claimed(&self) -> &Settings {
        match self {
            Self::Authentic { settings, .. } | Self::Bare(settings) => settings,
        }
    }
}

/// Refuses to open a site without its configuration if that had demands: without the file they
/// would not count.
///
/// # Errors
/// The first demand of the last start that the defaults do not make.
pub(crate) fn check_without_file(data: &Path) -> Outcome {
    let Some(before) = read(&path(data))? else {
        return Ok(());
    };
    let before = before.claimed();
    let defaults = flatten(&Config::default())?;
    for name in DEMANDS {
        if let Some(demanded) = before.get(name)
            && Some(demanded) != defaults.get(name)
        {
            let what = anyhow::anyhow!(
                "{} was opened last with {name} = {demanded}, and no configuration says so now",
                data.display()
            );
            let hint =
                "name its configuration with --config; a demand is given up in that file only";
            return Err(Failure::new(what, hint));
        }
    }
    Ok(())
}

/// Refuses to open the folder of a host without a registry as a whole site, which would make a new registry in it.
///
/// # Errors
/// For such a folder, when `config` does not name the registry's host.
pub(crate) fn check_elsewhere(data: &Path, config: &Config) -> Outcome {
    let before = read(&path(data))?;
    let elsewhere = before
        .as_ref()
        .and_then(|before| before.claimed().get(ELSEWHERE));
    match elsewhere {
        Some(host) if config.registry_host.is_none() => {
            let what = anyhow::anyhow!(
                "{} was opened last with {ELSEWHERE} = {host}: it has no registry",
                data.display()
            );
            let hint = "name its configuration with --config, or another folder with --data";
            Err(Failure::new(what, hint))
        }
        _ => Ok(()),
    }
}

/// Records what differs from the settings of the last start, then keeps these.
///
/// # Errors
/// None of the changes takes effect unless all are recorded.
pub(crate) fn record_changes(
    data: &Path,
    config: &Config,
    audit: &SharedLog,
    now: OffsetDateTime,
) -> Outcome {
    let settings = flatten(config)?;
    let path = path(data);
    let key = audit.authenticator("settings");
    let kept = read(&path)?;
    let before = kept.as_ref().and_then(|kept| kept.authentic(&key));
    if before == Some(&settings) {
        return Ok(());
    }
    let sink = crate::parts::role(audit, "site")?;
    for event in events(before, &settings, now) {
        sink.record(event).or_hint(
            "the changed settings cannot be recorded, hence do not count",
            "make room on the disk",
        )?;
    }
    let kept = Kept::new(settings, &key);
    let bytes = kept.and_then(|kept| serde_json::to_vec_pretty(&kept));
    let bytes = bytes.or_hint("the settings", "report this")?;
    durable::write_atomic(&path, &bytes, 0o600).or_hint(
        format!("cannot write {}", path.display()),
        "make room on the disk",
    )
}

fn path(data: &Path) -> PathBuf {
    data.join("settings.json")
}

fn read(path: &Path) -> Outcome<Option<Kept>> {
    match std::fs::read(path) {
        // One that makes no sense counts as none: the event that follows says so.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).or_hint(
            format!("cannot read {}", path.display()),
            "check the folder's rights and its disk",
        ),
    }
}

fn flatten(config: &Config) -> Outcome<Settings> {
    let value = serde_json::to_value(config).or_hint("the settings", "report this")?;
    let mut settings = Settings::new();
    flatten_into(&mut settings, String::new(), value);
    Ok(settings)
}

fn flatten_into(settings: &mut Settings, name: String, value: Value) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = match name.is_empty() {
                    true => field,
                    false => format!("{name}.{field}"),
                };
                flatten_into(settings, name, value);
            }
        }
        value => {
            settings.insert(name, value);
        }
    }
}

fn events(before: Option<&Settings>, after: &Settings, now: OffsetDateTime) -> Vec<Event> {
    let who = crate::console::this_process();
    let Some(before) = before else {
        // The rest when it changes.
        let [
            administration_require,
            registration_approvals,
            storage_at_rest,
        ] = DEMANDS.map(|name| text(after.get(name)));
        let first = SettingsBegun {
            administration_require,
            registration_approvals,
            storage_at_rest,
        };
        return vec![first.into_event(now, who, "settings")];
    };
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| before.get(*name) != after.get(*name));
    // Cameras are listed by the thousand, demands are few: those first.
    names.sort_by_key(|name| name.starts_with("units."));
    let more = names.len().saturating_sub(MOST);
    let mut all: Vec<Event> = names
        .into_iter()
        .take(MOST)
        .map(|name| {
            let changed = SettingChanged {
                old: text(before.get(name)),
                new: text(after.get(name)),
            };
            changed.into_event(now, who.clone(), format!("settings/{name}"))
        })
        .collect();
    if more > 0
        && let Some(last) = all.pop()
    {
        let more = Repeated {
            not_recorded: Some(more as u64),
        };
        all.push(more.add_to(last));
    }
    all
}

/// A value for people to read, bounded.
fn text(value: Option<&Value>) -> String {
    let text = match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    const NOW: OffsetDateTime = datetime!(2030-01-01 00:00 UTC);

    fn lines(before: Option<&Settings>, after: &Settings) -> Vec<String> {
        let line = |event: &Event| {
            let details = serde_json::to_value(&event.details).unwrap();
            format!("{} {} {details}", event.action, event.resource)
        };
        events(before, after, NOW).iter().map(line).collect()
    }

    fn with(change: impl FnOnce(&mut Config)) -> Settings {
        let mut config = Config::default();
        change(&mut config);
        flatten(&config).unwrap()
    }

    #[test]
    fn a_demand_that_is_switched_off_is_an_event_with_both_values() {
        let before = with(|c| c.administration.require = crate::config::Require::Certificate);
        let after = with(|_| ());
        let expected = r#"settings.change settings/administration.require {"new":"unix-user","old":"certificate"}"#;
        assert_eq!(lines(Some(&before), &after), [expected]);
        assert!(lines(Some(&after), &after).is_empty());
    }

    #[test]
    fn a_start_without_earlier_settings_says_what_is_demanded() {
        let expected = r#"settings.begin settings {"administration_require":"unix-user","registration_approvals":"direct","storage_at_rest":"warn"}"#;
        assert_eq!(lines(None, &with(|_| ())), [expected]);
    }

    #[test]
    fn settings_that_no_site_has_written_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let key = audit::LogKey::from_seed("audit.example.org/log", &[7; 32]).unwrap();
        let log = SharedLog::open(&folder.path().join("audit"), key).unwrap();
        let mut config = Config::default();
        config.administration.require = crate::config::Require::Certificate;
        let file = path(folder.path());
        let start = |config: &Config| {
            let before = log.view().unwrap().size();
            record_changes(folder.path(), config, &log, NOW).unwrap();
            let view = log.view().unwrap();
            let texts = (before..view.size()).map(|index| view.entry(index).unwrap());
            texts
                .map(|text| String::from_utf8(text).unwrap())
                .collect::<Vec<_>>()
        };
        assert!(start(&config)[0].contains("settings.begin"));
        assert!(start(&config).is_empty());
        // An editor of the configuration can edit this file as well.
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("certificate", "unix-user")).unwrap();
        let said = start(&Config::default());
        assert!(
            said.len() == 1 && said[0].contains("settings.begin"),
            "{said:?}"
        );
        assert!(start(&Config::default()).is_empty());
        // Files of earlier versions have no authenticator.
        let bare = serde_json::to_vec(&flatten(&Config::default()).unwrap()).unwrap();
        std::fs::write(&file, &bare).unwrap();
        check_without_file(folder.path()).unwrap();
        assert!(start(&Config::default())[0].contains("settings.begin"));
        assert!(start(&config)[0].contains("settings.change"));
        check_without_file(folder.path()).unwrap_err();
    }

    #[test]
    fn thousands_of_cameras_leave_room_for_the_demands() {
        let before = with(|_| ());
        let after = with(|c| {
            for number in 0..1000 {
                let camera = format!("camera-{number}");
                c.units.cameras.insert(camera, "x".repeat(10_000));
            }
            c.storage.at_rest = crate::config::AtRest::Asserted;
        });
        let lines = lines(Some(&before), &after);
        assert_eq!(lines.len(), MOST);
        assert!(lines[0].contains("storage.at_rest"), "{}", lines[0]);
        assert!(lines[MOST - 1].contains(r#""not_recorded":901"#));
        assert!(lines.iter().all(|line| line.len() < 1000));
    }
}
