//! Handshakes in memory: who is let in, who is not, and what the application then knows.

use std::sync::Arc;

use pki::cert::CertificateChain;
use pki::crl::RevocationReason;
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::path::{Purpose, TrustStore};
use pki::profile::Profile;
use pki::status::{IssuerId, Revocation};
use pki::tls::{ClientAuth, ServerIdentity, ServerTls, TlsError, client_config};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, NamedGroup,
    ProtocolVersion, ServerConfig, ServerConnection,
};
use rustls_pki_types::{ServerName, UnixTime};
use time::Duration;

use crate::fixture::{NOW, World, key, request};

const USER: Profile = Profile::User {
    administrator: false,
};

/// Stops the clock of rustls.
#[derive(Debug)]
pub(crate) struct Stopped;

impl TimeProvider for Stopped {
    fn current_time(&self) -> Option<UnixTime> {
        let secs = u64::try_from(NOW.unix_timestamp()).unwrap();
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(
            secs,
        )))
    }
}

pub(crate) fn chain(
    world: &World,
    profile: Profile,
    algorithm: KeyAlgorithm,
) -> (PrivateKey, CertificateChain) {
    let key = key(algorithm, 9);
    let chain = world.chain(&request(profile, &key));
    (key, chain)
}

fn server(world: &World, mode: ClientAuth, trust: TrustStore) -> ServerTls {
    let (key, chain) = chain(world, Profile::Server, KeyAlgorithm::EcdsaP256);
    ServerTls::new(ServerIdentity::new(&chain, &key).unwrap())
        .with_client_auth(mode, trust, Purpose::Client)
        .with_alpn(&["h2", "http/1.1"])
}

#[derive(Debug)]
pub(crate) struct Refused {
    client: Option<Error>,
    server: Option<Error>,
}

pub(crate) struct Connected {
    client: ClientConnection,
    server: ServerConnection,
}

/// Runs the handshake to its end and returns both sides, or what each of them complains about.
pub(crate) fn handshake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    host: &str,
) -> Result<Connected, Box<Refused>> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConfig::clone(client);
    let mut server = ServerConfig::clone(server);
    client.time_provider = Arc::new(Stopped);
    server.time_provider = Arc::new(Stopped);
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    let (mut client_error, mut server_error) = (None, None);
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut input = wire.as_slice();
        while !input.is_empty() && server_error.is_none() {
            server.read_tls(&mut input).unwrap();
            server_error = server.process_new_packets().err();
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut input = wire.as_slice();
        while !input.is_empty() && client_error.is_none() {
            client.read_tls(&mut input).unwrap();
            client_error = client.process_new_packets().err();
        }
    }
    if client_error.is_some() || server_error.is_some() {
        return Err(Box::new(Refused {
            client: client_error,
            server: server_error,
        }));
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Connected { client, server })
}

/// A handshake that must fail; what each side complains about.
fn refusal(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, host: &str) -> Refused {
    match handshake(client, server, host) {
        Ok(_) => panic!("accepted {host}"),
        Err(refused) => *refused,
    }
}

#[test]
fn users_and_devices_are_let_in_with_post_quantum_key_exchange() {
    let world = World::new();
    let server = server(&world, ClientAuth::Required, world.trust())
        .build()
        .unwrap();
    for profile in [USER, Profile::Device] {
        for algorithm in KeyAlgorithm::ALL {
            let (key, chain) = chain(&world, profile, algorithm);
            let client =
                client_config(&world.trust(), Some((&chain, &key)), &["http/1.1"]).unwrap();
            let done = handshake(&client, &server, "portal.example.org").unwrap();
            assert_eq!(done.server.peer_certificates().unwrap(), chain.ders());
            assert_eq!(
                done.server.protocol_version(),
                Some(ProtocolVersion::TLSv1_3)
            );
            assert_eq!(done.client.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(
                done.client.negotiated_key_exchange_group().unwrap().name(),
                NamedGroup::X25519MLKEM768
            );
        }
    }
}

#[test]
fn missing_certificate_is_refused_only_where_required() {
    let world = World::new();
    let client = client_config(&world.trust(), None, &["h2"]).unwrap();
    let required = server(&world, ClientAuth::Required, world.trust())
        .build()
        .unwrap();
    let refused = refusal(&client, &required, "portal.example.org");
    assert_eq!(refused.server, Some(Error::NoCertificatesPresented));
    let optional = server(&world, ClientAuth::Optional, world.trust())
        .build()
        .unwrap();
    let done = handshake(&client, &optional, "127.0.0.1").unwrap();
    assert!(done.server.peer_certificates().is_none());
}

#[test]
fn foreign_and_misused_client_certificates_are_refused_even_where_optional() {
    let world = World::new();
    let stranger = World::with(KeyAlgorithm::EcdsaP256);
    let server = server(&world, ClientAuth::Optional, world.trust())
        .build()
        .unwrap();
    for (issuer, profile) in [(&stranger, USER), (&world, Profile::ServiceSigner)] {
        let (key, chain) = chain(issuer, profile, KeyAlgorithm::EcdsaP256);
        let client = client_config(&world.trust(), Some((&chain, &key)), &["h2"]).unwrap();
        assert!(
            handshake(&client, &server, "portal.example.org").is_err(),
            "{profile}"
        );
    }
}

#[test]
fn revoked_client_reaches_the_application_unless_told_otherwise() {
    let world = World::new();
    let (key, chain) = chain(&world, USER, KeyAlgorithm::EcdsaP256);
    let trust = world.trust();
    let tbs = &chain.leaf().tbs_certificate;
    let revocation = Revocation {
        at: NOW - Duration::HOUR,
        reason: RevocationReason::KeyCompromise,
    };
    trust
        .status()
        .revoke(
            IssuerId::of(&tbs.issuer),
            tbs.serial_number.as_bytes(),
            revocation,
        )
        .unwrap();
    let client = client_config(&world.trust(), Some((&chain, &key)), &["h2"]).unwrap();

    let lenient = server(&world, ClientAuth::Required, trust.clone())
        .build()
        .unwrap();
    let done = handshake(&client, &lenient, "portal.example.org").unwrap();
    let peer = done.server.peer_certificates().unwrap();
    assert!(trust.validate(peer, Purpose::Client, NOW).is_err());

    let strict = server(&world, ClientAuth::Required, trust)
        .refuse_revoked_at_handshake()
        .build()
        .unwrap();
    let refused = refusal(&client, &strict, "portal.example.org");
    let (client_error, server_error) = (refused.client, refused.server);
    assert_eq!(
        server_error,
        Some(Error::InvalidCertificate(CertificateError::Revoked))
    );
    assert_eq!(
        client_error,
        Some(Error::AlertReceived(AlertDescription::CertificateRevoked))
    );
}

#[test]
fn clients_refuse_wrong_names_wrong_authorities_and_revoked_servers() {
    let world = World::new();
    let server = server(&world, ClientAuth::None, world.trust())
        .build()
        .unwrap();
    let client = client_config(&world.trust(), None, &["h2"]).unwrap();
    handshake(&client, &server, "portal.example.org").unwrap();
    let refused =
        |client: &Arc<ClientConfig>, host: &str| refusal(client, &server, host).client.unwrap();
    assert_eq!(
        refused(&client, "other.example.org"),
        Error::InvalidCertificate(CertificateError::NotValidForName)
    );
    let stranger = World::with(KeyAlgorithm::EcdsaP256);
    let strange = client_config(&stranger.trust(), None, &["h2"]).unwrap();
    assert!(matches!(
        refused(&strange, "portal.example.org"),
        Error::InvalidCertificate(_)
    ));

    let trust = world.trust();
    let services = &world.services.certificate().tbs_certificate;
    let revocation = Revocation {
        at: NOW - Duration::HOUR,
        reason: RevocationReason::CaCompromise,
    };
    trust
        .status()
        .revoke(
            IssuerId::of(&services.issuer),
            services.serial_number.as_bytes(),
            revocation,
        )
        .unwrap();
    let informed = client_config(&trust, None, &["h2"]).unwrap();
    assert_eq!(
        refused(&informed, "portal.example.org"),
        Error::InvalidCertificate(CertificateError::Revoked)
    );
}

#[test]
fn users_cannot_pose_as_servers() {
    let world = World::new();
    let (key, chain) = chain(&world, USER, KeyAlgorithm::EcdsaP256);
    let server = ServerTls::new(ServerIdentity::new(&chain, &key).unwrap())
        .build()
        .unwrap();
    let client = client_config(&world.trust(), None, &[]).unwrap();
    let error = refusal(&client, &server, "portal.example.org")
        .client
        .unwrap();
    assert!(matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }
        )
    ));
}

#[test]
fn server_certificate_is_replaced_without_a_new_configuration() {
    let world = World::new();
    let (key, first) = chain(&world, Profile::Server, KeyAlgorithm::EcdsaP256);
    let identity = ServerIdentity::new(&first, &key).unwrap();
    let server = ServerTls::new(Arc::clone(&identity)).build().unwrap();
    let seen = || {
        let client = client_config(&world.trust(), None, &[]).unwrap();
        let done = handshake(&client, &server, "portal.example.org").unwrap();
        done.client.peer_certificates().unwrap().to_vec()
    };
    assert_eq!(seen(), first.ders());
    let (second_key, second) = chain(&world, Profile::Server, KeyAlgorithm::Ed25519);
    assert!(matches!(
        identity.replace(&second, &key),
        Err(TlsError::Identity(_))
    ));
    assert_eq!(seen(), first.ders());
    identity.replace(&second, &second_key).unwrap();
    assert_eq!(seen(), second.ders());
}
