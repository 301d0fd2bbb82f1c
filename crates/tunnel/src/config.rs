//! The file that describes a tunnel with manual keys.

mod algorithms;
mod firewall;
mod prefix;
#[cfg(test)]
pub(crate) mod tests;

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use ipsec::sa::{Protocol, Spi};
use offload::{Encryption, Engine, Integrity, Suite};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

pub use algorithms::{ENCRYPTION, INTEGRITY, named};
pub use firewall::{Enforce, FirewallConfig};
pub use prefix::Prefix;

/// A tunnel with manual keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticConfig {
    /// Data plane that moves the packets.
    #[serde(default)]
    pub backend: BackendConfig,
    pub interface: InterfaceConfig,
    pub path: PathConfig,
    pub sa: SaConfig,
    /// Policies of the tunnel; without any, everything between the two sides.
    #[serde(default)]
    pub policy: Vec<PolicyConfig>,
    /// Take-over by new keys.
    #[serde(default)]
    pub rekey: RekeyConfig,
    /// Treatment of packets while no tunnel takes them.
    #[serde(default)]
    pub firewall: FirewallConfig,
    pub metrics: Option<MetricsConfig>,
    /// Switches for finding out what goes wrong.
    #[serde(default)]
    pub debug: DebugConfig,
    /// A Unix socket that answers with the tunnel's state as JSON.
    pub status: Option<PathBuf>,
}

/// Data plane that moves the packets.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum BackendConfig {
    /// A thread of this program, by a TUN interface.
    #[default]
    User,
    /// The IPsec of the Linux kernel, which this program only gives policies and keys.
    Kernel,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its name, up to 15 bytes.
    pub name: String,
    /// Its addresses, with prefix length.
    #[serde(default)]
    pub addresses: Vec<Prefix>,
    /// Destinations that are routed into it.
    #[serde(default)]
    pub routes: Vec<Prefix>,
    /// Bytes of the largest packet; what the path takes unless given.
    pub mtu: Option<u16>,
    /// Whether packets are handed over as GSO super-packets. Off only for kernels where that is broken.
    #[serde(default = "yes")]
    pub offload: bool,
    /// Threads that move packets, each with a queue of the interface: 1 unless given, up to 64. Peers
    /// are spread over them, and the streams of a peer that makes several Child SAs (RFC 9611).
    #[serde(default = "one", deserialize_with = "workers")]
    pub workers: NonZeroUsize,
}

impl InterfaceConfig {
    /// Refuses several workers where there can be only one.
    pub const fn one_worker(&self, why: &'static str) -> Result<(), ConfigError> {
        match self.workers.get() {
            1 => Ok(()),
            _ => Err(ConfigError::Workers(why)),
        }
    }
}

pub const fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

fn workers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NonZeroUsize, D::Error> {
    let workers = usize::deserialize(deserializer)?;
    NonZeroUsize::new(workers)
        .filter(|workers| workers.get() <= 64)
        .ok_or_else(|| D::Error::custom("workers is a number from 1 to 64"))
}

pub const fn yes() -> bool {
    true
}

/// The two outer ends and what lies between them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PathConfig {
    /// Our address, and the port of ESP in UDP (4500 unless given).
    #[serde(deserialize_with = "endpoint")]
    pub local: SocketAddr,
    #[serde(deserialize_with = "endpoint")]
    pub remote: SocketAddr,
    /// Bytes of the largest outer packet.
    #[serde(default = "ethernet")]
    pub mtu: u16,
    /// Encapsulation of ESP; unless given, UDP. AH cannot be in UDP.
    encapsulation: Option<Encapsulation>,
    /// DSCP of outer packets in tunnel mode; 0 unless given.
    #[serde(default)]
    pub dscp: DscpConfig,
    /// Whose code encrypts packets.
    #[serde(default)]
    pub engine: EngineConfig,
    /// Mark of outer packets in transport mode, by which policy routing tells them from inner ones,
    /// and number of the routing table for the latter.
    #[serde(default = "mark")]
    pub mark: NonZeroU32,
}

/// Whose code encrypts packets. Both give the same bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EngineConfig {
    /// Our own vector code where the processor runs it, else the library's.
    #[default]
    Fastest,
    /// The library's (AWS-LC), whatever the processor.
    Library,
}

impl From<EngineConfig> for Engine {
    fn from(config: EngineConfig) -> Self {
        match config {
            EngineConfig::Fastest => Self::Fastest,
            EngineConfig::Library => Self::Library,
        }
    }
}

/// Encapsulation of ESP (RFC 3948, RFC 4303).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    /// UDP: fast, and passes address translation.
    Udp,
    /// Nothing: IP protocol 50 or 51.
    None,
}

/// Origin of the outer DSCP (RFC 4301 §5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DscpConfig {
    /// The inner packet. Shows the network between which traffic is urgent.
    Copy,
    /// Always this one, up to 63.
    Fixed(u8),
}

impl Default for DscpConfig {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl<'de> Deserialize<'de> for DscpConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u8),
            Word(String),
        }
        match Either::deserialize(deserializer) {
            Ok(Either::Number(dscp @ 0..64)) => Ok(Self::Fixed(dscp)),
            Ok(Either::Word(word)) if word == "copy" => Ok(Self::Copy),
            _ => Err(D::Error::custom(
                "dscp is \"copy\" or a number from 0 to 63",
            )),
        }
    }
}

/// "CP", for Cordon's policy routing.
pub const fn mark() -> NonZeroU32 {
    match NonZeroU32::new(0x4350) {
        Some(mark) => mark,
        None => NonZeroU32::MIN,
    }
}

/// Packets of the kernel's largest replay window (linux/xfrm.h, `XFRMA_REPLAY_ESN_MAX` / 4 / 8 words).
const KERNEL_WINDOW: u32 = 4096;

/// The port of ESP in UDP (RFC 3948 §2.1).
const ESP_PORT: u16 = 4500;

fn endpoint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let with_port = text.parse::<SocketAddr>();
    with_port
        .or_else(|_| Ok(SocketAddr::new(text.parse::<IpAddr>()?, ESP_PORT)))
        .map_err(|_: std::net::AddrParseError| {
            D::Error::custom(format!(
                "{text:?} is no address, such as 192.0.2.1 or 192.0.2.1:4500"
            ))
        })
}

pub const fn ethernet() -> u16 {
    1500
}

/// Algorithms and keys of both directions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaConfig {
    /// Protecting protocol; ESP unless given.
    #[serde(default)]
    pub protocol: ProtocolConfig,
    /// Protected part; whole packets between gateways unless given.
    #[serde(default)]
    pub mode: ModeConfig,
    /// ESP's encryption algorithm; none for AH.
    #[serde(default, deserialize_with = "encryption")]
    pub encryption: Option<Encryption>,
    /// The integrity algorithm; none for combined modes.
    #[serde(default, deserialize_with = "integrity")]
    pub integrity: Option<Integrity>,
    /// 64-bit sequence numbers.
    #[serde(default = "yes")]
    pub extended_sequence: bool,
    /// Packets of the replay window.
    #[serde(default)]
    pub replay_window: u32,
    /// Folder that says which sequence numbers of a key were used: they are never used again.
    #[serde(default = "sequence_numbers")]
    pub sequence_numbers: PathBuf,
    /// Keys of what we send.
    pub outbound: KeyConfig,
    /// Keys of what we receive.
    pub inbound: KeyConfig,
}

fn sequence_numbers() -> PathBuf {
    "/var/lib/cordon/sequence-numbers".into()
}

/// The protocol that protects.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ProtocolConfig {
    /// Encapsulating Security Payload (RFC 4303).
    #[default]
    Esp,
    /// Authentication Header (RFC 4302): everything stays readable.
    Ah,
}

/// Protected part of packets (RFC 4301 §3.2).
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ModeConfig {
    /// Whole packets, between two gateways.
    #[default]
    Tunnel,
    /// Packets that the two hosts themselves send each other.
    Transport,
}

/// Keys of one direction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// The association's SPI, at least 256.
    #[serde(deserialize_with = "spi")]
    pub spi: Spi,
    /// Encryption key in hexadecimal, for combined modes with 4 bytes of salt behind it.
    #[serde(default, deserialize_with = "key")]
    pub encryption_key: Zeroizing<Vec<u8>>,
    /// Integrity key in hexadecimal.
    #[serde(default, deserialize_with = "key")]
    pub integrity_key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyConfig")
            .field("spi", &self.spi)
            .finish_non_exhaustive()
    }
}

/// Counters over HTTP, for Prometheus.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// Address of `/metrics`, without encryption or login: one of this host only.
    pub listen: SocketAddr,
}

/// Switches for finding out what goes wrong. They are not for use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DebugConfig {
    /// A new file that gets all inner packets in the clear.
    pub capture: Option<PathBuf>,
    /// Bytes after which it ends.
    pub capture_limit: u64,
}

impl DebugConfig {
    /// Whether it goes together with an interface.
    pub fn check(&self, interface: &InterfaceConfig) -> Result<(), ConfigError> {
        match &self.capture {
            Some(_) => interface.one_worker("cannot write one capture"),
            None => Ok(()),
        }
    }
}

impl Default for DebugConfig {
    fn default() -> Self {
        Self {
            capture: None,
            capture_limit: 64 * 1024 * 1024,
        }
    }
}

/// Take-over by new keys from old ones.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RekeyConfig {
    /// Seconds after which we send with a new key even if the far side did not show that it has it.
    #[serde(deserialize_with = "seconds")]
    pub switch_after: Duration,
    /// Seconds for which an old key still opens packets after the far side began to use the new one.
    #[serde(deserialize_with = "seconds")]
    pub drain: Duration,
}

impl Default for RekeyConfig {
    fn default() -> Self {
        Self {
            switch_after: Duration::from_secs(2),
            drain: Duration::from_secs(10),
        }
    }
}

/// Up to a day.
pub fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration <= Duration::from_secs(86_400))
        .ok_or_else(|| D::Error::custom("a number of seconds from 0 to 86400"))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Addresses on our side.
    pub local: Prefix,
    /// Addresses on the far side.
    pub remote: Prefix,
    /// Upper-layer protocol number; any unless given.
    pub protocol: Option<u8>,
}

fn encryption<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Encryption>, D::Error> {
    named(deserializer, ENCRYPTION).map(Some)
}

fn integrity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Integrity>, D::Error> {
    named(deserializer, INTEGRITY).map(Some)
}

fn spi<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Spi, D::Error> {
    let value = u32::deserialize(deserializer)?;
    Spi::new(value).ok_or_else(|| D::Error::custom("SPIs below 256 are reserved"))
}

fn key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Zeroizing<Vec<u8>>, D::Error> {
    let text = Zeroizing::new(String::deserialize(deserializer)?);
    // The decoder's error would quote the key.
    let bytes = hex::decode(&*text)
        .map_err(|_| D::Error::custom("a key is an even number of hexadecimal digits"))?;
    Ok(Zeroizing::new(bytes))
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not what the file should be; says where.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// Algorithms or keys do not go together.
    #[error("[sa]: {0}")]
    Suite(#[from] offload::SuiteError),
    /// The two ends are of different families.
    #[error("[path]: {0} and {1} are of different address families")]
    Families(SocketAddr, SocketAddr),
    /// ESP without an encryption algorithm.
    #[error("[sa]: ESP needs `encryption`, if only \"null\"")]
    NoEncryption,
    /// AH with more or less than an integrity algorithm.
    #[error("[sa]: AH takes `integrity` and no `encryption`")]
    AhAlgorithms,
    /// AH covers addresses, which translation changes.
    #[error("[path]: AH cannot be carried in UDP")]
    AhInUdp,
    /// Without UDP and in transport mode, sockets belong to one address.
    #[error("[path]: {0} is no address of one host, which this mode needs")]
    Wildcard(IpAddr),
    /// In transport mode the packets' addresses are the outer ones.
    #[error("[interface]: transport mode has neither addresses nor routes")]
    InnerAddresses,
    /// Several workers share a UDP port; the rest they cannot share.
    #[error("[interface] workers: more than one {0}")]
    Workers(&'static str),
    /// The kernel's IPsec cannot do it.
    #[error("backend = \"kernel\": {0}")]
    Kernel(&'static str),
    /// One key would protect both directions.
    #[error("[sa]: both directions have the same encryption key: nonces would repeat")]
    SharedKey,
}

impl StaticConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigError`], with line and column where the text itself is wrong.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        config.protocol()?;
        let (local, remote) = (config.path.local, config.path.remote);
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ConfigError::Families(local, remote));
        }
        if config.sa.protocol == ProtocolConfig::Ah && config.encapsulation() == Encapsulation::Udp
        {
            return Err(ConfigError::AhInUdp);
        }
        let kernel = config.backend == BackendConfig::Kernel;
        let one_host =
            kernel || config.is_transport() || config.encapsulation() == Encapsulation::None;
        for address in [local.ip(), remote.ip()] {
            if one_host && (address.is_unspecified() || address.is_multicast()) {
                return Err(ConfigError::Wildcard(address));
            }
        }
        let interface = &config.interface;
        if config.is_transport() && !(interface.addresses.is_empty() && interface.routes.is_empty())
        {
            return Err(ConfigError::InnerAddresses);
        }
        let keys = [&config.sa.outbound, &config.sa.inbound];
        let shared = |key: fn(&KeyConfig) -> &Zeroizing<Vec<u8>>| {
            let [ours, theirs] = keys.map(key);
            !ours.is_empty() && ours == theirs
        };
        if shared(|keys| &keys.encryption_key) {
            return Err(ConfigError::SharedKey);
        }
        if config.encapsulation() == Encapsulation::None {
            interface
                .one_worker("needs encapsulation in UDP: every raw socket gets every packet")?;
        }
        if kernel {
            interface.one_worker("is not for the kernel, which uses all cores anyway")?;
            config.check_kernel()?;
        }
        config.debug.check(interface)?;
        Ok(config)
    }

    /// Refuses, rather than leaves out, what only our own data plane does.
    fn check_kernel(&self) -> Result<(), ConfigError> {
        let mixed = |policy: &PolicyConfig| {
            policy.local.address.is_ipv4() != policy.remote.address.is_ipv4()
        };
        let foreign =
            |policy: &PolicyConfig| policy.local.address.is_ipv4() != self.path.local.is_ipv4();
        let what = match self {
            _ if self.debug.capture.is_some() => "[debug] capture: use tcpdump on the interface",
            _ if !matches!(self.path.dscp, DscpConfig::Copy | DscpConfig::Fixed(0)) => {
                "[path] dscp is \"copy\" or 0"
            }
            _ if self.sa.replay_window > KERNEL_WINDOW => "[sa] replay_window is at most 4096",
            _ if self.policy.iter().any(mixed) => {
                "[[policy]]: local and remote are of one address family"
            }
            _ if self.is_transport() && self.policy.iter().any(foreign) => {
                "[[policy]]: transport mode has the address family of [path]"
            }
            _ => return Ok(()),
        };
        Err(ConfigError::Kernel(what))
    }

    /// Protocol and algorithms.
    ///
    /// # Errors
    /// Where algorithms do not go together.
    pub fn protocol(&self) -> Result<Protocol, ConfigError> {
        let (encryption, integrity) = (self.sa.encryption, self.sa.integrity);
        match (self.sa.protocol, encryption, integrity) {
            #[cfg(feature = "lab")]
            (ProtocolConfig::Esp, Some(Encryption::Null), None) => {
                tracing::warn!("neither encryption nor integrity: packets go in the clear");
                Ok(Protocol::Esp(Suite::unprotected()))
            }
            (ProtocolConfig::Esp, Some(encryption), _) => {
                Ok(Protocol::Esp(Suite::new(encryption, integrity)?))
            }
            (ProtocolConfig::Esp, None, _) => Err(ConfigError::NoEncryption),
            (ProtocolConfig::Ah, None, Some(integrity)) => Ok(Protocol::Ah(integrity)),
            (ProtocolConfig::Ah, ..) => Err(ConfigError::AhAlgorithms),
        }
    }

    /// Returns the encapsulation of ESP or AH.
    pub fn encapsulation(&self) -> Encapsulation {
        let usual = match self.sa.protocol {
            ProtocolConfig::Esp => Encapsulation::Udp,
            ProtocolConfig::Ah => Encapsulation::None,
        };
        self.path.encapsulation.unwrap_or(usual)
    }

    /// Whether the two hosts protect what they send each other.
    pub fn is_transport(&self) -> bool {
        self.sa.mode == ModeConfig::Transport
    }
}
