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
    steer(&esp);
    let workers = u32::try_from(esp.len()).unwrap_or(1);
    let made = queues.into_iter().zip(esp).zip(0..);
    let made = made
        .map(|((queues, socket), number)| {
            worker(settings, queues, socket, reports, (number, workers))
        })
        .collect::<Result<_, _>>()?;
    let (workers, handle) = Workers::new(made).map_err(failed)?;
    let accelerator = settings.accelerator.clone();
    Ok((workers, handle.with_accelerator(accelerator)))
}

/// Has each worker get the packets of its Child SAs. Without that they come to it as the kernel spreads peers.
fn steer(esp: &[UdpSocket]) {
    if let [first, _, ..] = esp
        && let Err(error) = sys::option::steer_by_spi(first, esp.len())
    {
        tracing::warn!(%error, "packets are spread over workers by their senders, not by SPI");
    }
}

/// A worker, whose number among how many is `place`.
fn worker(
    settings: &Settings<'_>,
    queues: (Tun, Tun),
    socket: UdpSocket,
    reports: &dyn Reports,
    place: (u32, u32),
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
        children: Children::new(reports.events()).of_worker(place.0, place.1),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outer::Families;
    use crate::outer::udp::{KEEPALIVE, bind};

    /// Sockets on one port, and one that sends to them.
    fn sockets(count: usize) -> (Vec<UdpSocket>, UdpSocket) {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut all = vec![bind(any, true, Families::One).unwrap()];
        let address = all[0].local_addr().unwrap();
        all.extend((1..count).map(|_| bind(address, true, Families::One).unwrap()));
        let sender = UdpSocket::bind(any).unwrap();
        sender.connect(address).unwrap();
        (all, sender)
    }

    /// The socket that gets a datagram.
    fn receiver(sockets: &[UdpSocket], sender: &UdpSocket, datagram: &[u8]) -> usize {
        sender.send(datagram).unwrap();
        let mut buffer = [0; 64];
        // Loopback has delivered it when the call returns.
        let got = |socket: &UdpSocket| {
            socket.set_nonblocking(true).unwrap();
            socket
                .recv(&mut buffer)
                .is_ok_and(|len| len == datagram.len())
        };
        let mut got = got;
        let receivers: Vec<usize> = (0..sockets.len()).filter(|at| got(&sockets[*at])).collect();
        assert_eq!(receivers.len(), 1, "{datagram:?}");
        receivers[0]
    }

    #[test]
    fn esp_comes_to_the_worker_of_its_spi_and_ike_as_without() {
        for count in [2, 3, 5] {
            let (sockets, sender) = sockets(count);
            let ike = [&[0; 4][..], b"a message of IKE"].concat();
            let before = receiver(&sockets, &sender, &ike);
            steer(&sockets);
            for spi in (256..300).chain([u32::MAX - 1, u32::MAX, 1 << 31]) {
                let packet = [&spi.to_be_bytes()[..], &[7; 20]].concat();
                let expected = spi as usize % count;
                assert_eq!(receiver(&sockets, &sender, &packet), expected, "{spi:x}");
                // A datagram that is no more than an SPI has one all the same.
                assert_eq!(receiver(&sockets, &sender, &packet[..4]), expected);
            }
            assert_eq!(receiver(&sockets, &sender, &ike), before);
            // What is shorter than an SPI comes somewhere.
            for short in [&KEEPALIVE[..], &[], &[0; 3]] {
                assert_eq!(receiver(&sockets, &sender, short), 0);
            }
        }
    }

    #[test]
    fn a_single_socket_needs_no_steering() {
        let (sockets, sender) = sockets(1);
        steer(&sockets);
        assert_eq!(receiver(&sockets, &sender, &[7; 8]), 0);
    }
}
