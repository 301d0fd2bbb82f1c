//! Sessions that are taken up again: that they always are, and that the application knows the client as before.

use std::sync::Arc;

use pki::cert::CertificateChain;
use pki::crl::RevocationReason;
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::path::Purpose;
use pki::profile::Profile;
use pki::status::{IssuerId, Revocation};
use pki::tls::{ClientAuth, ServerIdentity, ServerTls, client_config, server_verifier};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use time::Duration;

use crate::fixture::{NOW, World, key, request};
use crate::tls::Stopped;

/// Longest content of a TLS record.
const RECORD: usize = 1 << 14;

struct Site {
    world: World,
    key: PrivateKey,
    chain: CertificateChain,
}

impl Site {
    fn new() -> Self {
        let world = World::with(KeyAlgorithm::EcdsaP256);
        let key = key(KeyAlgorithm::EcdsaP256, 9);
        let chain = world.chain(&request(Profile::Device, &key));
        Self { world, key, chain }
    }

    fn tls(&self) -> ServerTls {
        let chain = self.world.chain(&request(Profile::Server, &self.key));
        ServerTls::new(ServerIdentity::new(&chain, &self.key).unwrap()).with_client_auth(
            ClientAuth::Required,
            self.world.trust(),
            Purpose::Client,
        )
    }

    /// One with tickets that hold the session, one that keeps it.
    fn servers(&self) -> [Arc<ServerConfig>; 2] {
        let small = self.tls().with_small_tickets();
        [self.tls(), small].map(|tls| stopped(&tls.build().unwrap()))
    }

    fn client(&self) -> Arc<ClientConfig> {
        self.client_with(&self.chain)
    }

    fn client_with(&self, chain: &CertificateChain) -> Arc<ClientConfig> {
        let identity = Some((chain, &self.key));
        let client = client_config(&self.world.trust(), identity, &[]).unwrap();
        let mut client = ClientConfig::clone(&client);
        client.time_provider = Arc::new(Stopped);
        Arc::new(client)
    }

    fn old_client(&self) -> Arc<ClientConfig> {
        let key = PrivatePkcs8KeyDer::from(self.key.to_pkcs8_der().to_vec());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(server_verifier(self.world.trust()))
            .with_client_auth_cert(self.chain.ders().to_vec(), PrivateKeyDer::Pkcs8(key))
            .unwrap();
        client.time_provider = Arc::new(Stopped);
        Arc::new(client)
    }
}

fn stopped(server: &Arc<ServerConfig>) -> Arc<ServerConfig> {
    let mut server = ServerConfig::clone(server);
    server.time_provider = Arc::new(Stopped);
    Arc::new(server)
}

struct Connection {
    client: ClientConnection,
    server: ServerConnection,
    /// Octets that each side sent.
    up: usize,
    down: usize,
    /// Octets of the client's first flight.
    hello: usize,
}

impl Connection {
    /// Takes a ticket, if the client has one.
    fn begin(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Self {
        let name = ServerName::try_from("portal.example.org").unwrap();
        Self {
            client: ClientConnection::new(Arc::clone(client), name).unwrap(),
            server: ServerConnection::new(Arc::clone(server)).unwrap(),
            up: 0,
            down: 0,
            hello: 0,
        }
    }

    fn finish(mut self) -> Self {
        while self.client.wants_write() || self.server.wants_write() {
            let mut wire = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut wire).unwrap();
            }
            if self.up == 0 {
                self.hello = wire.len();
            }
            self.up += wire.len();
            let mut input = wire.as_slice();
            while !input.is_empty() {
                self.server.read_tls(&mut input).unwrap();
                self.server.process_new_packets().unwrap();
            }
            let mut wire = Vec::new();
            while self.server.wants_write() {
                self.server.write_tls(&mut wire).unwrap();
            }
            self.down += wire.len();
            let mut input = wire.as_slice();
            while !input.is_empty() {
                self.client.read_tls(&mut input).unwrap();
                self.client.process_new_packets().unwrap();
            }
        }
        assert!(!self.client.is_handshaking() && !self.server.is_handshaking());
        self
    }

    fn resumed(&self) -> bool {
        self.server.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Connection {
    Connection::begin(client, server).finish()
}

#[test]
fn resumed_session_has_the_clients_chain_and_revocation_is_seen() {
    let site = Site::new();
    for server in site.servers() {
        for client in [site.client(), site.old_client()] {
            let first = connect(&client, &server);
            assert!(!first.resumed());
            let again = connect(&client, &server);
            assert!(again.resumed(), "{:?}", again.server.protocol_version());
            let peer = again.server.peer_certificates().unwrap();
            assert_eq!(peer, site.chain.ders());

            let trust = site.world.trust();
            let path = trust.validate(peer, Purpose::Client, NOW);
            path.unwrap();
            let tbs = &site.chain.leaf().tbs_certificate;
            let (issuer, serial) = (IssuerId::of(&tbs.issuer), tbs.serial_number.as_bytes());
            let revocation = Revocation {
                at: NOW - Duration::HOUR,
                reason: RevocationReason::KeyCompromise,
            };
            trust.status().revoke(issuer, serial, revocation).unwrap();
            assert!(trust.validate(peer, Purpose::Client, NOW).is_err());
            let strangers = World::with(KeyAlgorithm::EcdsaP384).trust();
            assert!(strangers.validate(peer, Purpose::Client, NOW).is_err());
        }
    }
}

#[test]
fn two_hundred_connections_resume_and_eight_at_once_do() {
    let site = Site::new();
    for server in site.servers() {
        for client in [site.client(), site.old_client()] {
            assert!(!connect(&client, &server).resumed());
            for number in 0..200 {
                assert!(connect(&client, &server).resumed(), "{number}");
            }
            let begun = [(); 8].map(|()| Connection::begin(&client, &server));
            assert!(
                begun
                    .map(Connection::finish)
                    .iter()
                    .all(Connection::resumed)
            );
        }
    }
}

#[test]
fn session_is_resumed_only_where_it_was_made_and_not_under_another_trust() {
    let site = Site::new();
    let ([one, _], [two, kept]) = (site.servers(), site.servers());
    let client = site.client();
    connect(&client, &one);
    // It shows a ticket of the first server to each of them.
    assert!(!connect(&client, &two).resumed());
    assert!(!Connection::begin(&client, &kept).finish().resumed());
    let renewed = site.client();
    assert!(!connect(&renewed, &one).resumed());
}

#[test]
fn ticket_stays_within_a_record_and_a_narrow_link_sees_small_ones() {
    let site = Site::new();
    let [sealed, kept] = site.servers();
    let client = site.client();
    connect(&client, &sealed);
    let resumed = connect(&client, &sealed);
    assert!(
        resumed.resumed() && resumed.hello < 4096,
        "{}",
        resumed.hello
    );
    let client = site.client();
    let full = connect(&client, &kept);
    let resumed = connect(&client, &kept);
    assert!(resumed.resumed() && 3 * resumed.up < 2 * full.up && 3 * resumed.down < 2 * full.down);
}

#[test]
fn chain_too_long_for_a_ticket_is_served_without_one() {
    let site = Site::new();
    let with = |fillers: usize| {
        let mut certificates = site.chain.certificates().to_vec();
        let filler = site.world.services.certificate().clone();
        certificates.extend(vec![filler; fillers]);
        site.client_with(&CertificateChain::new(certificates).unwrap())
    };
    for server in site.servers() {
        let (long, longer) = (with(10), with(14));
        connect(&long, &server);
        let resumed = connect(&long, &server);
        assert!(resumed.resumed() && resumed.hello < RECORD);
        let full = connect(&longer, &server);
        assert!(full.down < 2 * RECORD / 4 && !connect(&longer, &server).resumed());
    }
}
