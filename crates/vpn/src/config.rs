//! The file that describes what the daemon negotiates. Secrets are in files of their own, which it names.

mod peer;
mod proposal;
mod retransmission;
mod tfc_padding;
mod transport;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use accelerator::AcceleratorConfig;
use pki::ocsp::OcspPolicy;
use pki::ocsp::client::MAX_RESPONDERS;
use tunnel::config::{
    BackendConfig, DebugConfig, DscpConfig, EngineConfig, FirewallConfig, InterfaceConfig,
    MetricsConfig, ModeConfig, Prefix, ethernet, mark, seconds, yes,
};
use tunnel::outer::Families;

/// UDP port of IKE (RFC 7296 §2).
pub(super) const IKE_PORT: u16 = 500;
/// UDP port of IKE and ESP behind NATs (RFC 3948 §2.1).
pub(super) const NAT_PORT: u16 = 4500;

pub use peer::PeerConfig;
pub use proposal::{EspProposalConfig, IkeProposalConfig};
pub(super) use proposal::{usual_esp, usual_ike};
pub use retransmission::RetransmissionConfig;
pub use tfc_padding::TfcPadding;
pub use transport::TransportConfig;
use transport::{eight_seconds, usual_port};

/// Everything that one daemon does.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonConfig {
    /// Data plane that moves the packets.
    #[serde(default)]
    pub backend: BackendConfig,
    /// A Unix socket that answers `cordon vpn status`, `explain`, `down` and the like.
    pub status: PathBuf,
    /// Folders that later versions of this file may name files in, beside those that it names at the start:
    /// the daemon can read no others.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    pub interface: InterfaceConfig,
    #[serde(default)]
    pub path: OuterConfig,
    /// Whose certificates are believed.
    pub trust: Option<TrustConfig>,
    /// Journal of tunnels and refusals.
    pub audit: Option<AuditConfig>,
    /// Treatment of packets while no tunnel takes them.
    #[serde(default)]
    pub firewall: FirewallConfig,
    /// File with the secret by which peers learn at once that we were restarted (RFC 6290); made when it is
    /// missing.
    pub crash_secret: Option<PathBuf>,
    /// File with the keys of the tickets with which peers resume their sessions (RFC 5723); made when it is missing.
    /// Without it peers get no tickets.
    pub session_tickets: Option<PathBuf>,
    pub metrics: Option<MetricsConfig>,
    /// Crypto device to which packets are offered.
    pub accelerator: Option<AcceleratorConfig>,
    /// Switches for finding out what goes wrong.
    #[serde(default)]
    pub debug: DebugConfig,
    #[serde(default)]
    pub pool: Vec<PoolConfig>,
    /// Relations to peers; where several fit, the one that names the peer most precisely counts, then the first.
    #[serde(default)]
    pub connection: Vec<ConnectionConfig>,
}

impl DaemonConfig {
    /// Addresses of the inner interface.
    pub(super) fn own_addresses(&self) -> BTreeSet<IpAddr> {
        let all = self.interface.addresses.iter();
        all.map(|prefix| prefix.address).collect()
    }

    /// Names a setting that the kernel's IPsec cannot do.
    pub(super) fn unfit_for_kernel(&self) -> Option<&'static str> {
        match self {
            _ if self.debug.capture.is_some() => {
                Some("[debug] capture: use tcpdump on the interface")
            }
            _ if self.accelerator.is_some() => {
                Some("[accelerator]: the kernel takes devices by drivers of its own")
            }
            _ if !matches!(self.path.dscp, DscpConfig::Copy | DscpConfig::Fixed(0)) => {
                Some("[path] dscp is \"copy\" or 0")
            }
            _ => None,
        }
    }
}

/// The outer side of all tunnels.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct OuterConfig {
    /// Address on which UDP ports 500 and 4500 are opened; all IPv4 addresses unless given.
    pub listen: IpAddr,
    /// With `listen = "::"`: the same ports serve IPv4 as well.
    pub dual_stack: bool,
    /// Bytes of the largest outer packet.
    pub mtu: u16,
    /// DSCP of outer packets.
    pub dscp: DscpConfig,
    pub encapsulation: Carrier,
    /// Whose code encrypts packets.
    pub engine: EngineConfig,
    /// TCP port on which peers may come that UDP does not reach (RFC 9329); none unless given.
    pub tcp_port: Option<NonZeroU16>,
    /// Mark of outer packets, where there is a child in transport mode: policy routing tells them from
    /// inner ones by it. Number of the routing table for the latter as well.
    pub mark: NonZeroU32,
}

/// Encapsulation of ESP of negotiated tunnels.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// UDP, whatever lies between: fast, and addresses may change.
    #[default]
    Udp,
    /// UDP behind address translation, nothing otherwise.
    Auto,
    /// Nothing: IP protocol 50. Peers behind address translation are refused.
    Native,
}

impl OuterConfig {
    /// Address families that its sockets serve.
    pub(super) const fn families(&self) -> Families {
        match self.dual_stack {
            true => Families::Both,
            false => Families::One,
        }
    }

    /// Whether packets go to an address of this family.
    pub(super) const fn reaches(&self, remote: IpAddr) -> bool {
        self.dual_stack || remote.is_ipv4() == self.listen.is_ipv4()
    }
}

impl Default for OuterConfig {
    fn default() -> Self {
        Self {
            listen: Ipv4Addr::UNSPECIFIED.into(),
            dual_stack: false,
            mtu: ethernet(),
            dscp: DscpConfig::default(),
            encapsulation: Carrier::default(),
            engine: EngineConfig::default(),
            tcp_port: None,
            mark: mark(),
        }
    }
}

/// Whose certificates are believed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TrustConfig {
    /// Files with certificates of authorities (PEM): a peer's certificate must lead to one of them. The
    /// devices CA alone lets devices in and nobody else. None where each connection has its own.
    #[serde(default)]
    pub anchors: Vec<PathBuf>,
    /// Files with certificates of authorities that lead to an anchor, where peers do not send them, or
    /// where there are revocation lists of theirs.
    #[serde(default)]
    pub intermediates: Vec<PathBuf>,
    /// Files with revocation lists (PEM or DER). They are read again when they change.
    #[serde(default)]
    pub crls: Vec<PathBuf>,
    /// Addresses of revocation lists, by plain HTTP: they are signed.
    #[serde(default)]
    pub crl_urls: Vec<String>,
    /// Seconds between two questions whether a list has changed, at least 1. Without it 2, where the publisher marks its lists
    /// with entity tags (a site does), and 300 where the whole list comes each time.
    #[serde(default, deserialize_with = "pause")]
    pub crl_refresh: Option<Duration>,
    /// Whether a peer is refused when an authority above it has no current revocation list.
    #[serde(default)]
    pub require_crl: bool,
    /// Demand on OCSP responses, which peers send along with their certificates (RFC 4806).
    #[serde(default)]
    pub ocsp: OcspPolicy,
    /// Responders that are asked by plain HTTP about a peer that brings no response, in this order: one
    /// address, or a list.
    #[serde(default, deserialize_with = "one_or_more")]
    pub ocsp_responder: Vec<String>,
}

impl TrustConfig {
    /// Why responders could not be asked as it is written.
    pub(super) const fn unfit_responders(&self) -> Option<&'static str> {
        match (self.ocsp_responder.len(), self.ocsp) {
            (0, _) => None,
            (_, OcspPolicy::Off) => Some(
                "`ocsp_responder` needs ocsp = \"if-given\" or \"required\": with \"off\" nobody is asked",
            ),
            (1..=MAX_RESPONDERS, _) => None,
            _ => Some("`ocsp_responder` names more than 4 responders"),
        }
    }
}

/// Authorities of one connection. Revocation is demanded as `[trust]` says.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ConnectionTrustConfig {
    /// As under `[trust]`.
    pub anchors: Vec<PathBuf>,
    /// As under `[trust]`.
    #[serde(default)]
    pub intermediates: Vec<PathBuf>,
    /// As under `[trust]`.
    #[serde(default)]
    pub crls: Vec<PathBuf>,
}

/// Whose proof a shared secret is (RFC 7296 §2.15 lets each side have its own method).
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PskProves {
    /// Both sides prove themselves with it.
    #[default]
    Both,
    /// We do; the peer has a certificate.
    Us,
    /// The peer does; we have a certificate.
    Peer,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct AuditConfig {
    /// Its folder; made when it is missing.
    pub folder: PathBuf,
    /// Data folder of the site on this host whose central log takes the events over.
    pub site: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Its name, for `pool` of a connection.
    pub name: String,
    /// Networks of which peers get addresses.
    pub addresses: Vec<Prefix>,
    /// Name servers inside the tunnel.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
}

/// When a connection comes up.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// When the peer wants it, or by `cordon vpn connect`.
    #[default]
    None,
    /// With the daemon, and again whenever it was lost.
    Start,
    /// With the first packet for it.
    Trap,
}

/// How many IKE SAs a connection has with one identity.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum UniqueConfig {
    /// One: a new one takes the place of the one before.
    #[default]
    Replace,
    /// One: others from another address are refused while there is one.
    Keep,
    /// As many as the peer makes, up to `peer.ike_sas`.
    Never,
}

/// A relation to a peer, or to a kind of peers.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ConnectionConfig {
    pub name: String,
    /// The peer's address; any unless given. Needed to start it from here.
    pub remote: Option<IpAddr>,
    /// Our identity: a host name, an e-mail address, an IP address, a distinguished name, or `keyid:` and an
    /// opaque one. With a certificate its subject, unless given.
    pub local_id: Option<String>,
    /// Identity of the peer, in the same forms, or a pattern; `any` takes whoever has an acceptable certificate.
    pub remote_id: String,
    /// Authorities that are believed in this connection, instead of those under `[trust]`.
    pub trust: Option<ConnectionTrustConfig>,
    /// File with the secret that both sides share, mode 0600.
    pub psk_file: Option<PathBuf>,
    /// Who proves who they are with the secret; the other side has a certificate.
    #[serde(default)]
    pub psk_proves: PskProves,
    /// File with our certificate, then those of the authorities above it (PEM); or a `pkcs11:` URI.
    pub certificate: Option<PathBuf>,
    /// File with its key, mode 0600 (PEM, PKCS#8); or a `pkcs11:` URI.
    pub key: Option<PathBuf>,
    /// File with the passphrase of the key, where it is encrypted; or with the token's PIN.
    pub passphrase_file: Option<PathBuf>,
    /// File with what an OCSP responder said of the certificate (DER), for peers that ask.
    pub ocsp_response: Option<PathBuf>,
    /// Further certificates, for peers that ask for other authorities or cannot check the first.
    #[serde(default)]
    pub further_certificates: Vec<CredentialConfig>,
    /// We log in at the peer with EAP; `certificate` is for `method = "tls"` then.
    pub login: Option<LoginConfig>,
    /// Peers log in with EAP at us, after we have proved ourselves with `certificate`.
    pub eap: Option<EapConfig>,
    /// A secret on top of the key exchanges, against quantum computers (RFC 8784).
    pub ppk: Option<PpkConfig>,
    /// Algorithms, preferred first; a modern choice unless given.
    #[serde(default)]
    pub ike: Vec<IkeProposalConfig>,
    /// Seconds after which the IKE SA gets new keys.
    #[serde(default = "four_hours", deserialize_with = "seconds")]
    pub lifetime: Duration,
    /// Seconds of silence after which the peer is asked whether it lives; 0 never asks.
    #[serde(default = "half_a_minute", deserialize_with = "seconds")]
    pub liveness: Duration,
    /// When requests are repeated that the peer does not answer, and how often.
    pub retransmission: Option<RetransmissionConfig>,
    /// Whether the tunnel survives a change of addresses (MOBIKE).
    #[serde(default = "yes")]
    pub mobike: bool,
    /// Addresses of ours besides the one in use, at which the peer can reach us as well (MOBIKE).
    #[serde(default)]
    pub further_addresses: Vec<IpAddr>,
    /// Bounds of a peer.
    pub peer: Option<PeerConfig>,
    /// Several connections with the same name here lead to one site, whose networks any may hold.
    pub redundancy_group: Option<String>,
    /// Pool from which the peer gets addresses inside the tunnel.
    pub pool: Option<String>,
    /// Addresses inside the tunnel that we ask the peer for.
    #[serde(default)]
    pub request: Vec<Family>,
    /// How IKE and ESP go to `remote`.
    #[serde(default)]
    pub transport: TransportConfig,
    /// TCP port of the peer, where they go over TCP.
    #[serde(default = "usual_port")]
    pub tcp_port: NonZeroU16,
    /// Seconds without an answer over UDP after which TCP is tried, from 1 to 30.
    #[serde(default = "eight_seconds", deserialize_with = "seconds")]
    pub fallback_after: Duration,
    /// When it comes up.
    #[serde(default)]
    pub start: Start,
    /// How many IKE SAs there are with one identity.
    #[serde(default)]
    pub unique: UniqueConfig,
    /// Child SAs of the connection.
    #[serde(default)]
    pub child: Vec<ChildConfig>,
}

impl ConnectionConfig {
    /// Whether some child is in transport mode.
    pub(crate) fn has_transport(&self) -> bool {
        self.child
            .iter()
            .any(|child| child.mode == ModeConfig::Transport)
    }

    /// File with the secret by which we prove ourselves.
    pub(super) fn own_psk(&self) -> Option<&PathBuf> {
        let ours = self.psk_proves != PskProves::Peer;
        self.psk_file.as_ref().filter(|_| ours)
    }

    /// File with the secret by which the peer proves itself.
    pub(super) fn peer_psk(&self) -> Option<&PathBuf> {
        let theirs = self.psk_proves != PskProves::Us;
        self.psk_file.as_ref().filter(|_| theirs)
    }

    /// Our certificates, the first one first.
    pub(super) fn credentials(&self) -> Vec<CredentialConfig> {
        let first = self.certificate.clone().zip(self.key.clone());
        let first = first.map(|(certificate, key)| CredentialConfig {
            certificate,
            key,
            passphrase_file: self.passphrase_file.clone(),
            ocsp_response: self.ocsp_response.clone(),
        });
        let further = self.further_certificates.iter().cloned();
        first.into_iter().chain(further).collect()
    }

    /// Our address and the peer's, if some child is between these two hosts and both are definite.
    pub(super) fn hosts(&self, listen: IpAddr) -> Option<(IpAddr, IpAddr)> {
        let transport = |child: &ChildConfig| child.mode == ModeConfig::Transport;
        let definite = self.child.iter().any(transport) && !listen.is_unspecified();
        definite.then(|| Some((listen, self.remote?)))?
    }
}

/// A certificate of ours besides the first.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct CredentialConfig {
    /// As in a connection.
    pub certificate: PathBuf,
    /// As in a connection.
    pub key: PathBuf,
    /// As in a connection.
    pub passphrase_file: Option<PathBuf>,
    /// As in a connection.
    pub ocsp_response: Option<PathBuf>,
}

/// A method of EAP.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EapMethod {
    /// Name and password (EAP-MSCHAPv2).
    MsChapV2,
    /// A certificate (EAP-TLS).
    Tls,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct LoginConfig {
    pub name: String,
    pub method: EapMethod,
    /// File with the password, mode 0600; for `mschapv2`.
    pub password_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct EapConfig {
    /// Offered methods, preferred first.
    pub methods: Vec<EapMethod>,
    /// File with names and passwords, mode 0600; for `mschapv2`.
    pub users_file: Option<PathBuf>,
}

/// A secret on top of the key exchanges. Both sides must have it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PpkConfig {
    pub id: String,
    /// File with it, mode 0600.
    pub secret_file: PathBuf,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ChildConfig {
    pub name: String,
    /// Protected part; whole packets unless given.
    #[serde(default)]
    pub mode: ModeConfig,
    /// Networks on our side; with `request` the address that we get, unless given.
    #[serde(default)]
    pub local: Vec<Prefix>,
    /// Networks on the peer's side; with `pool` those of the pool, of which a peer has the address that it
    /// gets.
    #[serde(default)]
    pub remote: Vec<Prefix>,
    /// Upper-layer protocol number; any unless given.
    pub protocol: Option<u8>,
    /// Algorithms, preferred first; a modern choice unless given.
    #[serde(default)]
    pub esp: Vec<EspProposalConfig>,
    /// Seconds after which it gets new keys.
    #[serde(default = "one_hour", deserialize_with = "seconds")]
    pub lifetime: Duration,
    /// Size to which packets to the peer are padded, so that nobody on the path knows their own.
    #[serde(default)]
    pub tfc_padding: TfcPadding,
}

/// From a second up to a day: who asks without a pause asks too often.
fn pause<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let pause = seconds(deserializer)?;
    if pause < Duration::from_secs(1) {
        return Err(serde::de::Error::custom("a pause of at least 1 second"));
    }
    Ok(Some(pause))
}

fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "an address in quotation marks, or a list of them"
    )]
    enum Addresses {
        One(String),
        More(Vec<String>),
    }
    Ok(match Addresses::deserialize(deserializer)? {
        Addresses::One(address) => vec![address],
        Addresses::More(addresses) => addresses,
    })
}

const fn four_hours() -> Duration {
    Duration::from_secs(4 * 3600)
}

const fn one_hour() -> Duration {
    Duration::from_secs(3600)
}

const fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revocation_lists_are_fetched_with_a_pause() {
        let of = |line: &str| toml::from_str::<TrustConfig>(&format!("anchors = []\n{line}"));
        let pause = |line| of(line).unwrap().crl_refresh;
        let second = Some(Duration::from_secs(1));
        assert_eq!((pause(""), pause("crl_refresh = 1")), (None, second));
        for bad in ["0", "0.9", "-1", "86401"] {
            assert!(of(&format!("crl_refresh = {bad}")).is_err(), "{bad}");
        }
    }
}
