//! IKEv2 daemons that answer: `cordon vpn up` and strongSwan's charon, with the same certificates.

use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::LabError;
use crate::ike::Dialling;
use crate::network::{Network, Side};
use crate::process::Daemon;
use crate::servers::{Key, Pki};
use crate::tool::SERVER_NAME;
use crate::tunnels::{CHARON, control, product, write_private};

/// Longest start of a daemon.
const LIMIT: Duration = Duration::from_secs(20);
/// Plugins with which charon knows certificates, on top of those for tunnels with secrets.
const PLUGINS: &str = "random drbg nonce aesni aes sha1 sha2 hmac kdf gcm ctr curve25519 openssl pem pkcs1 pkcs8 \
                       x509 constraints pubkey kernel-libipsec kernel-netlink socket-default vici";

/// A kind of daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IkeServer {
    Cordon,
    StrongSwan,
}

impl IkeServer {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cordon => "Cordon",
            Self::StrongSwan => "strongSwan",
        }
    }

    /// Starts it and waits until it answers.
    pub(crate) fn start(
        self,
        network: &Network,
        pki: &Pki,
        folder: &Path,
        key: Key,
        hybrid: bool,
    ) -> Result<Daemon, LabError> {
        let home = folder.join(format!("ike-{}", self.name()));
        std::fs::create_dir_all(&home).map_err(LabError::io("a folder in memory"))?;
        match self {
            Self::Cordon => cordon(network, pki, &home, (key, hybrid), "10.208.1.0/24"),
            Self::StrongSwan => strongswan(network, pki, &home, key),
        }
    }
}

/// Addresses of clients, outside and inside; more than one address of the cable.
fn client(number: u8) -> (Ipv4Addr, Ipv4Addr) {
    (
        Ipv4Addr::new(10, 207, 0, 100 + number),
        Ipv4Addr::new(10, 208, 1, 1 + number),
    )
}

/// Gives the client's side an address for each client.
pub(crate) fn add_clients(network: &Network, count: u8) -> Result<(), LabError> {
    for (outside, _) in (0..count).map(client) {
        let address = format!("{outside}/24");
        network.ip(Side::Client, &["address", "add", &address, "dev", "cable"])?;
    }
    Ok(())
}

/// Builds the orders of so many clients.
pub(crate) fn dialling(
    pki: &Pki,
    key: Key,
    hybrid: bool,
    clients: u8,
    count: Option<u32>,
    seconds: f64,
) -> Result<Dialling, LabError> {
    Ok(Dialling {
        server: Side::Server.outside(),
        clients: (0..clients).map(client).collect(),
        inside: Side::Server.inside(),
        root: pki.read("root.pem")?,
        certificate: pki.read(&format!("ike-client-{}.pem", key.file()))?,
        key: pki.read(&format!("client-{}.key", key.file()))?,
        hybrid,
        count,
        seconds,
    })
}

/// `cordon vpn up` for clients of which each has an address of `clients`.
pub(crate) fn cordon(
    network: &Network,
    pki: &Pki,
    home: &Path,
    (key, hybrid): (Key, bool),
    clients: &str,
) -> Result<Daemon, LabError> {
    let (keys, file) = (pki.folder.display(), key.file());
    let additional = if hybrid {
        ", additional = [\"ml-kem-768\"]"
    } else {
        ""
    };
    let text = format!(
        "status = \"control.sock\"\n[firewall]\nenforce = \"off\"\n[interface]\nname = \"tunnel0\"\naddresses = [\"{inside}/32\"]\n\
         [trust]\nanchors = [\"{keys}/root.pem\"]\n[[connection]]\nname = \"clients\"\n\
         local_id = \"{SERVER_NAME}\"\nremote_id = \"any\"\n\
         certificate = \"{keys}/ike-server-{file}.pem\"\nkey = \"{keys}/server-{file}.key\"\n\
         ike = [{{ encryption = [\"aes-128-gcm\"], prf = [\"hmac-sha2-256\"], groups = [\"x25519\"]{additional} }}]\n\
         unique = \"never\"\npeer = {{ ike_sas = 1000, handshakes_per_minute = 1000000 }}\n\
         [[connection.child]]\nname = \"net\"\nlocal = [\"{inside}/32\"]\nremote = [\"{clients}\"]\n\
         esp = [{{ encryption = [\"aes-128-gcm\"], groups = [\"x25519\"], extended_sequence = false }}]\n",
        inside = Side::Server.inside(),
    );
    let config = home.join("vpn.toml");
    write_private(&config, &text)?;
    let socket = home.join("control.sock");
    let _ = std::fs::remove_file(&socket);
    let call = network
        .call(Side::Server, product()?)
        .args(["--log", "warn", "vpn", "up", "--config"])
        .arg(config);
    let mut daemon = call.start(&home.join("log"))?;
    daemon.wait_for(LIMIT, |_| UnixStream::connect(&socket).is_ok())?;
    Ok(daemon)
}

fn strongswan(network: &Network, pki: &Pki, home: &Path, key: Key) -> Result<Daemon, LabError> {
    let failed = || LabError::io("charon's files");
    let swanctl = home.join("swanctl");
    let server = format!("server-{}", key.file());
    for (name, folder, target) in [
        ("root.pem", "x509ca", "root.pem"),
        (&format!("ike-{server}.pem"), "x509", "server.pem"),
        (&format!("{server}.key"), "private", "server.key"),
    ] {
        let folder = swanctl.join(folder);
        std::fs::create_dir_all(&folder).map_err(failed())?;
        std::fs::copy(pki.folder.join(name), folder.join(target)).map_err(failed())?;
    }
    let socket = home.join("vici");
    write_private(
        &home.join("strongswan.conf"),
        &format!(
            "charon {{\n load = {PLUGINS}\n install_virtual_ip = no\n plugins {{ vici {{ socket = unix://{} \
             }} }}\n}}\n",
            socket.display()
        ),
    )?;
    write_private(
        &swanctl.join("swanctl.conf"),
        &format!(
            "connections {{ clients {{\n version = 2\n local_addrs = {outside}\n remote_addrs = %any\n \
             unique = never\n proposals = aes128gcm16-prfsha256-x25519\n \
             local {{ auth = pubkey\n certs = server.pem\n id = {SERVER_NAME} }}\n \
             remote {{ auth = pubkey\n cacerts = root.pem\n id = %any }}\n \
             children {{ net {{\n local_ts = {inside}/32\n remote_ts = 10.208.1.0/24\n \
             esp_proposals = aes128gcm16-x25519\n }} }}\n}} }}\n",
            outside = Side::Server.outside(),
            inside = Side::Server.inside(),
        ),
    )?;
    // It looks for an address inside the tunnel.
    let address = format!("{}/32", Side::Server.inside());
    network.ip(Side::Server, &["address", "replace", &address, "dev", "lo"])?;
    let _ = std::fs::remove_file("/run/charon.pid");
    let _ = std::fs::remove_file(&socket);
    let program = CHARON.path().unwrap_or_else(|| CHARON.name.into());
    let call = network.call(Side::Server, program);
    let call = call.env("STRONGSWAN_CONF", home.join("strongswan.conf"));
    let mut daemon = call.start(&home.join("log"))?;
    daemon.wait_for(LIMIT, |_| UnixStream::connect(&socket).is_ok())?;
    control(home, &["--load-all", "--noprompt"])?;
    Ok(daemon)
}
