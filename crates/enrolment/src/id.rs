//! `cordon id`: a person's own key, and the certificate for it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use commandline::{Failure, OrHint as _, Outcome, print, read_text};
use http::StatusCode;
use pki::cert::{Certificate, CertificateChain};
use pki::key::KeyAlgorithm;
use pki::path::{Identity, TrustStore};
use pki::pkcs12::Protection;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use crate::est_client::EstClient;
use crate::folder::{Folder, INSTALLED, fingerprint, read_root};
use crate::invitation::{Invitation, is_code, normalised};

/// `cordon id …`.
#[derive(Debug, Subcommand)]
pub enum Id {
    /// Make a key on this computer, and get the certificate for it with the invitation of a registrar.
    ///
    /// The private key never leaves this computer. If the connection breaks, run the same command again: it uses the same
    /// key, and the site gives the same certificate.
    #[command(after_help = "Examples:
  cordon id enrol officer-9.invitation
  cordon id enrol officer-9.invitation --legacy          for Windows before 10 (1709), macOS and Android before 14
  cordon id enrol code.txt --uid officer-9 --site pki.example.org:8445 --root-fingerprint 3F:A2:…
The folder officer-9 then has officer-9.p12 for the browser, and its password in the file `password`.")]
    Enrol(Enrol),
    /// Make a key on this computer and a certification request for it, which a registrar or the founder of a site certifies.
    #[command(after_help = "Example:
  cordon id request --uid registrar-1
Hand registrar-1/request.pem over, and compare the fingerprint of the key with its receiver. With the certificate continue with `cordon id install`.")]
    Request(Request),
    /// Put a certificate beside its key, and write the file for the browser.
    #[command(after_help = "Example:
  cordon id install --uid registrar-1 --certificate registrar-1.pem --root root.pem --root-fingerprint 3F:A2:…
The founder or registrar gives the fingerprint of the root by another way than the file.")]
    Install(Install),
}

/// Whose key, and where it is.
#[derive(Debug, Args)]
pub(crate) struct Own {
    /// Folder for key and certificate; without it, one with the name of the user id.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// File with a password for the key and for the browser's file; without it, one is made.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Algorithm of the key, if there is none in the folder yet.
    #[arg(long, value_name = "NAME", default_value = "ecdsa-p256")]
    key_algorithm: KeyAlgorithm,
}

/// `cordon id enrol`.
#[derive(Debug, Args)]
pub struct Enrol {
    /// The file of the registrar: an invitation, or a code alone; `-` reads standard input.
    #[arg(value_name = "CODE")]
    code: PathBuf,
    #[command(flatten)]
    own: Own,
    /// User id, where the file has a code alone.
    #[arg(long, requires = "site")]
    uid: Option<String>,
    /// The site's enrolment listener, where the file has a code alone.
    #[arg(long, value_name = "HOST:PORT", requires = "uid")]
    site: Option<String>,
    /// The site's root certificate, where the file has a code alone.
    #[arg(long, value_name = "FILE", requires = "site")]
    root: Option<PathBuf>,
    /// SHA-256 fingerprint of the site's root certificate, where the file has a code alone.
    #[arg(long, value_name = "HEX", requires = "site", conflicts_with = "root")]
    root_fingerprint: Option<String>,
    /// Name in the listener's certificate, where that is not the host.
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Also write UID-legacy.p12 with Triple DES and SHA-1, for systems that read nothing else.
    #[arg(long)]
    legacy: bool,
}

/// `cordon id request`.
#[derive(Debug, Args)]
pub struct Request {
    /// User id that the certificate will have.
    #[arg(long)]
    uid: String,
    #[command(flatten)]
    own: Own,
}

/// `cordon id install`.
#[derive(Debug, Args)]
pub struct Install {
    /// User id of the certificate.
    #[arg(long)]
    uid: String,
    #[command(flatten)]
    own: Own,
    /// The certificate and its issuer (PEM).
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// The site's root certificate (PEM).
    #[arg(long, value_name = "FILE")]
    root: PathBuf,
    /// SHA-256 fingerprint that the root certificate must have, from the founder or registrar by another way.
    #[arg(long, value_name = "HEX")]
    root_fingerprint: Option<String>,
    /// Also write UID-legacy.p12 with Triple DES and SHA-1, for systems that read nothing else.
    #[arg(long)]
    legacy: bool,
}

/// Carries a command out.
///
/// # Errors
/// A failure with its next step.
pub async fn run(command: Id, json: bool) -> Outcome {
    match command {
        Id::Enrol(args) => enrol(args, json).await,
        Id::Request(args) => request(&args, json).await,
        Id::Install(args) => install(&args, json).await,
    }
}

impl Own {
    async fn open(&self, uid: &str) -> Outcome<(Folder, PathBuf)> {
        if !pki::name::is_user_id(uid) {
            let hint = "use the user id that the registrar gave";
            return Err(Failure::usage(format!("{uid:?} is not a user id"), hint));
        }
        let path = self.out.clone().unwrap_or_else(|| PathBuf::from(uid));
        let (out, uid, password) = (path.clone(), uid.to_owned(), self.password_file.clone());
        let algorithm = self.key_algorithm;
        // Deriving the key's key takes a good part of a second.
        let opened = tokio::task::spawn_blocking(move || {
            Folder::open(&out, &uid, password.as_deref(), algorithm)
        });
        let folder = opened.await.or_hint("cannot make a key", "try again")??;
        match folder.resumed {
            true => tracing::info!(folder = %path.display(), "using the key of the folder"),
            false => tracing::info!(folder = %path.display(), "made the key"),
        }
        Ok((folder, path))
    }
}

async fn enrol(args: Enrol, json: bool) -> Outcome {
    let invitation = invitation(&args)?;
    let (folder, path) = args.own.open(&invitation.uid).await?;
    let now = OffsetDateTime::now_utc();
    let client = EstClient::new(&invitation.site, args.server_name.as_deref())?;
    let root = match folder.root(&invitation.root_sha256)? {
        Some(root) => root,
        None => {
            let given = args.root.as_deref().map(read_root).transpose()?;
            let root = match given {
                Some(root) => root,
                None => fetch_root(&client, &invitation).await?,
            };
            folder.write_root(&root)?;
            root
        }
    };
    let chain = match folder.certificate(&invitation)? {
        Some(chain) => chain,
        None => certify(&client, &invitation, &folder, &root).await?,
    };
    let certified = (&chain, invitation.origin());
    finish(&folder, &path, certified, (&root, now), args.legacy, json)
}

/// The invitation of the file, or of a code with options beside it.
fn invitation(args: &Enrol) -> Outcome<Invitation> {
    const HINT: &str = "an invitation that has everything is made by `cordon registry invite --complete`; a code alone needs \
                        --uid, --site, and --root-fingerprint or --root";
    let text = read_text(&args.code)?;
    if let Some(invitation) = Invitation::read(&text)? {
        if args.uid.is_some() {
            let what = "the file says itself for whom and where it is: --uid, --site and --root do not go with it";
            return Err(Failure::usage(what, "leave these options out"));
        }
        return Ok(invitation);
    }
    let code = Zeroizing::new(text.trim().to_owned());
    let (Some(uid), Some(site)) = (&args.uid, &args.site) else {
        return Err(Failure::usage("the file has a code alone", HINT));
    };
    let fingerprint = match (&args.root_fingerprint, &args.root) {
        (Some(fingerprint), _) => normalised(fingerprint),
        (None, Some(root)) => fingerprint(&read_root(root)?)?,
        (None, None) => return Err(Failure::usage("nothing names the site's root", HINT)),
    };
    debug_assert!(is_code(&code));
    Invitation::new(uid, site, &fingerprint, code)
}

/// The site's root, by its fingerprint, over a connection that proves nothing (RFC 7030, section 4.1.1).
async fn fetch_root(client: &EstClient, invitation: &Invitation) -> Outcome<Certificate> {
    let mut connection = client.connect_provisionally().await?;
    let authorities = connection.authorities().await;
    let authorities = authorities.map_err(|error| error.into_failure(refused))?;
    for authority in authorities {
        if fingerprint(&authority)? == invitation.root_sha256 {
            tracing::info!(
                fingerprint = invitation.root_sha256,
                "verified the site's root"
            );
            return Ok(authority);
        }
    }
    let what = anyhow::anyhow!(
        "{} does not have the root with fingerprint {}",
        invitation.site,
        invitation.root_sha256
    );
    let hint =
        "somebody else may answer in the place of the site: tell the registrar, and do not go on";
    Err(Failure::new(what, hint))
}

/// Asks the site for the certificate.
async fn certify(
    client: &EstClient,
    invitation: &Invitation,
    folder: &Folder,
    root: &Certificate,
) -> Outcome<CertificateChain> {
    let trust = TrustStore::new(std::slice::from_ref(root), &[]);
    let trust = trust.or_hint("the site's root", "ask the registrar for the right one")?;
    let mut connection = client.connect(&trust, None).await?;
    let authorities = connection.authorities().await;
    let authorities = authorities.map_err(|error| error.into_failure(refused))?;
    tracing::info!(
        uid = invitation.uid,
        site = invitation.site,
        "asking for the certificate"
    );
    let request = folder.request()?;
    let issued = connection.enrol(&invitation.uid, &invitation.code, &request);
    let issued = issued.await.map_err(|error| error.into_failure(refused))?;
    let hint = "tell the registrar";
    let chain = CertificateChain::of_issued(&folder.key.spki(), issued, &authorities);
    let chain = chain.or_hint("the site's answer", hint)?;
    chain.ok_or_else(|| Failure::new(anyhow::anyhow!("no certificate for this key"), hint))
}

/// Next step when the site refuses.
fn refused(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => {
            "the code is wrong, was used, or is over: ask the registrar for a new invitation. If you did not use it, say so: \
             another person may have enrolled as you"
        }
        StatusCode::FORBIDDEN => {
            "the site accepts the code and refuses the person: ask the registrar"
        }
        StatusCode::TOO_MANY_REQUESTS => "wait ten minutes, then run the same command again",
        StatusCode::BAD_REQUEST => {
            "the site refuses the key: try again with another folder (--out)"
        }
        _ => "run the same command again, it uses the same key; or see the site's log",
    }
}

async fn request(args: &Request, json: bool) -> Outcome {
    let (folder, path) = args.own.open(&args.uid).await?;
    let file = folder.write_request()?;
    let key = pki::cert::fingerprint_sha256(folder.key.public_spki_der());
    let value = json!({
        "uid": args.uid, "folder": path, "request": file, "password_file": folder.password_file,
        "key_sha256": key, "resumed": folder.resumed,
    });
    let text = format!(
        "wrote {}: hand it over; the key stays in {}\nfingerprint of the key, for comparison: {key}{}",
        file.display(),
        path.display(),
        resumed(&folder),
    );
    print(json, &value, &text)
}

async fn install(args: &Install, json: bool) -> Outcome {
    let path = args.own.out.clone();
    let path = path.unwrap_or_else(|| PathBuf::from(&args.uid));
    if !commandline::is_there(&path.join("key.pem"))? {
        let what = anyhow::anyhow!("there is no key in {}", path.display());
        let hint = "name the folder of `cordon id request` with --out";
        return Err(Failure::new(what, hint));
    }
    let root = read_root(&args.root)?;
    if let Some(wanted) = &args.root_fingerprint {
        check_root(&root, wanted)?;
    }
    let (folder, path) = args.own.open(&args.uid).await?;
    let chain = pki::file::load_chain(&args.certificate);
    let chain = chain.or_hint("the certificate", "name the file that you were given")?;
    let at = (&root, OffsetDateTime::now_utc());
    let certified = (&chain, INSTALLED.to_owned());
    finish(&folder, &path, certified, at, args.legacy, json)?;
    folder.write_root(&root)
}

/// Checks the fingerprint of the root that the person received by another way.
fn check_root(root: &Certificate, wanted: &str) -> Outcome {
    let found = fingerprint(root)?;
    if found == normalised(wanted) {
        return Ok(());
    }
    let what = anyhow::anyhow!("the root has the fingerprint {found}, not {wanted}");
    let hint = "do not install it: another person may have exchanged the files; ask the registrar";
    Err(Failure::new(what, hint))
}

/// Says in an answer that the key is not of this run.
const fn resumed(folder: &Folder) -> &'static str {
    match folder.resumed {
        true => "\nresumed: the key was in the folder before",
        false => "",
    }
}

/// Checks and writes the certificate and the file for the browser, and prints what there is.
fn finish(
    folder: &Folder,
    path: &Path,
    (chain, origin): (&CertificateChain, String),
    (root, now): (&Certificate, OffsetDateTime),
    legacy: bool,
    json: bool,
) -> Outcome {
    let identity: Identity = folder.install(chain, &origin, root, now)?;
    let p12 = folder.write_pkcs12(chain, Protection::Modern)?;
    let old = match legacy {
        true => Some(folder.write_pkcs12(chain, Protection::Legacy)?),
        false => None,
    };
    let until = identity.not_after.format(&Rfc3339).unwrap_or_default();
    let root = fingerprint(root)?;
    let value = json!({
        "uid": identity.uid, "serial": identity.serial_hex, "not_after": until, "folder": path,
        "certificate": path.join("certificate.pem"), "root": path.join("root.pem"), "root_sha256": root,
        "pkcs12": p12, "legacy_pkcs12": old, "password_file": folder.password_file, "resumed": folder.resumed,
    });
    let mut text = format!(
        "{} is certified until {until}\nroot of the site: {root}\n{}  import this into the browser\n",
        identity.uid.as_deref().unwrap_or_default(),
        p12.display(),
    );
    if let Some(old) = old {
        text.push_str(&format!("{}  the same for old systems\n", old.display()));
    }
    let password_file = folder.password_file.display();
    text.push_str(&format!("{password_file}  its password{}", resumed(folder)));
    print(json, &value, &text)
}
