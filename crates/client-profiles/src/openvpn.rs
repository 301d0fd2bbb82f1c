//! What an OpenVPN server and its devices are told.
//!
//! OpenVPN itself is used as it is, from 2.6 on. The server's certificate comes from the services
//! authority, a device's from the devices authority; each side checks the other by the purposes
//! that only these certificates have.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Largest UDP packet of the tunnel in bytes. Our choice: with 32 bytes of padding, which OpenVPN
/// does not count for an IBC cipher, it still fits into an Ethernet frame over IPv6 and PPPoE.
const MSSFIX: u16 = 1300;

/// Name of the provider module for OpenVPN.
const MODULE: &str = "cordon_ibc_openvpn";

/// Ciphers that may protect the tunnel, the default first.
const AEADS: [&str; 4] = [
    "AES-256-GCM",
    "AES-128-GCM",
    "AES-192-GCM",
    "CHACHA20-POLY1305",
];

/// IBC ciphers that OpenVPN can use.
const RESEARCH: [&str; 5] = [
    "INDECT-128-CBC",
    "INDECT-192-CBC",
    "INDECT-256-CBC",
    "INDECT-320-CBC",
    "INDECT-128-VH-CBC",
];

/// The cipher of the data channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DataCipher(String);

impl DataCipher {
    /// Whether it is one of the IBC ciphers.
    pub fn is_research(&self) -> bool {
        RESEARCH.contains(&self.0.as_str())
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for DataCipher {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut known = AEADS.into_iter().chain(RESEARCH);
        known
            .find(|cipher| cipher.eq_ignore_ascii_case(name))
            .map(|cipher| Self(cipher.to_owned()))
            .ok_or_else(|| format!("unknown cipher, choose from {}", AEADS.join(", ")))
    }
}

impl TryFrom<String> for DataCipher {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<DataCipher> for String {
    fn from(cipher: DataCipher) -> Self {
        cipher.0
    }
}

/// An IPv4 network that OpenVPN can hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: Ipv4Addr,
    prefix: u8,
}

impl Network {
    fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(self.prefix)))
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WANTED: &str = "expected an IPv4 network of 16 to 29 bits such as 10.8.0.0/24";
        let (address, prefix) = text.split_once('/').ok_or(WANTED)?;
        let network = Self {
            address: address.parse().map_err(|_| WANTED)?,
            prefix: prefix.parse().map_err(|_| WANTED)?,
        };
        if !(16..=29).contains(&network.prefix)
            || network.address & !network.mask() != Ipv4Addr::UNSPECIFIED
        {
            return Err(WANTED.to_owned());
        }
        Ok(network)
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        format!("{}/{}", network.address, network.prefix)
    }
}

/// What server and devices have in common; kept in the folder of the profiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Host under which devices reach the server; also the name in its certificate.
    pub server: String,
    pub port: u16,
    /// Addresses inside of the tunnel.
    pub network: Network,
    pub cipher: DataCipher,
    /// Where `cordon` is on the server.
    #[serde(default = "default_verifier")]
    pub verifier: PathBuf,
}

fn default_verifier() -> PathBuf {
    PathBuf::from("/usr/bin/cordon")
}

/// What a side proves itself with, and trusts.
pub struct Identity {
    pub root_pem: String,
    /// The authority of devices.
    pub devices_ca_pem: String,
    pub chain_pem: String,
    pub key_pem: Zeroizing<String>,
}

/// The key of the control channel that these random bytes make, in OpenVPN's format.
pub fn tls_crypt_key(random: &[u8; 256]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::from("-----BEGIN OpenVPN Static key V1-----\n"));
    for line in random.chunks(16) {
        let _ = writeln!(text, "{}", Zeroizing::new(hex::encode(line)).as_str());
    }
    text.push_str("-----END OpenVPN Static key V1-----\n");
    text
}

/// The server's configuration; `crl.pem` lies beside it.
pub fn server(settings: &Settings, identity: &Identity, tls_crypt: &str) -> Zeroizing<String> {
    let head = format!(
        "# OpenVPN 2.6 server {host}. Holds its private key: readable for root only.\n\
         #   openvpn --config server.conf\n\n\
         mode server\ntls-server\ndev tun\nproto udp\nport {port}\n\n\
         # One network for all; devices do not reach one another through the server.\n\
         topology subnet\nserver {address} {mask}\nkeepalive 10 60\n\n\
         # Only devices: of our certificates, theirs alone have this purpose (id-kp-ipsecIKE).\n\
         remote-cert-eku 1.3.6.1.5.5.7.3.17\n\
         # Revoked devices are refused. The lists are good for a day, and without valid ones nobody\n\
         # gets in: let a daily job write them with `cordon vpn openvpn-crl`.\n\
         crl-verify crl.pem\n\
         # After OpenSSL our own validator decides, as for every other listener of the site.\n\
         script-security 2\ntls-export-cert /tmp\n\
         tls-verify \"{verifier} vpn openvpn-verify --authorities authorities.pem --crl crl.pem\"\n\
         dh none\nexplicit-exit-notify 1\n\n\
         # Rights are given up once the tunnel is set up; what is needed later is kept open.\n\
         user nobody\ngroup nogroup\npersist-key\npersist-tun\n",
        verifier = settings.verifier.display(),
        host = settings.server,
        port = settings.port,
        address = settings.network.address,
        mask = settings.network.mask(),
    );
    complete(head, settings, identity, tls_crypt)
}

pub fn device(
    name: &str,
    settings: &Settings,
    identity: &Identity,
    tls_crypt: &str,
) -> Zeroizing<String> {
    let head = format!(
        "# OpenVPN 2.6 client {name}. Holds its private key: readable for root only.\n\
         #   openvpn --config {name}.ovpn\n\n\
         client\ndev tun\nproto udp\nremote {host} {port}\nnobind\nresolv-retry infinite\n\n\
         # Only the server itself: the purpose of servers, and its name.\n\
         remote-cert-tls server\nverify-x509-name {host} name\n\
         persist-key\npersist-tun\n",
        host = settings.server,
        port = settings.port,
    );
    complete(head, settings, identity, tls_crypt)
}

/// Adds what both sides have in common, and the keys.
fn complete(
    head: String,
    settings: &Settings,
    identity: &Identity,
    tls_crypt: &str,
) -> Zeroizing<String> {
    let cipher = settings.cipher.name();
    let mut text = Zeroizing::new(head);
    let _ = write!(
        text,
        "\n# Both ends must name the same cipher.\ndata-ciphers {cipher}\nauth SHA256\n\
         tls-version-min 1.3\n\
         # Packets stay below what any path carries, so that none is fragmented.\n\
         mssfix {MSSFIX}\nallow-compression no\nverb 3\n"
    );
    if settings.cipher.is_research() {
        let _ = write!(
            text,
            "\n# WARNING: {cipher} is a research cipher and broken. Protect nothing real with it.\n\
             # It comes from an OpenSSL provider, which both ends must load under this very name: its\n\
             # other module, cordon_ibc, makes OpenVPN end with a failed assertion at the first packet.\n\
             # OpenSSL finds it by an environment variable that is set before OpenVPN starts:\n\
             #   OPENSSL_MODULES=DIR openvpn --config FILE\n\
             # or, under systemd, Environment=OPENSSL_MODULES=DIR in the unit's [Service] section.\n\
             # `cordon ibc provider --module-dir DIR` puts the module there.\n\
             providers default {MODULE}\n"
        );
    }
    for (name, content) in [
        ("ca", identity.root_pem.as_str()),
        ("cert", &identity.chain_pem),
        ("key", &identity.key_pem),
        ("tls-crypt", tls_crypt),
    ] {
        let _ = write!(text, "\n<{name}>\n{}\n</{name}>\n", content.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(cipher: &str) -> Settings {
        Settings {
            server: "vpn.example.org".into(),
            port: 1194,
            network: "10.8.0.0/24".parse().unwrap(),
            cipher: cipher.parse().unwrap(),
            verifier: default_verifier(),
        }
    }

    fn identity() -> Identity {
        Identity {
            root_pem: "ROOT\n".into(),
            devices_ca_pem: "DEVICES\n".into(),
            chain_pem: "CHAIN\n".into(),
            key_pem: Zeroizing::new("KEY\n".into()),
        }
    }

    #[test]
    fn network_unaligned_or_of_wrong_size_is_refused() {
        for good in ["10.8.0.0/24", "10.8.0.0/16", "192.0.2.8/29"] {
            let network: Network = good.parse().unwrap();
            assert_eq!(String::from(network), good);
        }
        for bad in [
            "10.8.0.0",
            "10.8.0.1/24",
            "10.0.0.0/15",
            "10.8.0.0/30",
            "x/24",
            "::/24",
            "",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
        let network: Network = "10.8.0.0/20".parse().unwrap();
        assert_eq!(network.mask().to_string(), "255.255.240.0");
    }

    #[test]
    fn cipher_outside_the_lists_is_refused() {
        assert!(!"aes-256-gcm".parse::<DataCipher>().unwrap().is_research());
        assert!(
            "indect-128-cbc"
                .parse::<DataCipher>()
                .unwrap()
                .is_research()
        );
        for bad in [
            "AES-128-CBC",
            "BF-CBC",
            "none",
            "INDECT-128-CTR",
            "INDECT-128-ECB",
        ] {
            assert!(bad.parse::<DataCipher>().is_err(), "{bad}");
        }
    }

    #[test]
    fn research_cipher_alone_brings_provider_and_warning() {
        for (cipher, research) in [("AES-256-GCM", false), ("INDECT-320-CBC", true)] {
            let settings = settings(cipher);
            let server = server(&settings, &identity(), "CRYPT");
            let device = device("camera-17", &settings, &identity(), "CRYPT");
            for text in [server, device] {
                assert!(text.contains(&format!("\ndata-ciphers {cipher}\n")));
                assert_eq!(
                    text.contains("\nproviders default cordon_ibc_openvpn\n"),
                    research
                );
                assert_eq!(text.contains("# WARNING"), research);
                for block in [
                    "<ca>\nROOT\n</ca>",
                    "<cert>\nCHAIN\n</cert>",
                    "<key>\nKEY\n</key>",
                ] {
                    assert!(text.contains(block));
                }
            }
        }
    }

    #[test]
    fn server_and_device_check_purpose_and_name_of_each_other() {
        let settings = settings("AES-256-GCM");
        let server = server(&settings, &identity(), "CRYPT");
        assert!(server.contains("\nremote-cert-eku 1.3.6.1.5.5.7.3.17\n"));
        assert!(server.contains("\ncrl-verify crl.pem\n"));
        let device = device("camera-17", &settings, &identity(), "CRYPT");
        assert!(
            device.contains("\nremote-cert-tls server\nverify-x509-name vpn.example.org name\n")
        );
    }

    #[test]
    fn control_channel_key_has_openvpns_format() {
        let (one, other) = (tls_crypt_key(&[7; 256]), tls_crypt_key(&[8; 256]));
        assert_ne!(*one, *other);
        let lines: Vec<&str> = one.lines().collect();
        assert_eq!(lines.len(), 18);
        assert!(
            lines[1..17]
                .iter()
                .all(|l| l.len() == 32 && hex::decode(l).is_ok())
        );
    }
}
