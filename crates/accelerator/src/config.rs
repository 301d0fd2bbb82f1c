//! The section `[accelerator]` of a configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

// Our choices.
/// Milliseconds that a request may take.
const DEADLINE_MS: u64 = 1000;
/// Bounds of that: shorter than a scheduler's pause would set good devices aside, and whoever waits for one that
/// has died waits so long.
const DEADLINES_MS: std::ops::RangeInclusive<u64> = 10..=60_000;

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no device, or there are two.
    #[error("name the device with either `socket` or `uio`")]
    Device,
    /// `from` is neither a number nor a word that it knows.
    #[error("`from` is \"measured\" or a number of bytes, not {0:?}")]
    From(String),
    /// `deadline_ms` is out of bounds.
    #[error("`deadline_ms` is between 10 and 60000, not {0}")]
    Deadline(u64),
}

/// The way to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceConfig {
    /// Socket of a process that is a device.
    Socket(PathBuf),
    /// `/dev/uioN`.
    Uio(PathBuf),
}

impl DeviceConfig {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Socket(path) | Self::Uio(path) => path,
        }
    }
}

/// Messages that go to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FromConfig {
    /// Those for which the device is quicker, by measurement.
    #[default]
    Measured,
    /// Messages of so many bytes and more, and all signatures.
    Bytes(usize),
}

/// The way to learn that a request is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompletionConfig {
    /// The device interrupts.
    Interrupt,
    /// The driver looks again and again.
    Polling,
    /// Polling while requests are short, interrupts while they are not.
    #[default]
    Adaptive,
}

/// A crypto device for a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Section", into = "Section")]
pub struct AcceleratorConfig {
    pub(crate) device: DeviceConfig,
    /// Messages that go to it.
    pub from: FromConfig,
    /// One in so many of its results is computed a second time; none with zero.
    pub check: u32,
    /// The way to learn that a request is done.
    pub completion: CompletionConfig,
    deadline_ms: u64,
}

impl AcceleratorConfig {
    /// Takes a relative path of the device from this folder.
    #[must_use]
    pub fn beside(mut self, folder: &Path) -> Self {
        let (DeviceConfig::Socket(path) | DeviceConfig::Uio(path)) = &mut self.device;
        *path = folder.join(&*path);
        self
    }

    /// Longest time of a request, after which the device is set aside.
    pub const fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}

/// The section as it is written.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uio: Option<PathBuf>,
    #[serde(default)]
    from: FromText,
    #[serde(default = "check")]
    check: u32,
    #[serde(default)]
    completion: CompletionConfig,
    #[serde(default = "deadline_ms")]
    deadline_ms: u64,
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(untagged)]
enum FromText {
    Bytes(usize),
    Word(String),
}

const MEASURED: &str = "measured";

impl Default for FromText {
    fn default() -> Self {
        Self::Word(MEASURED.to_owned())
    }
}

/// All: without it nothing shows a wrong byte in a mode without a tag.
const fn check() -> u32 {
    1
}

const fn deadline_ms() -> u64 {
    DEADLINE_MS
}

impl TryFrom<Section> for AcceleratorConfig {
    type Error = ConfigError;

    fn try_from(section: Section) -> Result<Self, ConfigError> {
        let device = match (section.socket, section.uio) {
            (Some(socket), None) => DeviceConfig::Socket(socket),
            (None, Some(uio)) => DeviceConfig::Uio(uio),
            _ => return Err(ConfigError::Device),
        };
        let from = match section.from {
            FromText::Bytes(bytes) => FromConfig::Bytes(bytes),
            FromText::Word(word) if word == MEASURED => FromConfig::Measured,
            FromText::Word(word) => return Err(ConfigError::From(word)),
        };
        if !DEADLINES_MS.contains(&section.deadline_ms) {
            return Err(ConfigError::Deadline(section.deadline_ms));
        }
        Ok(Self {
            device,
            from,
            check: section.check,
            completion: section.completion,
            deadline_ms: section.deadline_ms,
        })
    }
}

impl From<AcceleratorConfig> for Section {
    fn from(config: AcceleratorConfig) -> Self {
        let (socket, uio) = match config.device {
            DeviceConfig::Socket(path) => (Some(path), None),
            DeviceConfig::Uio(path) => (None, Some(path)),
        };
        Self {
            socket,
            uio,
            from: match config.from {
                FromConfig::Measured => FromText::default(),
                FromConfig::Bytes(bytes) => FromText::Bytes(bytes),
            },
            check: config.check,
            completion: config.completion,
            deadline_ms: config.deadline_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AcceleratorConfig, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn a_section_with_a_device_has_defaults_for_the_rest() {
        let config = parse("socket = \"/run/accelerator\"").unwrap();
        assert_eq!(config.device.path(), Path::new("/run/accelerator"));
        assert_eq!((config.from, config.check), (FromConfig::Measured, 1));
        assert_eq!(config.completion, CompletionConfig::Adaptive);
        assert_eq!(config.deadline(), Duration::from_secs(1));
        let beside = |text| parse(text).unwrap().beside(Path::new("/etc/cordon"));
        assert_eq!(
            beside("socket = \"a\"").device.path(),
            Path::new("/etc/cordon/a")
        );
        assert_eq!(
            beside("uio = \"/dev/uio0\"").device.path(),
            Path::new("/dev/uio0")
        );
        let text = "uio = \"/dev/uio3\"\nfrom = 1024\ncheck = 64\ncompletion = \"interrupt\"\ndeadline_ms = 10\n";
        let config = parse(text).unwrap();
        assert_eq!(config.from, FromConfig::Bytes(1024));
        assert_eq!(config.deadline(), Duration::from_millis(10));
        assert_eq!(toml::to_string(&config).unwrap(), text);
        assert_eq!(
            parse("uio = \"/dev/uio3\"\nfrom = \"measured\"")
                .unwrap()
                .from,
            FromConfig::Measured
        );
    }

    #[test]
    fn documents_name_every_setting_with_its_default_and_show_a_section() {
        let reference = include_str!("../../../docs/configuration.md");
        for device in ["socket", "uio"] {
            let config = parse(&format!("{device} = \"/a\"")).unwrap();
            for (name, value) in toml::Table::try_from(&config).unwrap() {
                let default = match (name.as_str(), value) {
                    ("socket" | "uio", _) => "|".to_owned(),
                    ("check" | "deadline_ms", value) => format!("{value} |"),
                    (_, value) => format!("`{value}` |"),
                };
                let row = format!("| `{name}` | {default} ");
                assert!(
                    reference.contains(&row),
                    "docs/configuration.md lacks {row:?}"
                );
            }
        }
        let guide = include_str!("../../../docs/operations.md");
        let (_, guide) = guide.split_once("## Use an accelerator\n").unwrap();
        let (_, example) = guide.split_once("```toml\n[accelerator]\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        assert_eq!(parse(example).unwrap().from, FromConfig::Bytes(1024));
    }

    #[test]
    fn a_section_that_means_nothing_is_refused() {
        for (text, says) in [
            ("", "either `socket` or `uio`"),
            ("socket = \"/a\"\nuio = \"/b\"", "either `socket` or `uio`"),
            ("socket = \"/a\"\nfrom = \"never\"", "not \"never\""),
            ("socket = \"/a\"\ndeadline_ms = 9", "not 9"),
            ("socket = \"/a\"\ndeadline_ms = 60001", "not 60001"),
            ("socket = \"/a\"\nfrom = -1", "from"),
            ("socket = \"/a\"\nform = 1", "unknown field `form`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains(says) || (says == "from" && !error.is_empty()),
                "{text}: {error}"
            );
        }
    }
}
