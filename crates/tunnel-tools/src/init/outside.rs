//! Place of a gateway outside: an address, or a name that has one.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// Port of IKE: names are looked up with one.
const IKE: u16 = 500;

/// An address outside, and the name by which it was found.
///
/// The daemon works with addresses: a foreign name server must neither decide where it sends, nor delay it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) address: IpAddr,
    name: Option<String>,
}

impl Outside {
    /// A line for settings that says where their address comes from.
    pub(super) fn comment(&self) -> String {
        let name = self.name.as_ref();
        name.map(|name| format!("# The address of {name} when this was written.\n"))
            .unwrap_or_default()
    }
}

impl From<IpAddr> for Outside {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            name: None,
        }
    }
}

impl FromStr for Outside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.into());
        }
        vpn::check_host(text)?;
        let found = (text, IKE).to_socket_addrs();
        let mut found = found.map_err(|error| format!("{text} has no address: {error}"))?;
        let first = found
            .next()
            .ok_or_else(|| format!("{text} has no address"))?;
        Ok(Self {
            address: first.ip(),
            name: Some(text.to_owned()),
        })
    }
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_or_name_with_an_address_is_taken() {
        let plain: Outside = "192.0.2.1".parse().unwrap();
        assert_eq!(plain.to_string(), "192.0.2.1");
        assert!(plain.comment().is_empty());
        let named: Outside = "localhost".parse().unwrap();
        assert!(named.address.is_loopback());
        assert_eq!(named.to_string(), format!("localhost ({})", named.address));
        assert!(named.comment().contains("localhost"));
        for wrong in [
            "",
            "*.example.org",
            "a b",
            "no-such-host.invalid",
            "192.0.2.300",
        ] {
            assert!(wrong.parse::<Outside>().is_err(), "{wrong}");
        }
    }
}
