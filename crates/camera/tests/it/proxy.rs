//! A line that breaks: passes bytes on and cuts each connection after a given number of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// Bytes that went up and down through all connections.
    pub(crate) carried: Arc<AtomicU64>,
    pub(crate) connections: Arc<AtomicU64>,
}

/// `cuts` gives the bytes after which connection number n (from 0) is cut; `None` never.
pub(crate) async fn start(to: u16, cuts: impl Fn(u64) -> Option<u64> + Send + 'static) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy {
        port: listener.local_addr().unwrap().port(),
        carried: Arc::default(),
        connections: Arc::default(),
    };
    let (carried, connections) = (Arc::clone(&proxy.carried), Arc::clone(&proxy.connections));
    tokio::spawn(async move {
        while let Ok((down, _)) = listener.accept().await {
            let number = connections.fetch_add(1, Ordering::SeqCst);
            let limit = cuts(number).unwrap_or(u64::MAX);
            let carried = Arc::clone(&carried);
            tokio::spawn(async move {
                if let Ok(up) = TcpStream::connect(("127.0.0.1", to)).await {
                    pass(down, up, limit, &carried).await;
                }
            });
        }
    });
    proxy
}

async fn pass(mut down: TcpStream, mut up: TcpStream, limit: u64, carried: &AtomicU64) {
    let (mut a, mut b) = (vec![0; 4_096], vec![0; 4_096]);
    let mut passed: u64 = 0;
    while passed < limit {
        let (n, forward) = tokio::select! {
            n = down.read(&mut a) => (n, true),
            n = up.read(&mut b) => (n, false),
        };
        let Ok(n @ 1..) = n else { return };
        passed += n as u64;
        carried.fetch_add(n as u64, Ordering::SeqCst);
        let sent = if forward {
            up.write_all(&a[..n]).await
        } else {
            down.write_all(&b[..n]).await
        };
        if sent.is_err() {
            return;
        }
    }
}
