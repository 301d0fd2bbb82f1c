//! Two hosts over loopback: who is accepted, and who is not.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use http::{Method, StatusCode};
use listener::Listener;
use pki::tls::PeerCertificates;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Connection, Kind, Peer, PeerError, PeerId, PeerKey};

fn key() -> PeerKey {
    PeerKey::new(&PeerKey::generate().unwrap()).unwrap()
}

/// A server that answers with the key of the client.
async fn server(key: &PeerKey, clients: Vec<PeerId>) -> (SocketAddr, CancellationToken) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let echo = |peer: axum::Extension<PeerCertificates>, body: String| async move {
        let spki = peer.0.0.first().unwrap();
        format!("{} {body}", PeerId::of_spki(spki))
    };
    let listener = Listener {
        name: "test",
        socket,
        tls: Some(key.server(clients).unwrap()),
        service: Router::new().route("/echo", post(echo)).into(),
        bounds: listener::BOUNDS,
        deadlines: listener::DEVICES,
        metrics: listener::Metrics::default(),
        anew: None,
    };
    let stop = CancellationToken::new();
    tokio::spawn(listener.serve(stop.clone()));
    (address, stop)
}

/// What a client gets that expects `expected` of the server.
async fn ask(address: SocketAddr, key: &PeerKey, expected: PeerId) -> Result<String, String> {
    let opened = Connection::open(&address.to_string(), key, expected).await;
    let mut connection = opened.map_err(|error| error.to_string())?;
    // With TLS 1.3 a client that is refused learns of it with the first answer.
    let answer = connection
        .request(Method::POST, "/echo", b"hello".to_vec(), 1024)
        .await
        .map_err(|error| error.to_string())?;
    assert_eq!(answer.status, StatusCode::OK);
    Ok(String::from_utf8(answer.body.to_vec()).unwrap())
}

#[tokio::test]
async fn hosts_accept_the_keys_that_they_name_and_no_others() {
    let (host, client, stranger) = (key(), key(), key());
    let (address, stop) = server(&host, vec![client.id()]).await;
    let answer = ask(address, &client, host.id()).await.unwrap();
    assert_eq!(answer, format!("{} hello", client.id()));
    // A stranger at the server, and a stranger in the server's place.
    ask(address, &stranger, host.id()).await.unwrap_err();
    ask(address, &client, stranger.id()).await.unwrap_err();
    // A server that names no client accepts none.
    let (closed, end) = server(&host, Vec::new()).await;
    ask(closed, &client, host.id()).await.unwrap_err();
    end.cancel();
    stop.cancel();
}

#[tokio::test]
async fn answer_that_is_too_long_is_refused() {
    let (host, client) = (key(), key());
    let (address, stop) = server(&host, vec![client.id()]).await;
    let mut connection = Connection::open(&address.to_string(), &client, host.id())
        .await
        .unwrap();
    let long = vec![b'x'; 4096];
    let answer = connection.request(Method::POST, "/echo", long, 1024).await;
    answer.unwrap_err();
    stop.cancel();
}

#[tokio::test]
async fn costly_questions_have_a_bound_of_their_own() {
    let (host, client) = (key(), key());
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let wait = || std::future::pending::<String>();
    let router = Router::new()
        .route("/costly", post(wait))
        .route("/quick", post(|| async { "here" }));
    let listener = Listener {
        name: "test",
        socket,
        tls: Some(host.server(vec![client.id()]).unwrap()),
        service: router.into(),
        bounds: listener::BOUNDS,
        deadlines: listener::DEVICES,
        metrics: listener::Metrics::default(),
        anew: None,
    };
    let stop = CancellationToken::new();
    tokio::spawn(listener.serve(stop.clone()));
    let peer = Arc::new(Peer::new(address.to_string(), client, host.id()));
    let ask = |kind, path: &'static str| {
        let peer = Arc::clone(&peer);
        tokio::spawn(async move { peer.ask(kind, path, Vec::new(), 1024).await })
    };
    let under_way: Vec<_> = (0..20).map(|_| ask(Kind::Costly, "/costly")).collect();
    // Those within the bound wait for their answer; the others are refused at once.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let ended = under_way.iter().filter(|one| one.is_finished()).count();
    assert_eq!(ended, 16);
    let quick = ask(Kind::Quick, "/quick").await.unwrap().unwrap();
    assert_eq!(quick.body, "here");
    let more = ask(Kind::Costly, "/costly").await.unwrap();
    assert!(matches!(more, Err(PeerError::Busy(_))));
    under_way.iter().for_each(tokio::task::JoinHandle::abort);
    stop.cancel();
}
