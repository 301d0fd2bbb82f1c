//! Session resumption (RFC 5723): tickets by value, what is in them, and who holds them.
//!
//! A ticket is what the responder has to remember of an IKE SA, sealed with a key of its own; the initiator keeps
//! it for the responder. It says *who* the peer is, and never what it may have: that is decided anew when the
//! ticket comes back, as for a whole handshake ([`crate::Ask::ReviewPeer`], [`crate::Ask::Authorize`]).
//!
//! ```text
//! version │ key │ nonce │ AES-256-GCM ( expiry │ SK_d │ caller's state │ SA, IDi, IDr ) │ tag
//! ```
//!
//! A ticket alone opens nothing: whoever shows it must prove in IKE_AUTH that it knows SK_d. It is good for one
//! IKE SA. Resumed IKE SAs have no key exchange of their own, so who gets the sealing key can read what is
//! protected with them; keys are therefore replaced soon after ([`crate::sa`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::config::Connection;
use crate::select::{IkeProposal, IkeSuite};
use crate::time::Timestamp;
use crate::wire::{
    Identification, Notify, NotifyType, Payload, PayloadType, Reader, decode_chain, encode_chain,
};

const VERSION: u8 = 1;
const KEY_ID: usize = 8;
const NONCE: usize = 12;
/// Bytes of a ticket at most: the request that shows it has to fit one datagram, as only what is protected can
/// be sent in fragments (RFC 7383 §2.5).
pub const TICKET_MAX: usize = 900;
/// Longest life of a ticket that we believe, as initiator and as responder.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Tickets that came back and are still in date. Beyond so many no ticket is taken.
const USED: usize = 65_536;

/// A key that seals tickets.
#[derive(Clone)]
struct TicketKey {
    id: [u8; KEY_ID],
    key: Arc<LessSafeKey>,
}

impl TicketKey {
    fn new(secret: &[u8; 32]) -> Option<Self> {
        let mac = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, secret),
            b"ticket key name",
        );
        let key = UnboundKey::new(&AES_256_GCM, secret).ok()?;
        Some(Self {
            id: mac.as_ref().get(..KEY_ID)?.try_into().ok()?,
            key: Arc::new(LessSafeKey::new(key)),
        })
    }
}

/// The keys with which a responder seals tickets: the caller keeps them through restarts and replaces them
/// ([`crate::Endpoint::set_ticket_keys`]).
#[derive(Clone)]
pub struct TicketKeys {
    /// The first one seals.
    keys: Vec<TicketKey>,
    lifetime: Duration,
    /// Seconds since 1970 at the beginning of the endpoint's time.
    epoch: u64,
}

impl TicketKeys {
    /// Seals with the first key, opens with all. A ticket is good for `lifetime`, a day at most. `epoch` is the
    /// wall clock (seconds since 1970) when [`Timestamp`] was zero: tickets outlive the endpoint.
    ///
    /// Without any key no ticket is made and none is taken.
    pub fn new(keys: &[Zeroizing<[u8; 32]>], lifetime: Duration, epoch: u64) -> Self {
        Self {
            keys: keys.iter().filter_map(|key| TicketKey::new(key)).collect(),
            lifetime: lifetime.min(LIFETIME_MAX),
            epoch,
        }
    }

    fn wall(&self, now: Timestamp) -> u64 {
        self.epoch.saturating_add(now.since_start().as_secs())
    }

    /// Returns the lifetime of a ticket.
    pub(crate) const fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Seals a session; none if it is too long for one datagram.
    pub(crate) fn seal(
        &self,
        session: &Session,
        nonce: [u8; NONCE],
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        let key = self.keys.first()?;
        let expires = self.wall(now).saturating_add(self.lifetime.as_secs());
        let mut plain = session.encode(expires)?;
        let head = [&[VERSION], &key.id[..]].concat();
        let sealed = key.key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(&head),
            &mut *plain,
        );
        sealed.ok()?;
        let ticket = [&head, &nonce[..], &plain].concat();
        (ticket.len() <= TICKET_MAX).then_some(ticket)
    }

    /// Opens a ticket of ours that is in date.
    pub(crate) fn open(&self, ticket: &[u8], now: Timestamp) -> Option<(TicketId, Session)> {
        if ticket.len() > TICKET_MAX {
            return None;
        }
        let (head, rest) = ticket.split_at_checked(KEY_ID.checked_add(1)?)?;
        let (version, id) = head.split_first()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>()?;
        let key = self.keys.iter().find(|key| key.id == id)?;
        if *version != VERSION {
            return None;
        }
        let mut plain = Zeroizing::new(sealed.to_vec());
        let opened = key.key.open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from(head),
            &mut plain,
        );
        let (expires, session) = Session::decode(opened.ok()?)?;
        let wall = self.wall(now);
        // One that is good for longer than we ever gave is of a clock that was ahead.
        let latest = wall.saturating_add(self.lifetime.as_secs());
        (wall < expires && expires <= latest).then_some((TicketId(expires, *nonce), session))
    }
}

/// A ticket of ours, by when it ends and its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TicketId(u64, [u8; NONCE]);

/// Tickets that have made an IKE SA.
#[derive(Debug, Default)]
pub(crate) struct UsedTickets(BTreeSet<TicketId>);

impl UsedTickets {
    pub(crate) fn contains(&self, ticket: TicketId) -> bool {
        self.0.contains(&ticket)
    }

    /// Notes that a ticket was used; false if it was before, or there is no room to note it.
    pub(crate) fn take(&mut self, ticket: TicketId, keys: &TicketKeys, now: Timestamp) -> bool {
        let wall = keys.wall(now);
        while self.0.first().is_some_and(|oldest| oldest.0 <= wall) {
            self.0.pop_first();
        }
        self.0.len() < USED && self.0.insert(ticket)
    }
}

/// Resumed session: the secret, and the identities of both sides.
pub(crate) struct Session {
    pub(crate) suite: IkeSuite,
    pub(crate) sk_d: Zeroizing<Vec<u8>>,
    /// The initiator, which proved who it is.
    pub(crate) initiator: Identification,
    /// The responder.
    pub(crate) responder: Identification,
    /// State from which the caller decides anew.
    pub(crate) state: Vec<u8>,
}

fn proposal_of(suite: &IkeSuite) -> IkeProposal {
    IkeProposal {
        encryption: vec![suite.encryption],
        integrity: suite.integrity.into_iter().collect(),
        prf: vec![suite.prf],
        groups: vec![suite.group],
        additional: suite.additional.iter().map(|group| vec![*group]).collect(),
    }
}

impl Session {
    /// The suite as a proposal.
    pub(crate) fn proposal(&self) -> crate::wire::Proposal {
        proposal_of(&self.suite).to_wire(1, &[])
    }

    fn encode(&self, expires: u64) -> Option<Zeroizing<Vec<u8>>> {
        // A buffer that grows would leave a copy of the secret behind.
        if self.sk_d.len().saturating_add(self.state.len()) > TICKET_MAX {
            return None;
        }
        let mut out = Zeroizing::new(Vec::with_capacity(TICKET_MAX.saturating_mul(2)));
        out.extend(expires.to_be_bytes());
        for part in [self.sk_d.as_slice(), &self.state] {
            out.extend(u16::try_from(part.len()).ok()?.to_be_bytes());
            out.extend(part);
        }
        let payloads = [
            Payload::Sa(vec![self.proposal()]),
            Payload::IdI(self.initiator.clone()),
            Payload::IdR(self.responder.clone()),
        ];
        encode_chain(&payloads, &mut out);
        Some(out)
    }

    fn decode(bytes: &[u8]) -> Option<(u64, Self)> {
        let mut reader = Reader::new(bytes, 0);
        let expires = reader.u64("expiry").ok()?;
        let mut part = || {
            let len = usize::from(reader.u16("length").ok()?);
            Some(reader.take(len, "part").ok()?.to_vec())
        };
        let (sk_d, state) = (Zeroizing::new(part()?), part()?);
        let payloads = decode_chain(PayloadType::SA, reader.rest()).ok()?;
        let [
            Payload::Sa(chosen),
            Payload::IdI(initiator),
            Payload::IdR(responder),
        ] = payloads.as_slice()
        else {
            return None;
        };
        let suite = IkeSuite::from_wire(chosen.first()?)?;
        let session = Self {
            suite,
            sk_d,
            initiator: initiator.clone(),
            responder: responder.clone(),
            state,
        };
        Some((expires, session))
    }
}

/// The notification with which a responder gives a ticket: its life in seconds first (RFC 5723 §7.2).
pub(crate) fn give(ticket: &[u8], lifetime: Duration) -> Payload {
    let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
    let data = [&seconds.to_be_bytes()[..], ticket].concat();
    Payload::Notify(Notify::new(NotifyType::TICKET_LT_OPAQUE).with_data(data))
}

/// A ticket of the peer's in a response, and how long it is good.
pub(crate) fn given(payloads: &[Payload]) -> Option<(Vec<u8>, Duration)> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::TICKET_LT_OPAQUE => {
            let (seconds, ticket) = notify.data.split_first_chunk::<4>()?;
            let lifetime = Duration::from_secs(u32::from_be_bytes(*seconds).into());
            let fits = (1..=TICKET_MAX).contains(&ticket.len());
            fits.then(|| (ticket.to_vec(), lifetime.min(LIFETIME_MAX)))
        }
        _ => None,
    })
}

/// A ticket that an initiator holds, with its own half. Only in memory, and wiped with it.
pub(crate) struct HeldTicket {
    pub(crate) ticket: Vec<u8>,
    pub(crate) session: Session,
    pub(crate) remote: IpAddr,
    pub(crate) connection: Arc<Connection>,
    pub(crate) expires: Timestamp,
}

/// The tickets of an initiator: one for each connection, each for one attempt.
#[derive(Default)]
pub(crate) struct HeldTickets(BTreeMap<String, HeldTicket>);

impl HeldTickets {
    pub(crate) fn insert(&mut self, held: HeldTicket) {
        self.0.insert(held.connection.name.clone(), held);
    }

    pub(crate) fn forget(&mut self, connection: &str) {
        self.0.remove(connection);
    }

    /// The ticket for another attempt, if it is for the same peer and the connection is what it was.
    pub(crate) fn take(
        &mut self,
        connection: &Arc<Connection>,
        remote: IpAddr,
        now: Timestamp,
    ) -> Option<HeldTicket> {
        let held = self.0.remove(&connection.name)?;
        let same = Arc::ptr_eq(&held.connection, connection) && held.remote == remote;
        (same && now < held.expires).then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use offload::Encryption;

    use super::*;
    use crate::crypto::{Group, Prf};

    const HOUR: Duration = Duration::from_secs(3600);

    fn session() -> Session {
        Session {
            suite: IkeSuite {
                encryption: Encryption::AesGcm256,
                integrity: None,
                prf: Prf::HmacSha256,
                group: Group::X25519,
                additional: vec![Group::MlKem768],
            },
            sk_d: Zeroizing::new(vec![9; 32]),
            initiator: Identification::fqdn("camera-17.example.org"),
            responder: Identification::fqdn("gateway.example.org"),
            state: vec![5; 100],
        }
    }

    fn keys(bytes: &[u8], epoch: u64) -> TicketKeys {
        let keys: Vec<_> = bytes
            .iter()
            .map(|byte| Zeroizing::new([*byte; 32]))
            .collect();
        TicketKeys::new(&keys, HOUR, epoch)
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_ticket_opens_with_its_key_in_its_time_and_unchanged() {
        let ticket = keys(&[1], 1_000_000)
            .seal(&session(), [3; 12], at(10))
            .unwrap();
        assert!(ticket.len() < 350, "{}", ticket.len());
        let (_, found) = keys(&[1], 1_000_000).open(&ticket, at(3609)).unwrap();
        assert_eq!(
            (found.suite, found.sk_d, found.state),
            (session().suite, session().sk_d, vec![5; 100])
        );
        assert_eq!(found.initiator, session().initiator);
        // After a restart, with a newer key in front.
        assert!(keys(&[2, 1], 1_000_010).open(&ticket, at(3599)).is_some());
        assert!(
            keys(&[2, 1], 1_000_010).open(&ticket, at(3600)).is_none(),
            "expired"
        );
        assert!(
            keys(&[2], 1_000_010).open(&ticket, at(0)).is_none(),
            "another key"
        );
        assert!(
            keys(&[], 1_000_010).open(&ticket, at(0)).is_none(),
            "no key"
        );
        assert!(
            keys(&[1], 999_000).open(&ticket, at(0)).is_none(),
            "a clock that went back"
        );
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert!(
                keys(&[1], 1_000_000).open(&changed, at(10)).is_none(),
                "byte {place}"
            );
            assert!(
                keys(&[1], 1_000_000)
                    .open(&ticket[..place], at(10))
                    .is_none()
            );
        }
    }

    #[test]
    fn a_ticket_is_used_once_and_forgotten_when_it_is_over() {
        let (keys, mut used) = (keys(&[1], 0), UsedTickets::default());
        let id = |number: u8| TicketId(3600, [number; 12]);
        assert!(used.take(id(1), &keys, at(0)) && used.contains(id(1)));
        assert!(!used.take(id(1), &keys, at(0)));
        assert!(used.take(id(2), &keys, at(3599)));
        let later = TicketId(9000, [3; 12]);
        assert!(used.take(later, &keys, at(3600)));
        assert_eq!(used.0.len(), 1);
    }

    #[test]
    fn without_room_no_ticket_is_taken() {
        let (keys, mut used) = (keys(&[1], 0), UsedTickets::default());
        for number in 0..=USED {
            let mut nonce = [0; NONCE];
            nonce[..8].copy_from_slice(&number.to_be_bytes());
            assert_eq!(
                used.take(TicketId(3600, nonce), &keys, at(0)),
                number < USED
            );
        }
    }

    #[test]
    fn what_does_not_fit_one_datagram_is_no_ticket() {
        let keys = keys(&[1], 0);
        let sealed = |len| {
            let state = vec![0; len];
            keys.seal(&Session { state, ..session() }, [0; 12], at(0))
        };
        let room = (0..TICKET_MAX)
            .rev()
            .find(|len| sealed(*len).is_some())
            .unwrap();
        assert_eq!(sealed(room).map(|ticket| ticket.len()), Some(TICKET_MAX));
        assert!(sealed(room + 1).is_none());
    }
}
