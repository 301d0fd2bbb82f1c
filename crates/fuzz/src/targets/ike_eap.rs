//! EAP peers that say what they like: a server towards our client, a client towards our server, with
//! right headers around any content, and without.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::Arc;

use ikev2::config::{ClientMethod, ServerMethod};
use ikev2::eap::{Client, ClientOutput, NtHash, Server, ServerOutput};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A server without certificate: its handshakes end early, its fragments do not.
#[derive(Debug)]
struct Nothing;

impl ResolvesServerCert for Nothing {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn packet(code: u8, id: u8, kind: u8, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len() + 5).unwrap();
    [&[code, id], &len.to_be_bytes()[..], &[kind], data].concat()
}

/// One message: a byte that says how it is framed, a length, the content.
fn next<'a>(data: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (frame, rest) = data.split_first()?;
    let (len, rest) = rest.split_first()?;
    let (content, rest) = rest.split_at_checked(usize::from(*len) * 4)?;
    *data = rest;
    Some((*frame, content))
}

fn frame(frame: u8, code: u8, id: u8, content: &[u8]) -> Vec<u8> {
    match frame % 8 {
        0 => content.to_vec(),
        1 => packet(code, id, 1, content),
        2 => packet(code, id, 13, content),
        3 => vec![3, id, 0, 4],
        4 => packet(code, id, 3, content),
        choice => {
            let operation = choice - 4;
            let len = u16::try_from(content.len() + 4).unwrap().to_be_bytes();
            let body = [&[operation, id], &len[..], content].concat();
            packet(code, id, 26, &body)
        }
    }
}

/// Challenges that depend on the whole input: it could hold the right proof for any other.
fn challenge(data: &[u8]) -> [u8; 16] {
    let mut hasher = DefaultHasher::new();
    hasher.write(data);
    u128::from(hasher.finish()).to_be_bytes()
}

fn towards_client(method: &ClientMethod, mut data: &[u8]) {
    let mut client = Client::new("user", method).unwrap();
    let challenge = challenge(data);
    let mut id = 0;
    while let Some((choice, content)) = next(&mut data) {
        id += 1;
        match client.handle(&frame(choice, 1, id, content)) {
            Ok(ClientOutput::NeedPassword) => {
                client
                    .password(challenge, &NtHash::of_password("password"))
                    .unwrap();
            }
            Ok(ClientOutput::NeedTls(step)) => {
                step.run();
                if client.tls().is_err() {
                    return;
                }
            }
            Ok(ClientOutput::Send(_)) => {}
            // The fuzzer knows neither the password nor a trusted key.
            Ok(ClientOutput::Success(_)) => panic!("a server without proof was believed"),
            Err(_) => return,
        }
        if id == u8::MAX {
            return;
        }
    }
}

fn towards_server(methods: &[ServerMethod], mut data: &[u8]) {
    let (mut server, _) = Server::new(methods);
    let challenge = challenge(data);
    let mut id = 0;
    while let Some((choice, content)) = next(&mut data) {
        id += 1;
        let mut output = server.handle(&frame(choice, 2, id, content), challenge);
        if let ServerOutput::NeedPassword(user) = &output {
            let password = NtHash::of_password("password");
            output = server.password((user.len() % 2 == 0).then_some(&password), [6; 16]);
        }
        if let ServerOutput::NeedTls(step) = &output {
            step.run();
            output = server.tls();
        }
        match output {
            ServerOutput::Send(_) => {}
            ServerOutput::Failure(..) => return,
            _ => panic!("a client without proof came in"),
        }
        if id == u8::MAX {
            return;
        }
    }
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let Some((side, data)) = data.split_first() else {
        return;
    };
    match side % 4 {
        0 => towards_client(&ClientMethod::MsChapV2, data),
        1 => {
            let config = ClientConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
            let method = ClientMethod::Tls {
                config: Arc::new(config),
                server: "gateway.example.org".try_into().unwrap(),
            };
            towards_client(&method, data);
        }
        2 => towards_server(&[ServerMethod::MsChapV2], data),
        _ => {
            let config = ServerConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(Nothing));
            let tls = ServerMethod::Tls(Arc::new(config));
            towards_server(&[tls, ServerMethod::MsChapV2], data);
        }
    }
}
