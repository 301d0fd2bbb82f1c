//! What an OpenVPN server and its devices are told.
//!
//! OpenVPN itself is used as it is, from 2.6 on. The server's certificate comes from the services
//! authority, a device's from the devices authority; each side checks the other by the purposes
//! that only these certificates have. `settings` is what both have in common, [`control_key`] the keys with which a stranger's
//! first packet is told from a device's.

pub mod control_key;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use zeroize::Zeroizing;

pub use self::settings::{
    AddressRange, Bridge, DataCipher, Device, Network, Settings, Token, Transport,
};

/// Files that lie beside the server's configuration.
pub const CRL: &str = "crl.pem";
pub const AUTHORITIES: &str = "authorities.pem";
pub const SERVER_CONTROL_KEY: &str = "tls-crypt-v2.key";
pub const REFUSED_DEVICES: &str = "refused-devices.txt";
/// OpenVPN's management socket there.
pub const MANAGEMENT: &str = "management.sock";
/// The interface that a server adds to its bridge.
pub const BRIDGED_INTERFACE: &str = "tap-cordon";

/// Largest UDP packet of the tunnel in bytes. Our choice: with 32 bytes of padding, which OpenVPN
/// does not count for an IBC cipher, it still fits into an Ethernet frame over IPv6 and PPPoE.
const MSSFIX: u16 = 1300;

/// Name of the provider module for OpenVPN.
const MODULE: &str = "cordon_ibc_openvpn";

/// Certificates of a side, and the root that it trusts.
#[derive(Clone, Copy, Debug)]
pub struct Certificates<'a> {
    pub root_pem: &'a str,
    /// The side's own, then the authorities above it.
    pub chain_pem: &'a str,
}

/// A device's proof of who it is.
#[derive(Clone, Copy)]
pub enum Proof<'a> {
    /// A key (PEM).
    Key(&'a str),
    Token(&'a Token),
}

/// The server's configuration; what it needs beside it is named by the constants of this module. `shared_key` is the one key of
/// the control channel where devices have none of their own.
#[must_use]
pub fn server(
    settings: &Settings,
    certificates: Certificates<'_>,
    key_pem: &str,
    shared_key: Option<&str>,
) -> Zeroizing<String> {
    let mut text = Zeroizing::new(format!(
        "# OpenVPN 2.6 server {host}. Holds its private key: readable for root only.\n\
         #   openvpn --config server.conf\n\n\
         mode server\ntls-server\n",
        host = settings.server,
    ));
    network(&mut text, settings);
    let _ = write!(
        text,
        "keepalive 10 60\n\n\
         # Only devices: of our certificates, theirs alone have this purpose (id-kp-ipsecIKE).\n\
         remote-cert-eku 1.3.6.1.5.5.7.3.17\n\
         # Revoked devices are refused. The lists are good for a day, and without valid ones nobody\n\
         # gets in: `cordon vpn openvpn-guard` or a daily `cordon vpn openvpn-crl` writes them.\n\
         crl-verify {CRL}\n\
         # After OpenSSL our own validator decides, as for every other listener of the site.\n\
         script-security 2\ntls-export-cert /tmp\n\
         tls-verify \"{verifier} vpn openvpn-verify --authorities {AUTHORITIES} --crl {CRL}\"\n",
        verifier = settings.verifier.display(),
    );
    if settings.own_control_keys {
        let _ = write!(
            text,
            "\n# Each device has a key of its own for the control channel; without one of ours, or with a refused\n\
             # device's, nothing of it is read. No state is kept before a sender has shown its address.\n\
             tls-crypt-v2 {SERVER_CONTROL_KEY} force-cookie\n\
             tls-crypt-v2-verify \"{verifier} vpn openvpn-verify-key --refused {REFUSED_DEVICES}\"\n",
            verifier = settings.verifier.display(),
        );
    }
    if settings.guard {
        let _ = write!(
            text,
            "\n# `cordon vpn openvpn-guard` admits devices, and ends the sessions of those that are revoked. Without it\n\
             # nobody gets in, and everybody is out as soon as it ends.\n\
             management {MANAGEMENT} unix\nmanagement-client-user root\n\
             management-client-auth\nauth-user-pass-optional\n\
             management-hold\nmanagement-signal\n",
        );
    }
    text.push_str(
        "\n# Rights are given up once the tunnel is set up; what is needed later is kept open.\n\
         user nobody\ngroup nogroup\npersist-key\npersist-tun\ndh none\n",
    );
    complete(&mut text, settings);
    own(&mut text, certificates, Proof::Key(key_pem));
    if let Some(shared) = shared_key {
        block(&mut text, "tls-crypt", shared);
    }
    text
}

/// Outside and inside of the tunnel: the server's address and transport, and the layer that is carried.
fn network(text: &mut String, settings: &Settings) {
    let protocol = match (settings.transport, settings.ipv6) {
        (Transport::Udp, false) => "udp",
        // These take IPv4 as well.
        (Transport::Udp, true) => "udp6",
        (Transport::Tcp, false) => "tcp-server",
        (Transport::Tcp, true) => "tcp6-server",
    };
    let _ = writeln!(text, "proto {protocol}\nport {}", settings.port);
    text.push_str(match settings.transport {
        // A server that ends says so, and devices connect to it again at once.
        Transport::Udp => "explicit-exit-notify 1\n",
        // A connection's end is seen anyway; small packets must not wait for others.
        Transport::Tcp => "tcp-nodelay\n",
    });
    let mask = settings.network.mask();
    let _ = match (settings.device, settings.bridge) {
        (Device::Tun, _) => write!(
            text,
            "\n# One network for all; devices do not reach one another through the server.\n\
             dev tun\ntopology subnet\nserver {} {mask}\n",
            settings.network.address(),
        ),
        (Device::Tap, None) => write!(
            text,
            "\n# One Ethernet for server and devices; devices do not reach one another through the server.\n\
             dev tap\nserver {} {mask}\n",
            settings.network.address(),
        ),
        (Device::Tap, Some(bridge)) => write!(
            text,
            "\n# Devices join a network of the server's. The interface is there before, as a port of the bridge:\n\
             #   ip tuntap add dev {BRIDGED_INTERFACE} mode tap\n\
             #   ip link set dev {BRIDGED_INTERFACE} master BRIDGE up\n\
             dev {BRIDGED_INTERFACE}\ndev-type tap\nserver-bridge {} {mask} {} {}\n",
            bridge.gateway,
            bridge.pool.first(),
            bridge.pool.last(),
        ),
    };
}

/// A device's configuration; `control_key` is its own (tls-crypt-v2) or the one of all, as the settings say.
#[must_use]
pub fn device(
    name: &str,
    settings: &Settings,
    certificates: Certificates<'_>,
    proof: Proof<'_>,
    control_key: &str,
) -> Zeroizing<String> {
    let secret = match proof {
        Proof::Key(_) => "its private key",
        Proof::Token(_) => "a key of the control channel",
    };
    let device = match settings.device {
        Device::Tun => "tun",
        Device::Tap => "tap",
    };
    let protocol = match settings.transport {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp-client",
    };
    let mut text = Zeroizing::new(format!(
        "# OpenVPN 2.6 client {name}. Holds {secret}: readable for root only.\n\
         #   openvpn --config {name}.ovpn\n\n\
         client\ndev {device}\nproto {protocol}\nremote {host} {port}\nnobind\nresolv-retry infinite\n\
         # One that is refused tries again: a suspension ends.\n\
         auth-retry nointeract\n\n\
         # Only the server itself: the purpose of servers, and its name.\n\
         remote-cert-tls server\nverify-x509-name {host} name\n\
         persist-key\npersist-tun\n",
        host = settings.server,
        port = settings.port,
    ));
    complete(&mut text, settings);
    own(&mut text, certificates, proof);
    let tag = match settings.own_control_keys {
        true => "tls-crypt-v2",
        false => "tls-crypt",
    };
    block(&mut text, tag, control_key);
    text
}

/// Lines that both sides have in common.
fn complete(text: &mut String, settings: &Settings) {
    let cipher = settings.cipher.name();
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
}

/// Adds what a side proves itself with.
fn own(text: &mut String, certificates: Certificates<'_>, proof: Proof<'_>) {
    const END: &str = "-----END CERTIFICATE-----";
    let chain = certificates.chain_pem;
    match proof {
        Proof::Key(key_pem) => {
            block(text, "ca", certificates.root_pem);
            block(text, "cert", chain);
            block(text, "key", key_pem);
        }
        Proof::Token(token) => {
            // The token has the device's own certificate; the server gets the authorities above it from here.
            let above = chain.split_once(END).map_or("", |(_, above)| above);
            let _ = write!(
                text,
                "\n# The private key and its certificate are on a token, whose PIN OpenVPN asks for.\n\
                 pkcs11-providers '{}'\npkcs11-id '{}'\n",
                token.provider().display(),
                token.id(),
            );
            block(text, "ca", certificates.root_pem);
            block(text, "extra-certs", above.trim_start());
        }
    }
}

fn block(text: &mut String, name: &str, content: &str) {
    let _ = write!(text, "\n<{name}>\n{}\n</{name}>\n", content.trim_end());
}
