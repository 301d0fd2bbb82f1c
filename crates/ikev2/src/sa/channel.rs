//! One IKE SA's messages: numbers, retransmission, protection, fragments.
//!
//! The window is one (RFC 7296 §2.3): one request of ours waits for its answer, and of the peer's
//! requests only the next one is new. The last answer is kept as it was sent (§2.1).

use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::digest;
use zeroize::Zeroizing;

use super::core::Core;
use super::fragments::Reassembly;
use crate::config::{Connection, Retransmission};
use crate::crypto::{IkeKeys, OpeningKey, SealingKey};
use crate::event::{Reason, Transmit};
use crate::half_open::Network;
use crate::select::IkeSuite;
use crate::time::Timestamp;
use crate::types::{Path, SpiPair};
use crate::wire::{
    Datagram, DecodeError, ExchangeType, Flags, HEADER_LEN, Header, Payload, PayloadType,
    decode_chain, encode_chain,
};

/// Wait for an answer over TCP up to which nothing is repeated (our choice).
const TCP_WAIT: Duration = Duration::from_secs(8);

struct InFlight {
    message_id: u32,
    exchange: ExchangeType,
    datagrams: Vec<Vec<u8>>,
    sent: u32,
    wait: Duration,
    next: Timestamp,
}

struct Answered {
    message_id: u32,
    request: [u8; 32],
    datagrams: Vec<Vec<u8>>,
}

/// A protected message that authenticates.
pub(crate) struct Received {
    pub(crate) exchange: ExchangeType,
    pub(crate) response: bool,
    pub(crate) payloads: Result<Vec<Payload>, DecodeError>,
    /// Header, generic header and chain as IKE_INTERMEDIATE authenticates them.
    pub(crate) logical: Zeroizing<Vec<u8>>,
}

/// Effect of a timer.
pub(crate) enum Tick {
    Nothing,
    Sent,
    PeerGone,
}

pub(crate) struct Channel {
    pub(crate) path: Path,
    pub(crate) spis: SpiPair,
    /// Whether we created the IKE SA.
    pub(crate) initiator: bool,
    pub(crate) fragmentation: bool,
    pub(crate) last_sent: Timestamp,
    pub(crate) last_heard: Timestamp,
    /// Moment of the peer's last request, for the first time or again ([`Core::moment`]).
    pub(crate) last_asked: u64,
    /// Second destination, where the peer may be by now: what waits for an answer goes there as well.
    pub(crate) also_to: Option<SocketAddr>,
    /// Whether the TCP connection has ended: the peer's next one may come from the same port.
    pub(crate) disconnected: bool,
    keys: Option<(SealingKey, OpeningKey)>,
    next_request: u32,
    next_expected: u32,
    /// Digest of the peer's request that is being worked on, and the path over which it came.
    current: Option<(u32, [u8; 32], Path)>,
    in_flight: Option<InFlight>,
    answered: Option<Answered>,
    reassembly: [Reassembly; 2],
    keepalive: Duration,
    retransmission: Retransmission,
}

fn retransmission(core: &Core, connection: &Connection) -> Retransmission {
    (connection.retransmission).unwrap_or_else(|| core.limits.retransmission())
}

fn digest_of(bytes: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, bytes);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}

/// Keys of the messages of an IKE SA, ours and the peer's; none if they do not fit the suite.
pub(super) fn protection(
    suite: &IkeSuite,
    keys: &IkeKeys,
    initiator: bool,
) -> Option<(SealingKey, OpeningKey)> {
    let (ours, theirs) = if initiator {
        (&keys.initiator, &keys.responder)
    } else {
        (&keys.responder, &keys.initiator)
    };
    SealingKey::new(suite, ours).zip(OpeningKey::new(suite, theirs))
}

impl Channel {
    pub(crate) fn new(
        core: &Core,
        connection: &Connection,
        path: Path,
        spis: SpiPair,
        initiator: bool,
    ) -> Self {
        Self {
            path,
            spis,
            initiator,
            fragmentation: false,
            last_sent: core.now,
            last_heard: core.now,
            last_asked: 0,
            also_to: None,
            disconnected: false,
            keys: None,
            next_request: 0,
            next_expected: 0,
            current: None,
            in_flight: None,
            answered: None,
            reassembly: [Reassembly::default(), Reassembly::default()],
            keepalive: core.limits.keepalive,
            retransmission: retransmission(core, connection),
        }
    }

    /// Puts keys into place; false if they do not fit the suite.
    pub(crate) fn set_keys(&mut self, suite: &IkeSuite, keys: &IkeKeys) -> bool {
        self.keys = protection(suite, keys, self.initiator);
        self.keys.is_some()
    }

    /// Puts keys into place that were made by [`protection`].
    pub(crate) fn use_keys(&mut self, keys: (SealingKey, OpeningKey)) {
        self.keys = Some(keys);
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    /// Number of our next request.
    pub(crate) const fn next_request(&self) -> u32 {
        self.next_request
    }

    /// Number of the peer's request that is being worked on, or is to come.
    pub(crate) const fn next_expected(&self) -> u32 {
        self.next_expected
    }

    fn header(&self, exchange: ExchangeType, response: bool, message_id: u32) -> Header {
        Header {
            spi_i: self.spis.initiator,
            spi_r: self.spis.responder,
            first: PayloadType::SK,
            exchange,
            flags: Flags {
                initiator: self.initiator,
                response,
            },
            message_id,
        }
    }

    /// Header, generic header and chain of a message as if it had no encryption (RFC 9242 §3.3.2).
    pub(crate) fn logical(
        &self,
        exchange: ExchangeType,
        response: bool,
        message_id: u32,
        payloads: &[Payload],
    ) -> Zeroizing<Vec<u8>> {
        let mut chain = Zeroizing::new(Vec::new());
        let first = encode_chain(payloads, &mut chain);
        logical(self.header(exchange, response, message_id), first, &chain)
    }

    fn protect(
        &mut self,
        core: &mut Core,
        header: Header,
        payloads: &[Payload],
    ) -> Option<Vec<Vec<u8>>> {
        let mut chain = Zeroizing::new(Vec::new());
        let first = encode_chain(payloads, &mut chain);
        let (sealing, _) = self.keys.as_mut()?;
        let fixed = HEADER_LEN.saturating_add(sealing.overhead());
        // 4 bytes for the non-ESP marker.
        let room = core
            .limits
            .datagram_bytes
            .saturating_sub(fixed)
            .saturating_sub(4)
            .max(64);
        // Only a peer that has announced it puts fragments together (RFC 7383 §2.3). TCP cuts by itself, so that there
        // the message goes whole (RFC 9329 §7.5).
        if !self.fragmentation || self.path.is_tcp() || chain.len() <= room {
            return Some(vec![sealing.seal(
                header,
                first,
                &chain,
                None,
                &mut *core.random,
            )?]);
        }
        let parts: Vec<_> = chain.chunks(room).collect();
        let total = u16::try_from(parts.len()).ok()?;
        let seal = |(number, part): (u16, &&[u8])| {
            // The type of the first payload is in the first fragment only (RFC 7383 §2.5).
            let first = if number == 1 {
                first
            } else {
                PayloadType::NONE
            };
            sealing.seal(
                header,
                first,
                part,
                Some((number, total)),
                &mut *core.random,
            )
        };
        (1..=total).zip(&parts).map(seal).collect()
    }

    fn transmit(&mut self, core: &mut Core, datagrams: &[Vec<u8>]) {
        self.last_sent = core.now;
        for datagram in datagrams {
            core.transmit(self.path, datagram);
            // Whether it was the old mapping or the new one that worked shows in the answer.
            if let Some(remote) = self.also_to {
                core.transmit(
                    Path {
                        remote,
                        ..self.path
                    },
                    datagram,
                );
            }
        }
    }

    /// Sends a protected request; there must be none in flight.
    pub(crate) fn request(
        &mut self,
        core: &mut Core,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) -> Option<()> {
        let header = self.header(exchange, false, self.next_request);
        let datagrams = self.protect(core, header, payloads)?;
        self.send_request(core, exchange, datagrams)
    }

    /// Sends an unprotected first request.
    pub(crate) fn request_clear(
        &mut self,
        core: &mut Core,
        exchange: ExchangeType,
        message: Vec<u8>,
    ) -> Option<()> {
        self.send_request(core, exchange, vec![message])
    }

    /// Times of the connection that the IKE SA turns out to be of.
    pub(crate) fn retransmit_as(&mut self, core: &Core, connection: &Connection) {
        self.retransmission = retransmission(core, connection);
    }

    /// Transmissions of a request after which the peer counts as gone.
    pub(crate) const fn transmissions(&self) -> u32 {
        self.retransmission.transmissions
    }

    /// Number of transmissions of the request that is out.
    pub(crate) fn sent(&self) -> u32 {
        self.in_flight
            .as_ref()
            .map_or(0, |in_flight| in_flight.sent)
    }

    fn send_request(
        &mut self,
        core: &mut Core,
        exchange: ExchangeType,
        datagrams: Vec<Vec<u8>>,
    ) -> Option<()> {
        self.transmit(core, &datagrams);
        let wait = self.retransmission.timeout;
        self.in_flight = Some(InFlight {
            message_id: self.next_request,
            exchange,
            datagrams,
            sent: 1,
            wait,
            next: core.now.after(wait),
        });
        // Numbers never come again under the same keys: before that the IKE SA ends (§2.2).
        self.next_request = self.next_request.checked_add(1)?;
        Some(())
    }

    /// Answers the request that is being worked on.
    pub(crate) fn respond(
        &mut self,
        core: &mut Core,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) -> Option<()> {
        let (message_id, ..) = self.current?;
        let header = self.header(exchange, true, message_id);
        let datagrams = self.protect(core, header, payloads)?;
        self.answer(core, datagrams);
        Some(())
    }

    /// Answers a first request, which is unprotected.
    pub(crate) fn respond_clear(&mut self, core: &mut Core, request: &[u8], response: Vec<u8>) {
        self.current = Some((0, digest_of(request), self.path));
        self.answer(core, vec![response]);
    }

    fn answer(&mut self, core: &mut Core, datagrams: Vec<Vec<u8>>) {
        // Where the request came from is where its answer goes (RFC 7296 §2.11).
        let Some((message_id, request, path)) = self.current.take() else {
            return;
        };
        self.last_sent = core.now;
        for datagram in &datagrams {
            core.transmit(path, datagram);
        }
        // From here on the same number is a repetition, which gets these datagrams and changes nothing (§2.1).
        self.next_expected = message_id.wrapping_add(1);
        self.answered = Some(Answered {
            message_id,
            request,
            datagrams,
        });
    }

    /// Sends the last answer again if `bytes` repeats its request (RFC 7296 §2.1: a repetition is
    /// the same bytes, so nothing is decrypted for it).
    ///
    /// It goes where the repetition came from (§2.11): the NAT in between may have changed its mind.
    pub(crate) fn repeat_answer(
        &self,
        core: &mut Core,
        path: Path,
        message_id: u32,
        bytes: &[u8],
    ) -> bool {
        let repeats = |answered: &Answered| {
            answered.message_id == message_id && answered.request == digest_of(bytes)
        };
        let repeated = self.answered.as_ref().is_some_and(repeats);
        if repeated {
            self.resend_answer(core, path);
        }
        repeated
    }

    fn resend_answer(&self, core: &mut Core, path: Path) {
        let answers = self.answered.iter().flat_map(|one| &one.datagrams);
        for datagram in answers {
            core.transmit(path, datagram);
        }
    }

    /// A peer that looks for the right size repeats its request in other fragments (RFC 7383 §2.5.2);
    /// the first of them is answered, if it authenticates.
    fn repeat_answer_to_fragment(
        &self,
        core: &mut Core,
        path: Path,
        datagram: &Datagram,
        bytes: &[u8],
    ) {
        let last = self.answered.as_ref().map(|answered| answered.message_id);
        let first = datagram
            .encrypted
            .as_ref()
            .filter(|encrypted| encrypted.fragment.is_some_and(|(number, _)| number == 1));
        if let (Some((_, opening)), Some(encrypted)) = (&self.keys, first)
            && last == Some(datagram.header.message_id)
            && opening.open(bytes, encrypted).is_ok()
        {
            self.resend_answer(core, path);
        }
    }

    /// Whether a response with this number and exchange is the one that we wait for.
    pub(crate) fn awaits(&self, message_id: u32, exchange: ExchangeType) -> bool {
        let matches = |in_flight: &InFlight| {
            in_flight.message_id == message_id && in_flight.exchange == exchange
        };
        self.in_flight.as_ref().is_some_and(matches)
    }

    /// Repeats the request at once, over the path as it is now.
    pub(crate) fn retransmit_now(&mut self, core: &mut Core) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.wait = self.retransmission.timeout;
            in_flight.next = core.now.after(in_flight.wait);
            let datagrams = in_flight.datagrams.clone();
            self.transmit(core, &datagrams);
        }
    }

    /// Repeats the request no more, and goes on waiting for its response.
    pub(crate) const fn stop_repeating(&mut self) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.next = Timestamp::new(Duration::MAX);
        }
    }

    /// Begins anew with the transmissions of the request, over the path as it is now.
    pub(crate) fn restart_transmissions(&mut self, core: &mut Core) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.sent = 1;
        }
        self.retransmit_now(core);
    }

    /// Why the peer may be silent: `whole` are the bytes of a message up to which it is not fragmented.
    pub(crate) fn silence(&self, whole: usize) -> Reason {
        let out = self.in_flight.iter().flat_map(|one| &one.datagrams);
        let answers = self.answered.iter().flat_map(|one| &one.datagrams);
        let largest = out.chain(answers).map(Vec::len).max();
        match largest.filter(|len| *len > whole) {
            Some(len) => Reason::TimeoutOfLarge(len),
            None => Reason::Timeout,
        }
    }

    /// Takes the request off the wire: its response is here, or nobody wants it any more.
    pub(crate) fn complete_request(&mut self) {
        self.in_flight = None;
        self.also_to = None;
    }

    /// Leaves a request without answer; the peer repeats it.
    pub(crate) fn leave_unanswered(&mut self) {
        self.current = None;
    }

    /// Takes it that a request of the peer is being worked on.
    #[cfg(test)]
    pub(crate) const fn begin_request(&mut self, message_id: u32) {
        self.current = Some((message_id, [0; 32], self.path));
    }

    /// When a NAT in front of us needs to be reminded (RFC 3948 §4).
    pub(crate) const fn keepalive_at(&self) -> Timestamp {
        self.last_sent.after(self.keepalive)
    }

    pub(crate) fn send_keepalive(&mut self, core: &mut Core) {
        self.last_sent = core.now;
        let Path {
            local,
            remote,
            transport,
        } = self.path;
        let payload = vec![0xff];
        core.transmits.push_back(Transmit {
            local,
            remote,
            transport,
            payload,
        });
    }

    /// Starts numbering again, for a first request that has to be repeated with other content.
    pub(crate) fn restart(&mut self) {
        // The same first message with something added keeps its number (§2.6).
        self.in_flight = None;
        self.next_request = 0;
    }

    /// Opens a protected message. Nothing comes back for repetitions, for messages out of turn, for
    /// those that do not authenticate and for fragments before the last.
    pub(crate) fn receive(
        &mut self,
        core: &mut Core,
        path: Path,
        datagram: &Datagram,
        bytes: &[u8],
        stranger: bool,
    ) -> Option<Received> {
        let header = datagram.header;
        let encrypted = datagram.encrypted.as_ref()?;
        // Payloads beside SK would not be authenticated, and what carries our own flag is ours, thrown back.
        if !datagram.clear.is_empty() || header.flags.initiator == self.initiator {
            return None;
        }
        let response = header.flags.response;
        if response {
            if !self.awaits(header.message_id, header.exchange) {
                return None;
            }
        } else {
            if self.repeat_answer(core, path, header.message_id, bytes) {
                self.last_asked = core.moment();
                return None;
            }
            let busy = self.current.is_some();
            if header.message_id != self.next_expected || busy {
                self.repeat_answer_to_fragment(core, path, datagram, bytes);
                return None;
            }
        }
        // Numbers come before decryption, which is what a flood of old datagrams would have us pay for.
        let (_, opening) = self.keys.as_ref()?;
        let plain = opening.open(bytes, encrypted).ok()?;
        let [requests, responses] = &mut self.reassembly;
        let reassembly = if response { responses } else { requests };
        let (first, chain, request) = match encrypted.fragment {
            None => (encrypted.first, plain, digest_of(bytes)),
            Some(place) => {
                let key = (header.message_id, header.exchange);
                let digest = digest_of(bytes);
                let stranger = stranger.then(|| Network::of(self.path.remote.ip()));
                reassembly.add(core, stranger, key, place, (encrypted.first, plain, digest))?
            }
        };
        // Only what authenticates is a sign of life.
        self.last_heard = core.now;
        if !response {
            self.last_asked = core.moment();
            self.current = Some((header.message_id, request, path));
        }
        Some(Received {
            exchange: header.exchange,
            response,
            payloads: decode_chain(first, &chain),
            logical: logical(
                Header {
                    first: PayloadType::SK,
                    ..header
                },
                first,
                &chain,
            ),
        })
    }

    /// When to call [`Self::tick`].
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.in_flight.as_ref().map(|in_flight| in_flight.next)
    }

    /// Repeats the request if it is time to, until it was sent `most` times.
    pub(crate) fn tick(&mut self, core: &mut Core, most: u32) -> Tick {
        let Some(in_flight) = &mut self.in_flight else {
            return Tick::Nothing;
        };
        if in_flight.next > core.now {
            return Tick::Nothing;
        }
        if in_flight.sent >= most {
            return Tick::PeerGone;
        }
        // Longer each time, as what loses datagrams may be a path that has too many (§2.1).
        in_flight.sent = in_flight.sent.saturating_add(1);
        in_flight.wait = self.retransmission.after(in_flight.wait);
        in_flight.next = core.now.after(in_flight.wait);
        // TCP repeats what gets lost, and on a connection that is opened anew we do (RFC 9329 §6.2). What is left is a peer
        // that had too much to do and dropped it. The time until it counts as gone is the same.
        if !self.path.is_tcp() || in_flight.wait >= TCP_WAIT {
            let datagrams = in_flight.datagrams.clone();
            self.transmit(core, &datagrams);
        }
        Tick::Sent
    }
}

fn logical(header: Header, first: PayloadType, chain: &[u8]) -> Zeroizing<Vec<u8>> {
    let payload = chain.len().saturating_add(4);
    let total = payload.saturating_add(HEADER_LEN);
    let mut out = Zeroizing::new(header.encode(total).to_vec());
    out.extend([first.0, 0]);
    out.extend(u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(chain);
    out
}
