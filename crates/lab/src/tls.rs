//! Our client for web servers, run on the client's side.

use std::time::Duration;

use crate::LabError;
use crate::network::{Network, Side};
use crate::process::ProcessError;
use crate::servers::{Key, PAGE_BYTES, Pki, address};
use crate::session::Round;
use crate::tool::{Load, Loaded, Tls};
use crate::tunnels::ourselves;

/// One kind of connection.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    /// The server's; without, plain HTTP.
    pub(crate) key: Option<Key>,
    /// With a client certificate.
    pub(crate) client: bool,
    /// Sessions are taken up again.
    pub(crate) reuse: bool,
    /// Today's TLS 1.3 instead of 1.2.
    pub(crate) today: bool,
    /// ML-KEM-768 beside X25519.
    pub(crate) hybrid: bool,
}

/// Loads the server that listens; notes what the client used.
pub(crate) fn load(
    network: &Network,
    pki: &Pki,
    column: Column,
    requests: u32,
    threads: u32,
    round: &mut Round,
) -> Result<Loaded, LabError> {
    let tls = match column.key {
        None => None,
        Some(key) => {
            let file = |end| pki.read(&format!("client-{}.{end}", key.file()));
            Some(Tls {
                roots: pki.read("root.pem")?,
                identity: if column.client {
                    Some((file("pem")?, file("key")?))
                } else {
                    None
                },
                reuse: column.reuse,
                old: !column.today,
                hybrid: column.hybrid,
            })
        }
    };
    let load = Load {
        address: address(column.key, column.client),
        requests,
        threads,
        body: PAGE_BYTES,
        tls,
    };
    let text = serde_json::to_string(&load).map_err(|e| LabError::Unexpected(e.to_string()))?;
    let done = network
        .call(Side::Client, ourselves()?)
        .arg("load")
        .input(text)
        .limit(Duration::from_secs(300))
        .run()
        .map_err(|error| LabError::Unexpected(reason(&error)))?;
    round.used("client", done.usage);
    serde_json::from_str(&done.stdout).map_err(|error| LabError::Unexpected(error.to_string()))
}

/// Extracts our own client's message, without its hints for people who start it by hand.
pub(crate) fn reason(error: &ProcessError) -> String {
    let text = error.to_string();
    let text = text
        .split_once("client: ")
        .map_or(text.as_str(), |(_, rest)| rest);
    text.split_once(" to do: ")
        .map_or(text, |(reason, _)| reason)
        .to_owned()
}
