//! `cordon-lab page-server`: one page on the listeners of a site, which experiments measure.

use std::net::IpAddr;
use std::path::PathBuf;

use axum::Router;
use axum::routing::get;
use commandline::{OrHint as _, Outcome, read_text};
use listener::{Bounds, Listener};
use pkcs8::SecretDocument;
use pki::cert::CertificateChain;
use pki::key::PrivateKey;
use pki::path::{Purpose, TrustStore};
use pki::tls::{ClientAuth, ServerIdentity, ServerTls};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// One address makes all the load, and no share holds it back.
const BOUNDS: Bounds = Bounds {
    total: 1024,
    anonymous: 1024,
    address: 1024,
    network: 1024,
    certificate: 1024,
    paced: false,
};

/// `cordon-lab page-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct PageServer {
    /// Folder with `root.pem`, and `server-NAME.pem` and `.key` for each `--tls`.
    #[arg(long)]
    pki: PathBuf,
    /// The page.
    #[arg(long)]
    page: PathBuf,
    /// Where to listen.
    #[arg(long)]
    address: IpAddr,
    /// Port without TLS.
    #[arg(long)]
    plain: u16,
    /// Name of a server's key, port without and port with client certificates, as `rsa-2048,4431,4432`.
    #[arg(long, value_parser = ports)]
    tls: Vec<(String, u16, u16)>,
}

fn ports(text: &str) -> Result<(String, u16, u16), String> {
    let parts: Vec<&str> = text.split(',').collect();
    let port = |text: &str| text.parse().map_err(|_| format!("{text:?} is no port"));
    match *parts {
        [name, without, with] => Ok((name.to_owned(), port(without)?, port(with)?)),
        _ => Err("a name and two ports, with commas between".to_owned()),
    }
}

const HINT: &str = "use `cordon-lab run`";

/// Serves it in the clear and with each kind of key.
pub(crate) async fn serve(args: &PageServer) -> Outcome {
    let (folder, address) = (&args.pki, args.address);
    let page = std::fs::read(&args.page).or_hint("the page", HINT)?;
    let page = axum::body::Bytes::from(page);
    let router = Router::new().route("/", get(move || std::future::ready(page.clone())));
    let root = CertificateChain::from_pem(&read_text(&folder.join("root.pem"))?);
    let root = root.or_hint("the root", HINT)?;
    let trust = TrustStore::new(root.certificates(), &[]).or_hint("the root", HINT)?;
    let mut sockets = vec![(args.plain, None)];
    for (name, without, with) in &args.tls {
        let file = |end: &str| folder.join(format!("server-{name}.{end}"));
        let chain = CertificateChain::from_pem(&read_text(&file("pem"))?);
        let (_, der) = SecretDocument::read_pem_file(file("key")).or_hint("a key", HINT)?;
        let private = PrivateKey::from_pkcs8_der(der.as_bytes()).or_hint("a key", HINT)?;
        let identity = ServerIdentity::new(&chain.or_hint("a certificate", HINT)?, &private);
        let tls = ServerTls::new(identity.or_hint("a certificate", HINT)?);
        for (port, client) in [(*without, false), (*with, true)] {
            let tls = tls.clone();
            let tls = match client {
                true => tls.with_client_auth(ClientAuth::Required, trust.clone(), Purpose::Client),
                false => tls,
            };
            sockets.push((port, Some(tls.build().or_hint("TLS", HINT)?)));
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
                service: router.into(),
                bounds: BOUNDS,
                deadlines: listener::PEOPLE,
                metrics: listener::Metrics::default(),
                anew: None,
            }
            .serve(stop.clone()),
        );
    }
    // None of them ends by itself; the lab kills this process.
    while servers.join_next().await.is_some() {}
    Ok(())
}
