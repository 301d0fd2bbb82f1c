//! Proposals and connections.

use ikev2::config::{Addresses, Credential, KeyKind, LocalAuth, Mode, PeerId, Psk, RemoteAuth};
use ikev2::crypto::{Group, Prf};
use ikev2::select::{EspProposal, IkeProposal};
use ikev2::wire::{Identification, TrafficSelector};
use ikev2::{ChildConfig, Connection, Limits};
use offload::{Encryption, Integrity};

use super::{Key, Seeded, key_of};

pub(crate) fn ike_default() -> IkeProposal {
    IkeProposal {
        encryption: vec![Encryption::AesGcm128],
        integrity: vec![],
        prf: vec![Prf::HmacSha256],
        groups: vec![Group::X25519],
        additional: vec![],
    }
}

pub(crate) fn esp_default() -> EspProposal {
    EspProposal {
        encryption: vec![Encryption::AesGcm128],
        integrity: vec![],
        groups: vec![Group::X25519],
        additional: vec![],
        without_group: true,
        extended_sequence: vec![true, false],
    }
}

pub(crate) fn cbc_ike(integrity: Integrity, group: Group) -> IkeProposal {
    IkeProposal {
        encryption: vec![Encryption::AesCbc256],
        integrity: vec![integrity],
        prf: vec![Prf::HmacSha384],
        groups: vec![group],
        additional: vec![],
    }
}

pub(crate) fn net(text: &str) -> TrafficSelector {
    let (address, prefix) = text.split_once('/').unwrap();
    TrafficSelector::network(address.parse().unwrap(), prefix.parse().unwrap()).unwrap()
}

/// A connection of side `me` (0 or 1) to the other, with a shared secret.
pub(crate) fn connection(me: usize) -> Connection {
    let names = ["camera-17.example.org", "gateway.example.org"];
    let nets = ["10.1.0.0/16", "10.2.0.0/16"];
    Connection {
        name: "tunnel".into(),
        remote_address: None,
        local_id: Identification::fqdn(names[me]),
        remote_id: PeerId::Exactly(Identification::fqdn(names[1 - me])),
        local_auth: LocalAuth::Psk(Psk::new(b"a secret for this test")),
        remote_auth: RemoteAuth::Psk(Psk::new(b"a secret for this test")),
        ppk: None,
        mobility: false,
        further_addresses: vec![],
        addresses: Addresses::None,
        ike: vec![ike_default()],
        children: vec![ChildConfig {
            name: "net".into(),
            mode: Mode::Tunnel,
            local: vec![net(nets[me])],
            remote: vec![net(nets[1 - me])],
            esp: vec![esp_default()],
            rekey_after: None,
        }],
        rekey_after: None,
        liveness: None,
        retransmission: None,
        unique: ikev2::Unique::Replace,
    }
}

/// What proves that one has this key; nobody in particular has certified it.
pub(crate) fn credential(key: &Key, kind: KeyKind) -> Credential {
    Credential {
        chain: vec![key.public()],
        key: kind,
        authorities: vec![],
        ocsp: None,
    }
}

/// Has a side prove itself with the certificate of [`key_of`], and ask for one.
pub(crate) fn certify(connection: &mut Connection, side: usize) {
    let ours = credential(&key_of(side), KeyKind::Ed25519);
    connection.local_auth = LocalAuth::Certificates(vec![ours]);
    connection.remote_auth = certified_by(&[]);
}

/// Asks for certificates of these authorities.
pub(crate) fn certified_by(authorities: &[[u8; 20]]) -> RemoteAuth {
    RemoteAuth::Certificate {
        authorities: authorities.to_vec(),
        ocsp: false,
    }
}

/// Resources of both sides: several in a third of the seeds.
pub(crate) fn resources_of(seed: u64) -> [usize; 2] {
    let mut random = Seeded(seed.wrapping_mul(0x8cb9_2ba7) ^ 0x9611);
    match random.below(3) {
        0 => [1; 2].map(|least| least + random.below(4) as usize),
        _ => [1; 2],
    }
}

/// The same limits with so many resources.
pub(crate) fn with_resources(limits: &Limits, resources: usize) -> Limits {
    Limits {
        resources,
        ..limits.clone()
    }
}
