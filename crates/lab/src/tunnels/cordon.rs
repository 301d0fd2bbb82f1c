//! Our own tunnel: `cordon vpn static`.

use super::tunnel::{Tunnel, product, random_hex};
use crate::LabError;
use crate::network::Side;

/// One suite, by the names and key sizes (bytes) of docs/tunnels/manual-keys.md.
#[derive(Clone, Copy)]
pub(crate) struct Cordon {
    pub(crate) encryption: Option<(&'static str, usize)>,
    pub(crate) integrity: Option<(&'static str, usize)>,
    /// Authentication Header instead of ESP.
    pub(crate) ah: bool,
    /// Transport mode instead of tunnel mode.
    pub(crate) transport: bool,
    /// ESP without UDP around it, as published measurements had it.
    pub(crate) bare: bool,
}

impl Cordon {
    /// A suite in the form that we recommend: ESP in UDP, tunnel mode.
    pub(crate) const fn new(
        encryption: (&'static str, usize),
        integrity: Option<(&'static str, usize)>,
    ) -> Self {
        Self {
            encryption: Some(encryption),
            integrity,
            ah: false,
            transport: false,
            bare: false,
        }
    }

    pub(super) fn start(&self, tunnel: &mut Tunnel<'_>) -> Result<(), LabError> {
        let keys = || -> Result<[String; 2], LabError> {
            let size = |what: Option<(&str, usize)>| what.map_or(0, |(_, size)| size);
            Ok([
                random_hex(size(self.encryption))?,
                random_hex(size(self.integrity))?,
            ])
        };
        let keys = [keys()?, keys()?];
        if !self.transport {
            tunnel.server = Side::Server.inside();
        }
        let program = product()?;
        for (side, [own, other]) in [(Side::Server, [0, 1]), (Side::Client, [1, 0])] {
            let mut text = self.text(side, [(own, &keys), (other, &keys)]);
            let numbers = tunnel.folder.join(format!("numbers-{}", side.name()));
            text += &format!("sequence_numbers = {:?}\n", numbers.display().to_string());
            let config = tunnel.write(&format!("cordon-{}.toml", side.name()), &text)?;
            let call = tunnel.network.call(side, &program);
            let call = call
                .args(["--log", "warn", "vpn", "static", "--config"])
                .arg(config);
            tunnel.spawn(side, call)?;
        }
        if self.transport {
            tunnel.routed()?;
        }
        Ok(())
    }

    /// The file of one side; `ends` are the numbers of the sending and the receiving key.
    fn text(&self, side: Side, ends: [(usize, &[[String; 2]; 2]); 2]) -> String {
        let entry = |(end, keys): (usize, &[[String; 2]; 2])| {
            let mut parts = vec![format!("spi = {}", 0x1001 + end)];
            let keys = keys.get(end).into_iter().flatten();
            for (name, key) in ["encryption_key", "integrity_key"].iter().zip(keys) {
                if !key.is_empty() {
                    parts.push(format!("{name} = \"{key}\""));
                }
            }
            format!("{{ {} }}", parts.join(", "))
        };
        let [outbound, inbound] = ends.map(entry);
        // Other programs' tunnels take its place in the same namespaces.
        let mut text =
            String::from("[firewall]\nenforce = \"off\"\n[interface]\nname = \"tunnel0\"\n");
        if !self.transport {
            text += &format!("addresses = [\"{}/24\"]\n", side.inside());
        }
        text += &format!(
            "[path]\nlocal = \"{}\"\nremote = \"{}\"\nencapsulation = \"{}\"\n[sa]\n",
            side.outside(),
            side.other().outside(),
            if self.bare || self.ah { "none" } else { "udp" },
        );
        text += &format!(
            "protocol = \"{}\"\nmode = \"{}\"\n",
            if self.ah { "ah" } else { "esp" },
            if self.transport {
                "transport"
            } else {
                "tunnel"
            },
        );
        for (name, what) in [
            ("encryption", self.encryption),
            ("integrity", self.integrity),
        ] {
            if let Some((algorithm, _)) = what {
                text += &format!("{name} = \"{algorithm}\"\n");
            }
        }
        text + &format!("outbound = {outbound}\ninbound = {inbound}\n")
    }
}
