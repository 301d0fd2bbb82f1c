//! The command line, with proposals spelled as strongSwan spells them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ikev2::config::{
    Addresses, ClientMethod, Credential, LocalAuth, Mode, PeerId, Ppk, Psk, RemoteAuth,
    ServerMethod,
};
use ikev2::crypto::{Group, Prf};
use ikev2::select::{EspProposal, IkeProposal};
use ikev2::wire::{Identification, TrafficSelector};
use ikev2::{ChildConfig, Connection, Limits, Rates};
use offload::{Encryption, Integrity};

use crate::Failure;
use crate::identity::Identity;

pub(crate) struct Options {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    values: BTreeMap<String, String>,
}

impl Options {
    pub(crate) fn parse() -> Result<Self, Failure> {
        let mut values = BTreeMap::new();
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let name = name
                .strip_prefix("--")
                .ok_or("options begin with --")?
                .to_owned();
            values.insert(name, arguments.next().ok_or("an option without value")?);
        }
        let address = |name: &str| -> Result<IpAddr, Failure> {
            Ok(values
                .get(name)
                .ok_or_else(|| format!("--{name} is missing"))?
                .parse()?)
        };
        Ok(Self {
            local: address("local")?,
            remote: address("remote")?,
            values,
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    fn need(&self, name: &str) -> Result<&str, Failure> {
        self.get(name)
            .ok_or_else(|| format!("--{name} is missing").into())
    }

    pub(crate) fn rates(&self) -> Rates {
        match self.get("often") {
            None => Rates::default(),
            Some(_) => Rates {
                handshakes: u32::MAX,
                requests: u32::MAX,
                ..Rates::default()
            },
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if let Some(bytes) = self.get("datagram").and_then(|text| text.parse().ok()) {
            limits.datagram_bytes = bytes;
        }
        if self.get("cookies").is_some() {
            limits.cookie_threshold = 0;
        }
        limits
    }

    fn eap_client(&self, method: &str, identity: Option<&Identity>) -> Result<LocalAuth, Failure> {
        let identity = identity.ok_or("EAP wants a certificate")?;
        let method = match method {
            "mschapv2" => ClientMethod::MsChapV2,
            _ => ClientMethod::Tls {
                config: identity.tls_client()?,
                server: self.need("remote-id")?.to_owned().try_into()?,
            },
        };
        Ok(LocalAuth::Eap {
            identity: self.need("user")?.into(),
            method,
        })
    }

    pub(crate) fn connection(&self, identity: Option<&Identity>) -> Result<Connection, Failure> {
        let (local_auth, remote_auth) = match identity {
            Some(identity) => (
                LocalAuth::Certificates(vec![Credential {
                    chain: identity.chain(),
                    key: identity.kind(),
                    authorities: vec![],
                    ocsp: None,
                }]),
                RemoteAuth::Certificate {
                    authorities: vec![],
                    ocsp: false,
                },
            ),
            None => {
                let psk = Psk::new(self.need("psk")?.as_bytes());
                (LocalAuth::Psk(psk.clone()), RemoteAuth::Psk(psk))
            }
        };
        let (local_auth, remote_auth) = match (self.get("eap-client"), self.get("eap-server")) {
            (Some(method), _) => (self.eap_client(method, identity)?, remote_auth),
            (_, Some(method)) => (local_auth, eap_server(method, identity)?),
            _ => (local_auth, remote_auth),
        };
        let remote_id = match self.need("remote-id")? {
            "any" => PeerId::Any,
            name => PeerId::Exactly(Identification::fqdn(name)),
        };
        let selector = |name: &str| -> Result<TrafficSelector, Failure> {
            let (address, prefix) = self.need(name)?.split_once('/').ok_or("no prefix")?;
            Ok(TrafficSelector::network(address.parse()?, prefix.parse()?).ok_or("bad network")?)
        };
        let mode = if self.get("mode") == Some("transport") {
            Mode::Transport
        } else {
            Mode::Tunnel
        };
        let addresses = match self.get("virtual") {
            Some("request") => Addresses::Request {
                v4: true,
                v6: false,
            },
            Some(_) => Addresses::Assign,
            None => Addresses::None,
        };
        Ok(Connection {
            name: "peer".into(),
            remote_address: None,
            local_id: Identification::fqdn(self.need("local-id")?),
            remote_id,
            local_auth,
            remote_auth,
            ppk: self.get("ppk").map(|secret| Ppk {
                id: self.get("ppk-id").unwrap_or("lab").as_bytes().to_vec(),
                secret: Psk::new(secret.as_bytes()),
                required: self.get("ppk-optional").is_none(),
            }),
            mobility: self.get("mobike").is_some(),
            further_addresses: self
                .get("also")
                .and_then(|ip| ip.parse().ok())
                .into_iter()
                .collect(),
            addresses,
            ike: vec![ike_proposal(self.need("ike")?)?],
            children: vec![ChildConfig {
                name: "net".into(),
                mode,
                local: vec![selector("local-ts")?],
                remote: vec![selector("remote-ts")?],
                esp: vec![esp_proposal(self.need("esp")?)?],
                rekey_after: None,
            }],
            rekey_after: None,
            liveness: None,
            retransmission: None,
            unique: ikev2::Unique::Replace,
        })
    }
}

fn eap_server(method: &str, identity: Option<&Identity>) -> Result<RemoteAuth, Failure> {
    let identity = identity.ok_or("EAP wants a certificate")?;
    let method = match method {
        "mschapv2" => ServerMethod::MsChapV2,
        _ => ServerMethod::Tls(identity.tls_server()?),
    };
    let methods = vec![method];
    Ok(RemoteAuth::Eap { methods })
}

#[derive(Default)]
struct Words {
    encryption: Vec<Encryption>,
    integrity: Vec<Integrity>,
    prf: Vec<Prf>,
    groups: Vec<Group>,
    additional: Vec<Vec<Group>>,
    esn: bool,
}

fn words(text: &str) -> Result<Words, Failure> {
    let mut out = Words::default();
    for word in text.split('-') {
        match word {
            "aes128" => out.encryption.push(Encryption::AesCbc128),
            "aes192" => out.encryption.push(Encryption::AesCbc192),
            "aes256" => out.encryption.push(Encryption::AesCbc256),
            "aes128ctr" => out.encryption.push(Encryption::AesCtr128),
            "aes192ctr" => out.encryption.push(Encryption::AesCtr192),
            "aes256ctr" => out.encryption.push(Encryption::AesCtr256),
            "aes128ccm8" => out.encryption.push(Encryption::AesCcm128Icv8),
            "aes128ccm16" => out.encryption.push(Encryption::AesCcm128Icv16),
            "aes192ccm12" => out.encryption.push(Encryption::AesCcm192Icv12),
            "aes256ccm8" => out.encryption.push(Encryption::AesCcm256Icv8),
            "aes256ccm16" => out.encryption.push(Encryption::AesCcm256Icv16),
            "aes128gcm16" => out.encryption.push(Encryption::AesGcm128),
            "aes192gcm16" => out.encryption.push(Encryption::AesGcm192),
            "aes256gcm16" => out.encryption.push(Encryption::AesGcm256),
            "aes128gmac" => out.encryption.push(Encryption::AesGmac128),
            "aes256gmac" => out.encryption.push(Encryption::AesGmac256),
            "chacha20poly1305" => out.encryption.push(Encryption::ChaCha20Poly1305),
            "sha1" => out.integrity.push(Integrity::HmacSha1_96),
            "sha256" => out.integrity.push(Integrity::HmacSha256_128),
            "sha384" => out.integrity.push(Integrity::HmacSha384_192),
            "sha512" => out.integrity.push(Integrity::HmacSha512_256),
            "aesxcbc" => out.integrity.push(Integrity::AesXcbc96),
            "prfsha1" => out.prf.push(Prf::HmacSha1),
            "prfsha256" => out.prf.push(Prf::HmacSha256),
            "prfsha384" => out.prf.push(Prf::HmacSha384),
            "prfsha512" => out.prf.push(Prf::HmacSha512),
            "prfaesxcbc" => out.prf.push(Prf::Aes128Xcbc),
            "x25519" => out.groups.push(Group::X25519),
            "ecp256" => out.groups.push(Group::P256),
            "ecp384" => out.groups.push(Group::P384),
            "modp2048" => out.groups.push(Group::Modp2048),
            "modp3072" => out.groups.push(Group::Modp3072),
            "modp4096" => out.groups.push(Group::Modp4096),
            "ke1_mlkem768" => out.additional = vec![vec![Group::MlKem768]],
            "esn" => out.esn = true,
            other => return Err(format!("unknown algorithm {other}").into()),
        }
    }
    Ok(out)
}

fn ike_proposal(text: &str) -> Result<IkeProposal, Failure> {
    let words = words(text)?;
    Ok(IkeProposal {
        encryption: words.encryption,
        integrity: words.integrity,
        prf: words.prf,
        groups: words.groups,
        additional: words.additional,
    })
}

fn esp_proposal(text: &str) -> Result<EspProposal, Failure> {
    let words = words(text)?;
    Ok(EspProposal {
        encryption: words.encryption,
        integrity: words.integrity,
        without_group: words.groups.is_empty(),
        groups: words.groups,
        additional: words.additional,
        extended_sequence: vec![words.esn],
    })
}
