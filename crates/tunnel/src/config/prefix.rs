//! Networks as configuration names them.

use std::net::IpAddr;
use std::str::FromStr;

use ipsec::selector::AddressRange;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// An address with a prefix length, as in `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address, host bits included.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub bits: u8,
}

impl Prefix {
    pub const fn host(address: IpAddr) -> Self {
        let bits = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self { address, bits }
    }

    /// All addresses with this prefix.
    pub fn range(&self) -> AddressRange {
        // The length was checked when the prefix was read.
        AddressRange::prefix(self.address, self.bits)
            .unwrap_or_else(|_| AddressRange::host(self.address))
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let what = || format!("{text:?} is no address with a prefix length, such as 10.1.0.0/16");
        let (address, bits) = text.split_once('/').ok_or_else(what)?;
        let address: IpAddr = address.parse().map_err(|_| what())?;
        let bits = bits.parse().map_err(|_| what())?;
        AddressRange::prefix(address, bits).map_err(|error| error.to_string())?;
        Ok(Self { address, bits })
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}
