//! What a tunnel has done, for status and metrics.

use ipsec::dataplane::DataPlane;
use ipsec::drops::DropCounters;
use serde::Serialize;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Bytes of inner packets.
    pub bytes: u64,
}

/// Counters of the input and output around the data plane.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct IoCounters {
    /// Reads from the interface that gave a packet, uncut or not.
    pub interface_reads: u64,
    /// Writes to it, of one packet or several put together.
    pub interface_writes: u64,
    /// Writes that the kernel refused.
    pub interface_write_errors: u64,
    /// What was read and could not be cut into packets.
    pub interface_unreadable: u64,
    /// Calls that sent one or more datagrams.
    pub sends: u64,
    /// Sends that the kernel refused.
    pub send_errors: u64,
    /// Times the socket's queue was full and sending waited.
    pub send_waits: u64,
    /// Calls that received one or more datagrams.
    pub receives: u64,
    /// Keepalives of address translation (RFC 3948 §2.3).
    pub keepalives: u64,
    /// Datagrams of IKE, which a tunnel with manual keys has no use for.
    pub ike: u64,
}

/// A drop cause and how often.
#[derive(Clone, Debug, Serialize)]
pub struct Drop {
    /// The cause's label.
    pub cause: &'static str,
    /// Packets.
    pub packets: u64,
}

/// An association's state.
#[derive(Clone, Debug, Serialize)]
pub struct SaState {
    /// The SPI in hexadecimal.
    pub spi: String,
    /// "in" or "out".
    pub direction: &'static str,
    /// What it carried.
    #[serde(flatten)]
    pub amount: Amount,
    /// The highest sequence number.
    pub sequence: u64,
}

/// A tunnel's state.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// The interface's name.
    pub interface: String,
    /// What the interface hands over uncut: none, tcp, tcp+udp.
    pub offload: &'static str,
    /// Largest inner packet, in bytes.
    pub mtu: u16,
    /// Sent through the tunnel.
    pub sent: Amount,
    /// Received through it.
    pub received: Amount,
    /// Packets that were not sent, by cause.
    pub outbound_drops: Vec<Drop>,
    /// Packets that were not let in, by cause.
    pub inbound_drops: Vec<Drop>,
    /// The associations.
    pub associations: Vec<SaState>,
    /// Input and output.
    pub io: IoCounters,
}

impl Snapshot {
    /// Takes over a data plane's counters.
    pub(crate) fn update(&mut self, plane: &DataPlane, io: IoCounters) {
        let statistics = plane.statistics();
        let amount = |traffic: ipsec::dataplane::Traffic| Amount {
            packets: traffic.packets,
            bytes: traffic.bytes,
        };
        self.sent = amount(statistics.protected);
        self.received = amount(statistics.delivered);
        self.outbound_drops = drops(&statistics.outbound_drops);
        self.inbound_drops = drops(&statistics.inbound_drops);
        self.io = io;
        let out = plane.outbound_sas().map(|sa| SaState {
            spi: sa.spi().to_string(),
            direction: "out",
            amount: Amount {
                packets: sa.usage().packets(),
                bytes: sa.usage().bytes(),
            },
            sequence: sa.sequence(),
        });
        let inward = plane.inbound_sas().map(|sa| SaState {
            spi: sa.spi().to_string(),
            direction: "in",
            amount: Amount {
                packets: sa.usage().packets(),
                bytes: sa.usage().bytes(),
            },
            sequence: sa.window().top(),
        });
        self.associations = out.chain(inward).collect();
    }
}

fn drops(counters: &DropCounters) -> Vec<Drop> {
    let counted = counters.iter().filter(|(_, packets)| *packets > 0);
    counted
        .map(|(cause, packets)| Drop {
            cause: cause.label(),
            packets,
        })
        .collect()
}
