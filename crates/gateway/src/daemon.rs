//! A tunnel with manual keys, from configuration to running worker.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

use ipsec::dataplane::DataPlane;
use ipsec::lifetime::Lifetime;
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, OuterHeaders, Protocol, SaError,
    SaParameters, UdpEncapsulation,
};
use ipsec::selector::{AddressRange, Selector};
use ipsec::spd::{Action, Policy};
use ipsec::tunnel::Tunnel;
use offload::KeyMaterial;
use sys::tun::Tun;

use crate::config::{ConfigError, KeyConfig, StaticConfig};
use crate::link::{self, Link, LinkError};
use crate::worker::{SaPair, Worker, WorkerHandle, WorkerParts};

/// Bytes of the largest uncut packet: protected, it still fits one send.
const UNCUT: u32 = 60_000;

/// Why a tunnel could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The TUN interface.
    #[error("interface {name}: {source}")]
    Interface {
        /// Its name.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Its addresses and routes.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The UDP socket.
    #[error("UDP socket on {address}: {source}")]
    Socket {
        /// Where it was to be bound.
        address: std::net::SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Associations.
    #[error(transparent)]
    Sa(#[from] SaError),
    /// Configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The pair of associations that a configuration describes.
///
/// # Errors
/// Where algorithms and keys do not go together.
pub fn associations(config: &StaticConfig, now: Instant) -> Result<SaPair, StartError> {
    let (local, remote) = (config.path.local, config.path.remote);
    let suite = config.suite().map_err(ConfigError::from)?;
    let parameters = |key: &KeyConfig| SaParameters {
        spi: key.spi,
        protocol: Protocol::Esp(suite),
        keys: KeyMaterial::new(&key.encryption_key, &key.integrity_key),
        extended_sequence: config.sa.extended_sequence,
        mode: Mode::Tunnel(Tunnel::new(local.ip(), remote.ip())),
        encapsulation: Some(UdpEncapsulation {
            local: local.port(),
            remote: remote.port(),
        }),
        lifetime: Lifetime::default(),
    };
    let options = OutboundOptions {
        outer_headers: OuterHeaders::BySocket,
        path_mtu: Some(config.path.mtu),
        ..OutboundOptions::default()
    };
    let outbound = OutboundSa::new(&parameters(&config.sa.outbound), options, now)?;
    let options = InboundOptions {
        replay_window: config.sa.replay_window,
        selectors: selectors(config),
        ..InboundOptions::default()
    };
    let inbound = InboundSa::new(&parameters(&config.sa.inbound), options, now)?;
    Ok(SaPair {
        outbound,
        inbound,
        remote,
    })
}

/// What goes through the tunnel.
fn selectors(config: &StaticConfig) -> Vec<Selector> {
    let everything = |address: &str| {
        let address: IpAddr = address.parse().unwrap_or(IpAddr::from([0; 4]));
        AddressRange::prefix(address, 0).unwrap_or_else(|_| AddressRange::host(address))
    };
    if config.policy.is_empty() {
        return ["0.0.0.0", "::"]
            .map(|any| Selector::between(everything(any), everything(any)))
            .to_vec();
    }
    let of = |policy: &crate::config::PolicyConfig| Selector {
        protocol: policy.protocol,
        ..Selector::between(policy.local.range(), policy.remote.range())
    };
    config.policy.iter().map(of).collect()
}

/// Creates the interface and the socket, installs policies and associations.
///
/// # Errors
/// [`StartError`], naming what could not be had.
pub async fn start(config: &StaticConfig, seed: u64) -> Result<(Worker, WorkerHandle), StartError> {
    let name = &config.interface.name;
    let interface = |source| StartError::Interface {
        name: name.clone(),
        source,
    };
    let pair = associations(config, Instant::now())?;
    let largest = u16::try_from(pair.outbound.inner_mtu()).unwrap_or(u16::MAX);
    let mtu = config.interface.mtu.unwrap_or(largest);
    let address = config.path.local;
    let socket =
        UdpSocket::bind(address).map_err(|source| StartError::Socket { address, source })?;
    let tun = Tun::create(name, config.interface.offload).map_err(interface)?;
    link::configure(&Link {
        name: tun.name(),
        mtu,
        uncut: UNCUT,
        addresses: &config.interface.addresses,
        routes: &config.interface.routes,
    })
    .await?;
    let mut plane = DataPlane::new(seed);
    let policies = selectors(config)
        .into_iter()
        .map(|selector| {
            plane.insert_policy(Policy {
                selector,
                action: Action::Protect,
                order: 0,
            })
        })
        .collect();
    let router = config
        .interface
        .addresses
        .first()
        .map(|prefix| prefix.address);
    let parts = WorkerParts {
        tun,
        mtu,
        socket,
        plane,
        policies,
        pair,
        router,
    };
    Worker::new(parts).map_err(|source| StartError::Socket { address, source })
}
