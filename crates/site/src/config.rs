//! `cordon.toml`: every setting has a default, every mistake is named with its line.

mod hosts;
mod keys;
mod storage;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use accelerator::AcceleratorConfig;
use ldap_directory::{Name, NameError, escaped};
use notices::Mail;
use serde::{Deserialize, Serialize};

pub use self::hosts::{Host, Hosts, RegistryHost};
pub use self::keys::Keys;
pub use self::storage::{AtRest, Storage};
use crate::audit_host::shipping::AuditHostPeer;
use crate::failure::{Failure, OrHint as _, Outcome};

/// Bytes of a configuration file at most; our choice.
const MAX_TEXT: u64 = 1 << 20;
/// Hours without a record after which a journal may count as silent: more than a day, as one comes each day; a year at most.
const SILENCE_HOURS: (u16, u16) = (26, 8760);
/// Longest grace for renewals after a certificate's end.
const MAX_GRACE_DAYS: u32 = 365;
/// A weekend, as [`centre::DESTRUCTION_DELAY`].
const DESTROY_AFTER_HOURS: NonZeroU16 = NonZeroU16::new(72).expect("72 is not zero");

/// The whole file. Unknown names are errors: a misspelt setting must not be ignored.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub site: Site,
    pub listen: Listen,
    pub directory: Directory,
    pub intake: Intake,
    pub enrolment: Enrolment,
    pub revocation: Revocation,
    pub units: Units,
    pub keys: Keys,
    pub administration: Administration,
    pub registration: Registration,
    pub storage: Storage,
    pub mail: Mail,
    /// The host that mirrors the audit log; none unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_host: Option<AuditHostPeer>,
    /// Other hosts of the site that may ask this one's registry and directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// The host with registry and directory, where this one has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_host: Option<RegistryHost>,
    /// Crypto device; none unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorConfig>,
}

/// Who may give commands.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Administration {
    /// What a command must show.
    pub require: Require,
}

/// What a command must show to change or hand out something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Require {
    /// That it comes from a Unix user who can enter the data folder.
    #[default]
    UnixUser,
    /// A signature by a person with the role for it.
    Certificate,
}

/// Approvals that acts of the registration authority need.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registration {
    pub approvals: Approvals,
    /// Approvals that an act needs, for each level from 0 to 4.
    pub approvers: [u8; 5],
    /// Hours for the second approval of an emergency.
    pub confirm_hours: u32,
    /// Files with fingerprints of keys that get no certificate.
    pub weak_keys: Vec<PathBuf>,
    /// Certificates (PEM) to whose keys archived keys are encrypted. Their private keys are kept elsewhere.
    pub recovery: PathBuf,
}

/// Basis on which certificates and rights are given: an order or a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Approvals {
    /// On the order of a person who may give commands.
    #[default]
    Direct,
    /// On a request that others have approved.
    Required,
}

impl Default for Registration {
    fn default() -> Self {
        Self {
            approvals: Approvals::Direct,
            approvers: [1, 1, 1, 2, 2],
            confirm_hours: 24,
            weak_keys: Vec::new(),
            recovery: PathBuf::new(),
        }
    }
}

impl Registration {
    pub fn policy(&self) -> Result<approval::Policy, approval::PolicyError> {
        let hours = time::Duration::hours(i64::from(self.confirm_hours));
        approval::Policy::new(self.approvers, hours)
    }
}

/// Who runs this system.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Site {
    /// Organisation in new certificates.
    pub organisation: String,
    /// Country in new certificates, two letters.
    pub country: String,
    /// Names and addresses under which the servers are reached.
    pub names: Vec<String>,
    /// Address of the plain HTTP listener as others reach it, for instance `http://pki.example.org`: it goes
    /// into certificates, with `/crl/…`, `/ca/…` and `/ocsp`. Empty: they name none.
    pub public_url: String,
    /// Origin of the audit log, a name without scheme that no other log has.
    pub log_origin: String,
}

/// Where the roles listen.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// The portal and the people's HTTP interface.
    pub portal: SocketAddr,
    pub intake: SocketAddr,
    /// Enrolment (EST, CMP) and revocation lists.
    pub enrolment: SocketAddr,
    /// Revocation lists and OCSP by plain HTTP, for those outside; they are signed. Without it nothing listens.
    pub public: Option<SocketAddr>,
    /// The directory over LDAP, with TLS from the first octet (`ldaps`). Without it nothing listens.
    pub ldap: Option<SocketAddr>,
    /// Prometheus metrics, without TLS: keep it on loopback or a management network.
    pub metrics: SocketAddr,
}

/// The directory over LDAP.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Directory {
    /// Distinguished name of the entry above all others; empty: `o=` and the site's organisation.
    pub base_dn: String,
}

/// Bounds of the intake.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Intake {
    /// Largest block in bytes.
    pub max_block_bytes: u64,
    /// Unfinished uploads per camera.
    pub max_open_uploads: u32,
    /// Days that an unfinished upload is kept.
    pub upload_days: u32,
    /// Bytes of refused blocks that wait for a person, a quarter of it for one camera at most.
    pub max_quarantine_bytes: u64,
    /// Bytes that one camera may announce in 24 hours.
    pub max_bytes_per_day: u64,
    /// Uploads that one camera may begin in an hour.
    pub max_uploads_per_hour: u32,
    /// Blocks of one camera in quarantine; with more it may send nothing.
    pub max_quarantined_blocks: u64,
    /// Bytes of the disk that uploads leave to index and log; at most a twentieth of it.
    pub reserved_bytes: u64,
    /// Hours between the second person's word and the earliest destruction of a block in quarantine.
    pub destroy_after_hours: NonZeroU16,
    /// Hours without a record after which the journal of a camera or gateway counts as silent. They write one a day at least.
    pub journal_silence_hours: u16,
    /// clamd: a socket's path or `host:port`; empty means no scan.
    pub clamd: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Enrolment {
    /// Days after its end in which a certificate still renews itself, if it is the newest of its device.
    pub expired_grace_days: u32,
    /// Whether devices and people enrol over CMP too, and by which listeners.
    pub cmp: Messages,
    /// Whether routers and old cameras enrol over SCEP, and by which listeners.
    pub scep: Messages,
    /// Switches on ACME at the enrolment listener, over which servers of the network enrol.
    pub acme: bool,
}

/// Transports over which messages are answered that are protected by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Messages {
    #[default]
    Off,
    /// By the enrolment listener.
    Https,
    /// By the public listener, too, without TLS: those of CMP can be read on the way.
    Http,
}

/// Revocation lists for others.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Revocation {
    /// Lists among which the revoked certificates of each authority are divided; for certificates issued from now on.
    pub shards: NonZeroU16,
}

/// Which unit a camera belongs to, for need-to-know.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Units {
    /// Unit of cameras that are not listed.
    pub default: String,
    pub cameras: BTreeMap<String, String>,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            organisation: "LEA-EU".to_owned(),
            country: "EU".to_owned(),
            names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
            public_url: String::new(),
            log_origin: "cordon.example.org/audit".to_owned(),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            portal: local(8443),
            intake: local(8444),
            enrolment: local(8445),
            public: None,
            ldap: None,
            metrics: local(9464),
        }
    }
}

impl Default for Intake {
    fn default() -> Self {
        let quota = centre::Quota::default();
        Self {
            max_block_bytes: 64 << 30,
            max_open_uploads: 64,
            upload_days: 7,
            max_quarantine_bytes: 32 << 30,
            max_bytes_per_day: quota.bytes_per_day,
            max_uploads_per_hour: quota.uploads_per_hour,
            max_quarantined_blocks: quota.quarantined_blocks,
            reserved_bytes: quota.reserved_bytes,
            destroy_after_hours: DESTROY_AFTER_HOURS,
            // Three records missed: a camera may be without its network over a weekend.
            journal_silence_hours: 72,
            clamd: String::new(),
        }
    }
}

impl Default for Enrolment {
    fn default() -> Self {
        let days = registry::RENEWAL_GRACE.whole_days();
        Self {
            expired_grace_days: u32::try_from(days).unwrap_or(0),
            cmp: Messages::Off,
            scep: Messages::Off,
            acme: false,
        }
    }
}

impl Default for Revocation {
    fn default() -> Self {
        Self {
            shards: registry::CRL_SHARDS,
        }
    }
}

impl Default for Units {
    fn default() -> Self {
        Self {
            default: "traffic".to_owned(),
            cameras: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Reads `path`, or gives the defaults when there is none.
    pub fn load(path: Option<&Path>) -> Outcome<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        const HINT: &str = "name an existing file with --config, or leave it out";
        let failed = || format!("cannot read {}", path.display());
        let mut text = String::new();
        let file = std::fs::File::open(path).or_hint(failed(), HINT)?;
        let read = file.take(MAX_TEXT + 1).read_to_string(&mut text);
        read.or_hint(failed(), HINT)?;
        if text.len() as u64 > MAX_TEXT {
            let what = anyhow::anyhow!("{}: more than {MAX_TEXT} bytes", failed());
            return Err(Failure::new(what, HINT));
        }
        Self::parse(&text, path)
    }

    /// Name of the directory's entry above all others over LDAP.
    ///
    /// # Errors
    /// None once the file is read, which checks it.
    pub(crate) fn ldap_base(&self) -> Result<Name, NameError> {
        match self.directory.base_dn.trim() {
            "" => Name::parse(&format!("o={}", escaped(&self.site.organisation))),
            name => Name::parse(name),
        }
    }

    /// Reads the text of a configuration file; `path` is for messages.
    pub(crate) fn parse(text: &str, path: &Path) -> Outcome<Self> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let message = error.message().replace('\n', " ");
            mistake(format!(
                "{}:{}: {message}",
                path.display(),
                commandline::place(text, &error)
            ))
        })?;
        match config.problem() {
            None => Ok(config),
            Some((setting, problem)) => {
                let line = line_of(text, setting);
                Err(mistake(format!(
                    "{}:{line}: {setting} {problem}",
                    path.display()
                )))
            }
        }
    }

    /// The first setting that makes no sense: its dotted name and what is wrong with it.
    fn problem(&self) -> Option<(&'static str, String)> {
        let site = &self.site;
        let country_ok =
            site.country.len() == 2 && site.country.bytes().all(|b| b.is_ascii_uppercase());
        if !country_ok {
            return Some(("site.country", "must be two capital letters".to_owned()));
        }
        if site.organisation.trim().is_empty() || site.organisation.chars().count() > 64 {
            return Some((
                "site.organisation",
                "must have 1 to 64 characters".to_owned(),
            ));
        }
        if site.names.is_empty() {
            return Some((
                "site.names",
                "must name at least one host or address".to_owned(),
            ));
        }
        if site.log_origin.is_empty() || site.log_origin.contains([' ', '+']) {
            return Some((
                "site.log_origin",
                "must be a name without spaces and plus".to_owned(),
            ));
        }
        if let Err(error) = self.ldap_base() {
            let problem = format!("is not a distinguished name: {error}");
            return Some(("directory.base_dn", problem));
        }
        let url = site.public_url.as_str();
        let plain = url.bytes().all(|b| b.is_ascii_graphic());
        let usable = url.starts_with("http://") && plain && url.len() <= 200;
        if !url.is_empty() && !usable {
            let problem = "must be an address like http://pki.example.org".to_owned();
            return Some(("site.public_url", problem));
        }
        if self.units.default.trim().is_empty() {
            return Some(("units.default", "must not be empty".to_owned()));
        }
        if let Some(mistake) = self.keys.mistake() {
            return Some(mistake);
        }
        let (least, most) = SILENCE_HOURS;
        if !(least..=most).contains(&self.intake.journal_silence_hours) {
            let problem = format!("must be {least} to {most}: a journal has a record a day");
            return Some(("intake.journal_silence_hours", problem));
        }
        if self.enrolment.expired_grace_days > MAX_GRACE_DAYS {
            let problem = format!("must be at most {MAX_GRACE_DAYS}, a certificate's life");
            return Some(("enrolment.expired_grace_days", problem));
        }
        for (setting, over) in [
            ("enrolment.cmp", self.enrolment.cmp),
            ("enrolment.scep", self.enrolment.scep),
        ] {
            if over == Messages::Http && self.listen.public.is_none() {
                let problem = "is \"http\", which takes an address in listen.public".to_owned();
                return Some((setting, problem));
            }
        }
        if self.revocation.shards.get() > registry::MAX_CRL_SHARDS {
            let problem = format!("must be at most {}", registry::MAX_CRL_SHARDS);
            return Some(("revocation.shards", problem));
        }
        if let Err(error) = self.registration.policy() {
            let setting = match error {
                approval::PolicyError::ConfirmWithin(_) => "registration.confirm_hours",
                _ => "registration.approvers",
            };
            return Some((setting, format!("makes no sense: {error}")));
        }
        if let Some(problem) = self.mail.problem() {
            return Some(problem);
        }
        if let Some(mistake) = self.hosts.as_ref().and_then(Hosts::mistake) {
            return Some(mistake);
        }
        if self.intake.max_block_bytes == 0 || self.intake.max_open_uploads == 0 {
            return Some((
                "intake.max_block_bytes",
                "and max_open_uploads must not be 0".to_owned(),
            ));
        }
        None
    }

    /// The scanner's address, when one is set.
    pub fn scanner(&self) -> Option<centre::ScannerAddress> {
        let clamd = self.intake.clamd.as_str();
        if clamd.is_empty() {
            None
        } else if clamd.starts_with('/') {
            Some(centre::ScannerAddress::Unix(PathBuf::from(clamd)))
        } else {
            Some(centre::ScannerAddress::Tcp(clamd.to_owned()))
        }
    }
}

fn mistake(message: String) -> Failure {
    Failure::usage(
        message,
        "correct the file; docs/configuration.md lists every setting",
    )
}

/// The line on which `section.key` is set; 1 when it is not (a default cannot be wrong).
fn line_of(text: &str, setting: &str) -> usize {
    let (section, key) = setting.split_once('.').unwrap_or(("", setting));
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            inside = header.trim_end_matches(']').trim() == section;
        } else if inside
            && line
                .split('=')
                .next()
                .is_some_and(|name| name.trim() == key)
        {
            return number + 1;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text, Path::new("cordon.toml"))
            .unwrap_err()
            .message()
    }

    #[test]
    fn an_empty_file_is_the_default() {
        let config = Config::parse("", Path::new("cordon.toml")).unwrap();
        assert_eq!(config.listen.portal.port(), 8443);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            (
                "[site]\ncountry = \"Europe\"\n",
                "cordon.toml:2: site.country must be two",
            ),
            (
                "[site]\n\ncolour = 1\n",
                "cordon.toml:3:1: unknown field `colour`",
            ),
            (
                "[listen]\nportal = \"here\"\n",
                "cordon.toml:2:10: invalid socket address",
            ),
            (
                "[keys]\nauthority = \"rsa-2048\"\nleaf = \"dsa\"\n",
                "cordon.toml:3: keys.leaf must",
            ),
            (
                "[registration]\napprovers = [1, 1, 1, 2, 0]\n",
                "cordon.toml:2: registration.approvers makes no sense",
            ),
            (
                "[registration]\nconfirm_hours = 0\n",
                "cordon.toml:2: registration.confirm_hours makes no sense",
            ),
            (
                "[enrolment]\ncmp = \"http\"\n",
                "cordon.toml:2: enrolment.cmp is \"http\", which takes",
            ),
            (
                "[enrolment]\nscep = \"http\"\n",
                "cordon.toml:2: enrolment.scep is \"http\", which takes",
            ),
            (
                "[enrolment]\ncmp = true\n",
                "cordon.toml:2:7: wanted string",
            ),
            (
                "[enrolment]\nacme = \"https\"\n",
                "cordon.toml:2:8: invalid type: string \"https\", expected a boolean",
            ),
            (
                "[revocation]\nshards = 257\n",
                "cordon.toml:2: revocation.shards must be at most 256",
            ),
            (
                "[revocation]\nshards = 0\n",
                "cordon.toml:2:10: invalid value",
            ),
            (
                "[directory]\nbase_dn = \"example.org\"\n",
                "cordon.toml:2: directory.base_dn is not a distinguished name",
            ),
            ("[units\n", "cordon.toml:1:7:"),
        ] {
            let message = refused(text);
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn the_scanner_is_a_socket_or_a_host() {
        let scanner = |clamd: &str| {
            let text = format!("[intake]\nclamd = \"{clamd}\"\n");
            Config::parse(&text, Path::new("c")).unwrap().scanner()
        };
        assert_eq!(scanner(""), None);
        let unix = centre::ScannerAddress::Unix("/run/clamd.ctl".into());
        assert_eq!(scanner("/run/clamd.ctl"), Some(unix));
        let tcp = centre::ScannerAddress::Tcp("127.0.0.1:3310".into());
        assert_eq!(scanner("127.0.0.1:3310"), Some(tcp));
    }
}
