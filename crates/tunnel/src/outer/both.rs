//! ESP in UDP for some peers and as an IP protocol of its own for others.
//!
//! Each has its socket and buffers. Which of them a packet takes follows from its association; what is
//! received comes from one of the two at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ipsec::batch::{InboundPacket, OutboundBatch};
use rustix::event::epoll;

use super::raw::RawOuter;
use super::socket::Sent;
use super::udp::UdpOuter;
use crate::counters::IoCounters;

/// Both kinds of outer side.
pub struct BothOuter {
    pub(super) udp: UdpOuter,
    pub(super) raw: RawOuter,
    /// Readable when one of the sockets is.
    either: OwnedFd,
    /// Whether the last packets came without UDP.
    native: bool,
}

impl BothOuter {
    pub(super) fn new(udp: UdpOuter, raw: RawOuter) -> io::Result<Self> {
        // The worker polls one descriptor for its outer side.
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, socket) in [(0, udp.as_fd()), (1, raw.as_fd())] {
            let data = epoll::EventData::new_u64(number);
            epoll::add(&either, socket, data, epoll::EventFlags::IN)?;
        }
        Ok(Self {
            udp,
            raw,
            either,
            native: false,
        })
    }

    /// Each takes the packets to whose associations it knows the way.
    pub(super) fn send(&mut self, batch: &OutboundBatch, io: &mut IoCounters) -> Sent {
        // Both are given the whole batch, and each association is known to one of them.
        let udp = self.udp.send(batch, io);
        let raw = self.raw.send(batch, io);
        Sent {
            too_large: udp.too_large || raw.too_large,
        }
    }

    /// Asks the other socket than last time, and this one again if there was nothing.
    pub(super) fn receive(
        &mut self,
        arrived: &mut Vec<InboundPacket>,
        io: &mut IoCounters,
    ) -> io::Result<bool> {
        let mut more = false;
        for _ in 0..2 {
            // In turn, so that a flood on one cannot starve the other.
            self.native = !self.native;
            more |= match self.native {
                true => self.raw.receive(arrived, io)?,
                false => self.udp.receive(arrived, io)?,
            };
            if !arrived.is_empty() {
                // The other one was not asked.
                return Ok(true);
            }
        }
        Ok(more)
    }

    pub(super) fn buffer(&mut self) -> &mut [u8] {
        match self.native {
            true => self.raw.buffer(),
            false => self.udp.buffer(),
        }
    }
}

impl AsFd for BothOuter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}
