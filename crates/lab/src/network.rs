//! Two network namespaces with a cable between them.

use std::ffi::OsStr;
use std::net::Ipv4Addr;

use crate::LabError;
use crate::process::Call;
use crate::program::Program;

/// The program that makes namespaces.
pub(crate) const IP: Program = Program {
    name: "ip",
    package: "iproute2",
    version: &["-V"],
};

/// The program that slows the cable down.
pub(crate) const TC: Program = Program {
    name: "tc",
    package: "iproute2",
    version: &["-V"],
};

/// An end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Server, Self::Client];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }

    /// Address of the cable's end.
    pub(crate) const fn outside(self) -> Ipv4Addr {
        match self {
            Self::Server => Ipv4Addr::new(10, 207, 0, 1),
            Self::Client => Ipv4Addr::new(10, 207, 0, 2),
        }
    }

    /// Address inside of a tunnel.
    pub(crate) const fn inside(self) -> Ipv4Addr {
        match self {
            Self::Server => Ipv4Addr::new(10, 208, 0, 1),
            Self::Client => Ipv4Addr::new(10, 208, 0, 2),
        }
    }
}

/// The two namespaces; they end with this.
pub(crate) struct Network(());

impl Network {
    pub(crate) fn new() -> Result<Self, LabError> {
        let network = Self(());
        for side in Side::BOTH {
            ip(&["netns", "add", side.name()])?;
            ip(&["-n", side.name(), "link", "set", "lo", "up"])?;
        }
        let pair = "-n server link add cable type veth peer name cable netns client";
        ip(&pair.split(' ').collect::<Vec<_>>())?;
        for side in Side::BOTH {
            let address = format!("{}/24", side.outside());
            ip(&[
                "-n",
                side.name(),
                "address",
                "add",
                &address,
                "dev",
                "cable",
            ])?;
            ip(&["-n", side.name(), "link", "set", "cable", "up"])?;
        }
        Ok(network)
    }

    /// A program in one of the namespaces.
    pub(crate) fn call(&self, side: Side, program: impl AsRef<OsStr>) -> Call {
        let ip = IP.path().unwrap_or_else(|| IP.name.into());
        Call::new(ip)
            .args(["netns", "exec", side.name()])
            .arg(program)
    }

    /// Slows the cable down to `rate` in each direction, as `tc` writes it, until what this returns is dropped.
    pub(crate) fn slowed(&self, rate: &str) -> Result<Slowed<'_>, LabError> {
        let slowed = Slowed(self);
        // The queue is as long as that of a cheap router.
        let words = format!("qdisc add dev cable root tbf rate {rate} burst 16kb latency 50ms");
        for side in Side::BOTH {
            self.tc(side, &words)?;
        }
        Ok(slowed)
    }

    fn tc(&self, side: Side, words: &str) -> Result<(), LabError> {
        let tc = TC.path().unwrap_or_else(|| TC.name.into());
        self.call(side, tc).args(words.split(' ')).run()?;
        Ok(())
    }

    /// `ip` with arguments for one of the namespaces.
    pub(crate) fn ip(&self, side: Side, words: &[&str]) -> Result<(), LabError> {
        ip(&[&["-n", side.name()], words].concat())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for side in Side::BOTH {
            // What is left goes with the sandbox.
            let _ = ip(&["netns", "delete", side.name()]);
        }
    }
}

/// The cable while it is slow.
pub(crate) struct Slowed<'a>(&'a Network);

impl Drop for Slowed<'_> {
    fn drop(&mut self) {
        for side in Side::BOTH {
            // What is left goes with the namespace.
            let _ = self.0.tc(side, "qdisc delete dev cable root");
        }
    }
}

fn ip(words: &[&str]) -> Result<(), LabError> {
    let ip = IP.path().unwrap_or_else(|| IP.name.into());
    Call::new(ip).args(words).run()?;
    Ok(())
}
