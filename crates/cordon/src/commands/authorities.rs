//! `cordon pki request-authorities`, `install-authorities`: the site's side of a root that is elsewhere.

use std::path::Path;

use audit::AuditSink;
use pki::key::Passphrase;
use registry::{Delivery, Registry, RegistryError, Standings};
use serde_json::{Value, json};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::ceremony::ungrouped;
use crate::cli::{Authorities, InstallAuthorities, NewAuthority, RequestAuthorities, SiteArgs};
use commandline::{Failure, OrHint as _, Outcome};
use site::authorities;
use site::config::Config;
use site::control::{Request, ask};
use site::last_checkpoint;
use site::parts::{open_audit, private, registry_settings};

const CHECK: &str = "check the folder's rights and its disk";

/// Opens no site: one that waits for its authorities has none, and its keys are all that is needed.
pub(crate) async fn request(args: &RequestAuthorities, json: bool) -> Outcome {
    let (config, secret) = prepare(&args.site)?;
    durable::create_dir_all(&args.out).or_hint(
        format!("cannot make the folder {}", args.out.display()),
        "name another folder with --out",
    )?;
    let settings = registry_settings(&config);
    let secret = Passphrase::new(secret);
    let (data, now) = (&args.site.data, OffsetDateTime::now_utc());
    let standings = Standings::read(data).await;
    let standings = standings.or_hint("cannot read registry.sqlite", CHECK)?;
    let requests = match args.new.as_slice() {
        [] => Registry::request_authorities(data, &settings, &secret, &standings, now),
        new => Registry::request_generations(data, &settings, &secret, &standings, new, now),
    };
    let hint = requests.as_ref().err().map(|error| match error {
        RegistryError::NotInitialised(_) => {
            "leave --new out: the site has no authorities yet".to_owned()
        }
        error => authorities::hint(error, "check the data folder, and --passphrase-file"),
    });
    let requests = requests.or_hint("cannot make the requests", hint.unwrap_or_default())?;
    let mut files = Vec::new();
    for (id, pem) in requests {
        let file = args.out.join(format!("{id}-ca.csr"));
        let written = durable::write_new(&file, pem.as_bytes(), 0o644);
        written.or_hint(
            format!("cannot write {}", file.display()),
            "name an empty folder with --out; asked again, the same keys are requested",
        )?;
        files.push(file);
    }
    let shown: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    let summary = format!(
        "wrote {}\ncarry them to the root, hold a ceremony, and install what it makes with \
         `cordon pki install-authorities`",
        shown.join("\n      "),
    );
    super::print(json, &json!({ "requests": files }), &summary)
}

pub(crate) async fn install(args: &InstallAuthorities, json: bool) -> Outcome {
    let root_sha256 = args.root_sha256.as_deref().map(ungrouped);
    let ceremony = std::path::absolute(&args.ceremony).or_hint("the ceremony's folder", CHECK)?;
    let data = &args.site.data;
    let established = Registry::is_initialised(data).or_hint("cannot look into --data", CHECK)?;
    let database = data.join("registry.sqlite");
    let started = database.try_exists();
    let value = if established && !started.or_hint("cannot look into --data", CHECK)? {
        return Err(Failure::new(
            anyhow::anyhow!(
                "{} has its authorities of a ceremony, and was not started yet",
                data.display()
            ),
            format!(
                "start it with `cordon up --data {}`; what a later ceremony makes is installed then",
                data.display()
            ),
        ));
    } else if established {
        let passphrase = passphrase(&args.site, args.site.passphrase_file.as_deref())?;
        let request = Request::InstallAuthorities {
            ceremony,
            root_sha256,
            passphrase,
        };
        ask(&args.site, request).await?
    } else {
        first(args, &ceremony, root_sha256.as_deref())?
    };
    let names = super::list(&value, "authorities").iter();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    let certified = match names.as_slice() {
        [] => "no certificates".to_owned(),
        names => format!("the certificates of {}", names.join(", ")),
    };
    let ready = super::list(&value, "ready").first().and_then(Value::as_str);
    let next = match (established, ready) {
        (false, _) => "start the site for them to take effect".to_owned(),
        (true, None) => "all of it is in force".to_owned(),
        (true, Some(ready)) => format!(
            "all of it is in force; {ready} issues nothing yet: `cordon pki activate-authority {ready}`, or \
             `cordon registry request new authority --name {ready}`"
        ),
    };
    let summary = format!(
        "installed {certified} and the root's revocation list, of ceremony {} ({})\n{next}",
        value.get("ceremony").unwrap_or(&Value::Null),
        super::text(&value, "title"),
    );
    super::print(json, &value, &summary)
}

/// For a folder that has no site yet.
fn first(args: &InstallAuthorities, ceremony: &Path, root: Option<&str>) -> Outcome<Value> {
    if root.is_none() {
        return Err(Failure::new(
            anyhow::anyhow!("this site has no root yet"),
            "name the root with --root-sha256, as people wrote it down at the ceremony",
        ));
    }
    let data = &args.site.data;
    let (config, secret) = prepare(&args.site)?;
    let secret = Passphrase::new(secret);
    let now = OffsetDateTime::now_utc();
    let audit = open_audit(data, &secret, &config.site.log_origin)?;
    last_checkpoint::hold(data, &audit, now)?;
    let role = audit.role("registry").or_hint("the audit log", CHECK)?;
    let delivery = Delivery {
        folder: ceremony,
        root,
    };
    let settings = registry_settings(&config);
    let record = (&role as &dyn AuditSink, site::console::this_process());
    let delivery = (&delivery, &Standings::default());
    let installed = Registry::install_authorities(data, &settings, &secret, delivery, record, now);
    let installed = installed.or_hint("cannot install the authorities", authorities::CHECK)?;
    Ok(authorities::describe(&installed))
}

/// A passphrase as text, from a file or from where the site has its own.
pub(super) fn passphrase(site: &SiteArgs, file: Option<&Path>) -> Outcome<Zeroizing<String>> {
    let bytes = commandline::passphrase(&site.data, file)?;
    String::from_utf8(bytes.to_vec())
        .map(Zeroizing::new)
        .or_hint("the passphrase is not text", "name another file")
}

pub(super) async fn list(args: &Authorities, json: bool) -> Outcome {
    let mut value = ask(&args.site, Request::ListAuthorities).await?;
    for field in ["authorities", "unusable"] {
        if let (Some(kind), Some(Value::Array(all))) = (args.kind, value.get_mut(field)) {
            all.retain(|record| super::text(record, "kind") == kind.name());
        }
    }
    let (mut lines, mut pem) = (String::new(), String::new());
    for record in super::list(&value, "authorities") {
        let is = |name: &str| record.get(name).and_then(Value::as_bool) == Some(true);
        if is("needed") && !is("revoked") {
            pem.push_str(super::text(record, "pem"));
        }
        let waits = super::text(record, "state") == "ready";
        let note = match (is("revoked"), is("expired"), is("valid")) {
            (true, ..) => "  revoked".to_owned(),
            (_, true, _) => "  expired".to_owned(),
            (.., false) if waits => {
                let begin = super::text(record, "not_before");
                format!("  not used, valid from {begin} on")
            }
            _ if !is("needed") => "  over".to_owned(),
            _ if !is("key") => "  without its key".to_owned(),
            _ => String::new(),
        };
        lines.push_str(&format!(
            "{:<14} {:<8} until {}  {}{note}\n",
            super::text(record, "name"),
            super::text(record, "state"),
            super::text(record, "not_after"),
            super::text(record, "subject"),
        ));
    }
    for one in super::list(&value, "unusable") {
        lines.push_str(&format!(
            "{:<14} not used: {}\n",
            super::text(one, "name"),
            super::text(one, "reason"),
        ));
    }
    if let Some(out) = &args.out {
        let written = durable::write_atomic(out, pem.as_bytes(), 0o644);
        written.or_hint(format!("cannot write {}", out.display()), CHECK)?;
    }
    super::print(json, &value, &lines)
}

pub(super) async fn make(args: &NewAuthority, json: bool) -> Outcome {
    let request = Request::NewAuthority {
        kind: args.kind.name().to_owned(),
        root_passphrase: passphrase(&args.site, Some(&args.root_passphrase_file))?,
    };
    let value = ask(&args.site, request).await?;
    let name = super::text(&value, "authority");
    let summary = format!(
        "made {name}, which issues nothing yet; put root.key away\n\
         then `cordon pki activate-authority {name}`, or `cordon registry request new authority --name {name}`"
    );
    super::print(json, &value, &summary)
}

pub(super) async fn activate(site: &SiteArgs, name: String, json: bool) -> Outcome {
    let value = ask(site, Request::ActivateAuthority { name }).await?;
    let summary = format!(
        "{} issues from now on; {} goes on signing lists and OCSP responses about what it issued",
        super::text(&value, "issuing"),
        super::text(&value, "former"),
    );
    super::print(json, &value, &summary)
}

pub(super) async fn give_up(site: &SiteArgs, name: String, json: bool) -> Outcome {
    let value = ask(site, Request::DropAuthority { name }).await?;
    let summary = format!(
        "dropped {}, which issued nothing; its key is removed",
        super::text(&value, "dropped"),
    );
    super::print(json, &value, &summary)
}

fn prepare(site: &SiteArgs) -> Outcome<(Config, Zeroizing<Vec<u8>>)> {
    let config = Config::load(site.config.as_deref())?;
    site::owner::check(&site.data)?;
    durable::create_dir_all(&site.data).or_hint(
        format!("cannot make the data folder {}", site.data.display()),
        "name another folder with --data, or check its rights",
    )?;
    private(&site.data)?;
    let secret = commandline::passphrase(&site.data, site.passphrase_file.as_deref())?;
    Ok((config, secret))
}
