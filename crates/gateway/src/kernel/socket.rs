//! Requests to the kernel's IPsec and their answers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use zeroize::Zeroizing;

use super::KernelError;
use super::message::dump::{self, Kind, Left, Part};
use super::message::{self, Answer, Message, Policy, Sa, Usage};

/// How long the kernel may take: it may have to load modules.
const PATIENCE: Duration = Duration::from_secs(20);
/// Room for an answer, of which a list is the longest: the kernel fills up to this (net/netlink).
const ANSWER: usize = 32 * 1024;
/// Answers that are not ours, which are skipped before we give up.
const STRANGE: usize = 16;

/// A netlink socket of the family XFRM.
pub(super) struct Socket {
    socket: OwnedFd,
    sequence: u32,
    /// Answers hold keys.
    buffer: Zeroizing<Vec<u8>>,
}

impl Socket {
    /// # Errors
    /// [`KernelError::Missing`] where the kernel has no IPsec.
    pub(super) fn open() -> Result<Self, KernelError> {
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
        prepare().map_err(KernelError::Netlink)?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: Zeroizing::new(vec![0; ANSWER]),
        })
    }

    pub(super) fn add_sa(&mut self, sa: &Sa, if_id: Option<u32>) -> Result<(), KernelError> {
        self.order(
            |sequence| message::new_sa(sa, if_id, sequence),
            || format!("association {}", sa.spi),
        )
    }

    pub(super) fn remove_sa(&mut self, sa: &Sa) -> Result<(), KernelError> {
        self.order(
            |sequence| message::delete_sa(sa, sequence),
            || format!("removing association {}", sa.spi),
        )
    }

    pub(super) fn add_policy(&mut self, policy: &Policy) -> Result<(), KernelError> {
        self.order(
            |sequence| message::new_policy(policy, sequence),
            || describe(policy),
        )
    }

    pub(super) fn set_policy(&mut self, policy: &Policy) -> Result<(), KernelError> {
        self.order(
            |sequence| message::set_policy(policy, sequence),
            || describe(policy),
        )
    }

    pub(super) fn remove_policy(&mut self, policy: &Policy) -> Result<(), KernelError> {
        self.order(
            |sequence| message::delete_policy(policy, sequence),
            || format!("removing {}", describe(policy)),
        )
    }

    /// What an association has done.
    pub(super) fn usage(&mut self, sa: &Sa) -> Result<Usage, KernelError> {
        let what = || format!("counters of association {}", sa.spi);
        match self.ask(|sequence| message::get_sa(sa, sequence))? {
            Answer::Sa(usage) => Ok(usage),
            Answer::Status(code, words) => Err(refusal(code, words, what())),
        }
    }

    /// What is there under the number of an XFRM interface, whoever installed it.
    pub(super) fn under(&mut self, kind: Kind, if_id: u32) -> Result<Vec<Left>, KernelError> {
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
                None => return Err(KernelError::Netlink(io::ErrorKind::InvalidData.into())),
            }
        }
    }

    /// Removes something that was listed.
    pub(super) fn delete(&mut self, left: &Left, if_id: u32) -> Result<(), KernelError> {
        self.order(
            |sequence| dump::delete(left, if_id, sequence),
            || "removing what another daemon left".to_owned(),
        )
    }

    /// A request that is done or refused.
    fn order(
        &mut self,
        request: impl FnOnce(u32) -> Message,
        what: impl FnOnce() -> String,
    ) -> Result<(), KernelError> {
        match self.ask(request)? {
            Answer::Status(0, _) => Ok(()),
            Answer::Status(code, words) => Err(refusal(code, words, what())),
            // Nothing asked for one.
            Answer::Sa(_) => Err(KernelError::Netlink(io::ErrorKind::InvalidData.into())),
        }
    }

    fn ask(&mut self, request: impl FnOnce(u32) -> Message) -> Result<Answer, KernelError> {
        self.send(request)?;
        for _ in 0..STRANGE {
            let len = self.receive()?;
            let datagram = self.buffer.get(..len).unwrap_or_default();
            // A late answer to an earlier request is none to this one.
            if let Some(answer) = message::answer(datagram, self.sequence) {
                return Ok(answer);
            }
        }
        Err(KernelError::Netlink(io::ErrorKind::InvalidData.into()))
    }

    fn send(&mut self, request: impl FnOnce(u32) -> Message) -> Result<(), KernelError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request(self.sequence).finish();
        // An unconnected netlink socket sends to the kernel.
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())
            .map(drop)
            .map_err(|errno| KernelError::Netlink(errno.into()))
    }

    /// Bytes of the next datagram, which is in the buffer then.
    fn receive(&mut self) -> Result<usize, KernelError> {
        loop {
            let received =
                rustix::net::recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty());
            match received {
                Err(Errno::INTR) => {}
                other => {
                    let (len, _) = other.map_err(|errno| KernelError::Netlink(errno.into()))?;
                    return Ok(len);
                }
            }
        }
    }
}

fn unopened(errno: Errno) -> KernelError {
    match errno {
        Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => KernelError::Missing {
            what: "IPsec (XFRM)",
            source: errno.into(),
        },
        other => KernelError::Netlink(other.into()),
    }
}

fn describe(policy: &Policy) -> String {
    let selector = &policy.selector;
    let prefix = |prefix: crate::config::Prefix| format!("{}/{}", prefix.address, prefix.bits);
    format!(
        "policy {:?} from {} to {}",
        policy.direction,
        prefix(selector.source),
        prefix(selector.destination)
    )
}

/// The kernel's answer in an operator's words.
fn refusal(code: i32, words: Option<String>, what: String) -> KernelError {
    let source = io::Error::from_raw_os_error(code);
    match Errno::from_raw_os_error(code) {
        Errno::EXIST => KernelError::Exists(what),
        // xfrm_user without what handles the protocol or the algorithm.
        Errno::PROTONOSUPPORT => KernelError::Missing {
            what: "module for this protocol (esp4, esp6, ah4, ah6)",
            source,
        },
        Errno::NOSYS => KernelError::Missing {
            what: "implementation of these algorithms",
            source,
        },
        _ => KernelError::Refused {
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
    fn a_kernel_without_ipsec_is_named() {
        let text = unopened(Errno::PROTONOSUPPORT).to_string();
        assert!(
            text.starts_with("this kernel has no IPsec (XFRM): "),
            "{text}"
        );
        let text = unopened(Errno::MFILE).to_string();
        assert!(text.starts_with("netlink: "), "{text}");
    }

    #[test]
    fn what_is_not_there_is_gone() {
        let gone = refusal(Errno::SRCH.raw_os_error(), None, "association".into());
        assert!(gone.is_gone());
        let denied = refusal(Errno::PERM.raw_os_error(), None, "association".into());
        assert!(!denied.is_gone());
    }

    #[test]
    fn refusals_name_what_is_missing() {
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
