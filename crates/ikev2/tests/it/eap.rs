//! EAP inside IKE_AUTH, and EAP peers that keep no rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ikev2::config::{ClientMethod, KeyKind, LocalAuth, PeerId, Psk, RemoteAuth, ServerMethod};
use ikev2::eap::{Client, ClientOutput, EapError, NtHash, Server, ServerOutput};
use ikev2::wire::Identification;
use ikev2::{Connection, Limits};
use pki::cert::CertificateChain;
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::name::{AltName, Subject};
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Profile};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use time::OffsetDateTime;

use crate::support::{Key, Weather, World, certified_by, connection, credential};

const USER: &str = "officer-4711";

/// Side 0 logs in as a user, side 1 has a certificate.
fn with_eap(client: ClientMethod, servers: Vec<ServerMethod>) -> [Connection; 2] {
    let mut connections = [connection(0), connection(1)];
    connections[0].local_auth = LocalAuth::Eap {
        identity: USER.into(),
        method: client,
    };
    connections[0].remote_auth = certified_by(&[]);
    // What telephones and Windows put there is of no use.
    connections[1].remote_id = PeerId::Any;
    connections[1].remote_auth = RemoteAuth::Eap { methods: servers };
    connections
}

pub(crate) fn world(mut connections: [Connection; 2], passwords: [Option<&str>; 2]) -> World {
    let key = Key::generate(KeyKind::EcdsaP256);
    if let RemoteAuth::Certificate { .. } = connections[0].remote_auth {
        let ours = credential(&key, KeyKind::EcdsaP256);
        connections[1].local_auth = LocalAuth::Certificates(vec![ours]);
    }
    let mut world = World::with(connections, Limits::default(), 1);
    world.sides[1].key = Some(key);
    for (side, password) in world.sides.iter_mut().zip(passwords) {
        let password = password.map(|password| (USER.to_owned(), password.to_owned()));
        side.passwords.extend(password);
    }
    world
}

pub(crate) fn password() -> [Connection; 2] {
    with_eap(ClientMethod::MsChapV2, vec![ServerMethod::MsChapV2])
}

fn run(world: &mut World) {
    world.initiate();
    world.run(Duration::from_secs(10));
}

fn assert_nothing_up(world: &World) {
    for side in &world.sides {
        assert_eq!(side.endpoint.established().count(), 0, "{:?}", side.log);
        assert_eq!(side.saw("child up"), 0);
    }
}

#[test]
fn a_password_lets_in() {
    let mut world = world(password(), [Some("pass wörd"); 2]);
    run(&mut world);
    world.assert_settled();
    assert_eq!(world.sides[1].saw("up KEY_ID:officer-4711"), 1);
    assert_eq!(world.sides[0].saw("up FQDN:gateway.example.org"), 1);
    // IKE_SA_INIT; identity, challenge, proof, success, AUTH.
    assert_eq!(world.sizes.len(), 12);
    // It is an IKE SA like others.
    world.watch = true;
    for side in [0, 1] {
        let (now, ike) = (world.now, world.sides[side].ike());
        world.sides[side].endpoint.rekey_ike(now, ike).unwrap();
        world.run(Duration::from_secs(2));
        world.assert_settled();
    }
}

#[test]
fn a_password_lets_in_with_a_responder_that_has_a_shared_secret() {
    let mut connections = password();
    let secret = Psk::new(b"a secret of the group");
    connections[0].remote_auth = RemoteAuth::Psk(secret.clone());
    connections[1].local_auth = LocalAuth::Psk(secret);
    let mut world = world(connections, [Some("password"); 2]);
    run(&mut world);
    world.assert_settled();
}

#[test]
fn eap_follows_ml_kem_and_fragments() {
    let mut connections = password();
    for connection in &mut connections {
        connection.ike[0].additional = vec![vec![ikev2::crypto::Group::MlKem768]];
    }
    let mut world = world(connections, [Some("password"); 2]);
    world.weather = Weather {
        loss: 20,
        duplication: 20,
        jitter: 30,
        ..Weather::default()
    };
    run(&mut world);
    world.run(Duration::from_secs(15));
    world.assert_settled();
}

#[test]
fn a_wrong_password_and_a_user_that_does_not_exist_look_the_same() {
    let mut sizes = Vec::new();
    for theirs in [Some("another"), None] {
        let mut world = world(password(), [Some("password"), theirs]);
        run(&mut world);
        assert_nothing_up(&world);
        assert_eq!(world.sides[0].saw("refused by the server"), 1);
        assert_eq!(world.sides[1].saw("wrong user or password"), 1);
        assert_eq!(
            world.sides[1].saw("no such user"),
            usize::from(theirs.is_none())
        );
        sizes.push(world.sizes);
    }
    // All but the responder's first IKE_AUTH, since signatures differ in length.
    let [one, two] = [0, 1].map(|run| [&sizes[run][..3], &sizes[run][4..]].concat());
    assert_eq!(one, two);
}

#[test]
fn a_user_without_password_to_give_gives_up() {
    let mut world = world(password(), [None, Some("password")]);
    run(&mut world);
    assert_eq!(world.sides[0].saw("down authentication failed"), 1);
    world.run(Duration::from_secs(60));
    assert_nothing_up(&world);
    assert!(
        world.sides[1].endpoint.is_empty(),
        "the half-open IKE SA goes"
    );
}

#[test]
fn a_responder_that_does_not_prove_itself_learns_nothing_of_the_user() {
    // A certificate that the client refuses, and a signature by another key.
    for refuse in [true, false] {
        let mut world = world(password(), [Some("password"); 2]);
        world.sides[0].refuse_peer = refuse;
        if !refuse {
            world.sides[1].key = Some(Key::generate(KeyKind::EcdsaP256));
        }
        run(&mut world);
        assert_nothing_up(&world);
        assert_eq!(world.sides[0].saw("authentication failed"), 1);
        // No EAP response left the client: INIT and the first IKE_AUTH.
        assert_eq!(world.sizes.len(), 4);
    }
}

#[test]
fn only_the_wanted_user_comes_in() {
    for (wanted, comes_in) in [(USER, true), ("officer-0815", false)] {
        let mut connections = password();
        // The identity in IKE is the same as the user's name here.
        connections[0].local_id = Identification::fqdn(USER);
        connections[1].remote_id = PeerId::Exactly(Identification::fqdn(wanted));
        let mut world = world(connections, [Some("password"); 2]);
        run(&mut world);
        assert_eq!(world.sides[1].endpoint.established().count() == 1, comes_in);
    }
    // A user who says in IKE that it is another.
    let mut connections = password();
    connections[0].local_id = Identification::fqdn("officer-0815");
    connections[1].remote_id = PeerId::Exactly(Identification::fqdn("officer-0815"));
    let mut world = world(connections, [Some("password"); 2]);
    run(&mut world);
    assert_nothing_up(&world);
    assert_eq!(world.sides[1].saw("which is not whom we want"), 1);
}

#[test]
fn who_may_use_eap_is_a_matter_of_configuration() {
    // A client with EAP and a responder that wants a shared secret, and the other way round.
    for swapped in [false, true] {
        let mut connections = password();
        if swapped {
            connections[0].local_auth = LocalAuth::Psk(Psk::new(b"a secret for this test"));
        } else {
            connections[1].remote_auth = RemoteAuth::Psk(Psk::new(b"a secret for this test"));
        }
        let mut world = world(connections, [Some("password"); 2]);
        run(&mut world);
        assert_nothing_up(&world);
        assert_eq!(world.sides[0].saw("AUTHENTICATION_FAILED"), 1);
    }
}

/// Certificates of a client and a server.
struct Certificates {
    root: CertificateDer<'static>,
    client: (Vec<CertificateDer<'static>>, PrivateKey),
    server: (Vec<CertificateDer<'static>>, PrivateKey),
}

fn certificates() -> Certificates {
    let now = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap();
    let arc = ExtensionArc::default();
    let validity = Validity::starting(now, time::Duration::days(1));
    let request = |profile, name: &str, key: &PrivateKey| {
        let subject = Subject {
            common_name: name.into(),
            ..Subject::default()
        };
        CertificateRequest::new(profile, subject, key.spki(), validity)
    };
    let generate = || PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let root_key = generate();
    let of_root = request(Profile::Root, "Root CA", &root_key);
    let root = CertificateAuthority::create_root(&of_root, root_key, arc).unwrap();
    let leaf = |kind, profile, name: &str| {
        let ca_key = generate();
        let of_ca = request(Profile::IssuingCa(kind), "Issuing CA", &ca_key);
        let ca = root.issue(&of_ca, now).unwrap();
        let ca = CertificateAuthority::new(ca, ca_key, arc).unwrap();
        let key = generate();
        let mut of_leaf = request(profile, name, &key);
        of_leaf.alt_names = vec![AltName::Dns(name.into())];
        let leaf = ca.issue(&of_leaf, now).unwrap();
        let chain = CertificateChain::new(vec![leaf, ca.certificate().clone()]).unwrap();
        (chain.ders().to_vec(), key)
    };
    Certificates {
        client: leaf(CaKind::Devices, Profile::Device, "camera-17.example.org"),
        server: leaf(CaKind::Services, Profile::Server, "gateway.example.org"),
        root: root.certificate_der().into(),
    }
}

fn key_of(key: &PrivateKey) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()))
}

fn tls(
    version: &'static SupportedProtocolVersion,
    certificates: &Certificates,
    name: &'static str,
) -> (ClientMethod, ServerMethod) {
    let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificates.root.clone()).unwrap();
    let roots = Arc::new(roots);
    let (chain, key) = &certificates.client;
    let client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(Arc::clone(&roots))
        .with_client_auth_cert(chain.clone(), key_of(key))
        .unwrap();
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .unwrap();
    let (chain, key) = &certificates.server;
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key_of(key))
        .unwrap();
    let client = ClientMethod::Tls {
        config: Arc::new(client),
        server: name.try_into().unwrap(),
    };
    (client, ServerMethod::Tls(Arc::new(server)))
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[test]
fn a_certificate_in_tls_lets_in() {
    let certificates = certificates();
    for version in VERSIONS {
        let (client, server) = tls(version, &certificates, "gateway.example.org");
        let mut world = world(with_eap(client, vec![server]), [None, None]);
        run(&mut world);
        world.assert_settled();
        assert_eq!(world.sides[1].saw("up KEY_ID:officer-4711"), 1);
        assert_eq!(world.sides[1].saw("verify KEY_ID:officer-4711"), 1);
    }
}

#[test]
fn a_certificate_in_tls_that_the_caller_refuses_stays_out() {
    let certificates = certificates();
    for version in VERSIONS {
        let (client, server) = tls(version, &certificates, "gateway.example.org");
        let mut world = world(with_eap(client, vec![server]), [None, None]);
        world.sides[1].refuse_peer = true;
        run(&mut world);
        assert_nothing_up(&world);
        assert_eq!(world.sides[1].saw("certificate refused: revoked"), 1);
        assert_eq!(world.sides[0].saw("refused by the server"), 1);
    }
}

#[test]
fn certificates_of_unknown_authorities_and_other_names_are_refused_in_tls() {
    let (ours, theirs) = (certificates(), certificates());
    for version in VERSIONS {
        // The client does not know the server's root, and the other way round.
        let (client, _) = tls(version, &ours, "gateway.example.org");
        let (_, server) = tls(version, &theirs, "gateway.example.org");
        let mut unknown = world(with_eap(client, vec![server]), [None, None]);
        run(&mut unknown);
        assert_nothing_up(&unknown);
        let (client, server) = tls(version, &ours, "other.example.org");
        let mut other = world(with_eap(client, vec![server]), [None, None]);
        run(&mut other);
        assert_nothing_up(&other);
        assert_eq!(other.sides[0].saw("EAP-TLS"), 1);
    }
}

#[test]
fn the_client_chooses_among_the_methods() {
    let certificates = certificates();
    let (tls_client, tls_server) = tls(VERSIONS[1], &certificates, "gateway.example.org");
    let methods = [tls_server, ServerMethod::MsChapV2];
    for client in [tls_client, ClientMethod::MsChapV2] {
        for reversed in [false, true] {
            let mut servers = methods.to_vec();
            if reversed {
                servers.reverse();
            }
            let passwords = [Some("password"); 2];
            let mut world = world(with_eap(client.clone(), servers), passwords);
            run(&mut world);
            world.assert_settled();
        }
    }
    let connections = with_eap(ClientMethod::MsChapV2, vec![methods[0].clone()]);
    let mut world = world(connections, [Some("password"); 2]);
    run(&mut world);
    assert_nothing_up(&world);
    assert_eq!(world.sides[1].saw("no method in common"), 1);
}

const SUCCESS: [u8; 4] = [3, 2, 0, 4];

#[test]
fn an_early_success_is_worth_nothing() {
    let certificates = certificates();
    let (tls_client, _) = tls(VERSIONS[1], &certificates, "gateway.example.org");
    for method in [ClientMethod::MsChapV2, tls_client] {
        let mut client = Client::new(USER, &method).unwrap();
        let result = client.handle(&SUCCESS);
        assert!(matches!(result, Err(EapError::EarlySuccess)));
        // After the identity, and after the method has begun, as well.
        let mut client = Client::new(USER, &method).unwrap();
        client.handle(&[1, 1, 0, 5, 1]).ok().unwrap();
        assert!(matches!(
            client.handle(&SUCCESS),
            Err(EapError::EarlySuccess)
        ));
        let mut client = Client::new(USER, &method).unwrap();
        match method {
            ClientMethod::Tls { .. } => {
                let output = client.handle(&[1, 1, 0, 6, 13, 0x20]);
                let Ok(ClientOutput::NeedTls(step)) = output else {
                    panic!("TLS")
                };
                step.run();
                client.tls().unwrap();
            }
            ClientMethod::MsChapV2 => {
                challenge(&mut client);
                client.password([7; 16], &NtHash::of_password("x")).unwrap();
            }
        }
        assert!(matches!(
            client.handle(&SUCCESS),
            Err(EapError::EarlySuccess)
        ));
    }
}

/// A packet with its length.
fn packet(code: u8, id: u8, kind: u8, data: &[u8]) -> Vec<u8> {
    let len = (data.len() + 5) as u16;
    [&[code, id], &len.to_be_bytes()[..], &[kind], data].concat()
}

fn mschap(operation: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() + 4) as u16;
    [&[operation, 9], &len.to_be_bytes()[..], body].concat()
}

fn challenge(client: &mut Client) {
    let body = [&[16], &[5; 16][..], b"server"].concat();
    let output = client.handle(&packet(1, 1, 26, &mschap(1, &body)));
    assert!(matches!(output, Ok(ClientOutput::NeedPassword)));
}

#[test]
fn a_server_without_the_password_is_not_believed() {
    let mut client = Client::new(USER, &ClientMethod::MsChapV2).unwrap();
    challenge(&mut client);
    client.password([7; 16], &NtHash::of_password("x")).unwrap();
    let proof = format!("S={} M=OK", "0".repeat(40));
    let result = client.handle(&packet(1, 2, 26, &mschap(3, proof.as_bytes())));
    assert!(matches!(result, Err(EapError::Protocol(_))));
    // Nor one that asks a second time, with a challenge of its choice.
    let mut client = Client::new(USER, &ClientMethod::MsChapV2).unwrap();
    challenge(&mut client);
    client.password([7; 16], &NtHash::of_password("x")).unwrap();
    let again = mschap(1, &[&[16], &[6; 16][..]].concat());
    assert!(client.handle(&packet(1, 3, 26, &again)).is_err());
}

#[test]
fn messages_out_of_place_end_the_server() {
    let fails = |server: &mut Server, bytes: &[u8]| {
        matches!(server.handle(bytes, [5; 16]), ServerOutput::Failure(..))
    };
    let begin = || {
        let (mut server, first) = Server::new(&[ServerMethod::MsChapV2]);
        assert_eq!(first, [1, 1, 0, 5, 1]);
        let output = server.handle(&packet(2, 1, 1, b"user"), [5; 16]);
        assert!(matches!(output, ServerOutput::Send(_)));
        server
    };
    // Another identifier, a request, a success, another method, a success of MSCHAPv2 without proof.
    for bytes in [
        packet(2, 3, 26, &[3]),
        packet(1, 2, 26, &[3]),
        vec![3, 2, 0, 4],
        packet(2, 2, 13, &[0]),
        packet(2, 2, 26, &[3]),
        packet(2, 2, 26, &[4]),
        packet(2, 2, 26, &mschap(2, &[49; 20])),
        packet(2, 2, 26, &mschap(2, &[&[49], &[0; 49][..]].concat())),
        packet(2, 2, 3, &[13]),
        packet(2, 2, 3, &[]),
        vec![],
    ] {
        assert!(fails(&mut begin(), &bytes), "{bytes:x?}");
    }
    // Without identity there is nothing.
    let (mut server, _) = Server::new(&[ServerMethod::MsChapV2]);
    assert!(fails(&mut server, &packet(2, 1, 26, &[3])));
    // A wrong password ends in failure whatever the client says then.
    for last in [&[3_u8][..], &[4]] {
        let mut server = begin();
        let answer = [&[49], &[0; 49][..], b"user"].concat();
        let output = server.handle(&packet(2, 2, 26, &mschap(2, &answer)), [5; 16]);
        assert!(matches!(output, ServerOutput::NeedPassword(user) if user == "user"));
        let output = server.password(Some(&NtHash::of_password("x")), [5; 16]);
        assert!(matches!(output, ServerOutput::Send(_)));
        assert!(fails(&mut server, &packet(2, 3, 26, last)));
    }
}

#[test]
fn tls_messages_have_an_end() {
    let certificates = certificates();
    let (_, server) = tls(VERSIONS[1], &certificates, "gateway.example.org");
    let begin = || {
        let (mut eap, _) = Server::new(std::slice::from_ref(&server));
        let start = eap.handle(&packet(2, 1, 1, b"user"), [5; 16]);
        assert!(matches!(start, ServerOutput::Send(data) if data.last() == Some(&0x20)));
        eap
    };
    // A length beyond the bound, an empty fragment that is not the last, and fragments without end.
    for data in [&[0x80, 0, 2, 0, 0, 1][..], &[0x40]] {
        let output = begin().handle(&packet(2, 2, 13, data), [5; 16]);
        assert!(matches!(output, ServerOutput::Failure(..)));
    }
    let mut eap = begin();
    let part = [&[0x40][..], &[0x16; 1000]].concat();
    let rounds = (2..=101_u8).take_while(|id| {
        let output = eap.handle(&packet(2, *id, 13, &part), [5; 16]);
        matches!(output, ServerOutput::Send(_))
    });
    assert_eq!(rounds.count(), 65);
}

/// A certificate resolver that says whether it was asked.
#[derive(Debug)]
struct Watched(Arc<dyn rustls::server::ResolvesServerCert>, AtomicBool);

impl rustls::server::ResolvesServerCert for Watched {
    fn resolve(
        &self,
        hello: rustls::server::ClientHello<'_>,
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        self.1.store(true, Ordering::Relaxed);
        self.0.resolve(hello)
    }
}

#[test]
fn tls_works_only_where_the_caller_runs_it() {
    let certificates = certificates();
    for version in VERSIONS {
        let (client, server) = tls(version, &certificates, "gateway.example.org");
        let ServerMethod::Tls(config) = server else {
            panic!("TLS");
        };
        let mut config = ServerConfig::clone(&config);
        let watched = Arc::new(Watched(config.cert_resolver, AtomicBool::new(false)));
        config.cert_resolver = Arc::clone(&watched) as Arc<_>;
        let mut client = Client::new(USER, &client).unwrap();
        let (mut server, first) = Server::new(&[ServerMethod::Tls(Arc::new(config))]);
        let Ok(ClientOutput::Send(identity)) = client.handle(&first) else {
            panic!("identity");
        };
        let ServerOutput::Send(start) = server.handle(&identity, [5; 16]) else {
            panic!("start");
        };
        let Ok(ClientOutput::NeedTls(step)) = client.handle(&start) else {
            panic!("the hello is TLS's work");
        };
        step.run();
        let mut hello = client.tls().unwrap();
        let step = loop {
            match server.handle(&hello, [5; 16]) {
                ServerOutput::NeedTls(step) => break step,
                // A hello with ML-KEM comes in two fragments.
                ServerOutput::Send(acknowledged) => match client.handle(&acknowledged) {
                    Ok(ClientOutput::Send(fragment)) => hello = fragment,
                    _ => panic!("a fragment"),
                },
                _ => panic!("the answer to the hello is TLS's work"),
            }
        };
        assert!(!watched.1.load(Ordering::Relaxed), "nothing is signed yet");
        std::thread::scope(|scope| scope.spawn(|| step.run()).join().unwrap());
        assert!(watched.1.load(Ordering::Relaxed));
        assert!(matches!(server.tls(), ServerOutput::Send(_)));
        // Nobody asked again.
        step.run();
        assert!(matches!(server.tls(), ServerOutput::Failure(..)));
    }
}
