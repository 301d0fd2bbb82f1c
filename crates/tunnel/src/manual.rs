//! A tunnel with manual keys, from configuration to running workers.

use std::time::Instant;

use ipsec::dataplane::DataPlane;
use ipsec::ip::protocol;
use ipsec::sa::Protocol;
use ipsec::spd::{Action, Policy, PolicyId};

use crate::associations::{
    inner_mtu, open_store, reserved_associations, selectors, transport_overhead,
};
use crate::capture::Capture;
use crate::children::Children;
use crate::config::{Encapsulation, StaticConfig};
use crate::error::StartError;
use crate::link::{self, Link, LinkError, Peer};
use crate::outer::udp::bind_each;
use crate::outer::{Families, Outer, PathMtu};
use crate::worker::{Path, Worker, WorkerParts};
use crate::workers::{GSO_MAX_SIZE, Workers, WorkersHandle, queues};

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
            let sockets = bind_each(local, config.interface.workers, Families::One)?.into_iter();
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
    // Before any socket: if the numbers cannot be reserved, nothing of the tunnel comes to be.
    let pairs = reserved_associations(config, &store, Instant::now())?;
    let mtu = inner_mtu(config, &pairs)?;
    let outers = outers(config)?;
    let mut capture = Capture::configured(&config.debug)?;
    let queues = queues(&config.interface).map_err(interface)?;
    let name = queues.first().map(|(tun, _)| tun.name().to_owned());
    link::configure(&Link {
        name: &name.unwrap_or_default(),
        mtu,
        gso_max_size: GSO_MAX_SIZE,
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
