//! Administration of a site, whether it runs or not.
//!
//! A command such as `cordon pki revoke` looks for the running site's control socket and sends its
//! request there, so that it takes effect at once; without a running site it opens the data folder
//! itself. Both ways end in [`execute`]. The socket is a file of the data folder, which only its
//! owner can enter: who can connect could read the keys as well.

use std::path::Path;
use std::sync::Arc;

use audit::Actor;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use registry::{HolderChange, RegistryError, Revoked};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::administrator::{self, Caller, Challenge, Hello, Person, Signed};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::giver::Giver;
use crate::issuing::{Announced, Hosts};
use crate::orders::Holder;
use crate::owner::AsOwner;
use crate::parts::Site;
use crate::parts::centre_parts::CentreParts;
use crate::registration::{self, direct, profiles};
use crate::{administration, authorities, authority_texts, issuing, roles, service_orders};
use commandline::SiteArgs;

mod centre;
mod issue_user;
mod journal;
mod request;

use centre::Carried;
pub use issue_user::rfc3339;
use issue_user::{hint, issue_user};

pub use journal::{GATEWAY_ROLE, as_values, send_journal, take_over};
use request::{Answer, MAX_MESSAGE};
pub use request::{Change, Question, Request, Whose};

/// Requests under way at once; more wait for their turn in the kernel. Orders for certificates share the syncs of the disk
/// with those that are under way beside them.
const AT_ONCE: usize = 64;
/// Longest time that a request or its answer takes on its way: who stops in the middle gives up the place.
const ON_ITS_WAY: std::time::Duration = std::time::Duration::from_secs(30);
/// Pause after a failed accept: without descriptors the next one fails at once, too.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Carries `request` out, by the running site or by opening the folder.
pub async fn ask(args: &SiteArgs, request: Request) -> Outcome<Value> {
    let socket = Site::control_socket(&args.data);
    match UnixStream::connect(&socket).await {
        Ok(stream) => over_socket(stream, &request, Person::of(args)?.as_ref()).await,
        // No socket, or one that a killed site left behind.
        Err(_) => {
            // The person's files and the output belong to the user who gives the command.
            let person = Person::of(args)?;
            let _owner = AsOwner::of(&args.data)?;
            let database = args.data.join("registry.sqlite");
            let there = database.try_exists();
            if !there.or_hint(
                "cannot look into the data folder",
                "check its rights and its disk",
            )? {
                return Err(Failure::new(
                    anyhow::anyhow!("{} is no site's data folder", args.data.display()),
                    "name the folder that `cordon up --data` uses",
                ));
            }
            let site = Site::open(args).await?;
            let outcome = offline(&site, request, person.as_ref()).await;
            site.close().await;
            outcome
        }
    }
}

/// Asks the running site, and never opens its folder.
pub async fn ask_running(data: &Path, request: &Request) -> Outcome<Value> {
    let stream = UnixStream::connect(Site::control_socket(data)).await;
    let stream = stream.or_hint("the site does not run", "start it, or look into its log")?;
    over_socket(stream, request, None).await
}

/// Carries a request out without a running site; the same is demanded as there.
async fn offline(site: &Site, request: Request, person: Option<&Person>) -> Outcome<Value> {
    let unix = crate::console::this_process();
    let signed = match person {
        Some(person) => {
            let challenge = Challenge::new()?;
            let text = serde_json::to_string(&request).or_hint("request", "report this")?;
            let signed = challenge.sign(Zeroizing::new(text), person)?;
            Some((challenge, signed))
        }
        None => None,
    };
    let caller = Caller {
        unix,
        proof: signed
            .as_ref()
            .map(|(challenge, signed)| (challenge, signed)),
        offline: true,
    };
    let who = administrator::admit(site, &request, caller).await?;
    execute(site, request, &who).await
}

async fn over_socket(
    stream: UnixStream,
    request: &Request,
    person: Option<&Person>,
) -> Outcome<Value> {
    const HINT: &str = "see the log of the running site";
    let text = Zeroizing::new(serde_json::to_string(request).or_hint("request", HINT)?);
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read.take(MAX_MESSAGE));
    let mut line = match person {
        None => Zeroizing::new(text.as_bytes().to_vec()),
        Some(person) => administrator::authenticate(&mut read, &mut write, text, person).await?,
    };
    line.push(b'\n');
    write
        .write_all(&line)
        .await
        .or_hint("cannot reach the running site", HINT)?;
    let mut answer = Vec::new();
    let read = read.read_to_end(&mut answer).await;
    read.or_hint("cannot reach the running site", HINT)?;
    match serde_json::from_slice(&answer).or_hint("the running site gave no answer", HINT)? {
        Answer::Done(value) => Ok(value),
        Answer::Failed { message, hint } => Err(Failure::new(anyhow::anyhow!("{message}"), hint)),
    }
}

/// Opens the control socket: before the host says that it runs, as commands may follow at once.
pub(crate) fn listen(data: &Path) -> Outcome<UnixListener> {
    let path = Site::control_socket(data);
    // The audit log's lock has shown that no other site runs here: a socket is a leftover.
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(&path).or_hint(
        format!("cannot listen on {}", path.display()),
        "choose a shorter data path",
    )
}

/// Answers requests on the control socket until `stop`.
pub(crate) async fn serve(
    office: Office,
    listener: UnixListener,
    stop: CancellationToken,
) -> Outcome {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control request");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let office = office.clone();
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = answer(&office, stream).await {
                tracing::warn!(%error, "a control request broke off");
            }
        });
    }
    let _ = std::fs::remove_file(Site::control_socket(&office.parts().data));
    Ok(())
}

async fn answer(office: &Office, stream: UnixStream) -> std::io::Result<()> {
    // Before anything is read: an order of an unknown user is not carried out.
    let unix = crate::console::peer(&stream.peer_cred()?);
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read.take(MAX_MESSAGE));
    let mut line = Zeroizing::new(Vec::new());
    timeout(ON_ITS_WAY, read.read_until(b'\n', &mut line)).await??;
    let mut challenge = None;
    if serde_json::from_slice::<Hello>(&line).is_ok()
        && let Ok(new) = Challenge::new()
    {
        let mut text = serde_json::to_vec(&new)?;
        text.push(b'\n');
        write.write_all(&text).await?;
        line.clear();
        timeout(administrator::PATIENCE, read.read_until(b'\n', &mut line)).await??;
        challenge = Some(new);
    }
    let outcome = carry_out(office, &line, unix, challenge).await;
    let answer = match outcome {
        Ok(value) => Answer::Done(value),
        Err(failure) => Answer::Failed {
            message: failure.message(),
            hint: failure.hint().to_owned(),
        },
    };
    timeout(ON_ITS_WAY, async {
        write.write_all(&serde_json::to_vec(&answer)?).await?;
        write.shutdown().await
    })
    .await?
}

async fn carry_out(
    office: &Office,
    line: &[u8],
    unix: Actor,
    challenge: Option<Challenge>,
) -> Outcome<Value> {
    const HINT: &str = "use the same version of cordon";
    let signed: Option<Signed> = match &challenge {
        Some(_) => Some(serde_json::from_slice(line).or_hint("request", HINT)?),
        None => None,
    };
    let text = signed
        .as_ref()
        .map_or(line, |signed| signed.request.as_bytes());
    let request: Request = serde_json::from_slice(text).or_hint("request", HINT)?;
    let caller = Caller {
        unix,
        proof: challenge.as_ref().zip(signed.as_ref()),
        offline: false,
    };
    let who = administrator::admit_to(&office.parts(), &request, caller).await?;
    office.execute(request, &who).await
}

/// The roles that carry orders out on this host.
#[derive(Clone)]
pub(crate) enum Office {
    /// A whole site.
    Whole(Box<Site>),
    /// Centre and portal.
    Centre(Box<CentreParts>, issuing::Remote),
}

impl Office {
    fn parts(&self) -> CentreParts {
        match self {
            Self::Whole(site) => site.centre_parts(),
            Self::Centre(parts, _) => (**parts).clone(),
        }
    }

    async fn execute(&self, request: Request, giver: &Giver) -> Outcome<Value> {
        match self {
            Self::Whole(site) => execute(site, request, giver).await,
            Self::Centre(parts, issuing) => {
                let now = OffsetDateTime::now_utc();
                if let Request::Status = request {
                    centre::look_for_silence(parts, now).await?;
                    let mut health = issuing.health();
                    health.extend(roles::centre::health(&parts.centre, &parts.disk(), now).await);
                    return Ok(centre::status(&health, &Value::Null));
                }
                match centre::execute(parts, request, giver).await? {
                    Carried::Out(value) => Ok(value),
                    Carried::Not(_) => {
                        let host = parts.config.registry_host.as_ref();
                        let host = host.map_or("another host", |host| host.address.as_str());
                        let error = anyhow::anyhow!("the registry of this site is on {host}");
                        Err(Failure::new(error, "give this command there"))
                    }
                }
            }
        }
    }
}

/// Carries a request of `who` out on an open site.
pub async fn execute(site: &Site, request: Request, giver: &Giver) -> Outcome<Value> {
    if site.config.hosts.is_some() && centre::is_about_evidence(&request) {
        return Err(Failure::new(
            anyhow::anyhow!("the centre of this site is on another host"),
            "give this command there",
        ));
    }
    let request = match centre::execute(&site.centre_parts(), request, giver).await? {
        Carried::Out(value) => return Ok(value),
        Carried::Not(request) => *request,
    };
    let (now, who) = (OffsetDateTime::now_utc(), &giver.actor);
    match request {
        Request::IssueUser {
            uid,
            profile,
            password,
        } => issue_user(site, &uid, profile.as_deref(), &password, who, now).await,
        Request::ListProfiles => Ok(profiles::list(site)),
        Request::PutProfile { definition } => profiles::put(site, &definition, who, now).await,
        Request::Revoke { whose, reason } => revoke(site, &whose, &reason, who, now).await,
        Request::Change { holder, change } => {
            change_holder(site, &holder, change.into(), who, now).await
        }
        Request::ListHolders => administration::holders(site).await,
        Request::ListCertificates => list_certificates(site).await,
        Request::Code {
            device,
            clearance,
            hours,
        } => code(site, &device, clearance, hours, who, now).await,
        Request::Invite { order, cmp } => registration::invite(site, order, cmp, who, now).await,
        Request::Import { people, enable } => {
            let imported = administration::import(site, &people, enable, who.clone(), now).await?;
            Ok(json!({
                "imported": imported.added + imported.changed + imported.unchanged,
                "added": imported.added,
                "changed": imported.changed,
                "unchanged": imported.unchanged,
                "kept_disabled": imported.kept_disabled,
            }))
        }
        Request::ListPeople => {
            let people = site
                .directory
                .list()
                .await
                .or_hint("cannot list people", "see the log")?;
            Ok(json!({ "people": people }))
        }
        Request::Password { uid, password } => {
            let set = site
                .directory
                .set_password(&uid, &password, who.clone(), now)
                .await;
            set.or_hint(
                format!("cannot set the password of {uid}"),
                "choose another one",
            )?;
            Ok(json!({ "uid": uid }))
        }
        Request::Disable { uid } => administration::set_active(site, &uid, false, who, now).await,
        Request::Enable { uid } => administration::set_active(site, &uid, true, who, now).await,
        Request::Openvpn(request) => crate::openvpn::issue(site, request, who.clone(), now).await,
        Request::RenewAuthorities { root_passphrase } => {
            authorities::renew(site, root_passphrase, who.clone(), now).await
        }
        Request::ListAuthorities => Ok(authorities::list(site, now)),
        Request::NewAuthority {
            kind,
            root_passphrase,
        } => authorities::make(site, &kind, root_passphrase, who.clone(), now).await,
        Request::ActivateAuthority { name } => authorities::activate(site, &name, who, now).await,
        Request::DropAuthority { name } => authorities::drop(site, &name, who.clone(), now).await,
        Request::InstallAuthorities {
            ceremony,
            root_sha256,
            passphrase,
        } => {
            let order = (ceremony, root_sha256, passphrase);
            authorities::install(site, order, who.clone(), now).await
        }
        Request::Registration(order) => registration::carry_out(site, order, giver, now).await,
        Request::Service(order) => service_orders::carry_out(site, *order, giver, now).await,
        Request::RefusedDevices => crate::openvpn::refused_devices(site).await,
        Request::Standings { serials } => crate::openvpn::standings(site, &serials).await,
        Request::Status => {
            centre::look_for_silence(&site.centre_parts(), now).await?;
            let health = roles::health(site, now).await;
            Ok(centre::status(&health, &json!(site.accelerator.status())))
        }
        // About evidence.
        Request::Export { .. }
        | Request::Trust
        | Request::Journal { .. }
        | Request::Quarantine(_)
        | Request::Crls => Err(Failure::new(
            anyhow::anyhow!("this host has no centre"),
            "give this command on the centre's host",
        )),
    }
}

/// What was issued, newest first. At most a thousand of each authority, to be shown.
async fn list_certificates(site: &Site) -> Outcome<Value> {
    let mut all = Vec::new();
    for kind in CaKind::ALL {
        let list = site.registry.list(kind, None).await;
        all.extend(list.or_hint("cannot list certificates", "see the log")?);
    }
    Ok(json!({ "certificates": all }))
}

async fn revoke(
    site: &Site,
    whose: &Whose,
    reason: &str,
    who: &Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let reason = registration::cause(reason)?;
    let holder = match whose {
        Whose::Uid(uid) => Holder::Uid(uid.clone()),
        Whose::Device(device) => Holder::Device(device.clone()),
        Whose::Gateway(gateway) => Holder::Gateway(gateway.clone()),
        Whose::Server(server) => Holder::Server(server.clone()),
        Whose::Serial(serial) => return revoke_one(site, serial, reason, who, now).await,
    };
    change_holder(site, &holder, HolderChange::Revoke(reason), who, now).await
}

async fn revoke_one(
    site: &Site,
    serial: &str,
    reason: RevocationReason,
    who: &Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let serial = serial.to_ascii_lowercase();
    let found = site.registry.find(&serial).await;
    let found = found.or_hint("cannot read the registry", "see the log")?;
    let (kind, record) = found.ok_or_else(|| {
        let error = anyhow::anyhow!("no certificate has the serial number {serial}");
        Failure::new(error, "`cordon pki list` shows what was issued")
    })?;
    let warrant = direct(site, who, "revoke --serial SERIAL")?;
    let revoked = site
        .registry
        .revoke(kind, &record.serial, reason, warrant, now)
        .await;
    let revoked = revoked.or_hint("cannot revoke", "try again; see the log")?;
    let serials: Vec<String> = match revoked {
        Revoked::Now => vec![record.serial],
        Revoked::Before(_) => Vec::new(),
    };
    Ok(json!({ "revoked": serials }))
}

async fn change_holder(
    site: &Site,
    holder: &Holder,
    change: HolderChange,
    who: &Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let (kind, name) = match holder {
        Holder::Uid(uid) => (CaKind::Users, uid),
        Holder::Device(device) => (CaKind::Devices, device),
        Holder::Gateway(name) | Holder::Server(name) => (CaKind::Services, name),
    };
    let warrant = direct(site, who, "holder --change CHANGE")?;
    let changed = site
        .registry
        .change_holder(kind, name, change, warrant, now)
        .await;
    let hint = match &changed {
        Err(RegistryError::Disabled(_)) => "enable them with `cordon directory enable`",
        _ => "`cordon registry list` shows devices and people with their states",
    };
    let changed = changed.or_hint(format!("cannot {} {name}", change.name()), hint)?;
    Ok(json!({
        "holder": name,
        "old": changed.from.name(),
        "new": changed.to.name(),
        "revoked": changed.revoked,
        "listed": changed.is_listed,
    }))
}

async fn code(
    site: &Site,
    device: &str,
    clearance: u8,
    hours: u32,
    who: &Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let clearance = Clearance::try_from(clearance).or_hint("clearance", "use 0 to 4")?;
    let code = site
        .registry
        .create_code(
            device,
            clearance,
            Duration::hours(i64::from(hours)),
            who.clone(),
            now,
        )
        .await;
    let hint = hint(&code, "use another name or clearance");
    let code = code.or_hint(format!("cannot make a code for {device}"), hint)?;
    Ok(json!({
        "device": device,
        "code": code.as_str(),
        "expires": rfc3339(now + Duration::hours(i64::from(hours))),
        "root_fingerprint": pki::cert::fingerprint_sha256(
            &pki::cert::to_der(site.registry.root()).or_hint("root", "report this")?,
        ),
        "root_pem": site.trust.root_pem()?,
        "authorities_pem": authority_texts::authorities_pem(&site.registry)?,
        "recipients_pem": recipients_pem(site, now)?,
    }))
}

/// The certificates to seal to: those of the centre's host, where the site has one.
fn recipients_pem(site: &Site, now: OffsetDateTime) -> Outcome<String> {
    let Some(hosts) = &site.config.hosts else {
        return site.credentials.recipients_pem(now);
    };
    Announced::new(&site.data, Hosts(Arc::new(hosts.peers.clone())))
        .pem(&site.registry)?
        .ok_or_else(|| {
            let error = anyhow::anyhow!("the centre's host has not said what cameras seal to");
            Failure::new(
                error,
                "start `cordon run centre portal` there, and try again",
            )
        })
}
