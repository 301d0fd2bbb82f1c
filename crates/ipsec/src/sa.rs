//! Security associations: one direction of protected traffic each (RFC 4301 §4.1).

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use offload::transform::Direction;
use offload::{
    Accelerator, Authenticator, Engine, Integrity, KeyMaterial, Suite, SuiteError, Transform,
};

use crate::ah;
use crate::drops::DropCause;
use crate::lifetime::{Lifetime, Usage};
use crate::replay::ReplayWindow;
use crate::reserve::Reserved;
use crate::selector::Selector;
use crate::shared::{Numbers, SharedVolume, SharedWindow};
use crate::source::Source;
use crate::tunnel::Tunnel;

/// Security Parameters Index. Values below 256 are reserved (RFC 4303 §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spi(u32);

impl Spi {
    /// An SPI that may be used on the wire.
    pub const fn new(value: u32) -> Option<Self> {
        if value < 256 { None } else { Some(Self(value)) }
    }

    /// The number on the wire.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for Spi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Protecting protocol with its algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Encapsulating Security Payload (RFC 4303).
    Esp(Suite),
    /// Authentication Header (RFC 4302).
    Ah(Integrity),
}

/// Scope of the protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whole packets between two gateways.
    Tunnel(Tunnel),
    /// The payload of the IP header, between the two hosts themselves.
    Transport,
}

/// ESP in UDP, for paths with address translation (RFC 3948).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpEncapsulation {
    /// Our port.
    pub local: u16,
    /// The far side's port, as we see it.
    pub remote: u16,
}

/// Addresses before translation, for the checksums of transport mode (RFC 3948 §3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginalAddresses {
    /// The sender's own address.
    pub source: IpAddr,
    /// The receiver's address as the sender knows it.
    pub destination: IpAddr,
}

/// Parameters of both directions.
#[derive(Clone)]
pub struct SaParameters {
    /// The receiver's name for the association.
    pub spi: Spi,
    /// Protocol and algorithms.
    pub protocol: Protocol,
    /// Keys of this direction.
    pub keys: KeyMaterial,
    /// 64-bit sequence numbers.
    pub extended_sequence: bool,
    /// Tunnel or transport.
    pub mode: Mode,
    /// ESP in UDP.
    pub encapsulation: Option<UdpEncapsulation>,
    /// Bounds of use.
    pub lifetime: Lifetime,
    /// Whose code encrypts.
    pub engine: Engine,
    /// A device that packets of ESP are offered to before that code does the others.
    pub accelerator: Option<Arc<dyn Accelerator>>,
}

/// Why an association cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaError {
    /// Algorithms or keys.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// The ends of the tunnel are of different families.
    #[error("a tunnel from {0} to {1} mixes address families")]
    MixedTunnel(IpAddr, IpAddr),
    /// AH covers addresses, which translation changes: RFC 3948 has no AH in UDP.
    #[error("AH cannot be carried in UDP")]
    AhInUdp,
    /// Only a UDP socket writes headers by itself.
    #[error("headers are written by a socket only for tunnels in UDP")]
    NoSocket,
}

/// The packet protection of an association.
pub(crate) enum Protection {
    Esp(Transform),
    /// Much larger than the rest, and rare.
    Ah(Box<Authenticator>),
}

impl Protection {
    /// Asks for the keys' cache lines.
    pub(crate) fn prefetch(&self) {
        match self {
            Self::Esp(transform) => transform.prefetch(),
            Self::Ah(mac) => offload::prefetch(&**mac),
        }
    }

    fn new(parameters: &SaParameters, direction: Direction) -> Result<Self, SaError> {
        if let Mode::Tunnel(tunnel) = &parameters.mode
            && tunnel.local.is_ipv4() != tunnel.remote.is_ipv4()
        {
            return Err(SaError::MixedTunnel(tunnel.local, tunnel.remote));
        }
        let extended = parameters.extended_sequence;
        Ok(match parameters.protocol {
            Protocol::Esp(suite) => {
                let (keys, engine) = (&parameters.keys, parameters.engine);
                let transform = Transform::with_engine(suite, keys, extended, direction, engine)?;
                Self::Esp(match &parameters.accelerator {
                    Some(accelerator) => transform.with_accelerator(&**accelerator, keys),
                    None => transform,
                })
            }
            Protocol::Ah(_) if parameters.encapsulation.is_some() => {
                return Err(SaError::AhInUdp);
            }
            Protocol::Ah(integrity) => Self::Ah(Box::new(Authenticator::with_engine(
                integrity,
                &parameters.keys.integrity,
                extended,
                parameters.engine,
            )?)),
        })
    }
}

/// Writer of the headers in front of ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OuterHeaders {
    /// We do: the packet comes out as it is on the wire.
    #[default]
    Written,
    /// A UDP socket does: the packet comes out as the datagram's content. Only for ESP in UDP.
    BySocket,
}

/// Names an outbound association on this side.
///
/// Peers choose the SPIs to which they are sent, each for itself, so those of two peers may be alike
/// (RFC 4301 §4.1: an SPI identifies an association together with where it leads). Whoever serves several
/// peers names associations by what it has chosen itself, such as the SPI of the other direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaHandle(Spi);

impl From<Spi> for SaHandle {
    fn from(spi: Spi) -> Self {
        Self(spi)
    }
}

impl SaHandle {
    /// The number behind it.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The SPI that it was made from.
    pub const fn spi(self) -> Spi {
        self.0
    }
}

/// Outbound parameters beyond [`SaParameters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboundOptions {
    /// Writer of the headers in front of ESP.
    pub outer_headers: OuterHeaders,
    /// Payloads in tunnel mode are filled up to this many bytes, to hide their size (RFC 4303 §2.7).
    pub tfc_padding: Option<u16>,
    /// Bytes the path to the peer takes; 1500 unless known better.
    pub path_mtu: Option<u16>,
    /// Its name on this side; the SPI unless given, which is enough for one peer.
    pub handle: Option<SaHandle>,
}

/// An association for packets that go out.
pub struct OutboundSa {
    pub(crate) spi: Spi,
    pub(crate) protection: Protection,
    pub(crate) mode: Mode,
    pub(crate) encapsulation: Option<UdpEncapsulation>,
    pub(crate) options: OutboundOptions,
    pub(crate) usage: Usage,
    extended: bool,
    numbers: Numbers,
    /// Numbers that may be used, if an association of the same key may have been before.
    reserved: Option<Arc<Reserved>>,
}

impl OutboundSa {
    /// Sets up an association whose first packet has sequence number 1.
    ///
    /// # Errors
    /// [`SaError`] where algorithms, keys or addresses do not go together.
    pub fn new(
        parameters: &SaParameters,
        options: OutboundOptions,
        now: Instant,
    ) -> Result<Self, SaError> {
        let in_udp_tunnel =
            parameters.encapsulation.is_some() && matches!(parameters.mode, Mode::Tunnel(_));
        if options.outer_headers == OuterHeaders::BySocket && !in_udp_tunnel {
            return Err(SaError::NoSocket);
        }
        Ok(Self {
            spi: parameters.spi,
            protection: Protection::new(parameters, Direction::Seal)?,
            mode: parameters.mode,
            encapsulation: parameters.encapsulation,
            options,
            usage: Usage::new(parameters.lifetime, now),
            extended: parameters.extended_sequence,
            numbers: Numbers::Own(0),
            reserved: None,
        })
    }

    /// Uses only numbers that are reserved, from the first of them on. Associations for several workers
    /// all get the same reservation.
    #[must_use]
    pub fn with_reserved(mut self, reserved: Arc<Reserved>) -> Self {
        self.advance_to(reserved.first());
        self.reserved = Some(reserved);
        self
    }

    /// The same association for several workers: they take sequence numbers from one counter and
    /// count against one lifetime.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn for_workers(
        parameters: &SaParameters,
        options: OutboundOptions,
        now: Instant,
        workers: NonZeroUsize,
    ) -> Result<Vec<Self>, SaError> {
        if workers.get() == 1 {
            return Ok(vec![Self::new(parameters, options, now)?]);
        }
        let volume = Arc::new(SharedVolume::default());
        Numbers::shared(workers.get())
            .map(|numbers| {
                let mut sa = Self::new(parameters, options, now)?;
                sa.usage.share(Arc::clone(&volume));
                sa.numbers = numbers;
                Ok(sa)
            })
            .collect()
    }

    /// The SPI.
    pub const fn spi(&self) -> Spi {
        self.spi
    }

    /// Its name on this side.
    pub fn handle(&self) -> SaHandle {
        self.options.handle.unwrap_or(SaHandle(self.spi))
    }

    /// Returns its volume and age.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The sequence number sent last; zero before the first.
    pub fn sequence(&self) -> u64 {
        self.numbers.newest()
    }

    /// Sets the number sent last, where an association continues one from elsewhere. Going back
    /// would use a nonce twice, so only larger numbers are taken.
    pub fn advance_to(&mut self, sequence: u64) {
        self.numbers.advance_to(sequence);
    }

    /// Largest sequence number (RFC 4303 §3.3.3).
    fn largest(&self) -> u64 {
        if self.extended {
            u64::MAX
        } else {
            u64::from(u32::MAX)
        }
    }

    /// Largest number that may be used now.
    fn last_sequence(&self) -> u64 {
        let reserved = self.reserved.as_ref();
        let ceiling = reserved.map_or(u64::MAX, |reserved| reserved.ceiling());
        self.largest().min(ceiling)
    }

    /// Announces how many packets will ask for [`next_sequence`](Self::next_sequence).
    pub(crate) fn begin_group(&mut self, packets: usize) {
        self.usage.settle();
        self.numbers.take(packets, self.last_sequence());
        if let Some(reserved) = &self.reserved {
            reserved.note(self.numbers.newest());
        }
    }

    /// The next sequence number.
    ///
    /// # Errors
    /// [`DropCause::SequenceOverflow`] when they are used up (RFC 4303 §3.3.3),
    /// [`DropCause::SequenceUnreserved`] while no more are reserved.
    pub(crate) fn next_sequence(&mut self) -> Result<u64, DropCause> {
        let last = self.last_sequence();
        self.numbers.next(last).ok_or(if last < self.largest() {
            DropCause::SequenceUnreserved
        } else {
            DropCause::SequenceOverflow
        })
    }

    /// Bytes of the outer IP and UDP headers.
    fn outer_len(&self) -> usize {
        let ip = match &self.mode {
            Mode::Tunnel(tunnel) => tunnel.header_len(),
            Mode::Transport => 0,
        };
        ip + if self.encapsulation.is_some() { 8 } else { 0 }
    }

    /// Bytes of the ESP header and IV, or of the AH header.
    fn header_len(&self, v6: bool) -> usize {
        match &self.protection {
            Protection::Esp(transform) => transform.payload_offset(),
            Protection::Ah(mac) => ah::header_len(mac.integrity().icv_len(), v6),
        }
    }

    /// Bytes that are written in front of the protected payload.
    pub(crate) fn overhead_before(&self, v6: bool) -> usize {
        let outer = match self.options.outer_headers {
            OuterHeaders::Written => self.outer_len(),
            OuterHeaders::BySocket => 0,
        };
        outer + self.header_len(v6)
    }

    /// Computes the trailer of a payload. Only tunnel mode has traffic-flow padding.
    pub(crate) fn trailer(&self, tunnel: bool) -> Trailer {
        let fill_to = match self.options.tfc_padding {
            // Never beyond what the path takes.
            Some(target) if tunnel => usize::from(target).min(self.inner_mtu()),
            _ => 0,
        };
        match &self.protection {
            Protection::Ah(_) => Trailer {
                text: None,
                icv_len: 0,
                fill_to: 0,
            },
            Protection::Esp(transform) => {
                let suite = transform.suite();
                let alignment = suite.encryption().alignment();
                Trailer {
                    text: Some(alignment),
                    icv_len: suite.icv_len(),
                    fill_to,
                }
            }
        }
    }

    /// The largest inner packet that fits the path.
    pub fn inner_mtu(&self) -> usize {
        let v6 = matches!(&self.mode, Mode::Tunnel(tunnel) if tunnel.local.is_ipv6());
        let room = usize::from(self.options.path_mtu.unwrap_or(1500))
            .saturating_sub(self.outer_len() + self.header_len(v6));
        match &self.protection {
            Protection::Ah(_) => room,
            Protection::Esp(transform) => {
                let suite = transform.suite();
                let text = room.saturating_sub(suite.icv_len());
                let alignment = suite.encryption().alignment();
                (text - text % alignment).saturating_sub(2)
            }
        }
    }
}

/// Bytes that protection adds behind a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Alignment of payload, padding and ESP trailer; AH has none of them.
    text: Option<usize>,
    pub(crate) icv_len: usize,
    /// Payloads are filled up to this.
    fill_to: usize,
}

impl Trailer {
    /// Bytes behind a payload of `inner` bytes.
    pub(crate) const fn after(&self, inner: usize) -> usize {
        let Some(alignment) = self.text else { return 0 };
        let filled = if inner < self.fill_to {
            self.fill_to
        } else {
            inner
        };
        (filled + 2).next_multiple_of(alignment) - inner + self.icv_len
    }
}

/// Inbound parameters beyond [`SaParameters`].
#[derive(Clone, Debug, Default)]
pub struct InboundOptions {
    /// Packets of the replay window; 0 takes the default of 1024.
    pub replay_window: u32,
    /// Selectors of inner packets; a packet that none of these matches is dropped (RFC 4301 §5.2).
    pub selectors: Vec<Selector>,
    /// Addresses before translation; transport mode in UDP only.
    pub original_addresses: Option<OriginalAddresses>,
}

/// Replay window where none is asked for, in packets: enough for the reordering of several cores.
pub const DEFAULT_REPLAY_WINDOW: u32 = 1024;

/// An association for packets that come in.
pub struct InboundSa {
    pub(crate) spi: Spi,
    pub(crate) protection: Protection,
    pub(crate) mode: Mode,
    pub(crate) encapsulation: Option<UdpEncapsulation>,
    pub(crate) options: InboundOptions,
    pub(crate) usage: Usage,
    /// Packets of the replay window stand here while there is one worker; with several, only while
    /// [`with_window`](Self::with_window) works.
    pub(crate) window: ReplayWindow,
    shared_window: Option<SharedWindow>,
    /// Source of its packets, if they come in UDP.
    pub(crate) source: Source,
}

impl InboundSa {
    /// Sets up an association that expects sequence number 1 first.
    ///
    /// # Errors
    /// [`SaError`] where algorithms, keys or addresses do not go together.
    pub fn new(
        parameters: &SaParameters,
        options: InboundOptions,
        now: Instant,
    ) -> Result<Self, SaError> {
        let window = match options.replay_window {
            0 => DEFAULT_REPLAY_WINDOW,
            packets => packets,
        };
        Ok(Self {
            spi: parameters.spi,
            protection: Protection::new(parameters, Direction::Open)?,
            mode: parameters.mode,
            encapsulation: parameters.encapsulation,
            window: ReplayWindow::new(window, parameters.extended_sequence),
            shared_window: None,
            source: Source::default(),
            usage: Usage::new(parameters.lifetime, now),
            options,
        })
    }

    /// The same association for several workers: a sequence number that one accepted is a replay for
    /// all, and they count against one lifetime.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn for_workers(
        parameters: &SaParameters,
        options: &InboundOptions,
        now: Instant,
        workers: NonZeroUsize,
    ) -> Result<Vec<Self>, SaError> {
        let mut sas = Vec::with_capacity(workers.get());
        for _ in 0..workers.get() {
            sas.push(Self::new(parameters, options.clone(), now)?);
        }
        if let [first, _, ..] = sas.as_mut_slice() {
            let window = std::mem::replace(&mut first.window, ReplayWindow::absent());
            let (window, volume) = (SharedWindow::new(window), Arc::default());
            for sa in &mut sas {
                sa.window = ReplayWindow::absent();
                sa.shared_window = Some(window.clone());
                sa.usage.share(Arc::clone(&volume));
            }
        }
        Ok(sas)
    }

    /// Lets `work` check and move the window, alone where several workers do.
    pub(crate) fn with_window<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let Some(shared) = self.shared_window.clone() else {
            return work(self);
        };
        shared.with(|window| {
            std::mem::swap(window, &mut self.window);
            let result = work(self);
            std::mem::swap(window, &mut self.window);
            result
        })
    }

    /// The SPI.
    pub const fn spi(&self) -> Spi {
        self.spi
    }

    /// Whose code opens packets: `library`, `avx512`, both of them, or `avx2`; for people and logs.
    pub fn engine_name(&self) -> &'static str {
        match &self.protection {
            Protection::Esp(transform) => transform.engine_name(),
            Protection::Ah(mac) => mac.engine_name(),
        }
    }

    /// Returns its volume and age.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The highest sequence number received; zero before the first.
    pub fn sequence(&self) -> u64 {
        match &self.shared_window {
            Some(shared) => shared.with(|window| window.top()),
            None => self.window.top(),
        }
    }

    /// Takes numbers up to this one as received, where an association continues one from elsewhere.
    /// Smaller numbers than the newest change nothing.
    pub fn advance_to(&mut self, sequence: u64) {
        self.with_window(|sa| {
            if sequence > sa.window.top() {
                // Cannot fail: the number is newer than all others.
                let _ = sa.window.accept(sequence);
            }
        });
    }
}
