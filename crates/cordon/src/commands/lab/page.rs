//! The listener that the lab measures: one page, as the portal would serve it.

use std::net::IpAddr;
use std::path::Path;

use axum::Router;
use axum::routing::get;
use pkcs8::SecretDocument;
use pki::cert::CertificateChain;
use pki::key::PrivateKey;
use pki::path::{Purpose, TrustStore};
use pki::tls::{ClientAuth, ServerIdentity, ServerTls};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::commands::read_text;
use crate::failure::{OrHint as _, Outcome};
use crate::listener::{self, Listener};

/// Serves it in the clear and with each kind of key.
pub(super) async fn serve(folder: &Path, page: &Path, address: IpAddr) -> Outcome {
    const HINT: &str = super::INSIDE;
    let page = std::fs::read(page).or_hint("the page", HINT)?;
    let page = axum::body::Bytes::from(page);
    let router = Router::new().route("/", get(move || std::future::ready(page.clone())));
    let root = CertificateChain::from_pem(&read_text(&folder.join("root.pem"))?);
    let root = root.or_hint("the root", HINT)?;
    let trust = TrustStore::new(root.certificates(), &[]).or_hint("the root", HINT)?;
    let mut sockets = vec![(lab::PLAIN_PORT, None)];
    for key in lab::Key::ALL {
        let file = |end: &str| folder.join(format!("server-{}.{end}", key.file()));
        // An experiment makes the kinds that it needs.
        if !file("pem").exists() {
            continue;
        }
        let chain = CertificateChain::from_pem(&read_text(&file("pem"))?);
        let (_, der) = SecretDocument::read_pem_file(file("key")).or_hint("a key", HINT)?;
        let private = PrivateKey::from_pkcs8_der(der.as_bytes()).or_hint("a key", HINT)?;
        let identity = ServerIdentity::new(&chain.or_hint("a certificate", HINT)?, &private);
        let tls = ServerTls::new(identity.or_hint("a certificate", HINT)?);
        for client in [false, true] {
            let tls = tls.clone();
            let tls = match client {
                true => tls.with_client_auth(ClientAuth::Required, trust.clone(), Purpose::Client),
                false => tls,
            };
            sockets.push((key.port(client), Some(tls.build().or_hint("TLS", HINT)?)));
        }
    }
    let stop = CancellationToken::new();
    let mut servers = JoinSet::new();
    for (port, tls) in sockets {
        let socket = TcpListener::bind((address, port))
            .await
            .or_hint("a port", HINT)?;
        let (name, router) = ("page", router.clone());
        servers.spawn(
            Listener {
                name,
                socket,
                tls,
                router,
                bounds: listener::UNSHARED,
                deadlines: listener::PEOPLE,
                metrics: listener::Metrics::default(),
            }
            .serve(stop.clone()),
        );
    }
    // None of them ends by itself; the lab kills this process.
    while servers.join_next().await.is_some() {}
    Ok(())
}
