//! The inner interface's addresses and routes, by rtnetlink.

use std::net::IpAddr;

use futures_util::TryStreamExt as _;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use crate::config::Prefix;

/// Why an interface could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The netlink socket.
    #[error("netlink: {0}")]
    Socket(#[from] std::io::Error),
    /// The kernel said no.
    #[error("{what}: {source}")]
    Refused {
        /// What was asked.
        what: String,
        /// Its answer.
        source: rtnetlink::Error,
    },
    /// The interface is gone.
    #[error("interface {0} does not exist")]
    NoInterface(String),
}

/// What an interface should be.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// Its name.
    pub name: &'a str,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// Bytes of the largest uncut packet: what fits one batch of datagrams.
    pub uncut: u32,
    /// Its addresses.
    pub addresses: &'a [Prefix],
    /// Destinations that are routed into it.
    pub routes: &'a [Prefix],
}

/// Sets up an interface and brings it up.
///
/// # Errors
/// [`LinkError`], naming what was refused.
pub async fn configure(link: &Link<'_>) -> Result<(), LinkError> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let task = tokio::spawn(connection);
    let result = apply(&handle, link).await;
    task.abort();
    result
}

async fn apply(handle: &Handle, link: &Link<'_>) -> Result<(), LinkError> {
    let refused = |what: String| move |source| LinkError::Refused { what, source };
    let mut found = handle
        .link()
        .get()
        .match_name(link.name.to_owned())
        .execute();
    let message = found
        .try_next()
        .await
        .map_err(refused(format!("interface {}", link.name)))?
        .ok_or_else(|| LinkError::NoInterface(link.name.to_owned()))?;
    let index = message.header.index;
    let up = LinkUnspec::new_with_index(index)
        .mtu(u32::from(link.mtu))
        .append_extra_attribute(rtnetlink::packet_route::link::LinkAttribute::GsoMaxSize(
            link.uncut,
        ))
        .up()
        .build();
    handle
        .link()
        .set(up)
        .execute()
        .await
        .map_err(refused(format!(
            "interface {} up with MTU {}",
            link.name, link.mtu
        )))?;
    for Prefix { address, bits } in link.addresses {
        handle
            .address()
            .add(index, *address, *bits)
            .execute()
            .await
            .map_err(refused(format!(
                "address {address}/{bits} on {}",
                link.name
            )))?;
    }
    for Prefix { address, bits } in link.routes {
        let what = format!("route to {address}/{bits} by {}", link.name);
        let route = match address {
            IpAddr::V4(address) => RouteMessageBuilder::<std::net::Ipv4Addr>::new()
                .destination_prefix(*address, *bits)
                .output_interface(index)
                .build(),
            IpAddr::V6(address) => RouteMessageBuilder::<std::net::Ipv6Addr>::new()
                .destination_prefix(*address, *bits)
                .output_interface(index)
                .build(),
        };
        handle
            .route()
            .add(route)
            .execute()
            .await
            .map_err(refused(what))?;
    }
    Ok(())
}
