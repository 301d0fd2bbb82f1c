//! Web servers with one page, and the keys and certificates for them.
//!
//! Each serves plain HTTP, and HTTPS for each kind of key, with and without client certificates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::LabError;
use crate::experiments::OPENSSL;
use crate::ike::client_name;
use crate::network::{Network, Side};
use crate::process::{Call, Daemon};
use crate::program::Program;
use crate::tool::SERVER_NAME;
use crate::tunnels::{ourselves, write_private};

pub(crate) const NGINX: Program = Program {
    name: "nginx",
    package: "nginx-light",
    version: &["-v"],
};
pub(crate) const APACHE: Program = Program {
    name: "apache2",
    package: "apache2-bin",
    version: &["-v"],
};
/// The extension by which Cordon's authorities say what they issue (crate `pki`, `ExtensionArc`); without
/// it our own server lets no client in.
const OUR_KIND: &str = "1.3.6.1.4.1.99999.1.3";
/// Clients that one certificate for tunnels names.
pub(crate) const CLIENTS: u8 = 10;
/// Bytes of the page, as published.
pub(crate) const PAGE_BYTES: usize = 177;
/// Port of a server without TLS.
pub const PLAIN_PORT: u16 = 8080;
/// Longest start or end of a server.
const LIMIT: Duration = Duration::from_secs(20);
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// Kinds of keys, of servers and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// RSA with 2048 bits, as published.
    Rsa2048,
    /// RSA with 4096 bits.
    Rsa4096,
    /// ECDSA on the curve P-256.
    EcdsaP256,
    /// EdDSA on Curve25519.
    Ed25519,
}

impl Key {
    pub const ALL: [Self; 4] = [Self::Rsa2048, Self::Rsa4096, Self::EcdsaP256, Self::Ed25519];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "RSA-2048",
            Self::Rsa4096 => "RSA-4096",
            Self::EcdsaP256 => "ECDSA P-256",
            Self::Ed25519 => "Ed25519",
        }
    }

    /// In names of files.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa2048",
            Self::Rsa4096 => "rsa4096",
            Self::EcdsaP256 => "ecdsa",
            Self::Ed25519 => "ed25519",
        }
    }

    const fn openssl(self) -> &'static [&'static str] {
        match self {
            Self::Rsa2048 => &["rsa:2048"],
            Self::Rsa4096 => &["rsa:4096"],
            Self::EcdsaP256 => &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Self::Ed25519 => &["ed25519"],
        }
    }

    /// Port of a server with this key, without or with client certificates.
    pub const fn port(self, client: bool) -> u16 {
        let first = match self {
            Self::Rsa2048 => 8443,
            Self::EcdsaP256 => 8453,
            Self::Ed25519 => 8463,
            Self::Rsa4096 => 8473,
        };
        if client { first + 1 } else { first }
    }
}

/// Keys and certificates as published: servers' under two RSA-4096 authorities, clients' under one.
pub(crate) struct Pki {
    pub(crate) folder: PathBuf,
    keys: Vec<Key>,
}

impl Pki {
    pub(crate) fn make(folder: &Path, keys: &[Key]) -> Result<Self, LabError> {
        std::fs::create_dir_all(folder).map_err(LabError::io("a folder in memory"))?;
        let clients = (0..CLIENTS.into()).map(|number| format!("DNS:{}", client_name(number)));
        let clients = clients.collect::<Vec<_>>().join(",");
        let config = format!(
            "[req]\ndistinguished_name=dn\n[dn]\n\
             [ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n\
             subjectKeyIdentifier=hash\n{OUR_KIND}=ASN1:UTF8String:devices\n\
             [issued]\nbasicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n\
             subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n\
             [server]\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n\
             extendedKeyUsage=serverAuth\nsubjectAltName=DNS:{SERVER_NAME}\n\
             subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n\
             [client]\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n\
             extendedKeyUsage=clientAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n\
             [tunnels]\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n\
             extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=DNS:{SERVER_NAME}\n\
             subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n\
             [member]\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n\
             extendedKeyUsage=serverAuth,clientAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n\
             [dialling]\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n\
             extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName={clients}\n\
             subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        );
        write_private(&folder.join("openssl.cnf"), &config)?;
        let pki = Self {
            folder: folder.to_owned(),
            keys: keys.to_vec(),
        };
        pki.issue("root", "ca", None, &["rsa:4096"])?;
        pki.issue("services", "issued", Some("root"), &["rsa:4096"])?;
        let services = pki.read("services.pem")?;
        for &key in keys {
            let name = format!("server-{}", key.file());
            pki.issue(&name, "server", Some("services"), key.openssl())?;
            let chain = pki.read(&format!("{name}.pem"))? + &services;
            write_private(&pki.folder.join(format!("{name}.pem")), &chain)?;
            pki.issue(
                &format!("client-{}", key.file()),
                "client",
                Some("root"),
                key.openssl(),
            )?;
        }
        Ok(pki)
    }

    /// Certificates for tunnels: the server's, and one for all clients; with the keys that they have for
    /// TLS, because large ones take long to find.
    pub(crate) fn add_tunnels(&self) -> Result<(), LabError> {
        for key in &self.keys {
            for (side, kind) in [("server", "tunnels"), ("client", "dialling")] {
                let name = format!("ike-{side}-{}", key.file());
                let file = format!("{side}-{}.key", key.file());
                self.certify(&name, kind, Some("root"), &["-key", &file])?;
            }
        }
        Ok(())
    }

    /// Certificates for `count` clients of tunnels with the key of `key`'s client; each names some of them.
    pub(crate) fn crowd(&self, key: Key, count: u32) -> Result<Vec<String>, LabError> {
        let file = format!("client-{}.key", key.file());
        let mut all = Vec::new();
        for first in (0..count).step_by(CLIENTS.into()) {
            let those = first..count.min(first + u32::from(CLIENTS));
            let names = those.clone().map(|n| format!("DNS:client-{n}.example.org"));
            let names = names.collect::<Vec<_>>().join(",");
            let words = ["-addext", &format!("subjectAltName={names}"), "-key", &file];
            self.certify("crowd", "member", Some("root"), &words)?;
            let certificate = self.read("crowd.pem")?;
            all.extend(those.map(|_| certificate.clone()));
        }
        Ok(all)
    }

    fn issue(
        &self,
        name: &str,
        kind: &str,
        issuer: Option<&str>,
        key: &[&str],
    ) -> Result<(), LabError> {
        let keyout = format!("{name}.key");
        self.certify(
            name,
            kind,
            issuer,
            &[&["-keyout", &keyout, "-newkey"], key].concat(),
        )
    }

    /// A certificate for the key that the last words name.
    fn certify(
        &self,
        name: &str,
        kind: &str,
        issuer: Option<&str>,
        key: &[&str],
    ) -> Result<(), LabError> {
        let file = |name: &str, end: &str| format!("{name}.{end}");
        let mut call = Call::new(OPENSSL.path().unwrap_or_else(|| OPENSSL.name.into()))
            .folder(&self.folder)
            .args([
                "req",
                "-x509",
                "-nodes",
                "-days",
                "2",
                "-config",
                "openssl.cnf",
            ])
            .args([
                "-subj",
                &format!("/O=LEA-EU/CN={name}"),
                "-extensions",
                kind,
            ])
            .args(["-out", &file(name, "pem")]);
        if let Some(issuer) = issuer {
            call = call.args(["-CA", &file(issuer, "pem"), "-CAkey", &file(issuer, "key")]);
        }
        call.args(key).run()?;
        Ok(())
    }

    pub(crate) fn read(&self, name: &str) -> Result<String, LabError> {
        std::fs::read_to_string(self.folder.join(name)).map_err(LabError::io(name))
    }
}

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Apache,
    Nginx,
    Cordon,
}

impl Server {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Apache => "Apache httpd",
            Self::Nginx => "nginx",
            Self::Cordon => "Cordon",
        }
    }

    /// Starts it and waits until it listens.
    pub(crate) fn start(self, network: &Network, pki: &Pki) -> Result<Daemon, LabError> {
        let folder = pki.folder.join(match self {
            Self::Apache => "apache",
            Self::Nginx => "nginx",
            Self::Cordon => "cordon",
        });
        let pages = folder.join("pages");
        std::fs::create_dir_all(&pages).map_err(LabError::io("a folder in memory"))?;
        std::fs::write(pages.join("index.html"), page()).map_err(LabError::io("the page"))?;
        let call = match self {
            Self::Nginx => nginx(network, pki, &folder)?,
            Self::Apache => apache(network, pki, &folder)?,
            Self::Cordon => network
                .call(Side::Server, ourselves()?)
                .args(["--log", "warn", "page-server", "--pki"])
                .arg(&pki.folder)
                .arg("--page")
                .arg(pages.join("index.html"))
                .args(["--address", &Side::Server.outside().to_string()])
                .args(["--plain", &PLAIN_PORT.to_string()])
                .args(pki.keys.iter().map(|key| {
                    format!(
                        "--tls={},{},{}",
                        key.file(),
                        key.port(false),
                        key.port(true)
                    )
                })),
        };
        // Processes of the last server may take a moment to go.
        wait(|| listening(network) == 0)?;
        let mut daemon = call.start(&folder.join("log"))?;
        let wanted = 1 + 2 * pki.keys.len();
        daemon.wait_for(LIMIT, |_| listening(network) >= wanted)?;
        Ok(daemon)
    }
}

/// Counts the sockets that listen on the server's side. Asks the kernel, because a connection would be counted.
fn listening(network: &Network) -> usize {
    let call = network.call(Side::Server, "cat").arg("/proc/net/tcp");
    // State 0A: listening.
    call.run()
        .map_or(0, |done| done.stdout.matches(" 00000000:0000 0A ").count())
}

fn wait(ready: impl Fn() -> bool) -> Result<(), LabError> {
    let began = Instant::now();
    while !ready() {
        if began.elapsed() > LIMIT {
            return Err(LabError::Unexpected(
                "the last server's ports stay in use".to_owned(),
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Address of a server; without a key, plain HTTP.
pub(crate) fn address(key: Option<Key>, client: bool) -> SocketAddr {
    let port = key.map_or(PLAIN_PORT, |key| key.port(client));
    SocketAddr::new(Side::Server.outside().into(), port)
}

/// A page of the published size.
fn page() -> String {
    let (start, end) = ("<!doctype html><title>Page</title><p>", "</p>\n");
    let fill = PAGE_BYTES - start.len() - end.len();
    format!("{start}{}{end}", "x".repeat(fill))
}

fn nginx(network: &Network, pki: &Pki, folder: &Path) -> Result<Call, LabError> {
    let (keys, at) = (pki.folder.display(), folder.display());
    let mut hosts = format!(
        "server {{ listen {}; root {at}/pages; }}\n",
        address(None, false)
    );
    for &key in &pki.keys {
        for client in [false, true] {
            let verify = if client {
                format!(
                    "ssl_verify_client on; ssl_verify_depth 2; ssl_client_certificate {keys}/root.pem;"
                )
            } else {
                String::new()
            };
            hosts += &format!(
                "server {{ listen {} ssl; root {at}/pages; ssl_certificate {keys}/server-{file}.pem;\n \
                 ssl_certificate_key {keys}/server-{file}.key; {verify} }}\n",
                address(Some(key), client),
                file = key.file(),
            );
        }
    }
    let text = format!(
        "daemon off; user root; worker_processes auto; pid {at}/pid; error_log stderr warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;\n \
         fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n \
         ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:lab:10m; ssl_session_timeout 1h;\n{hosts}}}\n"
    );
    let config = folder.join("nginx.conf");
    write_private(&config, &text)?;
    let program = NGINX.path().unwrap_or_else(|| NGINX.name.into());
    let call = network.call(Side::Server, program).arg("-c").arg(config);
    Ok(call.args(["-e", "stderr", "-p"]).arg(folder))
}

fn apache(network: &Network, pki: &Pki, folder: &Path) -> Result<Call, LabError> {
    let (keys, at) = (pki.folder.display(), folder.display());
    let mut text = format!(
        "ServerName {SERVER_NAME}\nServerRoot {at}\nPidFile {at}/pid\nErrorLog /dev/stderr\nLogLevel warn\n\
         DefaultRuntimeDir {at}\nUser www-data\nGroup www-data\nDocumentRoot {at}/pages\n"
    );
    for module in ["mpm_event", "ssl", "socache_shmcb", "authz_core", "dir"] {
        text += &format!("LoadModule {module}_module {APACHE_MODULES}/mod_{module}.so\n");
    }
    text += &format!(
        "DirectoryIndex index.html\nSSLSessionCache shmcb:{at}/sessions(5120000)\nSSLSessionCacheTimeout 3600\n\
         SSLProtocol -all +TLSv1.2 +TLSv1.3\nMaxKeepAliveRequests 0\nListen {}\n",
        address(None, false)
    );
    for &key in &pki.keys {
        for client in [false, true] {
            let listen = address(Some(key), client);
            let verify = if client {
                format!(
                    "SSLVerifyClient require\nSSLVerifyDepth 2\nSSLCACertificateFile {keys}/root.pem\n"
                )
            } else {
                String::new()
            };
            text += &format!(
                "Listen {listen}\n<VirtualHost {listen}>\nSSLEngine on\n\
                 SSLCertificateFile {keys}/server-{file}.pem\nSSLCertificateKeyFile {keys}/server-{file}.key\n\
                 {verify}</VirtualHost>\n",
                file = key.file(),
            );
        }
    }
    let config = folder.join("apache.conf");
    write_private(&config, &text)?;
    let program = APACHE.path().unwrap_or_else(|| APACHE.name.into());
    Ok(network
        .call(Side::Server, program)
        .arg("-f")
        .arg(config)
        .arg("-DFOREGROUND"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_has_the_published_size() {
        assert_eq!(super::page().len(), super::PAGE_BYTES);
    }
}
