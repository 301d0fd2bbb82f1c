//! More and more tunnels at one gateway.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use super::{TUNNEL_CPU, TUNNEL_MEMORY, TUNNEL_TIME};
use crate::LabError;
use crate::ike::Dialling;
use crate::ike_fleet::{self, Measured};
use crate::ike_servers;
use crate::network::{IP, Network, Side};
use crate::process::Call;
use crate::servers::{Key, Pki};
use crate::session::Round;
use crate::tunnels::ourselves;

/// Addresses inside the tunnels.
const INSIDE: &str = "10.61.0.0/16";
const KEY: Key = Key::EcdsaP256;
/// Clients in one network (/24): so many handshakes are taken of it at once.
const NETWORK: u32 = 100;
/// All tunnels are up within.
const LIMIT: Duration = Duration::from_secs(120);

/// Clients with addresses and certificates.
pub(super) struct Fleet<'a> {
    pki: Pki,
    certificates: Vec<String>,
    sizes: &'a [u32],
}

impl<'a> Fleet<'a> {
    pub(super) fn prepare(
        network: &Network,
        folder: &Path,
        sizes: &'a [u32],
    ) -> Result<Self, LabError> {
        let pki = Pki::make(&folder.join("fleet"), &[KEY])?;
        pki.add_tunnels()?;
        let most = sizes.iter().copied().max().unwrap_or_default();
        let certificates = pki.crowd(KEY, most)?;
        let addresses = (0..most).map(|n| format!("address add {}/32 dev cable\n", client(n).0));
        let ip = IP.path().unwrap_or_else(|| IP.name.into());
        Call::new(ip)
            .args(["-n", Side::Client.name(), "-batch", "-"])
            .input(addresses.collect::<String>())
            .run()?;
        // By one neighbour: the kernel's table of these has room for 1024.
        let by = Side::Client.outside().to_string();
        network.ip(Side::Server, &["route", "add", "10.60.0.0/16", "via", &by])?;
        Ok(Self {
            pki,
            certificates,
            sizes,
        })
    }

    pub(super) fn measure(
        &self,
        network: &Network,
        folder: &Path,
        round: &mut Round,
    ) -> Result<(), LabError> {
        for &tunnels in self.sizes {
            self.one(network, folder, tunnels, round)?;
        }
        Ok(())
    }

    fn one(
        &self,
        network: &Network,
        folder: &Path,
        tunnels: u32,
        round: &mut Round,
    ) -> Result<(), LabError> {
        let failed = || LabError::io("the clients' orders");
        let unclear = |error: serde_json::Error| LabError::Unexpected(error.to_string());
        let home = folder.join("fleet/gateway");
        std::fs::create_dir_all(&home).map_err(failed())?;
        let gateway = ike_servers::cordon(network, &self.pki, &home, (KEY, false), INSIDE)?;
        let empty = (gateway.anonymous_kib(), gateway.usage().cpu);
        let call = network.call(Side::Client, ourselves()?).arg("ike-fleet");
        let (mut clients, mut input) = call.start_piped(&home.join("clients.log"))?;
        let order = serde_json::to_string(&self.order(tunnels)?).map_err(unclear)?;
        writeln!(input, "{order}").map_err(failed())?;
        clients.wait_for(LIMIT, |clients| clients.said().ends_with('\n'))?;
        let each = |sum: f64| sum / f64::from(tunnels);
        let used = gateway.usage();
        let measured: Measured = serde_json::from_str(clients.said().trim()).map_err(unclear)?;
        let last = measured.times.iter().copied().fold(0.0, f64::max);
        let memory = gateway.anonymous_kib() - empty.0;
        round.put_at(TUNNEL_TIME, tunnels.into(), last);
        round.put_at(TUNNEL_MEMORY, tunnels.into(), each(memory));
        round.put_at(
            TUNNEL_CPU,
            tunnels.into(),
            each((used.cpu - empty.1) * 1000.0),
        );
        round.used("gateway", used);
        round.used("clients", clients.usage());
        drop(input);
        clients.stop();
        gateway.stop();
        Ok(())
    }

    fn order(&self, tunnels: u32) -> Result<ike_fleet::Fleet, LabError> {
        Ok(ike_fleet::Fleet {
            dialling: Dialling {
                server: Side::Server.outside(),
                clients: (0..tunnels).map(client).collect(),
                inside: Side::Server.inside(),
                root: self.pki.read("root.pem")?,
                certificate: self.certificates.first().cloned().unwrap_or_default(),
                key: self.pki.read(&format!("client-{}.key", KEY.file()))?,
                hybrid: false,
                count: None,
                seconds: 0.0,
            },
            certificates: self
                .certificates
                .iter()
                .take(tunnels as usize)
                .cloned()
                .collect(),
            resume: false,
            echo_ms: 500,
        })
    }
}

/// Addresses of a client, outside and inside.
fn client(number: u32) -> (Ipv4Addr, Ipv4Addr) {
    let place = ((number / NETWORK) << 8) | (number % NETWORK + 1);
    let at = |base: Ipv4Addr| Ipv4Addr::from_bits(base.to_bits() | place);
    (
        at(Ipv4Addr::new(10, 60, 0, 0)),
        at(Ipv4Addr::new(10, 61, 0, 0)),
    )
}
