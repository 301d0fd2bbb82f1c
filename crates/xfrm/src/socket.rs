//! Requests to the kernel's IPsec and their answers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use zeroize::Zeroizing;

use crate::error::XfrmError;
use crate::message::dump::{self, Kind, Part, Stale};
use crate::message::{self, Answer, Message, Policy, Sa, Usage};

/// Longest answer of the kernel: it may have to load modules.
const PATIENCE: Duration = Duration::from_secs(20);
/// Room for an answer, of which a list is the longest: the kernel fills up to this (net/netlink).
const ANSWER: usize = 32 * 1024;
/// Answers that are not ours, which are skipped before we give up.
const STRANGE: usize = 16;

/// A netlink socket of the family XFRM.
pub(crate) struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Zeroizing<Vec<u8>>,
}

impl Socket {
    /// # Errors
    /// [`XfrmError::Missing`] where the kernel has no IPsec.
    pub(crate) fn open() -> Result<Self, XfrmError> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::XFRM),
        )
        .map_err(unopened)?;
        let prepare = || {
            set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
            sys::option::explain_errors(&socket)
        };
        prepare().map_err(XfrmError::Netlink)?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: Zeroizing::new(vec![0; ANSWER]),
        })
    }

    pub(crate) fn add_sa(&mut self, sa: &Sa, if_id: Option<u32>) -> Result<(), XfrmError> {
        self.execute(
            |sequence| message::new_sa(sa, if_id, sequence),
            || format!("association {}", sa.spi),
        )
    }

    pub(crate) fn remove_sa(&mut self, sa: &Sa) -> Result<(), XfrmError> {
        self.execute(
            |sequence| message::delete_sa(sa, sequence),
            || format!("removing association {}", sa.spi),
        )
    }

    pub(crate) fn add_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        self.execute(
            |sequence| message::new_policy(policy, sequence),
            || describe(policy),
        )
    }

    pub(crate) fn set_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        self.execute(
            |sequence| message::set_policy(policy, sequence),
            || describe(policy),
        )
    }

    pub(crate) fn remove_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        self.execute(
            |sequence| message::delete_policy(policy, sequence),
            || format!("removing {}", describe(policy)),
        )
    }

    /// Requests the usage of an association.
    pub(crate) fn usage(&mut self, sa: &Sa) -> Result<Usage, XfrmError> {
        let what = || format!("counters of association {}", sa.spi);
        match self.request(|sequence| message::get_sa(sa, sequence))? {
            Answer::Sa(usage) => Ok(usage),
            Answer::Status(code, words) => Err(refusal(code, words, what())),
        }
    }

    /// Lists everything under the number of an XFRM interface, whoever installed it.
    pub(crate) fn under(&mut self, kind: Kind, if_id: u32) -> Result<Vec<Stale>, XfrmError> {
        self.send(|sequence| dump::list(kind, sequence))?;
        let mut found = Vec::new();
        loop {
            let len = self.receive()?;
            let datagram = self.buffer.get(..len).unwrap_or_default();
            match dump::part(datagram, self.sequence, if_id, &mut found) {
                Some(Part::More) => {}
                Some(Part::End) => return Ok(found),
                Some(Part::Failed(code)) => {
                    return Err(refusal(code, None, format!("listing {kind:?}")));
                }
                None => return Err(XfrmError::Netlink(io::ErrorKind::InvalidData.into())),
            }
        }
    }

    /// Removes something that was listed.
    pub(crate) fn delete(&mut self, stale: &Stale, if_id: u32) -> Result<(), XfrmError> {
        self.execute(
            |sequence| dump::delete(stale, if_id, sequence),
            || "removing what another daemon left".to_owned(),
        )
    }

    /// A request that is done or refused.
    fn execute(
        &mut self,
        request: impl FnOnce(u32) -> Message,
        what: impl FnOnce() -> String,
    ) -> Result<(), XfrmError> {
        match self.request(request)? {
            Answer::Status(0, _) => Ok(()),
            Answer::Status(code, words) => Err(refusal(code, words, what())),
            // Nothing asked for one.
            Answer::Sa(_) => Err(XfrmError::Netlink(io::ErrorKind::InvalidData.into())),
        }
    }

    fn request(&mut self, request: impl FnOnce(u32) -> Message) -> Result<Answer, XfrmError> {
        self.send(request)?;
        for _ in 0..STRANGE {
            let len = self.receive()?;
            let datagram = self.buffer.get(..len).unwrap_or_default();
            // A late answer to an earlier request is none to this one.
            if let Some(answer) = message::answer(datagram, self.sequence) {
                return Ok(answer);
            }
        }
        Err(XfrmError::Netlink(io::ErrorKind::InvalidData.into()))
    }

    fn send(&mut self, request: impl FnOnce(u32) -> Message) -> Result<(), XfrmError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request(self.sequence).finish();
        // An unconnected netlink socket sends to the kernel.
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())
            .map(drop)
            .map_err(|errno| XfrmError::Netlink(errno.into()))
    }

    /// Bytes of the next datagram, which is in the buffer then.
    fn receive(&mut self) -> Result<usize, XfrmError> {
        loop {
            let received =
                rustix::net::recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty());
            match received {
                Err(Errno::INTR) => {}
                other => {
                    let (len, _) = other.map_err(|errno| XfrmError::Netlink(errno.into()))?;
                    return Ok(len);
                }
            }
        }
    }
}

fn unopened(errno: Errno) -> XfrmError {
    match errno {
        Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => XfrmError::Missing {
            what: "IPsec (XFRM)",
            source: errno.into(),
        },
        other => XfrmError::Netlink(other.into()),
    }
}

fn describe(policy: &Policy) -> String {
    let selector = &policy.selector;
    let prefix = |prefix: tunnel::config::Prefix| format!("{}/{}", prefix.address, prefix.bits);
    format!(
        "policy {:?} from {} to {}",
        policy.direction,
        prefix(selector.source),
        prefix(selector.destination)
    )
}

/// The kernel's answer in an operator's words.
fn refusal(code: i32, words: Option<String>, what: String) -> XfrmError {
    let source = io::Error::from_raw_os_error(code);
    match Errno::from_raw_os_error(code) {
        Errno::EXIST => XfrmError::Exists(what),
        // xfrm_user without what handles the protocol or the algorithm.
        Errno::PROTONOSUPPORT => XfrmError::Missing {
            what: "module for this protocol (esp4, esp6, ah4, ah6)",
            source,
        },
        Errno::NOSYS => XfrmError::Missing {
            what: "implementation of these algorithms",
            source,
        },
        _ => XfrmError::Refused {
            what,
            words: words.map(|words| format!(" ({words})")).unwrap_or_default(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_ipsec_is_named() {
        let text = unopened(Errno::PROTONOSUPPORT).to_string();
        assert!(
            text.starts_with("this kernel has no IPsec (XFRM): "),
            "{text}"
        );
        let text = unopened(Errno::MFILE).to_string();
        assert!(text.starts_with("netlink: "), "{text}");
    }

    #[test]
    fn refusal_for_a_missing_entry_counts_as_gone() {
        let gone = refusal(Errno::SRCH.raw_os_error(), None, "association".into());
        assert!(gone.is_gone());
        let denied = refusal(Errno::PERM.raw_os_error(), None, "association".into());
        assert!(!denied.is_gone());
    }

    #[test]
    fn refusal_names_the_missing_module() {
        let of = |errno: Errno| refusal(errno.raw_os_error(), None, "association 00001001".into());
        let text = of(Errno::PROTONOSUPPORT).to_string();
        assert!(text.contains("esp4"), "{text}");
        let text = of(Errno::NOSYS).to_string();
        assert!(text.contains("algorithms"), "{text}");
        let text = of(Errno::EXIST).to_string();
        assert!(text.contains("00001001 is there already"), "{text}");
        let words = Some("Invalid key".to_owned());
        let text = refusal(Errno::INVAL.raw_os_error(), words, "association 1".into()).to_string();
        assert!(text.starts_with("association 1: Invalid"), "{text}");
        assert!(text.ends_with("(Invalid key)"), "{text}");
    }
}
