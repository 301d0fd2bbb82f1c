//! Associations in pairs, and packets to send through them.

use std::net::IpAddr;
use std::time::Instant;

use ipsec::batch::{Arrival, Arrived, InboundPacket, OutboundBatch, Outcome};
use ipsec::dataplane::{DataPlane, Event};
use ipsec::drops::DropCause;
use ipsec::ip::IpHeader;
use ipsec::lifetime::Lifetime;
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, Protocol, SaParameters, Spi,
    UdpEncapsulation,
};
use ipsec::selector::{AddressRange, Selector};
use ipsec::spd::{Action, Policy};
use ipsec::tunnel::Tunnel;
use offload::{Encryption, Integrity, KeyMaterial, Suite};

pub(crate) const SPI: u32 = 0x0102_0304;

/// One way to protect packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) protocol: Protocol,
    pub(crate) tunnel: bool,
    pub(crate) udp: bool,
    pub(crate) v6: bool,
    pub(crate) esn: bool,
}

/// Every combination that exists.
pub(crate) fn all_cases() -> Vec<Case> {
    use Encryption::*;
    use Integrity::*;
    let macs = [HmacSha1_96, HmacSha256_128, HmacSha384_192, HmacSha512_256];
    let mut protocols = Vec::new();
    let combined = Encryption::ALL.iter().filter(|one| one.is_combined());
    protocols.extend(combined.map(|one| Protocol::Esp(Suite::new(*one, None).unwrap())));
    for encryption in [Null, AesCbc128, AesCbc256] {
        protocols.extend(macs.map(|mac| Protocol::Esp(Suite::new(encryption, Some(mac)).unwrap())));
    }
    for encryption in [AesCbc192, AesCtr128, AesCtr192, AesCtr256] {
        let suite = Suite::new(encryption, Some(HmacSha256_128)).unwrap();
        protocols.push(Protocol::Esp(suite));
    }
    protocols.push(Protocol::Esp(
        Suite::new(AesCbc128, Some(AesXcbc96)).unwrap(),
    ));
    protocols.extend(macs.map(Protocol::Ah));
    protocols.push(Protocol::Ah(AesXcbc96));
    #[cfg(feature = "legacy-algorithms")]
    {
        for encryption in [DesCbc, TripleDesCbc, AesCbc128] {
            let of = |mac| Protocol::Esp(Suite::new(encryption, Some(mac)).unwrap());
            protocols.extend([HmacSha1_96, HmacMd5_96].map(of));
        }
        protocols.push(Protocol::Ah(HmacMd5_96));
    }
    let mut cases = Vec::new();
    for protocol in protocols {
        for bits in 0..16 {
            let bit = |n: u8| bits & (1 << n) != 0;
            let case = Case {
                protocol,
                tunnel: bit(0),
                udp: bit(1),
                v6: bit(2),
                esn: bit(3),
            };
            if !(case.udp && matches!(protocol, Protocol::Ah(_))) {
                cases.push(case);
            }
        }
    }
    cases
}

impl Case {
    pub(crate) fn integrity(&self) -> Option<Integrity> {
        match self.protocol {
            Protocol::Esp(suite) => suite.integrity(),
            Protocol::Ah(integrity) => Some(integrity),
        }
    }

    pub(crate) fn keys(&self) -> KeyMaterial {
        let bytes: Vec<u8> = (1..=128).collect();
        match self.protocol {
            Protocol::Esp(suite) => KeyMaterial::new(
                &bytes[..suite.encryption().key_len()],
                &bytes[40..][..self.integrity().map_or(0, Integrity::key_len)],
            ),
            Protocol::Ah(integrity) => KeyMaterial::new(&[], &bytes[40..][..integrity.key_len()]),
        }
    }

    /// Outer addresses of a tunnel; the hosts' own in transport mode.
    pub(crate) fn ends(&self) -> (IpAddr, IpAddr) {
        if self.v6 {
            (
                "2001:db8::1".parse().unwrap(),
                "2001:db8::2".parse().unwrap(),
            )
        } else {
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap())
        }
    }

    pub(crate) fn parameters(&self) -> SaParameters {
        let (local, remote) = self.ends();
        SaParameters {
            engine: offload::Engine::default(),
            accelerator: None,
            spi: Spi::new(SPI).unwrap(),
            protocol: self.protocol,
            keys: self.keys(),
            extended_sequence: self.esn,
            mode: if self.tunnel {
                Mode::Tunnel(Tunnel::new(local, remote))
            } else {
                Mode::Transport
            },
            encapsulation: self.udp.then_some(UdpEncapsulation {
                local: 4500,
                remote: 4500,
            }),
            lifetime: Lifetime::default(),
        }
    }

    /// An inner packet of this case's family: an echo request, or UDP.
    pub(crate) fn inner(&self, payload: usize) -> Vec<u8> {
        let ends = if self.tunnel {
            ("10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap())
        } else {
            self.ends()
        };
        udp_packet(ends, payload)
    }

    pub(crate) fn selector(&self) -> Selector {
        let any = if self.tunnel || !self.v6 {
            "0.0.0.0"
        } else {
            "::"
        };
        let any = AddressRange::prefix(any.parse().unwrap(), 0).unwrap();
        Selector::between(any, any)
    }

    /// A data plane that protects by this case.
    pub(crate) fn sender(&self) -> DataPlane {
        let mut plane = DataPlane::new(1);
        let policy = plane.insert_policy(Policy {
            selector: self.selector(),
            action: Action::Protect,
            order: 0,
        });
        let options = OutboundOptions {
            path_mtu: Some(9000),
            ..OutboundOptions::default()
        };
        let sa = OutboundSa::new(&self.parameters(), options, Instant::now()).unwrap();
        plane.install_outbound(sa, &[policy]);
        plane
    }

    /// A data plane that accepts by this case.
    pub(crate) fn receiver(&self) -> DataPlane {
        let mut plane = DataPlane::new(2);
        let options = InboundOptions {
            selectors: vec![self.selector()],
            ..InboundOptions::default()
        };
        let sa = InboundSa::new(&self.parameters(), options, Instant::now()).unwrap();
        plane.install_inbound(sa);
        plane
    }
}

/// A UDP packet with right checksums.
pub(crate) fn udp_packet(ends: (IpAddr, IpAddr), payload: usize) -> Vec<u8> {
    let length = u16::try_from(8 + payload).unwrap();
    let mut upper = vec![0x30, 0x39, 0x00, 0x35];
    upper.extend(length.to_be_bytes());
    upper.extend([0, 0]);
    upper.extend((0..payload).map(|n| u8::try_from(n % 251).unwrap()));
    let mut pseudo = Vec::new();
    let mut packet = match ends {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            pseudo.extend(source.octets());
            pseudo.extend(destination.octets());
            let mut packet = vec![0x45, 0];
            packet.extend((20 + length).to_be_bytes());
            packet.extend([0x12, 0x34, 0, 0, 61, 17, 0, 0]);
            packet.extend(&pseudo);
            ipsec::ip::write_v4_checksum(&mut packet, 20).unwrap();
            packet
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            pseudo.extend(source.octets());
            pseudo.extend(destination.octets());
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend(length.to_be_bytes());
            packet.extend([17, 61]);
            packet.extend(&pseudo);
            packet
        }
        _ => panic!("two families"),
    };
    pseudo.extend([0, 17]);
    pseudo.extend(length.to_be_bytes());
    pseudo.extend(&upper);
    let sum = ipsec::ip::checksum(&pseudo);
    upper[6..8].copy_from_slice(&sum.to_be_bytes());
    packet.extend(upper);
    packet
}

/// Protects one packet; the whole outer packet comes back.
pub(crate) fn protect(plane: &mut DataPlane, packet: &[u8]) -> Result<Vec<u8>, DropCause> {
    let mut batch = OutboundBatch::new(1, packet.len().max(1));
    assert!(batch.push(packet));
    plane.outbound(&mut batch, Instant::now(), &mut Vec::<Event>::new());
    let packet = batch.packets[0];
    match packet.outcome {
        Outcome::Dropped { cause, .. } => Err(cause),
        Outcome::Pending => panic!("not looked at"),
        Outcome::Protected { .. } | Outcome::Bypassed => Ok(batch.bytes(&packet).to_vec()),
    }
}

/// Describes a whole packet at `at` in a buffer as a raw socket would deliver it.
pub(crate) fn arrived(buffer: &[u8], at: usize, len: usize) -> InboundPacket {
    let header = IpHeader::parse(&buffer[at..at + len]).unwrap();
    let in_udp = header.protocol == 17;
    let skip = header.upper + if in_udp { 8 } else { 0 };
    InboundPacket {
        start: at + skip,
        len: len - skip,
        ip_header: Some(at),
        room_before: 0,
        arrival: Arrival {
            source: header.source,
            source_port: if in_udp { 4500 } else { 0 },
            destination: header.destination,
            traffic_class: header.traffic_class,
            in_udp,
        },
        outcome: Arrived::Pending,
    }
}

/// Opens one packet that arrived with its outer IP header.
pub(crate) fn open(plane: &mut DataPlane, packet: &[u8]) -> Result<Vec<u8>, DropCause> {
    let mut buffer = packet.to_vec();
    let mut packets = [arrived(&buffer, 0, packet.len())];
    plane.inbound(&mut buffer, &mut packets, Instant::now());
    match packets[0].outcome {
        Arrived::Dropped(cause) => Err(cause),
        Arrived::Pending => panic!("not looked at"),
        Arrived::Delivered { .. } => Ok(buffer[packets[0].range()].to_vec()),
    }
}
