//! Reading what a daemon of tunnels works with: its file, the files that this names, the process with the private keys.

use std::path::Path;

use commandline::{Failure, OrHint as _, Outcome};
use keyhost::{KeyHost, secret_file};
use vpn::daemon;
use vpn::{ResolveError, ResolvedConfig};
use zeroize::Zeroizing;

use crate::site::Control;
use crate::{crls, ocsp};

/// Bytes of a configuration at most.
const SETTINGS_MAX: u64 = 8 << 20;

/// Reads a configuration of tunnels: a file, for a pipe or device could keep the command waiting for ever.
pub(super) fn read_settings(path: &Path) -> Outcome<Zeroizing<String>> {
    text(secret_file::read_public(path, SETTINGS_MAX), path)
}

/// Reads a configuration that holds keys itself. Others must not be able to read it.
pub(super) fn read_secret_settings(path: &Path) -> Outcome<Zeroizing<String>> {
    text(secret_file::read(path, SETTINGS_MAX), path)
}

fn text(read: Result<Zeroizing<Vec<u8>>, String>, path: &Path) -> Outcome<Zeroizing<String>> {
    const HINT: &str = "name the tunnel's file; check its rights";
    let bytes = read.map_err(|what| Failure::new(anyhow::anyhow!("cannot read {what}"), HINT))?;
    let text =
        std::str::from_utf8(&bytes).or_hint(format!("cannot read {}", path.display()), HINT)?;
    Ok(Zeroizing::new(text.to_owned()))
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Something in a configuration or the files that it names that cannot be used.
pub(super) struct Mistake {
    pub(super) setting: String,
    pub(super) found: String,
    pub(super) remedy: String,
    /// The same as `up` says it.
    failure: Failure,
}

impl Mistake {
    fn of(setting: &str, failure: Failure) -> Self {
        Self {
            setting: setting.to_owned(),
            found: failure.message(),
            remedy: failure.hint().to_owned(),
            failure,
        }
    }
}

/// Reads what a configuration names, and the revocation lists.
pub(super) fn load(
    path: &Path,
    file: &str,
    signer: &KeyHost,
    control: Control,
) -> Outcome<ResolvedConfig> {
    let loaded = load_all(path, file, signer).map_err(|mistakes| {
        let first = mistakes.into_iter().next().map(|mistake| mistake.failure);
        // There is always one.
        let unknown = || Failure::new(anyhow::anyhow!("it cannot be used"), "report this");
        first.unwrap_or_else(unknown)
    });
    let mut loaded = loaded?;
    let site = loaded
        .config
        .audit
        .as_ref()
        .and_then(|audit| audit.site.as_ref());
    if let Some(site) = site.map(|site| folder_of(path).join(site)) {
        let send = move |first, events| control.send_journal(&site, first, events);
        loaded.central = Some(Box::new(send));
    }
    Ok(loaded)
}

/// Reads the same, and does not stop at the first mistake.
pub(super) fn load_all(
    path: &Path,
    file: &str,
    signer: &KeyHost,
) -> Result<ResolvedConfig, Vec<Mistake>> {
    let folder = folder_of(path);
    let read = ResolvedConfig::read_all(file, folder, signer);
    let mut loaded = read.map_err(|errors| {
        let what = format!("the tunnels in {}", path.display());
        let hint = "see docs/tunnels/settings.md for what the file holds";
        let mistake = |error: ResolveError| {
            let (setting, found) = error.parts(file);
            Mistake {
                setting,
                found,
                remedy: hint.to_owned(),
                failure: Failure::new(anyhow::Error::new(error).context(what.clone()), hint),
            }
        };
        errors.into_iter().map(mistake).collect::<Vec<_>>()
    })?;
    loaded.config.status = folder.join(&loaded.config.status);
    let lists = daemon::read_crls(loaded.crl_files());
    let lists = lists.or_hint("revocation lists", "correct `crls` of [trust]");
    let mut mistakes = Vec::new();
    for (setting, checked) in [
        ("trust.crl_urls", crls::check(loaded.crl_urls())),
        (
            "trust.ocsp_responder",
            ocsp::check(loaded.ocsp_responders()),
        ),
        ("trust.crls", lists.map(|lists| loaded.accept_crls(&lists))),
    ] {
        mistakes.extend(checked.err().map(|failure| Mistake::of(setting, failure)));
    }
    match mistakes.is_empty() {
        true => Ok(loaded),
        false => Err(mistakes),
    }
}
