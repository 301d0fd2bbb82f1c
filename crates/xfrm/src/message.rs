//! Messages of the kernel's IPsec, as bytes (linux/xfrm.h, linux/netlink.h).
//!
//! Numbers are in the machine's order except for SPIs, ports and addresses, which are as on the wire.
//! The structures are those of machines where eight-byte numbers are aligned to eight bytes: all but
//! 32-bit x86.

use std::net::IpAddr;

use ipsec::ip::protocol;
use ipsec::sa::{Protocol, Spi};
use offload::{Encryption, Integrity, Mode};
use zeroize::Zeroizing;

use tunnel::config::Prefix;

// linux/netlink.h
pub(crate) const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const HEADER_LEN: usize = 16;

// linux/xfrm.h
const XFRM_MSG_NEWSA: u16 = 0x10;
const XFRM_MSG_DELSA: u16 = 0x11;
const XFRM_MSG_GETSA: u16 = 0x12;
const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_DELPOLICY: u16 = 0x14;
const XFRM_MSG_UPDPOLICY: u16 = 0x19;
const XFRMA_ALG_CRYPT: u16 = 2;
const XFRMA_ENCAP: u16 = 4;
const XFRMA_TMPL: u16 = 5;
const XFRMA_ALG_AEAD: u16 = 18;
const XFRMA_ALG_AUTH_TRUNC: u16 = 20;
const XFRMA_TFCPAD: u16 = 22;
const XFRMA_REPLAY_ESN_VAL: u16 = 23;
const XFRMA_SA_EXTRA_FLAGS: u16 = 24;
const XFRMA_IF_ID: u16 = 31;
const XFRM_STATE_AF_UNSPEC: u8 = 32;
const XFRM_STATE_ALIGN4: u8 = 64;
const XFRM_STATE_ESN: u8 = 128;
const XFRM_SA_XFLAG_DONT_ENCAP_DSCP: u32 = 1;
const XFRM_INF: u64 = u64::MAX;
/// Bytes of `xfrm_usersa_info`.
const SA_INFO_LEN: usize = 224;

/// Bytes of an algorithm's name.
const NAME_LEN: usize = 64;
/// Room for the longest message: an association with the largest replay window has about 1100 bytes.
/// Nothing grows beyond it, so no copy of a key stays behind.
const ROOM: usize = 2048;

// Our choice.
/// Priority of the policies; what must not be protected comes before.
const PRIORITY: u32 = 17_230;

/// An association as the kernel is told.
#[derive(Clone)]
pub(crate) struct Sa {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) spi: Spi,
    pub(crate) protocol: Protocol,
    pub(crate) transport: bool,
    /// Ties associations to policies.
    pub(crate) reqid: u32,
    /// Ports of ESP in UDP, source and destination.
    pub(crate) in_udp: Option<[u16; 2]>,
    pub(crate) extended_sequence: bool,
    pub(crate) window: u32,
    /// Whether the outer DSCP is the inner one's rather than 0.
    pub(crate) copy_dscp: bool,
    /// Bytes to which inner packets are padded, as far as the path takes them.
    pub(crate) tfc_padding: Option<u16>,
    /// Seconds after which the kernel removes it, whoever is there to do so or not.
    pub(crate) hard_seconds: Option<u64>,
    pub(crate) encryption_key: Zeroizing<Vec<u8>>,
    pub(crate) integrity_key: Zeroizing<Vec<u8>>,
}

/// Direction of a policy; the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In = 0,
    Out = 1,
    Forward = 2,
}

/// Source and destination of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) source: Prefix,
    pub(crate) destination: Prefix,
    pub(crate) protocol: Option<u8>,
    /// Source and destination port; of ICMP, type and code.
    pub(crate) ports: [Option<u16>; 2],
}

/// Protection that packets of a policy must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) transport: bool,
    pub(crate) reqid: u32,
}

/// A policy as the kernel is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) direction: Direction,
    pub(crate) selector: Selector,
    /// None lets packets pass as they are.
    pub(crate) template: Option<Template>,
    /// The interface's number, if the policy is only for its packets.
    pub(crate) if_id: Option<u32>,
}

/// Bytes to be sent, which are wiped afterwards.
pub(crate) struct Message(Zeroizing<Vec<u8>>);

impl Message {
    fn new(kind: u16, flags: u16, sequence: u32) -> Self {
        let mut message = Self(Zeroizing::new(Vec::with_capacity(ROOM)));
        message.u32(0);
        message.u16(kind);
        message.u16(NLM_F_REQUEST | flags);
        message.u32(sequence);
        message.u32(0);
        message
    }

    /// The message with its length in front.
    pub(crate) fn finish(mut self) -> Zeroizing<Vec<u8>> {
        let len = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        if let Some(place) = self.0.first_chunk_mut() {
            *place = len.to_ne_bytes();
        }
        self.0
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn zeros(&mut self, count: usize) {
        let len = self.0.len() + count;
        self.0.resize(len, 0);
    }

    fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => {
                self.bytes(&address.octets());
                self.zeros(12);
            }
            IpAddr::V6(address) => self.bytes(&address.octets()),
        }
    }

    /// An attribute; what `fill` writes is its value.
    fn attribute(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.u16(0);
        self.u16(kind);
        fill(self);
        let len = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        if let Some(place) = self.0.get_mut(start..start + 2) {
            place.copy_from_slice(&len.to_ne_bytes());
        }
        let end = self.0.len();
        self.zeros(end.next_multiple_of(4) - end);
    }

    fn selector(&mut self, selector: &Selector) {
        let [source, destination] = [selector.source, selector.destination];
        self.address(destination.address);
        self.address(source.address);
        let [from, to] = selector.ports;
        for port in [to, from] {
            self.bytes(&port.unwrap_or(0).to_be_bytes());
            self.u16(if port.is_some() { u16::MAX } else { 0 });
        }
        self.u16(family(destination.address));
        self.bytes(&[
            destination.bits,
            source.bits,
            selector.protocol.unwrap_or(0),
        ]);
        self.zeros(3);
        // Of any interface and user.
        self.zeros(8);
    }

    /// `xfrm_lifetime_cfg` with no limit but one of age, where 0 is none; and `xfrm_lifetime_cur`.
    fn limits(&mut self, hard_seconds: u64) {
        // Bytes and packets, soft and hard; seconds since it was added, then since it was first used.
        let any = XFRM_INF;
        for limit in [any, any, any, any, 0, hard_seconds, 0, 0] {
            self.bytes(&limit.to_ne_bytes());
        }
        self.zeros(32);
    }

    fn id(&mut self, destination: IpAddr, spi: u32, protocol: Protocol) {
        self.address(destination);
        self.bytes(&spi.to_be_bytes());
        self.u8(protocol_number(protocol));
        self.zeros(3);
    }

    /// `xfrm_algo` and its relatives, whose `sizes` in bits stand between name and key.
    fn algorithm(&mut self, kind: u16, name: &str, sizes: &[usize], key: &[u8]) {
        self.attribute(kind, |message| {
            message.bytes(name.as_bytes());
            message.zeros(NAME_LEN.saturating_sub(name.len()));
            for bytes in sizes {
                message.u32(u32::try_from(bytes * 8).unwrap_or(u32::MAX));
            }
            message.bytes(key);
        });
    }
}

/// Installs an association; one with its SPI must not be there.
pub(crate) fn new_sa(sa: &Sa, if_id: Option<u32>, sequence: u32) -> Message {
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut message = Message::new(XFRM_MSG_NEWSA, flags, sequence);
    // No selector of its own: the policies say what goes in.
    message.zeros(56);
    message.id(sa.destination, sa.spi.get(), sa.protocol);
    message.address(sa.source);
    message.limits(sa.hard_seconds.unwrap_or(0));
    // Statistics, number of an acquisition.
    message.zeros(16);
    message.u32(sa.reqid);
    message.u16(family(sa.destination));
    message.u8(mode(sa.transport));
    // The window is in the attribute, where it can be large.
    message.u8(0);
    message.u8(state_flags(sa));
    message.zeros(7);
    algorithms(&mut message, sa);
    message.attribute(XFRMA_REPLAY_ESN_VAL, |message| {
        let words = sa.window.div_ceil(32);
        message.u32(words);
        // Sequence numbers, from the first on.
        message.zeros(16);
        message.u32(sa.window);
        for _ in 0..words {
            message.u32(0);
        }
    });
    if let Some([source, destination]) = sa.in_udp {
        message.attribute(XFRMA_ENCAP, |message| {
            // UDP_ENCAP_ESPINUDP
            message.u16(2);
            message.bytes(&source.to_be_bytes());
            message.bytes(&destination.to_be_bytes());
            message.zeros(2 + 16);
        });
    }
    if let Some(bytes) = sa.tfc_padding {
        message.attribute(XFRMA_TFCPAD, |message| message.u32(bytes.into()));
    }
    if !sa.transport && !sa.copy_dscp {
        message.attribute(XFRMA_SA_EXTRA_FLAGS, |message| {
            message.u32(XFRM_SA_XFLAG_DONT_ENCAP_DSCP);
        });
    }
    interface(&mut message, if_id);
    message
}

fn state_flags(sa: &Sa) -> u8 {
    let mut flags = 0;
    if sa.extended_sequence {
        flags |= XFRM_STATE_ESN;
    }
    if !sa.transport {
        // Inner packets of either family.
        flags |= XFRM_STATE_AF_UNSPEC;
    }
    if matches!(sa.protocol, Protocol::Ah(_)) && sa.destination.is_ipv4() {
        // RFC 4302 §3.3.3.2.1; without, the kernel aligns to eight bytes as for IPv6.
        flags |= XFRM_STATE_ALIGN4;
    }
    flags
}

fn algorithms(message: &mut Message, sa: &Sa) {
    let integrity = match sa.protocol {
        Protocol::Ah(integrity) => Some(integrity),
        Protocol::Esp(suite) => {
            let (name, aead) = cipher_name(suite.encryption());
            let key = &sa.encryption_key;
            if aead {
                let sizes = [key.len(), suite.icv_len()];
                message.algorithm(XFRMA_ALG_AEAD, name, &sizes, key);
            } else {
                message.algorithm(XFRMA_ALG_CRYPT, name, &[key.len()], key);
            }
            suite.integrity()
        }
    };
    if let Some(integrity) = integrity {
        let key = &sa.integrity_key;
        let sizes = [key.len(), integrity.icv_len()];
        message.algorithm(XFRMA_ALG_AUTH_TRUNC, mac_name(integrity), &sizes, key);
    }
}

/// The kernel's name (crypto/, net/xfrm/xfrm_algo.c), and whether it authenticates as well.
const fn cipher_name(encryption: Encryption) -> (&'static str, bool) {
    match encryption.mode() {
        Mode::Null => ("ecb(cipher_null)", false),
        Mode::AesCbc => ("cbc(aes)", false),
        Mode::AesCtr => ("rfc3686(ctr(aes))", false),
        Mode::AesCcm => ("rfc4309(ccm(aes))", true),
        Mode::AesGcm => ("rfc4106(gcm(aes))", true),
        Mode::AesGmac => ("rfc4543(gcm(aes))", true),
        Mode::ChaCha20Poly1305 => ("rfc7539esp(chacha20,poly1305)", true),
        #[cfg(feature = "lab")]
        Mode::LegacyCbc if encryption.key_len() == 8 => ("cbc(des)", false),
        #[cfg(feature = "lab")]
        Mode::LegacyCbc => ("cbc(des3_ede)", false),
    }
}

const fn mac_name(integrity: Integrity) -> &'static str {
    match integrity {
        Integrity::HmacSha1_96 => "hmac(sha1)",
        Integrity::HmacSha256_128 => "hmac(sha256)",
        Integrity::HmacSha384_192 => "hmac(sha384)",
        Integrity::HmacSha512_256 => "hmac(sha512)",
        Integrity::AesXcbc96 => "xcbc(aes)",
        #[cfg(feature = "lab")]
        Integrity::HmacMd5_96 => "hmac(md5)",
    }
}

pub(crate) fn delete_sa(sa: &Sa, sequence: u32) -> Message {
    named_sa(XFRM_MSG_DELSA, NLM_F_ACK, sa, sequence)
}

/// Asks for an association; the answer holds its keys.
pub(crate) fn get_sa(sa: &Sa, sequence: u32) -> Message {
    named_sa(XFRM_MSG_GETSA, 0, sa, sequence)
}

/// A message with `xfrm_usersa_id`.
fn named_sa(kind: u16, flags: u16, sa: &Sa, sequence: u32) -> Message {
    let mut message = Message::new(kind, flags, sequence);
    message.address(sa.destination);
    message.bytes(&sa.spi.get().to_be_bytes());
    message.u16(family(sa.destination));
    message.u8(protocol_number(sa.protocol));
    message.u8(0);
    message
}

/// Installs a policy; the same must not be there.
pub(crate) fn new_policy(policy: &Policy, sequence: u32) -> Message {
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    policy_message(XFRM_MSG_NEWPOLICY, flags, policy, sequence)
}

/// Installs a policy, or replaces the one with its selector.
pub(crate) fn set_policy(policy: &Policy, sequence: u32) -> Message {
    policy_message(XFRM_MSG_UPDPOLICY, NLM_F_ACK, policy, sequence)
}

fn policy_message(kind: u16, flags: u16, policy: &Policy, sequence: u32) -> Message {
    let mut message = Message::new(kind, flags, sequence);
    message.selector(&policy.selector);
    message.limits(0);
    message.u32(match policy.template {
        Some(_) => PRIORITY,
        None => PRIORITY - 1,
    });
    message.u32(0);
    // Action: allow.
    message.bytes(&[policy.direction as u8, 0, 0, 0]);
    message.zeros(4);
    if let Some(template) = policy.template {
        message.attribute(XFRMA_TMPL, |message| {
            // Any SPI: associations come and go.
            message.id(template.destination, 0, template.protocol);
            message.u16(family(template.destination));
            message.zeros(2);
            message.address(template.source);
            message.u32(template.reqid);
            // Neither shared nor optional.
            message.bytes(&[mode(template.transport), 0, 0, 0]);
            // Any algorithm: those of the association count.
            for _ in 0..3 {
                message.u32(u32::MAX);
            }
        });
    }
    interface(&mut message, policy.if_id);
    message
}

pub(crate) fn delete_policy(policy: &Policy, sequence: u32) -> Message {
    let mut message = Message::new(XFRM_MSG_DELPOLICY, NLM_F_ACK, sequence);
    message.selector(&policy.selector);
    message.u32(0);
    message.u8(policy.direction as u8);
    message.zeros(3);
    interface(&mut message, policy.if_id);
    message
}

fn interface(message: &mut Message, if_id: Option<u32>) {
    if let Some(if_id) = if_id {
        message.attribute(XFRMA_IF_ID, |message| message.u32(if_id));
    }
}

const fn family(address: IpAddr) -> u16 {
    // linux/socket.h
    match address {
        IpAddr::V4(_) => 2,
        IpAddr::V6(_) => 10,
    }
}

const fn mode(transport: bool) -> u8 {
    if transport { 0 } else { 1 }
}

const fn protocol_number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Esp(_) => protocol::ESP,
        Protocol::Ah(_) => protocol::AH,
    }
}

/// Usage of an association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    /// Packets left of the replay window.
    pub(crate) too_old: u64,
    /// Packets that were there before.
    pub(crate) duplicate: u64,
    pub(crate) integrity_failed: u64,
    /// The highest number sent.
    pub(crate) sent: u64,
    /// The highest number received.
    pub(crate) received: u64,
}

/// An answer to one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was done, or not: a number of the system, 0 for done, and perhaps the kernel's words.
    Status(i32, Option<String>),
    Sa(Usage),
}

/// Reads a datagram of answers; none if it is not about this request.
pub(crate) fn answer(mut datagram: &[u8], sequence: u32) -> Option<Answer> {
    loop {
        let len = usize::try_from(u32_at(datagram, 0)?).ok()?;
        let message = datagram.get(..len).filter(|_| len >= HEADER_LEN)?;
        if u32_at(message, 8)? == sequence {
            let payload = message.get(HEADER_LEN..)?;
            return match u16_at(message, 4)? {
                NLMSG_ERROR => status(payload, u16_at(message, 6)?),
                XFRM_MSG_NEWSA => usage(payload).map(Answer::Sa),
                _ => None,
            };
        }
        datagram = datagram.get(len.next_multiple_of(4)..)?;
    }
}

/// `nlmsgerr` and what follows it.
fn status(payload: &[u8], flags: u16) -> Option<Answer> {
    const NLM_F_CAPPED: u16 = 0x100;
    const NLMSGERR_ATTR_MSG: u16 = 1;
    let code = i32::from_ne_bytes(*payload.first_chunk()?);
    // The request's header, and without "capped" all of it, stands before the attributes.
    let request = match flags & NLM_F_CAPPED {
        0 => usize::try_from(u32_at(payload, 4)?).ok()?,
        _ => HEADER_LEN,
    };
    let rest = payload.get(4 + request.next_multiple_of(4)..);
    let words = rest.and_then(|rest| find(rest, NLMSGERR_ATTR_MSG));
    let words = words.map(|words| {
        let text = String::from_utf8_lossy(words);
        text.trim_end_matches('\0').to_owned()
    });
    Some(Answer::Status(code.saturating_neg(), words))
}

/// `xfrm_usersa_info` and what follows it.
fn usage(payload: &[u8]) -> Option<Usage> {
    // Behind selector, id, source and limits.
    const USED: usize = 56 + 24 + 16 + 64;
    const STATISTICS: usize = USED + 32;
    let statistic = |index: usize| u32_at(payload, STATISTICS + 4 * index).map(u64::from);
    let replay = find(payload.get(SA_INFO_LEN..)?, XFRMA_REPLAY_ESN_VAL);
    let number = |low, high| -> Option<u64> {
        let replay = replay?;
        Some(u64::from(u32_at(replay, high)?) << 32 | u64::from(u32_at(replay, low)?))
    };
    Some(Usage {
        bytes: u64_at(payload, USED)?,
        packets: u64_at(payload, USED + 8)?,
        too_old: statistic(0)?,
        duplicate: statistic(1)?,
        integrity_failed: statistic(2)?,
        sent: number(4, 12).unwrap_or(0),
        received: number(8, 16).unwrap_or(0),
    })
}

/// The value of the first attribute of a kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16_at(attributes, 0)?);
        let attribute = attributes.get(..len)?;
        let value = attribute.get(4..)?;
        if u16_at(attribute, 2)? == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) mod dump;
#[cfg(test)]
mod tests;
