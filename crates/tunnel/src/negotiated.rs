//! A tunnel with negotiated keys: workers that get their Child SAs while they run.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use ipsec::dataplane::DataPlane;
use offload::Accelerator;
use sys::tun::Tun;

use crate::capture::Capture;
use crate::child_sa::EventSink;
use crate::children::Children;
use crate::command::WorkerHandle;
use crate::config::{DebugConfig, InterfaceConfig, RekeyConfig};
use crate::error::StartError;
use crate::link::{self, Link};
use crate::outer::{IkeSink, Outer, PathMtu};
use crate::worker::{Path, Worker, WorkerParts};
use crate::workers::{GSO_MAX_SIZE, Workers, WorkersHandle, queues};

/// Bytes that transport mode adds at most: UDP, ESP header, IV, padding and trailer, integrity value of
/// AES-CBC with HMAC-SHA2-512. What fits the interface stays below it.
const TRANSPORT_OVERHEAD: u16 = 8 + 8 + 16 + 15 + 2 + 32;

/// Settings of the workers.
pub struct Settings<'a> {
    pub interface: &'a InterfaceConfig,
    pub debug: &'a DebugConfig,
    /// Bytes of the largest inner packet.
    pub mtu: u16,
    /// Bytes of the largest outer packet, unless a path takes less.
    pub path_mtu: u16,
    /// Whether ESP may go without UDP as well.
    pub native: bool,
    /// Whether there may be Child SAs in transport mode.
    pub transport: bool,
    /// Mark of outer packets, where they go to the same addresses as inner ones.
    pub mark: Option<u32>,
    /// Device to which packets are offered.
    pub accelerator: Option<Arc<dyn Accelerator>>,
    /// Seed of the data plane's hash tables.
    pub seed: u64,
}

/// Makes what each worker reports to.
pub trait Reports {
    /// Gets messages of IKE from the port of ESP.
    fn ike(&self) -> IkeSink;
    /// Gets what happens to Child SAs.
    fn events(&self) -> EventSink;
}

/// Creates the interface and the workers, one for each of `esp`, the sockets of ESP in UDP.
///
/// # Errors
/// [`StartError`], naming what could not be had.
pub async fn start(
    settings: &Settings<'_>,
    esp: Vec<UdpSocket>,
    reports: &dyn Reports,
) -> Result<(Workers, WorkersHandle), StartError> {
    let interface = settings.interface;
    let failed = |source| StartError::Interface {
        name: interface.name.clone(),
        source,
    };
    let queues = queues(interface).map_err(failed)?;
    link::configure(&Link {
        name: &interface.name,
        mtu: settings.mtu,
        gso_max_size: GSO_MAX_SIZE,
        addresses: &interface.addresses,
        routes: &interface.routes,
        peer: None,
    })
    .await?;
    let made = queues.into_iter().zip(esp);
    let made = made
        .map(|(queues, socket)| worker(settings, queues, socket, reports))
        .collect::<Result<_, _>>()?;
    let (workers, handle) = Workers::new(made).map_err(failed)?;
    let accelerator = settings.accelerator.clone();
    Ok((workers, handle.with_accelerator(accelerator)))
}

fn worker(
    settings: &Settings<'_>,
    queues: (Tun, Tun),
    socket: UdpSocket,
    reports: &dyn Reports,
) -> Result<(Worker, WorkerHandle), StartError> {
    let interface = |source| StartError::Interface {
        name: settings.interface.name.clone(),
        source,
    };
    let address = socket.local_addr().map_err(interface)?;
    let failed = |kind| {
        move |source: io::Error| StartError::Socket {
            kind,
            address,
            source,
        }
    };
    let capture = Capture::configured(settings.debug)?;
    let (transport, mark) = (settings.transport, settings.mark);
    let outer = match settings.native {
        false => {
            Outer::shared_udp(socket, transport, mark, reports.ike()).map_err(failed("UDP"))?
        }
        true => {
            Outer::shared_both(socket, transport, mark, reports.ike()).map_err(failed("raw ESP"))?
        }
    };
    // There are many peers; each path is asked about by its own address.
    let nowhere = SocketAddr::new(address.ip(), 0);
    let parts = WorkerParts {
        queues,
        mtu: settings.mtu,
        outer,
        plane: DataPlane::new(settings.seed),
        policies: Vec::new(),
        pair: None,
        children: Children::new(reports.events()),
        rekey: RekeyConfig::default(),
        path: Path::new(
            settings.path_mtu,
            PathMtu::new(nowhere, nowhere, mark).map_err(failed("UDP"))?,
            transport.then_some(TRANSPORT_OVERHEAD),
        ),
        capture,
    };
    Worker::new(parts).map_err(failed("UDP"))
}
