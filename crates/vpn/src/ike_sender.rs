//! IKE's datagrams on their way out, also those that the path does not take whole.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use ikev2::event::Transmit;
use tunnel::outer::udp::{send_from, send_in_fragments};
use tunnel::outer::{PathMtu, is_too_large};

use super::config::NAT_PORT;

/// UDP payload that fits every path of IPv6. What is larger is for a peer that puts no fragments of IKE together
/// (RFC 7383): the protocol half has cut the rest.
const WHOLE: usize = 1232;
/// Peers of which the log has said that messages do not fit; the oldest is forgotten.
const WARNED: usize = 64;

/// The sockets of IKE.
pub(super) struct IkeSender {
    /// On port 500, on port 4500.
    sockets: (UdpSocket, UdpSocket),
    path_mtu: PathMtu,
    warned: VecDeque<IpAddr>,
    in_fragments: u64,
}

impl IkeSender {
    /// A sender by sockets on port 500 and on port 4500.
    pub(super) const fn new(sockets: (UdpSocket, UdpSocket), path_mtu: PathMtu) -> Self {
        Self {
            sockets,
            path_mtu,
            warned: VecDeque::new(),
            in_fragments: 0,
        }
    }

    /// Datagrams that did not fit the path.
    pub(super) const fn in_fragments(&self) -> u64 {
        self.in_fragments
    }

    /// Sends a datagram. What does not go out is repeated like what gets lost.
    pub(super) fn send(&mut self, transmit: &Transmit) {
        if let Err(error) = self.try_send(transmit) {
            tracing::debug!(%error, remote = %transmit.remote, "IKE message not sent");
        }
    }

    fn try_send(&mut self, transmit: &Transmit) -> io::Result<()> {
        let Transmit {
            local,
            remote,
            payload,
            ..
        } = transmit;
        let socket = match local.port() {
            NAT_PORT => &self.sockets.1,
            _ => &self.sockets.0,
        };
        // Where nobody reports what is too large, it would be lost each time: cut from the beginning.
        let refused = payload.len() <= WHOLE
            && match send_from(socket, local.ip(), *remote, payload) {
                Err(error) if is_too_large(&error) => true,
                sent => return sent,
            };
        send_in_fragments(socket, local.ip(), *remote, payload)?;
        let path_mtu = self.path_mtu.ask_about(*remote);
        let size = packet_size(*remote, payload.len());
        if refused || path_mtu.is_some_and(|path_mtu| size > usize::from(path_mtu)) {
            self.note(*remote, size, path_mtu);
        }
        Ok(())
    }

    /// Counts a message in fragments, and logs the first one to each peer.
    fn note(&mut self, remote: SocketAddr, size: usize, path_mtu: Option<u16>) {
        self.in_fragments = self.in_fragments.saturating_add(1);
        if self.warned.contains(&remote.ip()) {
            return;
        }
        if self.warned.len() >= WARNED {
            self.warned.pop_front();
        }
        self.warned.push_back(remote.ip());
        tracing::warn!(
            peer = %remote,
            bytes = size,
            path_mtu,
            "an IKE message is larger than the path and goes in IP fragments, which firewalls may drop"
        );
    }
}

/// Bytes of the IP packet with a UDP payload.
const fn packet_size(remote: SocketAddr, payload: usize) -> usize {
    let headers = if remote.is_ipv4() { 28 } else { 48 };
    payload.saturating_add(headers)
}

#[cfg(test)]
mod tests {
    use tunnel::outer::udp::udp_state;

    use super::*;

    /// More than loopback takes in one packet, with the headers of IPv6.
    const LARGE: usize = 65_500;

    #[test]
    fn datagram_larger_than_the_path_arrives_and_is_counted() {
        let bound = || UdpSocket::bind("[::1]:0").unwrap();
        let (receiver, sender) = (bound(), bound());
        // As those of the daemon, which receive as well.
        udp_state(&sender).unwrap();
        let remote = receiver.local_addr().unwrap();
        let local = sender.local_addr().unwrap();
        rustix::net::sockopt::set_ipv6_mtu_discover(
            &sender,
            rustix::net::sockopt::Ipv6PathMtuDiscovery::DO,
        )
        .unwrap();
        let refused = send_from(&sender, local.ip(), remote, &[7; LARGE]).unwrap_err();
        assert!(is_too_large(&refused), "{refused}");
        let path_mtu = PathMtu::new(local, remote, None).unwrap();
        let mut ike = IkeSender::new((sender.try_clone().unwrap(), bound()), path_mtu);
        let mut buffer = vec![0; LARGE + 1];
        for (len, counted) in [(100, 0), (WHOLE + 1, 0), (LARGE, 1), (LARGE, 2)] {
            ike.send(&Transmit {
                local,
                remote,
                transport: ikev2::Transport::Udp,
                payload: vec![7; len],
            });
            assert_eq!(receiver.recv(&mut buffer).unwrap(), len);
            assert_eq!(ike.in_fragments(), counted, "{len}");
        }
        assert_eq!(ike.warned.len(), 1, "once for each peer");
        // The socket's own packets are refused as before.
        assert!(send_from(&sender, local.ip(), remote, &[7; LARGE]).is_err());
    }

    #[test]
    fn peers_that_were_warned_of_are_bounded() {
        let any: SocketAddr = "[::1]:0".parse().unwrap();
        let bound = || UdpSocket::bind(any).unwrap();
        let path_mtu = PathMtu::new(any, any, None).unwrap();
        let mut ike = IkeSender::new((bound(), bound()), path_mtu);
        for number in (0..).take(WARNED + 10) {
            let remote = SocketAddr::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, number].into(), 500);
            ike.note(remote, 2000, Some(1280));
        }
        assert_eq!(ike.warned.len(), WARNED);
    }
}
