//! What a tunnel has done, for status and metrics.

use std::borrow::Cow;
use std::time::Duration;

use ipsec::dataplane::DataPlane;
use ipsec::drops::DropCounters;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Amount {
    pub packets: u64,
    /// Bytes of inner packets.
    pub bytes: u64,
}

impl Amount {
    const fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Counters of the input and output around the data plane.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct IoCounters {
    /// Reads from the interface that gave a packet, or a super-packet.
    pub interface_reads: u64,
    /// Writes to it, of one packet or several put together.
    pub interface_writes: u64,
    /// Writes that the kernel refused.
    pub interface_write_errors: u64,
    /// Reads that could not be cut into packets.
    pub interface_unreadable: u64,
    /// Calls that sent one or more datagrams.
    pub sends: u64,
    /// Sends that the kernel refused.
    pub send_errors: u64,
    /// Times the socket's queue was full and sending waited.
    pub send_waits: u64,
    /// Times that the kernel could not cut datagrams on a path, which then goes without for a while.
    pub uncut_paths: u64,
    /// Calls that received one or more datagrams.
    pub receives: u64,
    /// Errors that receiving reported, about packets sent earlier.
    pub receive_errors: u64,
    /// Datagrams of a raw socket that were no packets.
    pub unreadable: u64,
    /// Packets that were too big for transport mode; the sender was told.
    pub transport_too_big: u64,
    /// Keepalives of address translation (RFC 3948 §2.3).
    pub keepalives: u64,
    /// Datagrams of IKE, which a tunnel with manual keys has no use for.
    pub ike: u64,
}

impl IoCounters {
    const fn add(&mut self, other: &Self) {
        self.interface_reads += other.interface_reads;
        self.interface_writes += other.interface_writes;
        self.interface_write_errors += other.interface_write_errors;
        self.interface_unreadable += other.interface_unreadable;
        self.sends += other.sends;
        self.send_errors += other.send_errors;
        self.send_waits += other.send_waits;
        self.uncut_paths += other.uncut_paths;
        self.receives += other.receives;
        self.receive_errors += other.receive_errors;
        self.unreadable += other.unreadable;
        self.transport_too_big += other.transport_too_big;
        self.keepalives += other.keepalives;
        self.ike += other.ike;
    }

    /// Each counter with its name.
    pub(crate) const fn events(&self) -> [(&'static str, u64); 14] {
        [
            ("interface_reads", self.interface_reads),
            ("interface_writes", self.interface_writes),
            ("interface_write_errors", self.interface_write_errors),
            ("interface_unreadable", self.interface_unreadable),
            ("sends", self.sends),
            ("send_errors", self.send_errors),
            ("send_waits", self.send_waits),
            ("uncut_paths", self.uncut_paths),
            ("receives", self.receives),
            ("receive_errors", self.receive_errors),
            ("unreadable", self.unreadable),
            ("transport_too_big", self.transport_too_big),
            ("keepalives", self.keepalives),
            ("ike", self.ike),
        ]
    }
}

/// A drop cause and how often.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Drop {
    pub cause: Cow<'static, str>,
    pub packets: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SaState {
    /// The SPI in hexadecimal.
    pub spi: String,
    pub direction: Cow<'static, str>,
    #[serde(flatten)]
    pub amount: Amount,
    /// The highest sequence number.
    pub sequence: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    pub interface: String,
    /// Segmentation offload of the interface: none, tcp, tcp+udp.
    pub offload: Cow<'static, str>,
    /// Largest inner packet, in bytes.
    pub mtu: u16,
    /// Sent through the tunnel.
    pub sent: Amount,
    pub received: Amount,
    /// Packets that were not sent, by cause.
    pub outbound_drops: Vec<Drop>,
    /// Packets that were not let in, by cause.
    pub inbound_drops: Vec<Drop>,
    pub associations: Vec<SaState>,
    /// Whether new keys wait until the far side has them.
    pub rekey_pending: bool,
    /// Threads that move packets.
    pub workers: usize,
    /// Processor time of all of them, in seconds.
    pub worker_cpu_seconds: f64,
    pub io: IoCounters,
}

impl Snapshot {
    /// The state of two workers of one tunnel together. What associations carried is known to each of
    /// them already.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.sent.add(other.sent);
        self.received.add(other.received);
        add_drops(&mut self.outbound_drops, other.outbound_drops);
        add_drops(&mut self.inbound_drops, other.inbound_drops);
        self.rekey_pending |= other.rekey_pending;
        self.workers += other.workers;
        self.worker_cpu_seconds += other.worker_cpu_seconds;
        self.io.add(&other.io);
        self
    }

    /// Takes over a data plane's counters.
    pub(crate) fn update(&mut self, plane: &DataPlane, io: IoCounters, rekey_pending: bool) {
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
        self.rekey_pending = rekey_pending;
        self.workers = 1;
        self.worker_cpu_seconds = thread_cpu_seconds();
        let out = plane.outbound_sas().map(|sa| SaState {
            spi: sa.spi().to_string(),
            direction: "out".into(),
            amount: Amount {
                packets: sa.usage().packets(),
                bytes: sa.usage().bytes(),
            },
            sequence: sa.sequence(),
        });
        let inward = plane.inbound_sas().map(|sa| SaState {
            spi: sa.spi().to_string(),
            direction: "in".into(),
            amount: Amount {
                packets: sa.usage().packets(),
                bytes: sa.usage().bytes(),
            },
            sequence: sa.sequence(),
        });
        self.associations = out.chain(inward).collect();
    }
}

/// Processor time of the calling thread; 0 where the system does not say.
fn thread_cpu_seconds() -> f64 {
    // By the C library: rustix ends the thread on kernels whose vDSO has not all that it looks for, such as
    // user-mode-linux.
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0.0, |time| Duration::from(time).as_secs_f64())
}

/// Adds counters of the same causes.
fn add_drops(drops: &mut Vec<Drop>, others: Vec<Drop>) {
    for other in others {
        match drops.iter_mut().find(|drop| drop.cause == other.cause) {
            Some(drop) => drop.packets += other.packets,
            None => drops.push(other),
        }
    }
}

fn drops(counters: &DropCounters) -> Vec<Drop> {
    let counted = counters.iter().filter(|(_, packets)| *packets > 0);
    counted
        .map(|(cause, packets)| Drop {
            cause: cause.label().into(),
            packets,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_of_two_workers_add_up() {
        let drop = |cause: &'static str, packets| Drop {
            cause: cause.into(),
            packets,
        };
        let of = |n: u64, drops| Snapshot {
            interface: "tunnel0".into(),
            sent: Amount {
                packets: n,
                bytes: 10 * n,
            },
            inbound_drops: drops,
            rekey_pending: n == 2,
            workers: 1,
            io: IoCounters {
                sends: n,
                ike: 1,
                ..IoCounters::default()
            },
            ..Snapshot::default()
        };
        let one = of(1, vec![drop("replay_old", 1)]);
        let both = one.and(of(2, vec![drop("truncated", 2), drop("replay_old", 3)]));
        assert_eq!((both.sent.packets, both.sent.bytes), (3, 30));
        let drops: Vec<(&str, u64)> = both
            .inbound_drops
            .iter()
            .map(|drop| (&*drop.cause, drop.packets))
            .collect();
        assert_eq!(drops, [("replay_old", 4), ("truncated", 2)]);
        assert_eq!((both.io.sends, both.io.ike, both.workers), (3, 2, 2));
        assert!(both.rekey_pending);
        assert_eq!(both.interface, "tunnel0");
    }
}
