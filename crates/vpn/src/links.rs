//! The inner interface's addresses and routes while the daemon runs: the one thread that keeps
//! `CAP_NET_ADMIN`. It takes commands about its interface and nothing else.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::Receiver;

use futures_util::TryStreamExt as _;
use rtnetlink::Handle;
use rtnetlink::packet_route::route::RouteAttribute;
use tunnel::config::Prefix;
use tunnel::link::{LinkError, Peer, add_peer, existing_is_fine, index_of, route_to, take_away};

use super::route::Route;

/// Addresses and routes of the inner interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkCommand {
    AddAddress(IpAddr),
    RemoveAddress(IpAddr),
    /// Routes a network into the tunnel.
    AddRoute(Route),
    RemoveRoute(Route),
    /// Routes what is for another host into the interface, but for outer packets.
    AddPeer(Peer),
    RemovePeer(Peer),
}

struct Links {
    handle: Handle,
    index: u32,
    routes: BTreeSet<(IpAddr, u8)>,
    /// Other hosts of transport mode.
    peers: Vec<Peer>,
}

/// Carries commands out until nobody sends any more. With `remove`, the interface does not go with its maker and is
/// removed then.
///
/// # Errors
/// Those of setting up netlink; refused commands are logged.
pub(super) fn run(
    interface: &str,
    commands: &Receiver<LinkCommand>,
    remove: bool,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let task = tokio::spawn(connection);
        let index = index_of(&handle, interface).await;
        let mut links = Links {
            handle,
            index: index.map_err(io::Error::other)?,
            routes: BTreeSet::new(),
            peers: Vec::new(),
        };
        // Nothing else runs here: the connection gets its turn while a command is carried out.
        while let Ok(command) = commands.recv() {
            if let Err(error) = links.handle(command).await {
                tracing::error!(%error, ?command, "the kernel refused");
            }
        }
        if remove && let Err(error) = links.handle.link().del(links.index).execute().await {
            tracing::error!(%error, interface, "the interface is left");
        }
        // Routes go with it, rules do not.
        for peer in std::mem::take(&mut links.peers) {
            if let Err(error) = take_away(&links.handle, &peer).await {
                tracing::error!(%error, peer = %peer.remote, "routing rules are left");
            }
        }
        task.abort();
        Ok(())
    })
}

const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl Links {
    async fn handle(&mut self, command: LinkCommand) -> Result<(), LinkError> {
        match command {
            LinkCommand::AddAddress(address) => {
                let request = self.handle.address();
                let added = request
                    .add(self.index, address, width(address))
                    .execute()
                    .await;
                existing_is_fine(added, || format!("address {address}"))
            }
            LinkCommand::RemoveAddress(address) => {
                self.remove_address(address).await?;
                // With the last address of a family the kernel forgets the routes as well.
                for (address, bits) in self.routes.clone() {
                    self.add_route(Prefix { address, bits }).await?;
                }
                Ok(())
            }
            LinkCommand::AddRoute(route) => {
                let route = route.network();
                self.routes.insert((route.address, route.bits));
                self.add_route(route).await
            }
            LinkCommand::RemoveRoute(route) => {
                let route = route.network();
                self.routes.remove(&(route.address, route.bits));
                let mut message = route_to(route.address, route.bits);
                message.attributes.push(RouteAttribute::Oif(self.index));
                let removed = self.handle.route().del(message).execute().await;
                gone_is_fine(removed).map_err(|e| refused("removing the route to", route, e))
            }
            LinkCommand::AddPeer(peer) => {
                self.peers.push(peer);
                add_peer(&self.handle, &peer, self.index).await
            }
            LinkCommand::RemovePeer(peer) => {
                self.peers.retain(|other| *other != peer);
                take_away(&self.handle, &peer).await
            }
        }
    }

    async fn add_route(&self, route: Prefix) -> Result<(), LinkError> {
        let mut message = route_to(route.address, route.bits);
        message.attributes.push(RouteAttribute::Oif(self.index));
        let added = self.handle.route().add(message).execute().await;
        existing_is_fine(added, || {
            format!("route to {}/{}", route.address, route.bits)
        })
    }

    async fn remove_address(&self, address: IpAddr) -> Result<(), LinkError> {
        let request = self.handle.address().get();
        let request = request
            .set_link_index_filter(self.index)
            .set_address_filter(address);
        let what = Prefix {
            address,
            bits: width(address),
        };
        let mut found = request.execute();
        while let Some(message) = found
            .try_next()
            .await
            .map_err(|source| refused("address", what, source))?
        {
            let removed = self.handle.address().del(message).execute().await;
            gone_is_fine(removed).map_err(|source| refused("removing address", what, source))?;
        }
        Ok(())
    }
}

/// Accepts that something to be removed has gone with the interface.
fn gone_is_fine(result: Result<(), rtnetlink::Error>) -> Result<(), rtnetlink::Error> {
    use rustix::io::Errno;
    const GONE: [Errno; 3] = [Errno::SRCH, Errno::NODEV, Errno::ADDRNOTAVAIL];
    match result {
        Err(rtnetlink::Error::NetlinkError(error))
            if GONE
                .iter()
                .any(|gone| error.raw_code() == -gone.raw_os_error()) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn refused(what: &str, prefix: Prefix, source: rtnetlink::Error) -> LinkError {
    LinkError::Refused {
        what: format!("{what} {}/{}", prefix.address, prefix.bits),
        source,
    }
}
