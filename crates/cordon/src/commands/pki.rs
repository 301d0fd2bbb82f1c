//! `cordon pki`: certificates.

use std::path::Path;

use commandline::{new_password, reserve, write_reserved};
use pki::cert::CertificateChain;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{list, text};
use crate::cli::{Pki, Revoke, SiteArgs};
use commandline::{Failure, OrHint as _, Outcome};
use site::control::{Request, Whose, ask};

pub(crate) async fn run(command: Pki, json: bool) -> Outcome {
    match command {
        Pki::IssueUser {
            site,
            uid,
            profile,
            out,
        } => issue_user(&site, &uid, profile, &out, json).await,
        Pki::Revoke(args) => revoke(args, json).await,
        Pki::List { site } => list_issued(&site, json).await,
        Pki::RenewAuthorities {
            site,
            root_passphrase_file,
        } => renew_authorities(&site, &root_passphrase_file, json).await,
        Pki::Authorities(args) => super::authorities::list(&args, json).await,
        Pki::NewAuthority(args) => super::authorities::make(&args, json).await,
        Pki::ActivateAuthority { name, site } => {
            super::authorities::activate(&site, name, json).await
        }
        Pki::DropAuthority { name, site } => super::authorities::give_up(&site, name, json).await,
        Pki::Ceremony(command) => super::ceremony::run(command, json),
        Pki::RequestAuthorities(args) => super::authorities::request(&args, json).await,
        Pki::InstallAuthorities(args) => super::authorities::install(&args, json).await,
        Pki::Renew(args) => enrolment::renew(&args, json).await,
        Pki::Profile(command) => super::pki_profile::run(command, json).await,
        Pki::Audit(args) => super::pki_audit::run(&args, json).await,
        Pki::Show { file } => show(&file, json),
    }
}

/// Issues a certificate for `uid` and writes `out`, `out.password` and a PEM chain.
async fn issue_user(
    site: &SiteArgs,
    uid: &str,
    profile: Option<String>,
    out: &Path,
    json: bool,
) -> Outcome {
    let password_file = out.with_added_extension("password");
    // Before anything is issued, which has to be revoked where it cannot be stored.
    let (place, password_place) = (reserve(out)?, reserve(&password_file)?);
    let password = new_password()?;
    let request = Request::IssueUser {
        uid: uid.to_owned(),
        profile,
        password: password.clone(),
    };
    let issued = ask(site, request).await?;
    let p12 =
        hex::decode(text(&issued, "pkcs12_hex")).or_hint("the answer is damaged", "try again")?;
    let line = Zeroizing::new(format!("{}\n", password.as_str()));
    write_reserved(password_place, line.as_bytes())?;
    write_reserved(place, &p12)?;
    let value = json!({
        "uid": uid,
        "serial": text(&issued, "serial"),
        "not_after": text(&issued, "not_after"),
        "archived": issued.get("archived"),
        "file": out,
        "password_file": password_file,
    });
    let summary = format!(
        "issued {} for {uid}, valid until {}\n{}  import this into a browser or card\n{}  its password",
        text(&issued, "serial"),
        text(&issued, "not_after"),
        out.display(),
        password_file.display(),
    );
    super::print(json, &value, &summary)
}

async fn revoke(args: Revoke, json: bool) -> Outcome {
    let named = args.whose;
    let by_name = [
        named.uid.map(Whose::Uid),
        named.device.map(Whose::Device),
        named.gateway.map(Whose::Gateway),
        named.server.map(Whose::Server),
        named.serial.map(Whose::Serial),
    ];
    let whose = by_name.into_iter().flatten().next().ok_or_else(|| {
        let hint = "use --uid, --device, --gateway, --server or --serial";
        Failure::usage("nobody is named", hint)
    })?;
    let value = ask(
        &args.site,
        Request::Revoke {
            whose,
            reason: args.reason,
        },
    )
    .await?;
    let serials = list(&value, "revoked").len();
    super::print(json, &value, &format!("revoked {serials} certificates"))
}

async fn renew_authorities(site: &SiteArgs, passphrase: &Path, json: bool) -> Outcome {
    let request = Request::RenewAuthorities {
        root_passphrase: super::authorities::passphrase(site, Some(passphrase))?,
    };
    let value = ask(site, request).await?;
    super::print(
        json,
        &value,
        "renewed the certificates of the issuing authorities; put root.key away",
    )
}

async fn list_issued(site: &SiteArgs, json: bool) -> Outcome {
    let value = ask(site, Request::ListCertificates).await?;
    let mut lines = String::new();
    for record in list(&value, "certificates") {
        let field = |name: &str| text(record, name).to_owned();
        let state = match record.pointer("/revoked/reason").and_then(Value::as_str) {
            Some(reason) => format!("revoked: {reason}"),
            None => format!("until {}", field("not_after")),
        };
        lines.push_str(&format!(
            "{}  {:<9} {:<28} {}\n",
            field("serial"),
            field("authority"),
            field("holder"),
            state,
        ));
    }
    super::print(json, &value, &lines)
}

fn show(file: &Path, json: bool) -> Outcome {
    const HINT: &str = "pass a certificate in PEM or DER";
    let bytes = super::read_regular(file, super::MAX_SMALL_FILE, HINT)?;
    let chain = match std::str::from_utf8(&bytes) {
        Ok(text) if text.contains("BEGIN CERTIFICATE") => CertificateChain::from_pem(text),
        _ => CertificateChain::from_ders([bytes.to_vec()]),
    };
    let chain = chain.or_hint(format!("{} is no certificate", file.display()), HINT)?;
    let mut certificates = Vec::new();
    let mut lines = String::new();
    for (certificate, der) in chain.certificates().iter().zip(chain.ders()) {
        let tbs = &certificate.tbs_certificate;
        let value = json!({
            "subject": pki::name::shown(&tbs.subject),
            "issuer": pki::name::shown(&tbs.issuer),
            "serial": pki::cert::serial_hex(certificate),
            "not_before": tbs.validity.not_before.to_string(),
            "not_after": tbs.validity.not_after.to_string(),
            "sha256": pki::cert::fingerprint_sha256(der),
        });
        for name in [
            "subject",
            "issuer",
            "serial",
            "not_before",
            "not_after",
            "sha256",
        ] {
            lines.push_str(&format!("{name:<11} {}\n", text(&value, name)));
        }
        lines.push('\n');
        certificates.push(value);
    }
    super::print(
        json,
        &json!({ "certificates": Value::from(certificates) }),
        &lines,
    )
}
