//! Settings that a server and its devices have in common.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Ciphers that may protect the tunnel, the default first.
const AEADS: [&str; 4] = [
    "AES-256-GCM",
    "AES-128-GCM",
    "AES-192-GCM",
    "CHACHA20-POLY1305",
];

/// IBC ciphers that OpenVPN can use.
const RESEARCH: [&str; 5] = [
    "INDECT-128-CBC",
    "INDECT-192-CBC",
    "INDECT-256-CBC",
    "INDECT-320-CBC",
    "INDECT-128-VH-CBC",
];

/// The cipher of the data channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DataCipher(String);

impl DataCipher {
    /// Tells the IBC ciphers from the others.
    pub fn is_research(&self) -> bool {
        RESEARCH.contains(&self.0.as_str())
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for DataCipher {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut known = AEADS.into_iter().chain(RESEARCH);
        known
            .find(|cipher| cipher.eq_ignore_ascii_case(name))
            .map(|cipher| Self(cipher.to_owned()))
            .ok_or_else(|| format!("unknown cipher, choose from {}", AEADS.join(", ")))
    }
}

impl TryFrom<String> for DataCipher {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<DataCipher> for String {
    fn from(cipher: DataCipher) -> Self {
        cipher.0
    }
}

/// An IPv4 network that OpenVPN can hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: Ipv4Addr,
    prefix: u8,
}

impl Network {
    pub(super) fn address(self) -> Ipv4Addr {
        self.address
    }

    pub(super) fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(self.prefix)))
    }

    /// Whether an address is the network's, and neither its own nor that of all hosts.
    fn has_host(self, address: Ipv4Addr) -> bool {
        address & self.mask() == self.address
            && address != self.address
            && address != self.address | !self.mask()
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WANTED: &str = "expected an IPv4 network of 16 to 29 bits such as 10.8.0.0/24";
        let (address, prefix) = text.split_once('/').ok_or(WANTED)?;
        let network = Self {
            address: address.parse().map_err(|_| WANTED)?,
            prefix: prefix.parse().map_err(|_| WANTED)?,
        };
        if !(16..=29).contains(&network.prefix)
            || network.address & !network.mask() != Ipv4Addr::UNSPECIFIED
        {
            return Err(WANTED.to_owned());
        }
        Ok(network)
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        format!("{}/{}", network.address, network.prefix)
    }
}

/// Which packets the tunnel carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// IP packets (layer 3).
    #[default]
    Tun,
    /// Ethernet frames (layer 2).
    Tap,
}

impl FromStr for Device {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "tun" => Ok(Self::Tun),
            "tap" => Ok(Self::Tap),
            _ => Err("choose tun (IP packets) or tap (Ethernet frames)".to_owned()),
        }
    }
}

/// Protocol that carries the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    #[default]
    Udp,
    Tcp,
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "udp" => Ok(Self::Udp),
            "tcp" => Ok(Self::Tcp),
            _ => Err("choose udp or tcp".to_owned()),
        }
    }
}

/// Addresses of a bridged network that devices get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WANTED: &str = "expected a range of IPv4 addresses such as 192.0.2.128-192.0.2.191";
        let (first, last) = text.split_once('-').ok_or(WANTED)?;
        let range = Self {
            first: first.parse().map_err(|_| WANTED)?,
            last: last.parse().map_err(|_| WANTED)?,
        };
        match range.first <= range.last {
            true => Ok(range),
            false => Err(WANTED.to_owned()),
        }
    }
}

impl TryFrom<String> for AddressRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        format!("{}-{}", range.first, range.last)
    }
}

impl AddressRange {
    pub(super) fn first(self) -> Ipv4Addr {
        self.first
    }

    pub(super) fn last(self) -> Ipv4Addr {
        self.last
    }
}

/// A network of the server's that devices join by a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bridge {
    /// The router of the network, or the bridge itself.
    pub gateway: Ipv4Addr,
    pub pool: AddressRange,
}

/// Settings that server and devices have in common; kept in the folder of the profiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Host under which devices reach the server; also the name in its certificate.
    pub server: String,
    pub port: u16,
    #[serde(default)]
    pub transport: Transport,
    /// Whether the server listens on IPv6 as well as on IPv4.
    #[serde(default)]
    pub ipv6: bool,
    #[serde(default)]
    pub device: Device,
    /// Addresses inside of the tunnel.
    pub network: Network,
    #[serde(default)]
    pub bridge: Option<Bridge>,
    pub cipher: DataCipher,
    /// Where `cordon` is on the server.
    #[serde(default = "default_verifier")]
    pub verifier: PathBuf,
    /// Whether each device has a key of its own for the control channel (tls-crypt-v2); folders of before have one for all.
    #[serde(default)]
    pub own_control_keys: bool,
    /// Whether `cordon vpn openvpn-guard` admits devices and ends the sessions of those that are revoked.
    #[serde(default)]
    pub guard: bool,
}

impl Settings {
    /// Refuses what does not go together.
    ///
    /// # Errors
    /// What is wrong, for the operator.
    pub fn check(&self) -> Result<(), String> {
        let Some(bridge) = self.bridge else {
            return Ok(());
        };
        if self.device != Device::Tap {
            return Err("a bridge carries Ethernet frames, and the tunnel IP packets".to_owned());
        }
        let AddressRange { first, last } = bridge.pool;
        for address in [bridge.gateway, first, last] {
            if !self.network.has_host(address) {
                let network = String::from(self.network);
                return Err(format!("{address} is no host of the network {network}"));
            }
        }
        match (first..=last).contains(&bridge.gateway) {
            true => Err(format!(
                "the gateway {} is among the addresses of devices",
                bridge.gateway
            )),
            false => Ok(()),
        }
    }
}

pub(super) fn default_verifier() -> PathBuf {
    PathBuf::from("/usr/bin/cordon")
}

/// A private key on a token, as OpenVPN names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    provider: PathBuf,
    id: String,
}

/// Bytes of a token's name at most: OpenVPN's lines have 256 characters.
const MAX_TOKEN_ID: usize = 230;

impl Token {
    /// `provider` is the PKCS#11 module on the device, `id` the certificate's serialized name as `openvpn --show-pkcs11-ids`
    /// prints it.
    ///
    /// # Errors
    /// What is wrong, for the operator.
    pub fn new(provider: &Path, id: &str) -> Result<Self, String> {
        let path = provider.to_str().unwrap_or_default();
        if !provider.is_absolute() || !path.bytes().all(is_plain) {
            let shown = provider.display().to_string();
            return Err(format!("{shown:?} is no plain absolute path of a module"));
        }
        let secret = |part: &str| part.starts_with("pin-value=") || part.starts_with("pin-source=");
        if id.split([';', ':', '?', '&']).any(secret) {
            return Err("a PIN is a secret and does not belong into a name".to_owned());
        }
        if id.is_empty() || id.len() > MAX_TOKEN_ID || !id.bytes().all(is_plain) {
            return Err(format!(
                "{id:?} is no serialized name of a certificate on a token"
            ));
        }
        Ok(Self {
            provider: provider.to_owned(),
            id: id.to_owned(),
        })
    }

    pub(super) fn provider(&self) -> &Path {
        &self.provider
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// Whether a byte stands for itself inside of single quotes in OpenVPN's configuration, where a backslash does, too.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'')
}
