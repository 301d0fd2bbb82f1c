//! Packets printed in RFCs.

use std::time::Instant;

use ipsec::dataplane::DataPlane;
use ipsec::drops::DropCause;
use ipsec::lifetime::Lifetime;
use ipsec::sa::{InboundOptions, InboundSa, Mode, Protocol, SaParameters, Spi};
use ipsec::selector::{AddressRange, Selector};
use ipsec::tunnel::Tunnel;
use offload::{Encryption, KeyMaterial, Suite};

use crate::support::open;

/// RFC 7634, appendix A: an ICMP packet in a ChaCha20-Poly1305 tunnel.
#[test]
fn rfc_7634_appendix_a() {
    let key = "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3";
    let inner = "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec1000073627\
        08090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f\
        3031323334353637";
    let esp = "01020304000000051011121314151617\
        24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb\
        61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da\
        9165b82829f641e076aaa8266b7fb0f7b11b369907e1ad43";
    let outer = with_header(&hex::decode(esp).unwrap());
    let mut plane = receiver(Encryption::ChaCha20Poly1305, &hex::decode(key).unwrap());
    assert_eq!(
        open(&mut plane, &outer).map(hex::encode),
        Ok(inner.to_owned())
    );
    assert_eq!(open(&mut plane, &outer), Err(DropCause::ReplayDuplicate));
}

fn receiver(encryption: Encryption, key: &[u8]) -> DataPlane {
    let (local, remote) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let parameters = SaParameters {
        engine: offload::Engine::default(),
        accelerator: None,
        spi: Spi::new(0x0102_0304).unwrap(),
        protocol: Protocol::Esp(Suite::new(encryption, None).unwrap()),
        keys: KeyMaterial::new(key, &[]),
        extended_sequence: false,
        mode: Mode::Tunnel(Tunnel::new(local, remote)),
        encapsulation: None,
        lifetime: Lifetime::default(),
    };
    let any = AddressRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
    let options = InboundOptions {
        selectors: vec![Selector::between(any, any)],
        ..InboundOptions::default()
    };
    let mut plane = DataPlane::new(0);
    plane.install_inbound(InboundSa::new(&parameters, options, Instant::now()).unwrap());
    plane
}

fn with_header(esp: &[u8]) -> Vec<u8> {
    let mut outer = vec![0x45, 0];
    outer.extend(u16::try_from(20 + esp.len()).unwrap().to_be_bytes());
    outer.extend([0, 0, 0, 0, 64, 50, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1]);
    outer.extend_from_slice(esp);
    outer
}
