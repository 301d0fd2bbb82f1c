//! Manual keys: the associations that a configuration describes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ipsec::lifetime::Lifetime;
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, OuterHeaders, Protocol,
    SaParameters, UdpEncapsulation,
};
use ipsec::selector::{AddressRange, Selector};
use ipsec::tunnel::{Dscp, Tunnel};
use offload::KeyMaterial;

use crate::config::{ConfigError, DscpConfig, Encapsulation, KeyConfig, StaticConfig};
use crate::error::StartError;
use crate::rekey::SaPair;
use crate::reservation::ReservationStore;

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
        accelerator: None,
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
pub fn open_store(config: &StaticConfig) -> Result<ReservationStore, StartError> {
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

/// Builds the selectors of the tunnel.
pub(crate) fn selectors(config: &StaticConfig) -> Vec<Selector> {
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
pub(crate) fn transport_overhead(config: &StaticConfig) -> Result<u16, ConfigError> {
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
pub fn inner_mtu(config: &StaticConfig, pairs: &[SaPair]) -> Result<u16, ConfigError> {
    let in_tunnel = pairs.iter().map(|pair| pair.outbound.inner_mtu()).min();
    let largest = match config.is_transport() {
        true => config.path.mtu.saturating_sub(transport_overhead(config)?),
        false => in_tunnel
            .and_then(|mtu| u16::try_from(mtu).ok())
            .unwrap_or(u16::MAX),
    };
    Ok(config.interface.mtu.unwrap_or(largest))
}
