//! Writing to the interface: packets for the host, and word to it of packets that were too big.

use std::io::IoSlice;

use ipsec::ip::IpHeader;
use sys::tun::{HEADER_LEN, Tun};

use crate::coalesce::Sink;
use crate::counters::IoCounters;

/// Writes "too big" to the interface as if the destination said so: an address of our own would be
/// refused there as source.
pub(crate) fn answer_too_big(packet: &[u8], mtu: u16, sink: &mut TunSink<'_>) {
    let answer = IpHeader::parse(packet)
        .ok()
        .and_then(|header| ipsec::icmp::too_big(packet, mtu, header.destination));
    if let Some(answer) = answer {
        sink.write(&[IoSlice::new(&[0; HEADER_LEN]), IoSlice::new(&answer)]);
    }
}

/// A queue of the interface to write to.
pub(crate) struct TunSink<'a> {
    pub(crate) tun: &'a Tun,
    pub(crate) io: &'a mut IoCounters,
}

impl TunSink<'_> {
    /// Tells whether this queue is written to.
    pub(crate) fn is_to(&self, tun: &Tun) -> bool {
        std::ptr::eq(self.tun, tun)
    }
}

impl Sink for TunSink<'_> {
    fn write(&mut self, pieces: &[IoSlice<'_>]) {
        match self.tun.write(pieces) {
            Ok(_) => self.io.interface_writes += 1,
            Err(_) => self.io.interface_write_errors += 1,
        }
    }
}
