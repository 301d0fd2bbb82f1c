//! `cordon vpn block`, `unblock`, and what `up` and `static` do before anything else.

use std::path::{Path, PathBuf};

use clap::Args;
use commandline::{Failure, OrHint as _, Outcome, print};
use serde_json::json;
use tunnel::config::{BackendConfig, StaticConfig};
use vpn::config::DaemonConfig;
use vpn::firewall::{self, Firewall, FirewallError, Owner};
use vpn::{InterfaceError, InterfaceLock};

use crate::load::read_settings;

/// `cordon vpn unblock`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Unblock {
    /// The tunnel's configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Name of its interface, where the configuration is gone.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
}

const NO_PROGRAM: &str = "install nftables, or accept by `enforce = \"off\"` in [firewall] that packets leave in the clear \
     while the tunnel is down";
const FOREIGN: &str = "name another interface in `name` of [interface]; or, if that tunnel is not to run any more, release \
     what it protects by `cordon vpn unblock --config` with its file, or `--interface` where the file is gone";
const HELD: &str = "name another interface in `name` of [interface], or end the tunnel that has it: `cordon vpn down`, and \
     `ip link show` says whose an interface is";
const REFUSED: &str = "run as root or with CAP_NET_ADMIN, on a kernel with nftables";

/// Common part of both kinds of tunnels.
struct Described {
    interface: String,
    firewall: Option<Firewall>,
}

fn read(path: &Path) -> Outcome<Described> {
    let text = read_settings(path)?;
    let hint = "see docs/tunnels/settings.md for what the file holds";
    let what = || format!("the tunnel {}", path.display());
    let table: toml::Table = toml::from_str(&text).or_hint(what(), hint)?;
    if table.contains_key("sa") {
        let config = StaticConfig::parse(&text).or_hint(what(), hint)?;
        return Ok(Described {
            firewall: Firewall::of_static(&config),
            interface: config.interface.name,
        });
    }
    let config: DaemonConfig = toml::from_str(&text).or_hint(what(), hint)?;
    Ok(Described {
        firewall: Firewall::of_daemon(&config),
        interface: config.interface.name,
    })
}

/// Takes the interface for a tunnel that starts.
pub(super) fn lock(interface: &str, backend: BackendConfig) -> Outcome<InterfaceLock> {
    InterfaceLock::take(interface, backend).map_err(|error| {
        let hint = match error {
            InterfaceError::Held { .. } | InterfaceError::Exists(_) => HELD,
            InterfaceError::Lock { .. } => {
                "name the interface with up to 15 letters and digits in `name` of [interface]"
            }
        };
        Failure::new(anyhow::Error::new(error), hint)
    })
}

/// Says by which file a table is known.
pub(super) fn owner(path: &Path) -> Outcome<Owner> {
    Owner::of(path).or_hint(
        format!("{}", path.display()),
        "name a file in a folder that exists",
    )
}

/// Puts a tunnel's firewall into force; without one, says what that means.
pub(super) fn put_in_force(firewall: Option<&Firewall>, owner: &Owner) -> Outcome {
    let Some(firewall) = firewall else {
        tracing::warn!(
            "no firewall: while the tunnel is down, packets for the other side leave in the clear"
        );
        return Ok(());
    };
    firewall.install(owner).map_err(failed)?;
    tracing::info!(table = %firewall.table(), "unprotected packets are held back from now on");
    Ok(())
}

/// Finds what would keep a tunnel's firewall from being put into force.
pub(super) fn check(firewall: &Firewall, path: &Path) -> Outcome {
    firewall.check(&owner(path)?).map_err(failed)
}

/// Puts the firewall of a new configuration in the place of the old one's.
pub(super) fn replace(old: Option<&Firewall>, new: Option<&Firewall>, owner: &Owner) -> Outcome {
    match (old, new) {
        (_, Some(new)) => new.install(owner).map_err(failed),
        (Some(old), None) => firewall::remove(old.interface(), Some(owner)).map_err(failed),
        (None, None) => Ok(()),
    }
}

/// Says what stays in force when a tunnel ends.
pub(super) fn say_what_stays(firewall: Option<&Firewall>) {
    if let Some(firewall) = firewall {
        tracing::info!(
            table = %firewall.table(),
            "unprotected packets are still held back; `cordon vpn unblock` lets them go in the clear"
        );
    }
}

pub(super) fn block(path: &Path, json: bool) -> Outcome {
    let described = read(path)?;
    let Some(firewall) = described.firewall else {
        return Err(Failure::new(
            anyhow::anyhow!("{} asks for no firewall", path.display()),
            "remove `enforce = \"off\"` from [firewall], and name the networks of the other side",
        ));
    };
    firewall.install(&owner(path)?).map_err(failed)?;
    let value =
        json!({ "interface": described.interface, "table": firewall.table(), "blocked": true });
    let text = format!(
        "packets that {} must protect are held back",
        described.interface
    );
    print(json, &value, &text)
}

pub(super) fn unblock(which: &Unblock, json: bool) -> Outcome {
    let (interface, owner) = match (&which.interface, &which.config) {
        (Some(name), _) => (name.clone(), None),
        (None, Some(path)) => (read(path)?.interface, Some(owner(path)?)),
        (None, None) => (String::new(), None),
    };
    firewall::remove(&interface, owner.as_ref()).map_err(failed)?;
    let value = json!({ "interface": interface, "blocked": false });
    print(
        json,
        &value,
        &format!("packets for the other side of {interface} may leave in the clear"),
    )
}

pub(super) fn failed(error: FirewallError) -> Failure {
    let hint = match error {
        FirewallError::NoProgram(_) => NO_PROGRAM,
        FirewallError::Refused { .. } => REFUSED,
        FirewallError::Foreign { .. } => FOREIGN,
    };
    Failure::new(anyhow::Error::new(error), hint)
}
