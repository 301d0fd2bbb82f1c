//! From the file to what the protocol half works with: secrets, certificates, proposals, selectors.

mod authorities;
mod check;
mod credentials;
mod mistakes;
mod peer_id;
mod proofs;
mod traffic;

pub(super) use credentials::{OwnCertificate, certificates};
use credentials::{chain, sum};
use mistakes::Mistakes;
pub(super) use traffic::{prefixes, selectors};

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use accelerator::AcceleratorConfig;
use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use ikev2::config::{Addresses, Mode, PeerId, RemoteAuth, Unique};
use ikev2::wire::{Identification, TrafficSelector};
use ikev2::{ChildConfig, Connection};
use ipsec::selector::Selector;
use keyhost::{Key, KeyHost};
use tunnel::config::{BackendConfig, InterfaceConfig, ModeConfig, Prefix};
use x509_cert::Certificate;

use super::authorization::{Allowance, Source, overlap};
use super::config::{
    Carrier, ConnectionConfig, DaemonConfig, Family, OuterConfig, RetransmissionConfig, Start,
    TransportConfig, UniqueConfig, usual_esp, usual_ike,
};
use super::eap_tls::KeyHandle;
use super::identity;
use super::journal::Central;
use super::ocsp::OcspTransport;
use super::requirement::Requirement;
use super::trust::{Authorities, Trust};
use super::users::Users;
use traffic::traffic_selector;

/// Children of one connection at most; their places among the policies lie side by side.
const CHILDREN: usize = 64;

/// Why a configuration cannot be used: where, and what.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Not what the file should be; says where.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A part of it is wrong.
    #[error("{place}: {what}")]
    Wrong { place: String, what: String },
    /// Peers have certificates, and nobody's are believed.
    #[error("{place}: certificates need [trust]: whose are believed?")]
    NoTrust { place: String },
}

impl ResolveError {
    /// Names the place in the file's text, and what is wrong there, each on one line.
    #[must_use]
    pub fn parts(&self, text: &str) -> (String, String) {
        match self {
            Self::Syntax(error) => {
                let start = error.span().map_or(0, |span| span.start);
                let before = text.get(..start).unwrap_or_default();
                let line = before.matches('\n').count().saturating_add(1);
                let what = error.message().lines().collect::<Vec<_>>().join("; ");
                (format!("line {line}"), what)
            }
            Self::Wrong { place, what } => (place.clone(), what.clone()),
            Self::NoTrust { place } => {
                let what = "certificates need [trust]: whose are believed?";
                (place.clone(), what.to_owned())
            }
        }
    }
}

fn wrong(place: impl Into<String>, what: impl Into<String>) -> ResolveError {
    ResolveError::Wrong {
        place: place.into(),
        what: what.into(),
    }
}

/// A child as the rest of the daemon knows it.
#[derive(Clone, Debug)]
pub(super) struct ResolvedChild {
    pub(super) name: String,
    /// Place among the policies.
    pub(super) order: u32,
    /// Packets that it would protect if the peer agreed to all of it.
    pub(super) selectors: Vec<Selector>,
    /// Prefixes that are routed into the tunnel whether it is up or not, so that nothing goes in the clear.
    pub(super) routes: Vec<Prefix>,
    pub(super) lifetime: Duration,
    /// Bytes to which packets to the peer are padded, if it takes padding.
    pub(super) tfc_padding: Option<u16>,
}

/// A connection with everything that belongs to it.
pub(super) struct ResolvedConnection {
    pub(super) connection: Connection,
    pub(super) remote: Option<IpAddr>,
    pub(super) start: Start,
    pub(super) transport: TransportConfig,
    pub(super) tcp_port: u16,
    /// Time without an answer over UDP after which TCP is tried.
    pub(super) fallback_after: Duration,
    pub(super) keys: Vec<Key>,
    /// KeyHandle by which TLS finds this key and the trust.
    pub(super) key_handle: KeyHandle,
    /// Passwords of EAP. Others than before do not make another connection of it.
    pub(super) users: Users,
    pub(super) pool: Option<String>,
    /// Bounds of its peers.
    pub(super) allowance: Allowance,
    /// Demands on their certificates.
    pub(super) requirement: Arc<Requirement>,
    /// Our address and the peer's, if some child is in transport mode.
    pub(super) hosts: Option<(IpAddr, IpAddr)>,
    pub(super) children: Vec<ResolvedChild>,
    /// Changes when anything in the file or in the files that it names changes, but for our certificates.
    pub(super) fingerprint: [u8; SHA256_OUTPUT_LEN],
    /// Changes with our certificates and what responders say of them.
    pub(super) credentials: [u8; SHA256_OUTPUT_LEN],
    pub(super) own: Vec<OwnCertificate>,
}

impl ResolvedConnection {
    pub(super) fn name(&self) -> &str {
        &self.connection.name
    }

    pub(super) fn child(&self, name: &str) -> Option<&ResolvedChild> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Whether this peer has shown a certificate, if it has come up.
    pub(super) fn shows_certificate(&self, peer: &Identification) -> bool {
        match &self.connection.remote_auth {
            RemoteAuth::Certificate { .. } => true,
            RemoteAuth::Psk(_) => false,
            RemoteAuth::Eap { .. } => {
                let user = String::from_utf8_lossy(&peer.data);
                self.users.password(&user).is_none()
            }
        }
    }

    /// Returns the addresses of which peers may be the source, by configuration.
    fn source(&self, config: &ConnectionConfig) -> Option<Source> {
        let remote = self.connection.peer_networks().flat_map(|s| prefixes(&s));
        let remote: Vec<Prefix> = remote.collect();
        let some = !remote.is_empty() && self.hosts.is_none();
        let id = &self.connection.remote_id;
        some.then(|| Source::of_connection(config, id, self.allowance.realm(), remote))
    }
}

/// A configuration with everything that it names.
pub struct ResolvedConfig {
    pub config: DaemonConfig,
    pub(super) trust: Authorities,
    pub(super) crls: Vec<PathBuf>,
    credential_files: Vec<PathBuf>,
    pub(super) connections: Vec<ResolvedConnection>,
    /// Holder of the private keys.
    pub(super) key_host: KeyHost,
    /// Taker of audit events into a central log.
    pub central: Option<Central>,
    /// Carries requests to OCSP responders; without it none is asked.
    pub ocsp_transport: Option<OcspTransport>,
}

/// Settings that cannot change while the daemon runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupConfig {
    interface: String,
    path: OuterConfig,
    status: PathBuf,
    /// Whether outer packets are marked.
    transport: bool,
    backend: BackendConfig,
    /// Whether something goes over TCP.
    tcp: bool,
    crash_secret: Option<PathBuf>,
    session_tickets: Option<PathBuf>,
    accelerator: Option<AcceleratorConfig>,
}

impl ResolvedConfig {
    /// Reads a configuration and the files that it names; these lie beside it unless their names are
    /// absolute. Private keys are read by `key_host`.
    ///
    /// # Errors
    /// The first [`ResolveError`] of [`Self::read_all`].
    pub fn read(text: &str, folder: &Path, key_host: &KeyHost) -> Result<Self, ResolveError> {
        Self::read_all(text, folder, key_host).map_err(|mistakes| {
            let first = mistakes.into_iter().next();
            first.unwrap_or_else(|| wrong("the file", "it cannot be used"))
        })
    }

    /// Reads a configuration as [`Self::read`] does, and does not stop at the first mistake.
    ///
    /// # Errors
    /// Every [`ResolveError`] in the order of the file, as far as one does not hide another.
    pub fn read_all(
        text: &str,
        folder: &Path,
        key_host: &KeyHost,
    ) -> Result<Self, Vec<ResolveError>> {
        let config: DaemonConfig = toml::from_str(text).map_err(|error| vec![error.into()])?;
        let mut mistakes = Mistakes::default();
        mistakes.take(check::whole(&config));
        let general = mistakes.take(authorities::general(config.trust.as_ref(), folder));
        let is_trust_missing = general.is_none();
        let mut trust = general.unwrap_or_default();
        let crls = authorities::crl_files(&config, folder);
        let mut connections: Vec<ResolvedConnection> = Vec::new();
        let mut sources: Vec<Source> = config.pool.iter().map(Source::of_pool).collect();
        for (index, connection) in (0..).zip(&config.connection) {
            let reader = Reader::new(connection, &config, folder, key_host);
            let Some(own) = mistakes.take(reader.own_trust()) else {
                continue;
            };
            if let Some(own) = own {
                trust.add(&connection.name, own);
            }
            let resolved = match reader.resolved(index, trust.of(&connection.name).map(Arc::as_ref))
            {
                Ok(resolved) => resolved,
                Err(found) => {
                    mistakes.extend(found);
                    continue;
                }
            };
            if connections
                .iter()
                .any(|other| other.name() == resolved.name())
            {
                let place = format!("connection {:?}", connection.name);
                mistakes.take::<()>(Err(wrong(place, "there are two of this name")));
            }
            sources.extend(resolved.source(connection));
            connections.push(resolved);
        }
        // Which connection is whose, is known of all or of none.
        if connections.len() == config.connection.len() {
            mistakes.take(peer_id::check_unambiguous(&connections, &config.connection));
        }
        // Two peers with one address could read each other's packets, so it is refused here and not at run time.
        if let Some(overlap) = overlap(&sources) {
            mistakes.take::<()>(Err(wrong("the file", overlap.to_string())));
        }
        if is_trust_missing {
            mistakes = mistakes.without_missing_trust();
        }
        let mut loaded = Self {
            config,
            trust,
            crls,
            credential_files: Vec::new(),
            connections,
            key_host: key_host.clone(),
            central: None,
            ocsp_transport: None,
        };
        loaded.name_credential_files(folder);
        mistakes.or(Some(loaded))
    }

    /// Whether some child is in transport mode.
    pub(super) fn has_transport(&self) -> bool {
        self.connections
            .iter()
            .any(|resolved| resolved.hosts.is_some())
    }

    /// Returns the settings that cannot change while the daemon runs.
    pub fn startup_only(&self) -> StartupConfig {
        let InterfaceConfig {
            name,
            addresses,
            routes,
            mtu,
            offload,
            workers,
        } = &self.config.interface;
        StartupConfig {
            interface: format!("{name} {addresses:?} {routes:?} {mtu:?} {offload} {workers}"),
            path: self.config.path.clone(),
            status: self.config.status.clone(),
            transport: self.has_transport(),
            backend: self.config.backend,
            tcp: self.config.uses_tcp(),
            crash_secret: self.config.crash_secret.clone(),
            session_tickets: self.config.session_tickets.clone(),
            accelerator: self.config.accelerator.clone(),
        }
    }
}

struct Reader<'a> {
    config: &'a ConnectionConfig,
    all: &'a DaemonConfig,
    folder: &'a Path,
    key_host: &'a KeyHost,
    place: String,
    seen: Context,
    shown: Context,
}

impl<'a> Reader<'a> {
    fn new(
        config: &'a ConnectionConfig,
        all: &'a DaemonConfig,
        folder: &'a Path,
        key_host: &'a KeyHost,
    ) -> Self {
        let mut seen = Context::new(&SHA256);
        // Names of files, not secrets: these are read later.
        seen.update(format!("{config:?}").as_bytes());
        Self {
            config,
            all,
            folder,
            key_host,
            place: format!("connection {:?}", config.name),
            seen,
            shown: Context::new(&SHA256),
        }
    }

    fn wrong(&self, what: impl Into<String>) -> ResolveError {
        wrong(self.place.clone(), what)
    }

    fn resolved(
        mut self,
        index: u32,
        trust: Option<&Trust>,
    ) -> Result<ResolvedConnection, Vec<ResolveError>> {
        let config = self.config;
        let mut mistakes = Mistakes::default();
        let fits = mistakes.take(self.check()).is_some();
        let remote_id = mistakes.take(self.remote_id());
        let place = self.place.clone();
        let id = |text: &String| identity::parse_own(text).map_err(|what| wrong(&*place, what));
        let named = mistakes.take(config.local_id.as_ref().map(id).transpose());
        // Settings that do not go together would be complained about in other words.
        let proofs = match remote_id.as_ref().filter(|_| fits) {
            Some(PeerId::Exactly(peer)) => mistakes.take(self.proofs(trust, Some(peer))),
            Some(PeerId::Matching(_) | PeerId::Any) => mistakes.take(self.proofs(trust, None)),
            None => None,
        };
        let ppk = mistakes.take(self.ppk());
        let local_id = match (named, &proofs) {
            (Some(named), Some(proofs)) => mistakes.take(self.local_id(named, &proofs.own)),
            _ => None,
        };
        let mut ike = Vec::new();
        for proposal in &config.ike {
            let made = proposal.proposal();
            ike.extend(mistakes.take(made.map_err(|what| self.wrong(format!("ike: {what}")))));
        }
        if config.ike.is_empty() {
            ike = usual_ike();
        }
        let mut children = Vec::new();
        let mut connections = Vec::new();
        for (at, _) in config.child.iter().enumerate() {
            if let Some((child, resolved)) = mistakes.take(self.child(index, at)) {
                children.push(child);
                connections.push(resolved);
            }
        }
        let all = remote_id.zip(proofs).zip(ppk.zip(local_id));
        let ((remote_id, proofs), (ppk, local_id)) = mistakes.or(all)?;
        let addresses = match (config.request.as_slice(), &config.pool) {
            ([], None) => Addresses::None,
            ([], Some(_)) => Addresses::Assign,
            (families, _) => Addresses::Request {
                v4: families.contains(&Family::Ipv4),
                v6: families.contains(&Family::Ipv6),
            },
        };
        let connection = Connection {
            name: config.name.clone(),
            remote_address: config.remote,
            local_id,
            remote_id,
            local_auth: proofs.local,
            remote_auth: proofs.remote,
            ppk,
            // Without UDP the addresses are in the packets, so a new one takes a new tunnel.
            mobility: config.mobike && self.all.path.encapsulation == Carrier::Udp,
            further_addresses: config.further_addresses.clone(),
            addresses,
            ike,
            children,
            rekey_after: Some(config.lifetime),
            liveness: Some(config.liveness).filter(|silence| !silence.is_zero()),
            retransmission: config.retransmission.map(RetransmissionConfig::times),
            unique: match config.unique {
                UniqueConfig::Replace => Unique::Replace,
                UniqueConfig::Keep => Unique::Keep,
                UniqueConfig::Never => Unique::Never,
            },
        };
        let allowance = Allowance::new(config, &connection, proofs.realm);
        let allowance = allowance.map_err(|what| vec![self.wrong(what)])?;
        // Renewed certificates are of the same holder: who we are follows from the first.
        self.seen
            .update(identity::show(&connection.local_id).as_bytes());
        Ok(ResolvedConnection {
            connection,
            allowance,
            requirement: proofs.requirement,
            remote: config.remote,
            start: config.start,
            transport: config.transport,
            tcp_port: config.tcp_port.get(),
            fallback_after: config.fallback_after,
            keys: proofs.keys,
            key_handle: proofs.key_handle,
            users: proofs.users,
            pool: config.pool.clone(),
            hosts: config.hosts(self.all.path.listen),
            children: connections,
            own: proofs.own.iter().map(OwnCertificate::of).collect(),
            fingerprint: sum(self.seen),
            credentials: sum(self.shown),
        })
    }

    /// Returns who we are: by the file, our first certificate or our login.
    fn local_id(
        &self,
        named: Option<Identification>,
        own: &[Certificate],
    ) -> Result<Identification, ResolveError> {
        let config = self.config;
        let local_id = match (named, own.first()) {
            // The subject as the certificate has it: not every peer compares names without regard to encodings.
            (Some(id), Some(own)) => match identity::of_subject(own) {
                Some(subject) if subject.is_same(&id) => subject,
                _ => id,
            },
            (Some(id), None) => id,
            (None, Some(own)) => identity::of_subject(own).ok_or_else(|| {
                self.wrong("our certificate's subject is no identity: name a `local_id`")
            })?,
            (None, None) => match &config.login {
                Some(login) => identity::parse_own(&login.name).map_err(|what| self.wrong(what))?,
                None => return Err(self.wrong("a shared secret needs `local_id`")),
            },
        };
        // EAP proves another name than that.
        let speaks = |own| identity::speaks_for(own, &local_id);
        // A peer would refuse it, with words that do not reach this operator.
        if config.login.is_none() && !own.iter().all(speaks) {
            let shown = identity::show(&local_id);
            return Err(self.wrong(format!("our certificate does not say that we are {shown}")));
        }
        Ok(local_id)
    }

    /// The networks of the connection's pool.
    fn pool_networks(&self) -> Vec<Prefix> {
        let mut pools = self.all.pool.iter();
        let pool = pools.find(|pool| Some(&pool.name) == self.config.pool.as_ref());
        pool.map(|pool| pool.addresses.clone()).unwrap_or_default()
    }

    fn child(&self, index: u32, at: usize) -> Result<(ChildConfig, ResolvedChild), ResolveError> {
        let config = &self.config;
        let child = config.child.get(at).ok_or_else(|| self.wrong("children"))?;
        let wrong = |what: &str| self.wrong(format!("child {:?}: {what}", child.name));
        if child.name.is_empty() || config.child.iter().filter(|c| c.name == child.name).count() > 1
        {
            return Err(wrong("each needs a name of its own"));
        }
        if child.lifetime < Duration::from_secs(1) {
            return Err(wrong("`lifetime` is below one second"));
        }
        let everything = |v4: bool, v6: bool| {
            let networks = [(v4, "0.0.0.0/0"), (v6, "::/0")];
            let networks = networks.into_iter().filter(|(wanted, _)| *wanted);
            networks
                .filter_map(|(_, text)| text.parse::<Prefix>().ok())
                .collect()
        };
        let (v4, v6) = (
            config.request.contains(&Family::Ipv4),
            config.request.contains(&Family::Ipv6),
        );
        let hosts = match (child.mode, config.hosts(self.all.path.listen)) {
            (ModeConfig::Tunnel, _) => None,
            (ModeConfig::Transport, Some(hosts)) => Some(hosts),
            (ModeConfig::Transport, None) => {
                return Err(wrong(
                    "transport mode is between two hosts: it needs `remote`, and `listen` of [path]",
                ));
            }
        };
        if hosts.is_some() && !(child.local.is_empty() && child.remote.is_empty()) {
            return Err(wrong(
                "transport mode is between the two hosts themselves: no `local`, no `remote`",
            ));
        }
        let local: Vec<Prefix> = match child.local.as_slice() {
            [] if let Some((ours, _)) = hosts => vec![Prefix::host(ours)],
            [] if !config.request.is_empty() => everything(v4, v6),
            [] => return Err(wrong("`local` is missing")),
            networks => networks.to_vec(),
        };
        let remote: Vec<Prefix> = match child.remote.as_slice() {
            [] if let Some((_, theirs)) = hosts => vec![Prefix::host(theirs)],
            [] if config.pool.is_some() => self.pool_networks(),
            [] => return Err(wrong("`remote` is missing")),
            networks => networks.to_vec(),
        };
        // A route to a network has no bits of a host; `cordon vpn ping` reads them in the file.
        let masked = |network: Prefix| Prefix {
            address: network.range().first(),
            bits: network.bits,
        };
        let remote: Vec<Prefix> = remote.into_iter().map(masked).collect();
        let inside = |peer: IpAddr| remote.iter().any(|network| network.range().contains(peer));
        let outer = config.remote.filter(|_| hosts.is_none());
        if config.start != Start::None && outer.is_some_and(inside) {
            return Err(wrong(
                "`remote` contains the peer's own address: what carries the tunnel would go into it",
            ));
        }
        let esp = child.esp.iter().map(|proposal| {
            let made = proposal.proposal();
            made.map_err(|what| wrong(&format!("esp: {what}")))
        });
        let mut esp = esp.collect::<Result<Vec<_>, _>>()?;
        if esp.is_empty() {
            esp = usual_esp();
        }
        let traffic = |networks: &[Prefix]| -> Vec<TrafficSelector> {
            let all = networks.iter();
            all.filter_map(|network| traffic_selector(network, child.protocol))
                .collect()
        };
        // Child SAs of one connection lie side by side, in the order of the file (RFC 4301 §4.4.1).
        let order = index
            .saturating_mul(u32::try_from(CHILDREN).unwrap_or(64))
            .saturating_add(u32::try_from(at).unwrap_or(0));
        // Two hosts have rules instead.
        let static_routes = config.start != Start::None && hosts.is_none();
        let made = ChildConfig {
            name: child.name.clone(),
            mode: match child.mode {
                ModeConfig::Tunnel => Mode::Tunnel,
                ModeConfig::Transport => Mode::Transport,
            },
            local: traffic(&local),
            remote: traffic(&remote),
            esp,
            rekey_after: Some(child.lifetime),
        };
        let resolved = ResolvedChild {
            name: child.name.clone(),
            order,
            selectors: selectors(&made.local, &made.remote),
            routes: if static_routes { remote } else { Vec::new() },
            lifetime: child.lifetime,
            tfc_padding: child.tfc_padding.size(),
        };
        Ok((made, resolved))
    }
}

#[cfg(test)]
mod tests;
