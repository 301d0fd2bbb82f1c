//! A site on several hosts: who has the registry, and who may ask it.

use std::net::SocketAddr;

use peering::PeerId;
use serde::{Deserialize, Serialize};

/// `[hosts]`, on the host with the registry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hosts {
    /// Address at which the other hosts reach this one.
    pub listen: SocketAddr,
    pub peers: Vec<Host>,
}

/// `[[hosts.peers]]`: another host of the site.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name in the log.
    pub name: String,
    /// Key that `cordon peer show` prints there.
    pub peer: PeerId,
    /// Names and addresses that the certificate of its servers may have.
    pub names: Vec<String>,
    /// `HOST:PORT` at which cameras reach its centre, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intake: Option<String>,
}

/// `[registry_host]`, on a host without a registry of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryHost {
    /// `HOST:PORT`.
    pub address: String,
    /// Key of that host.
    pub peer: PeerId,
}

impl Hosts {
    /// Address at which cameras reach a centre on another host.
    #[must_use]
    pub fn intake(&self) -> Option<(&str, u16)> {
        let mut places = self.peers.iter().filter_map(|host| host.intake.as_deref());
        places.find_map(place)
    }

    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let same = |one: &Host, other: &Host| one.peer == other.peer || one.name == other.name;
        let mut numbered = self.peers.iter().enumerate();
        let twice = numbered.find(|(number, host)| {
            let before = self.peers.iter().take(*number);
            before.into_iter().any(|other| same(host, other))
        });
        if let Some((_, host)) = twice {
            let problem = format!("has {} with the name or the key of another host", host.name);
            return Some(("hosts.peers", problem));
        }
        let mut intakes = self.peers.iter().filter_map(|host| host.intake.as_deref());
        let wrong = intakes.find(|intake| place(intake).is_none())?;
        Some((
            "hosts.peers",
            format!("has the intake {wrong:?}, not HOST:PORT"),
        ))
    }
}

fn place(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host, port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
}
