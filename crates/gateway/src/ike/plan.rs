//! From the file to what the protocol half works with: secrets, certificates, proposals, selectors.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use ikev2::config::{Addresses, Credential, LocalAuth, Mode, PeerId, Psk, RemoteAuth};
use ikev2::wire::TrafficSelector;
use ikev2::{ChildConfig, Connection};
use ipsec::selector::{AddressRange, Selector};
use pki::PrivateKey;
use pki::cert::CertificateChain;
use x509_cert::Certificate;
use zeroize::Zeroizing;

use super::config::{
    ConnectionConfig, DaemonConfig, Family, OuterConfig, Start, usual_esp, usual_ike,
};
use super::identity;
use super::signer::SigningKey;
use super::trust::Trust;
use crate::config::{InterfaceConfig, Prefix};

/// Children of one connection at most; their places among the policies lie side by side.
const CHILDREN: usize = 64;
/// Bytes of a shared secret at least: shorter ones are guessed from one recorded handshake.
const SECRET_MIN: usize = 12;
/// Bytes of a file with a secret at most.
const SECRET_MAX: u64 = 16 * 1024;

/// Why a configuration cannot be used: where, and what.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not what the file should be; says where.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A part of it is wrong.
    #[error("{place}: {what}")]
    Wrong {
        /// Which part.
        place: String,
        /// What is wrong.
        what: String,
    },
}

fn wrong(place: impl Into<String>, what: impl Into<String>) -> PlanError {
    PlanError::Wrong {
        place: place.into(),
        what: what.into(),
    }
}

/// A child as the rest of the daemon knows it.
#[derive(Clone, Debug)]
pub(super) struct ChildPlan {
    pub(super) name: String,
    /// Place among the policies.
    pub(super) order: u32,
    /// What it would protect if the peer agreed to all of it.
    pub(super) selectors: Vec<Selector>,
    /// What is routed into the tunnel whether it is up or not, so that nothing goes in the clear.
    pub(super) routes: Vec<Prefix>,
    pub(super) lifetime: Duration,
}

/// A connection with everything that belongs to it.
pub(super) struct Plan {
    pub(super) connection: Connection,
    pub(super) remote: Option<IpAddr>,
    pub(super) start: Start,
    pub(super) key: Option<SigningKey>,
    pub(super) pool: Option<String>,
    pub(super) children: Vec<ChildPlan>,
    /// Changes when anything in the file or in the files that it names changes.
    pub(super) fingerprint: [u8; SHA256_OUTPUT_LEN],
}

impl Plan {
    pub(super) fn name(&self) -> &str {
        &self.connection.name
    }

    pub(super) fn child(&self, name: &str) -> Option<&ChildPlan> {
        self.children.iter().find(|child| child.name == name)
    }
}

/// A configuration with everything that it names.
pub struct Loaded {
    /// The file.
    pub config: DaemonConfig,
    pub(super) trust: Option<Trust>,
    pub(super) crls: Vec<PathBuf>,
    pub(super) plans: Vec<Plan>,
}

/// What cannot change while the daemon runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    interface: String,
    path: OuterConfig,
    status: PathBuf,
}

impl Loaded {
    /// Reads a configuration and the files that it names; these lie beside it unless their names are
    /// absolute.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn read(text: &str, folder: &Path) -> Result<Self, PlanError> {
        let config: DaemonConfig = toml::from_str(text)?;
        let debug = config.debug.check(&config.interface);
        debug.map_err(|error| wrong("[debug]", error.to_string()))?;
        let trust = match &config.trust {
            Some(trust) => {
                let read = |files: &[PathBuf]| certificates(files, folder);
                let (anchors, others) = (read(&trust.anchors)?, read(&trust.intermediates)?);
                if anchors.is_empty() {
                    return Err(wrong("[trust]", "`anchors` has no certificate"));
                }
                let made = Trust::new(&anchors, &others, trust.require_crl);
                Some(made.map_err(|error| wrong("[trust]", error.to_string()))?)
            }
            None => None,
        };
        let crls = config.trust.iter().flat_map(|trust| &trust.crls);
        let crls = crls.map(|file| folder.join(file)).collect();
        let mut plans: Vec<Plan> = Vec::new();
        for (index, connection) in (0..).zip(&config.connection) {
            let plan = Reader::new(connection, &config, folder).plan(index, trust.as_ref())?;
            if plans.iter().any(|other| other.name() == plan.name()) {
                let place = format!("connection {:?}", connection.name);
                return Err(wrong(place, "there are two of this name"));
            }
            plans.push(plan);
        }
        Ok(Self {
            config,
            trust,
            crls,
            plans,
        })
    }

    /// What cannot change while the daemon runs.
    pub fn fixed(&self) -> Fixed {
        let InterfaceConfig {
            name,
            addresses,
            routes,
            mtu,
            offload,
            workers,
        } = &self.config.interface;
        Fixed {
            interface: format!("{name} {addresses:?} {routes:?} {mtu:?} {offload} {workers}"),
            path: self.config.path.clone(),
            status: self.config.status.clone(),
        }
    }
}

fn certificates(files: &[PathBuf], folder: &Path) -> Result<Vec<Certificate>, PlanError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(
            chain(&folder.join(file), "[trust]")?
                .certificates()
                .iter()
                .cloned(),
        );
    }
    Ok(all)
}

fn chain(file: &Path, place: &str) -> Result<CertificateChain, PlanError> {
    pki::file::load_chain(file).map_err(|error| wrong(place, causes(&error)))
}

/// An error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Reads one connection.
struct Reader<'a> {
    config: &'a ConnectionConfig,
    all: &'a DaemonConfig,
    folder: &'a Path,
    place: String,
    seen: Context,
}

impl<'a> Reader<'a> {
    fn new(config: &'a ConnectionConfig, all: &'a DaemonConfig, folder: &'a Path) -> Self {
        let mut seen = Context::new(&SHA256);
        // Names of files, not secrets: these are read later.
        seen.update(format!("{config:?}").as_bytes());
        Self {
            config,
            all,
            folder,
            place: format!("connection {:?}", config.name),
            seen,
        }
    }

    fn wrong(&self, what: impl Into<String>) -> PlanError {
        wrong(self.place.clone(), what)
    }

    fn plan(mut self, index: u32, trust: Option<&Trust>) -> Result<Plan, PlanError> {
        let config = self.config;
        self.check()?;
        let id = |text: &str| identity::parse(text).map_err(|what| self.wrong(what));
        let remote_id = match config.remote_id.as_str() {
            "any" if config.psk_file.is_some() => {
                return Err(self.wrong("remote_id = \"any\" is for certificates: name the peer"));
            }
            "any" => PeerId::Any,
            text => PeerId::Exactly(id(text)?),
        };
        let named = match &config.local_id {
            Some(text) => Some(id(text)?),
            None => None,
        };
        let (local_auth, remote_auth, own, key) = self.authentication(trust)?;
        let local_id = match (named, &own) {
            (Some(id), Some(own)) if !identity::speaks_for(own, &id) => {
                let shown = identity::show(&id);
                return Err(self.wrong(format!("our certificate does not say that we are {shown}")));
            }
            (Some(id), _) => id,
            (None, Some(own)) => identity::of_subject(own)
                .ok_or_else(|| self.wrong("our certificate's subject is unreadable"))?,
            (None, None) => return Err(self.wrong("a shared secret needs `local_id`")),
        };
        let ike = config.ike.iter().map(|proposal| {
            let made = proposal.proposal();
            made.map_err(|what| self.wrong(format!("ike: {what}")))
        });
        let mut ike = ike.collect::<Result<Vec<_>, _>>()?;
        if ike.is_empty() {
            ike = usual_ike();
        }
        let mut children = Vec::new();
        let mut plans = Vec::new();
        for (at, _) in config.child.iter().enumerate() {
            let (child, plan) = self.child(index, at)?;
            children.push(child);
            plans.push(plan);
        }
        let addresses = match (config.request.as_slice(), &config.pool) {
            ([], None) => Addresses::None,
            ([], Some(_)) => Addresses::Assign,
            (families, _) => Addresses::Request {
                v4: families.contains(&Family::Ipv4),
                v6: families.contains(&Family::Ipv6),
            },
        };
        let mut fingerprint = [0; SHA256_OUTPUT_LEN];
        fingerprint.copy_from_slice(self.seen.finish().as_ref());
        Ok(Plan {
            connection: Connection {
                name: config.name.clone(),
                remote_address: config.remote,
                local_id,
                remote_id,
                local_auth,
                remote_auth,
                ppk: None,
                mobility: config.mobike,
                further_addresses: vec![],
                addresses,
                ike,
                children,
                rekey_after: Some(config.lifetime),
                liveness: Some(config.liveness).filter(|silence| !silence.is_zero()),
            },
            remote: config.remote,
            start: config.start,
            key,
            pool: config.pool.clone(),
            children: plans,
            fingerprint,
        })
    }

    /// What does not go together.
    fn check(&self) -> Result<(), PlanError> {
        let config = self.config;
        let listen = self.all.path.listen;
        let pool = |name: &String| self.all.pool.iter().any(|pool| pool.name == *name);
        let starts = config.start != Start::None;
        let what = match config {
            _ if config.name.is_empty() => "it has no name",
            _ if config.child.is_empty() => "it has no [[connection.child]]",
            _ if config.child.len() > CHILDREN => "it has more than 64 children",
            _ if config.psk_file.is_some() == config.certificate.is_some() => {
                "either `psk_file` or `certificate` says how we authenticate"
            }
            _ if config.certificate.is_some() != config.key.is_some() => {
                "`certificate` and `key` go together"
            }
            _ if starts && config.remote.is_none() => "it can only be started with `remote`",
            _ if config
                .remote
                .is_some_and(|r| r.is_ipv4() != listen.is_ipv4()) =>
            {
                "`remote` is of another address family than `listen` of [path]"
            }
            _ if config.pool.is_some() && !config.request.is_empty() => {
                "`pool` gives addresses and `request` asks for them: not both"
            }
            _ if config.pool.is_some() && starts => {
                "`pool` is for peers that start the connection themselves"
            }
            _ if config.start == Start::Trap && !config.request.is_empty() => {
                "start = \"trap\" needs an address of our own, not `request`"
            }
            _ if config.pool.as_ref().is_some_and(|name| !pool(name)) => {
                "there is no [[pool]] of that name"
            }
            _ if config.lifetime < Duration::from_secs(1) => "`lifetime` is below one second",
            _ => return Ok(()),
        };
        Err(self.wrong(what))
    }

    /// Both sides' proofs, our certificate and our key.
    fn authentication(
        &mut self,
        trust: Option<&Trust>,
    ) -> Result<
        (
            LocalAuth,
            RemoteAuth,
            Option<Certificate>,
            Option<SigningKey>,
        ),
        PlanError,
    > {
        if let Some(file) = &self.config.psk_file {
            let secret = self.secret(file)?;
            if secret.len() < SECRET_MIN {
                return Err(self.wrong(format!(
                    "the secret in {} has less than {SECRET_MIN} bytes",
                    file.display()
                )));
            }
            let psk = Psk::new(&secret);
            return Ok((
                LocalAuth::Psk(psk.clone()),
                RemoteAuth::Psk(psk),
                None,
                None,
            ));
        }
        let (Some(certificate), Some(key)) = (&self.config.certificate, &self.config.key) else {
            return Err(self.wrong("`certificate` and `key` go together"));
        };
        let Some(trust) = trust else {
            return Err(self.wrong("certificates need [trust]: whose are believed?"));
        };
        let chain = chain(&self.folder.join(certificate), &self.place)?;
        chain.ders().iter().for_each(|der| self.seen.update(der));
        // Whoever was let in by an authority that is gone must come again.
        for authority in trust.key_hashes() {
            self.seen.update(&authority);
        }
        let key = SigningKey::new(self.key(key)?);
        let own = chain.leaf().clone();
        let public = der::Encode::to_der(&own.tbs_certificate.subject_public_key_info);
        if public.ok().as_deref() != Some(key.public()) {
            return Err(self.wrong("`key` is not the key of `certificate`"));
        }
        // The peer has its own copy of self-signed authorities and believes no other.
        let sent = chain.certificates().iter().zip(chain.ders());
        let sent = sent.filter(|(c, _)| c.tbs_certificate.subject != c.tbs_certificate.issuer);
        let local = LocalAuth::Certificates(vec![Credential {
            chain: sent.map(|(_, der)| der.to_vec()).collect(),
            key: key.kind(),
            authorities: vec![],
            ocsp: None,
        }]);
        let authorities = trust.key_hashes();
        let remote = RemoteAuth::Certificate {
            authorities,
            ocsp: false,
        };
        Ok((local, remote, Some(own), Some(key)))
    }

    /// The contents of a file that only its owner may read, without the line's end.
    fn secret(&mut self, file: &Path) -> Result<Zeroizing<Vec<u8>>, PlanError> {
        let path = self.folder.join(file);
        let failed = |error: std::io::Error| self.wrong(format!("{}: {error}", path.display()));
        let metadata = std::fs::metadata(&path).map_err(failed)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(self.wrong(format!(
                "{} is a secret and others may read it (mode {mode:03o}): chmod 600",
                path.display()
            )));
        }
        if metadata.len() > SECRET_MAX {
            return Err(self.wrong(format!("{} is too long", path.display())));
        }
        let mut bytes = std::fs::read(&path).map(Zeroizing::new).map_err(failed)?;
        while bytes
            .last()
            .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
        {
            bytes.pop();
        }
        self.seen.update(&bytes);
        Ok(bytes)
    }

    fn key(&mut self, file: &Path) -> Result<PrivateKey, PlanError> {
        let text = self.secret(file)?;
        let shown = file.display().to_string();
        let place = self.place.clone();
        let unusable =
            move |what: &dyn std::fmt::Display| wrong(place.clone(), format!("{shown}: {what}"));
        let text = std::str::from_utf8(&text).map_err(|error| unusable(&error))?;
        // A camera's identity has certificates in the same file.
        let text = pem_key(text).ok_or_else(|| unusable(&"there is no PKCS#8 key in it"))?;
        if text.contains("BEGIN ENCRYPTED PRIVATE KEY") {
            let Some(passphrase) = &self.config.passphrase_file else {
                return Err(unusable(
                    &"the key is encrypted: `passphrase_file` is missing",
                ));
            };
            let passphrase = self.secret(passphrase)?;
            return PrivateKey::from_encrypted_pem(text, &passphrase).map_err(|e| unusable(&e));
        }
        let (label, der) = der::pem::decode_vec(text.as_bytes()).map_err(|e| unusable(&e))?;
        let der = Zeroizing::new(der);
        if label != "PRIVATE KEY" {
            return Err(unusable(&"there is no PKCS#8 key in it"));
        }
        PrivateKey::from_pkcs8_der(&der).map_err(|error| unusable(&error))
    }

    fn child(&self, index: u32, at: usize) -> Result<(ChildConfig, ChildPlan), PlanError> {
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
        let local: Vec<Prefix> = match child.local.as_slice() {
            [] if !config.request.is_empty() => everything(v4, v6),
            [] => return Err(wrong("`local` is missing")),
            networks => networks.to_vec(),
        };
        let remote: Vec<Prefix> = match child.remote.as_slice() {
            [] if config.pool.is_some() => everything(true, true),
            [] => return Err(wrong("`remote` is missing")),
            networks => networks.to_vec(),
        };
        let inside = |peer: IpAddr| remote.iter().any(|network| network.range().contains(peer));
        if config.start != Start::None && config.remote.is_some_and(inside) {
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
        let order = index
            .saturating_mul(u32::try_from(CHILDREN).unwrap_or(64))
            .saturating_add(u32::try_from(at).unwrap_or(0));
        let static_routes = config.start != Start::None;
        let made = ChildConfig {
            name: child.name.clone(),
            mode: Mode::Tunnel,
            local: traffic(&local),
            remote: traffic(&remote),
            esp,
            rekey_after: Some(child.lifetime),
        };
        let plan = ChildPlan {
            name: child.name.clone(),
            order,
            selectors: selectors(&made.local, &made.remote),
            routes: if static_routes { remote } else { Vec::new() },
            lifetime: child.lifetime,
        };
        Ok((made, plan))
    }
}

/// The PKCS#8 key among the parts of a PEM file.
fn pem_key(text: &str) -> Option<&str> {
    ["PRIVATE KEY", "ENCRYPTED PRIVATE KEY"]
        .iter()
        .find_map(|label| {
            let (begin, end) = (
                format!("-----BEGIN {label}-----"),
                format!("-----END {label}-----"),
            );
            let rest = text.get(text.find(&begin)?..)?;
            rest.get(..rest.find(&end)?.checked_add(end.len())?)
        })
}

fn traffic_selector(network: &Prefix, protocol: Option<u8>) -> Option<TrafficSelector> {
    let all = TrafficSelector::network(network.address, network.bits)?;
    match protocol {
        None | Some(0) => Some(all),
        Some(protocol) => all.with_ports(protocol, 0, u16::MAX),
    }
}

/// Everything between two sides, as the data plane has it. Pairs that no packet can belong to are left
/// out: of two families, or of two protocols.
pub(super) fn selectors(local: &[TrafficSelector], remote: &[TrafficSelector]) -> Vec<Selector> {
    use ipsec::selector::PortMatch;
    let range = |selector: &TrafficSelector| {
        let (first, last) = selector.addresses();
        AddressRange::new(first, last).ok()
    };
    let ports = |selector: &TrafficSelector| match selector.ports() {
        (0, u16::MAX) => PortMatch::Any,
        (u16::MAX, 0) => PortMatch::Opaque,
        (first, last) => PortMatch::Range(first, last),
    };
    let pair = |ours: &TrafficSelector, theirs: &TrafficSelector| {
        let (ours_range, theirs_range) = (range(ours)?, range(theirs)?);
        let protocol = match (ours.protocol(), theirs.protocol()) {
            (0, any) | (any, 0) => any,
            (one, two) if one == two => one,
            _ => return None,
        };
        let same_family = ours_range.first().is_ipv4() == theirs_range.first().is_ipv4();
        same_family.then_some(Selector {
            protocol: (protocol != 0).then_some(protocol),
            local_ports: ports(ours),
            remote_ports: ports(theirs),
            ..Selector::between(ours_range, theirs_range)
        })
    };
    let all = local
        .iter()
        .flat_map(|ours| remote.iter().map(move |theirs| (ours, theirs)));
    all.filter_map(|(ours, theirs)| pair(ours, theirs))
        .collect()
}

#[cfg(test)]
mod tests;
