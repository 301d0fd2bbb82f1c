//! A tunnel with manual keys, from configuration to running worker.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ipsec::dataplane::DataPlane;
use ipsec::ip::protocol;
use ipsec::lifetime::Lifetime;
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, OuterHeaders, Protocol, SaError,
    SaParameters, UdpEncapsulation,
};
use ipsec::selector::{AddressRange, Selector};
use ipsec::spd::{Action, Policy, PolicyId};
use ipsec::tunnel::{Dscp, Tunnel};
use offload::KeyMaterial;

use crate::capture::Capture;
use crate::children::Children;
use crate::config::{ConfigError, DebugConfig, DscpConfig, Encapsulation, KeyConfig, StaticConfig};
use crate::kernel::KernelError;
use crate::link::{self, Link, LinkError, Peer};
use crate::outer::udp::bind_each;
use crate::outer::{Outer, PathMtu};
use crate::reservation::{ReservationError, ReservationStore};
use crate::worker::{Path, Worker, WorkerParts};
use crate::workers::{self, SaPair, Workers, WorkersHandle};

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
    /// A socket.
    #[error("{kind} socket on {address}: {source}")]
    Socket {
        /// UDP or raw.
        kind: &'static str,
        /// Where it was to be bound.
        address: std::net::SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file for a capture.
    #[error("capture {path}: {source}")]
    Capture {
        /// Its name.
        path: std::path::PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Associations.
    #[error(transparent)]
    Sa(#[from] SaError),
    /// The folder of used sequence numbers.
    #[error("folder of used sequence numbers {folder}: {source}")]
    Store {
        /// Its name.
        folder: std::path::PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Sequence numbers of a key.
    #[error(transparent)]
    Reservation(#[from] ReservationError),
    /// Configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel's IPsec.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// The pair of associations that a configuration describes, for each worker.
///
/// # Errors
/// Where algorithms and keys do not go together.
pub fn associations(config: &StaticConfig, now: Instant) -> Result<Vec<SaPair>, StartError> {
    let workers = config.interface.workers;
    let (local, remote) = (config.path.local, config.path.remote);
    let protocol = config.protocol()?;
    let in_udp = config.encapsulation() == Encapsulation::Udp;
    let mode = if config.is_transport() {
        Mode::Transport
    } else {
        Mode::Tunnel(Tunnel {
            dscp: match config.path.dscp {
                DscpConfig::Copy => Dscp::Copy,
                DscpConfig::Fixed(dscp) => Dscp::Set(dscp),
            },
            ..Tunnel::new(local.ip(), remote.ip())
        })
    };
    let parameters = |key: &KeyConfig| SaParameters {
        spi: key.spi,
        protocol,
        keys: KeyMaterial::new(&key.encryption_key, &key.integrity_key),
        extended_sequence: config.sa.extended_sequence,
        mode,
        encapsulation: in_udp.then(|| UdpEncapsulation {
            local: local.port(),
            remote: remote.port(),
        }),
        lifetime: Lifetime::default(),
        engine: config.path.engine.into(),
    };
    let options = OutboundOptions {
        outer_headers: if in_udp && !config.is_transport() {
            OuterHeaders::BySocket
        } else {
            OuterHeaders::Written
        },
        path_mtu: Some(config.path.mtu),
        ..OutboundOptions::default()
    };
    let outbound = parameters(&config.sa.outbound);
    let outbound = OutboundSa::for_workers(&outbound, options, now, workers)?;
    let options = InboundOptions {
        replay_window: config.sa.replay_window,
        selectors: selectors(config),
        ..InboundOptions::default()
    };
    let inbound = parameters(&config.sa.inbound);
    let inbound = InboundSa::for_workers(&inbound, &options, now, workers)?;
    let pair = |(outbound, inbound)| SaPair {
        outbound,
        inbound,
        remote,
    };
    Ok(outbound.into_iter().zip(inbound).map(pair).collect())
}

/// Opens the folder that knows which sequence numbers were used.
///
/// # Errors
/// [`StartError::Store`].
pub(crate) fn open_store(config: &StaticConfig) -> Result<ReservationStore, StartError> {
    let folder = &config.sa.sequence_numbers;
    ReservationStore::open(folder).map_err(|source| StartError::Store {
        folder: folder.clone(),
        source,
    })
}

/// The same associations, which use no sequence number that was used before under the same key.
///
/// # Errors
/// As [`associations`], and where nothing can be reserved.
pub(crate) fn reserved_associations(
    config: &StaticConfig,
    store: &ReservationStore,
    now: Instant,
) -> Result<Vec<SaPair>, StartError> {
    let pairs = associations(config, now)?;
    if config.sa.outbound.encryption_key.is_empty() {
        // Nothing is encrypted, so there is no nonce.
        return Ok(pairs);
    }
    let largest = match config.sa.extended_sequence {
        true => u64::MAX,
        false => u32::MAX.into(),
    };
    let reserved = store.reserve(&config.sa.outbound, largest)?;
    let with = |pair: SaPair| SaPair {
        outbound: pair.outbound.with_reserved(Arc::clone(&reserved)),
        ..pair
    };
    Ok(pairs.into_iter().map(with).collect())
}

/// What goes through the tunnel.
fn selectors(config: &StaticConfig) -> Vec<Selector> {
    let everything = |address: &str| {
        let address: IpAddr = address.parse().unwrap_or(IpAddr::from([0; 4]));
        AddressRange::prefix(address, 0).unwrap_or_else(|_| AddressRange::host(address))
    };
    if config.policy.is_empty() && config.is_transport() {
        let ends = [config.path.local, config.path.remote];
        let [local, remote] = ends.map(|end| AddressRange::host(end.ip()));
        return vec![Selector::between(local, remote)];
    }
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

/// Bytes that transport mode adds to a packet at most.
fn transport_overhead(config: &StaticConfig) -> Result<u16, ConfigError> {
    const UDP: usize = 8;
    // Pad length and next header.
    const TRAILER: usize = 2;
    let overhead = match config.protocol()? {
        Protocol::Ah(integrity) => {
            ipsec::ah::header_len(integrity.icv_len(), config.path.local.is_ipv6())
        }
        Protocol::Esp(suite) => {
            let udp = match config.encapsulation() {
                Encapsulation::Udp => UDP,
                Encapsulation::None => 0,
            };
            let cipher = suite.encryption();
            let esp = offload::transform::HEADER_LEN + cipher.iv_len();
            udp + esp + TRAILER + cipher.alignment() - 1 + suite.icv_len()
        }
    };
    Ok(u16::try_from(overhead).unwrap_or(u16::MAX))
}

/// Bytes of the largest inner packet.
pub(crate) fn inner_mtu(config: &StaticConfig, pairs: &[SaPair]) -> Result<u16, ConfigError> {
    let in_tunnel = pairs.iter().map(|pair| pair.outbound.inner_mtu()).min();
    let largest = match config.is_transport() {
        true => config.path.mtu.saturating_sub(transport_overhead(config)?),
        false => in_tunnel
            .and_then(|mtu| u16::try_from(mtu).ok())
            .unwrap_or(u16::MAX),
    };
    Ok(config.interface.mtu.unwrap_or(largest))
}

/// The sockets that carry what is protected, one for each worker.
fn outers(config: &StaticConfig) -> Result<Vec<Outer>, StartError> {
    let (local, remote) = (config.path.local, config.path.remote);
    let mark = outer_mark(config);
    let failed = |kind| {
        move |source| StartError::Socket {
            kind,
            address: local,
            source,
        }
    };
    let (kind, protocol) = match (config.encapsulation(), config.protocol()?) {
        (Encapsulation::Udp, _) => {
            let sockets = bind_each(local, config.interface.workers)?.into_iter();
            return sockets
                .map(|socket| {
                    Outer::udp(socket, mark, config.is_transport()).map_err(failed("UDP"))
                })
                .collect();
        }
        (Encapsulation::None, Protocol::Esp(_)) => ("raw ESP", protocol::ESP),
        (Encapsulation::None, Protocol::Ah(_)) => ("raw AH", protocol::AH),
    };
    let opened = Outer::raw(local, remote, protocol, mark);
    Ok(vec![opened.map_err(failed(kind))?])
}

/// The mark of outer packets: only where they go to the same address as inner ones.
fn outer_mark(config: &StaticConfig) -> Option<u32> {
    config.is_transport().then(|| config.path.mark.get())
}

/// The routing rules of transport mode.
fn peer(config: &StaticConfig) -> Option<Peer> {
    config.is_transport().then(|| Peer {
        local: config.path.local.ip(),
        remote: config.path.remote.ip(),
        mark: config.path.mark.get(),
    })
}

/// Takes away what does not go with the interface.
///
/// # Errors
/// What the kernel refused.
pub async fn clean_up(config: &StaticConfig) -> Result<(), LinkError> {
    match peer(config) {
        Some(peer) => link::remove_peer(&peer).await,
        None => Ok(()),
    }
}

/// Creates the interface and the sockets, installs policies and associations.
///
/// # Errors
/// [`StartError`], naming what could not be had.
pub async fn start(
    config: &StaticConfig,
    seed: u64,
) -> Result<(Workers, WorkersHandle), StartError> {
    let interface = |source| StartError::Interface {
        name: config.interface.name.clone(),
        source,
    };
    // Kept by the handle, as later keys are reserved there too.
    let store = open_store(config)?;
    let pairs = reserved_associations(config, &store, Instant::now())?;
    let mtu = inner_mtu(config, &pairs)?;
    let outers = outers(config)?;
    let mut capture = capture(&config.debug)?;
    let queues = workers::queues(&config.interface).map_err(interface)?;
    let name = queues.first().map(|(tun, _)| tun.name().to_owned());
    link::configure(&Link {
        name: &name.unwrap_or_default(),
        mtu,
        uncut: UNCUT,
        addresses: &config.interface.addresses,
        routes: &config.interface.routes,
        peer: peer(config),
    })
    .await?;
    if config.is_transport() && config.path.local.is_ipv4() {
        for interface in link::strict_interfaces() {
            tracing::warn!(%interface, "rp_filter = 1 drops what the peer sends there: set it to 2");
        }
    }
    let mut made = Vec::with_capacity(pairs.len());
    for ((queues, outer), pair) in queues.into_iter().zip(outers).zip(pairs) {
        let (plane, policies) = plane(config, seed);
        let parts = WorkerParts {
            queues,
            mtu,
            outer,
            plane,
            policies,
            pair: Some(pair),
            children: Children::default(),
            rekey: config.rekey,
            path: path(config)?,
            capture: capture.take(),
        };
        made.push(Worker::new(parts).map_err(interface)?);
    }
    let (workers, handle) = Workers::new(made).map_err(interface)?;
    Ok((workers, handle.with_store(store)))
}

/// The file for inner packets, if there is to be one.
pub(crate) fn capture(debug: &DebugConfig) -> Result<Option<Capture>, StartError> {
    let Some(path) = &debug.capture else {
        return Ok(None);
    };
    tracing::warn!(
        file = %path.display(),
        "everything the tunnel carries is written to a file IN THE CLEAR"
    );
    let capture = Capture::create(path, debug.capture_limit);
    Ok(Some(capture.map_err(|source| StartError::Capture {
        path: path.clone(),
        source,
    })?))
}

/// Policies of a data plane, whose traffic the associations will protect.
fn plane(config: &StaticConfig, seed: u64) -> (DataPlane, Vec<PolicyId>) {
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
    (plane, policies)
}

fn path(config: &StaticConfig) -> Result<Path, StartError> {
    let (local, remote) = (config.path.local, config.path.remote);
    let overhead = match config.is_transport() {
        true => Some(transport_overhead(config)?),
        false => None,
    };
    let learned = PathMtu::new(local, remote, outer_mark(config));
    let learned = learned.map_err(|source| StartError::Socket {
        kind: "UDP",
        address: local,
        source,
    })?;
    Ok(Path::new(config.path.mtu, learned, overhead))
}
