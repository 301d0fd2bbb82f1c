//! Settings of the module's section in OpenSSL's configuration.

use std::ffi::{CStr, CString};
use std::path::PathBuf;

use offload_policy::{Selection, Settings as PolicySettings};

use crate::algorithm::Kind;
use crate::refusal::Refusal;

/// The engine beside software.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Nothing: all messages stay with the library.
    Library,
    /// The models of the cores.
    Model,
    /// Simulated cores: programs that `scripts/hw cores` builds. What has none goes to the library.
    Verilated {
        aes: Option<PathBuf>,
        hmac: Option<PathBuf>,
        modular: Option<PathBuf>,
    },
}

/// Algorithms that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) gcm: bool,
    pub(crate) ctr: bool,
    pub(crate) cbc: bool,
    pub(crate) cts: bool,
    pub(crate) hmac: bool,
    pub(crate) rsa: bool,
}

impl Offered {
    pub(crate) fn cipher(self, kind: Kind) -> bool {
        match kind {
            Kind::Gcm => self.gcm,
            Kind::Ctr => self.ctr,
            Kind::Cbc => self.cbc,
            Kind::Cts => self.cts,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) engine: Engine,
    pub(crate) offered: Offered,
    pub(crate) selection: Selection,
    pub(crate) check_one_in: u32,
    /// Folder for files of counters, one of each process.
    pub(crate) statistics: Option<PathBuf>,
}

const ENGINE: &CStr = c"engine";
const ALGORITHMS: &CStr = c"algorithms";
const FROM: &CStr = c"from";
const CHECK: &CStr = c"check";
const STATISTICS: &CStr = c"statistics";
const AES: &CStr = c"aes";
const HMAC: &CStr = c"hmac";
const RSA: &CStr = c"rsa";

impl Settings {
    /// Reads them by a function that gives the text under a name.
    ///
    /// # Errors
    /// [`Refusal::Setting`] with the name.
    pub(crate) fn read(text: impl Fn(&'static CStr) -> Option<CString>) -> Result<Self, Refusal> {
        let value = |name: &'static CStr| match text(name) {
            None => Ok(None),
            Some(text) => match text.into_string() {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(Refusal::Setting(name)),
            },
        };
        let path = |name| Ok::<_, Refusal>(value(name)?.map(PathBuf::from));
        let engine = match value(ENGINE)?.as_deref() {
            None | Some("library") => Engine::Library,
            Some("model") => Engine::Model,
            Some("verilated") => Engine::Verilated {
                aes: path(AES)?,
                hmac: path(HMAC)?,
                modular: path(RSA)?,
            },
            Some(_) => return Err(Refusal::Setting(ENGINE)),
        };
        let selection = match value(FROM)?.as_deref() {
            None | Some("measured") => Selection::Measured,
            Some("never") => Selection::Software,
            Some(size) => Selection::From(size.parse().map_err(|_| Refusal::Setting(FROM))?),
        };
        let check_one_in = match value(CHECK)?.as_deref() {
            // Only a second computation notices a wrong ciphertext under its right tag.
            None => 1,
            Some(number) => number.parse().map_err(|_| Refusal::Setting(CHECK))?,
        };
        let listed = value(ALGORITHMS)?.unwrap_or_else(|| "gcm ctr rsa".into());
        let mut offered = Offered {
            gcm: false,
            ctr: false,
            cbc: false,
            cts: false,
            hmac: false,
            rsa: false,
        };
        for name in listed.split([' ', ',']).filter(|name| !name.is_empty()) {
            *match name {
                "gcm" => &mut offered.gcm,
                "ctr" => &mut offered.ctr,
                "cbc" => &mut offered.cbc,
                "cts" => &mut offered.cts,
                "hmac" => &mut offered.hmac,
                "rsa" => &mut offered.rsa,
                _ => return Err(Refusal::Setting(ALGORITHMS)),
            } = true;
        }
        Ok(Self {
            engine,
            offered,
            selection,
            check_one_in,
            statistics: path(STATISTICS)?,
        })
    }

    pub(crate) fn policy(&self) -> PolicySettings {
        PolicySettings {
            selection: self.selection,
            check_one_in: self.check_one_in,
            ..PolicySettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(&CStr, &CStr)]) -> Result<Settings, Refusal> {
        Settings::read(|name| {
            let line = lines.iter().find(|(key, _)| *key == name);
            line.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn settings_have_defaults() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.engine, Engine::Library);
        assert_eq!(settings.selection, Selection::Measured);
        assert_eq!(settings.check_one_in, 1);
        assert_eq!(settings.statistics, None);
        // Records of TLS in CBC mode would fail, and other digests of HMAC: who needs them names them.
        assert!(settings.offered.gcm && settings.offered.ctr && settings.offered.rsa);
        let offered = settings.offered;
        assert!(!offered.cbc && !offered.cts && !offered.hmac);
    }

    #[test]
    fn settings_are_read() {
        let settings = read(&[
            (c"engine", c"verilated"),
            (c"aes", c"/cores/aes"),
            (c"hmac", c"/cores/hmac"),
            (c"from", c"1024"),
            (c"check", c"0"),
            (c"algorithms", c"cbc, gcm hmac"),
            (c"statistics", c"/run/statistics"),
        ]);
        let settings = settings.unwrap();
        let aes = Some(PathBuf::from("/cores/aes"));
        let expected = Engine::Verilated {
            aes,
            hmac: Some(PathBuf::from("/cores/hmac")),
            modular: None,
        };
        assert_eq!(settings.engine, expected);
        assert_eq!(settings.selection, Selection::From(1024));
        assert_eq!(settings.check_one_in, 0);
        let offered = settings.offered;
        assert!(offered.cbc && offered.gcm && offered.hmac);
        assert!(!offered.ctr && !offered.cts && !offered.rsa);
        assert_eq!(settings.statistics, Some(PathBuf::from("/run/statistics")));
        let never = read(&[(c"from", c"never")]).unwrap();
        assert_eq!(never.selection, Selection::Software);
    }

    #[test]
    fn wrong_settings_are_refused() {
        for (name, value) in [
            (c"engine", c"board"),
            (c"engine", c""),
            (c"from", c"-1"),
            (c"from", c"1k"),
            (c"check", c"all"),
            (c"algorithms", c"gcm des"),
            (c"algorithms", c"\xff"),
        ] {
            assert_eq!(read(&[(name, value)]), Err(Refusal::Setting(name)));
        }
    }
}
