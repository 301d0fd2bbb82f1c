//! `cordon registry request`: acts that others approve.

use std::path::Path;

use approval::Request;
use commandline::visible;
use enrolment::Invitation;
use serde_json::Value;
use zeroize::Zeroizing;

use super::{field, list, print, request_export, text};
use crate::cli::{
    Asking, HolderName, Invited, NewAct, ProfileName, RequestCommand, Seen, SiteArgs,
};
use commandline::{Failure, OrHint as _, Outcome};
use pki::name::WindowsAccount;
use site::administrator::Person;
use site::control::{self, ask};
use site::orders::{ActOrder, ChosenProfile, Holder, InviteOrder, RequestOrder, StepOrder};

pub(crate) async fn run(command: RequestCommand, json: bool) -> Outcome {
    match command {
        RequestCommand::New(act) => {
            let (wanted, asking) = order(*act)?;
            let order = RequestOrder::New {
                wanted,
                reason: asking.reason,
                submit: asking.submit,
            };
            changed(&asking.site, order, json).await
        }
        RequestCommand::Edit { id, seen, act } => {
            let (wanted, asking) = order(*act)?;
            if asking.submit {
                let hint = "hand it in with `cordon registry request submit`, by the new version";
                return Err(Failure::usage("--submit does not go with edit", hint));
            }
            let order = RequestOrder::Edit {
                id,
                seen,
                wanted,
                reason: asking.reason,
            };
            changed(&asking.site, order, json).await
        }
        RequestCommand::List { site, all } => list_requests(&site, !all, json).await,
        RequestCommand::Show { id, site } => {
            let value = show(&site, &id).await?;
            print(json, &value, &described(&value))
        }
        RequestCommand::Submit(seen) => step(seen, StepOrder::Submit, json).await,
        RequestCommand::Withdraw(seen) => step(seen, StepOrder::Withdraw, json).await,
        RequestCommand::Return(objection) => {
            let reason = objection.reason;
            step(objection.seen, StepOrder::Return { reason }, json).await
        }
        RequestCommand::Refuse(objection) => {
            let reason = objection.reason;
            step(objection.seen, StepOrder::Refuse { reason }, json).await
        }
        RequestCommand::Approve(seen) => approve(seen, json).await,
        RequestCommand::CarryOut {
            seen,
            out,
            cmp,
            complete,
        } => carry_out(seen, out.as_deref(), cmp, complete, json).await,
        RequestCommand::Export { id, site, out } => {
            let value = show(&site, &id).await?;
            request_export::write(&value, &out)?;
            let text = format!("wrote request {id} to {}", out.display());
            print(json, &serde_json::json!({ "id": id, "folder": out }), &text)
        }
        RequestCommand::Verify { folder, root } => request_export::verify(&folder, &root, json),
    }
}

pub(crate) async fn show(site: &SiteArgs, id: &str) -> Outcome<Value> {
    ask_for(site, RequestOrder::Show { id: id.to_owned() }).await
}

async fn ask_for(site: &SiteArgs, order: RequestOrder) -> Outcome<Value> {
    ask(site, control::Request::Registration(order)).await
}

async fn changed(site: &SiteArgs, order: RequestOrder, json: bool) -> Outcome {
    let value = ask_for(site, order).await?;
    print(json, &value, &line(&value))
}

fn line(value: &Value) -> String {
    format!(
        "request {} ({}) is {}, version {}",
        text(value, "id"),
        text(value, "act"),
        text(value, "state"),
        field(value, "version"),
    )
}

async fn list_requests(site: &SiteArgs, open: bool, json: bool) -> Outcome {
    let value = ask_for(site, RequestOrder::List { open }).await?;
    let mut lines = String::new();
    for request in list(&value, "requests") {
        let overdue = match request.get("overdue") == Some(&true.into()) {
            true => "  second approval overdue",
            false => "",
        };
        lines.push_str(&format!(
            "{}  version {:<3} {:<10} {:<14} {:<20} asked by {}{overdue}\n",
            text(request, "id"),
            field(request, "version"),
            text(request, "state"),
            text(request, "act"),
            text(request, "subject"),
            text(request, "requester"),
        ));
    }
    print(json, &value, &lines)
}

/// A request for people to read before they sign it.
fn described(value: &Value) -> String {
    let mut lines = format!("{}\n", line(value));
    let request = value.get("request").unwrap_or(&Value::Null);
    if let Some(act) = request.get("act").and_then(Value::as_object) {
        for (name, content) in act {
            lines.push_str(&format!("  {name:<12} {content}\n"));
        }
    }
    lines.push_str(&format!("  asked by     {}\n", text(request, "requester")));
    // Lines of a reason must not pass for lines of this.
    let why = visible(text(request, "reason"));
    lines.push_str(&format!("  why          {why}\n"));
    lines.push_str(&format!(
        "  approvals    {} needed\n",
        field(value, "approvals_needed")
    ));
    for change in list(value, "history") {
        lines.push_str(&format!(
            "{:>4}  {}  {:<14} {:<20} {}\n",
            field(change, "version"),
            text(change, "at"),
            text(change, "step"),
            text(change, "by"),
            visible(text(change, "reason")),
        ));
    }
    lines
}

async fn step(seen: Seen, step: StepOrder, json: bool) -> Outcome {
    let Seen { id, seen, site } = seen;
    changed(&site, RequestOrder::Step { id, seen, step }, json).await
}

/// Signs what the site shows, if it is the version that the person saw. The bytes are made here, from the act that is
/// shown: what a site calls the statement is not believed.
async fn approve(seen: Seen, json: bool) -> Outcome {
    const HINT: &str = "name your PKCS#12 or PEM file with --as FILE and --as-password-file FILE";
    let person = Person::of(&seen.site)?
        .ok_or_else(|| Failure::usage("an approval is signed, and nobody is named", HINT))?;
    let value = show(&seen.site, &seen.id).await?;
    let request = request_of(&value)?;
    if request.id().0 != seen.id || request.version() != seen.seen {
        let what = anyhow::anyhow!(
            "request {} has version {} by now, not {}",
            request.id().0,
            request.version(),
            seen.seen
        );
        return Err(Failure::new(
            what,
            "look at it again, then approve that version",
        ));
    }
    let statement = request.statement().or_hint("statement", "report this")?;
    let signature = hex::encode(person.sign_raw(&statement)?);
    step(seen, StepOrder::Approve { signature }, json).await
}

pub(crate) fn request_of(value: &Value) -> Outcome<Request> {
    let request = value.get("request").cloned().unwrap_or_default();
    serde_json::from_value(request).or_hint(
        "the request cannot be read",
        "use the same version of cordon",
    )
}

async fn carry_out(
    seen: Seen,
    out: Option<&Path>,
    cmp: bool,
    complete: bool,
    json: bool,
) -> Outcome {
    let Seen { id, seen, site } = seen;
    if out.is_none() || complete {
        let value = show(&site, &id).await?;
        // Of the acts only an invitation of a person has rights and gives a code.
        let act = field(field(&value, "request"), "act");
        if complete && (text(&value, "act") != "invite" || field(act, "rights").is_null()) {
            let what = "--complete is for invitations of people";
            return Err(Failure::usage(what, "carry this request out without it"));
        }
        let what = match text(&value, "act") {
            "invite" => "the code that the act gives is shown once",
            "recover-key" => "the key that the act gives out is given once",
            _ => "",
        };
        if !what.is_empty() && out.is_none() {
            return Err(Failure::usage(what, "name a new file for it with --out"));
        }
    }
    // Before the order, which uses the approvals up.
    let place = out.map(|out| commandline::reserve(out).map(|place| (out, place)));
    let place = place.transpose()?;
    let mut value = ask_for(&site, RequestOrder::CarryOut { id, seen, cmp }).await?;
    let mut summary = line(&value);
    let code = take_code(&mut value);
    let fields = value.as_object_mut();
    let envelope = fields.and_then(|fields| fields.remove("envelope_hex"));
    let envelope = envelope.as_ref().and_then(Value::as_str).map(hex::decode);
    let envelope = envelope
        .transpose()
        .or_hint("the recovered key", "use the same version of cordon")?;
    if let Some((out, place)) = place {
        match (envelope, code, text(&value, "chain_pem")) {
            (Some(envelope), ..) => commandline::write_reserved(place, &envelope)?,
            (None, Some(code), _) => write_invitation(place, code, &value, complete)?,
            (None, None, "") => return print(json, &value, &summary),
            (None, None, chain) => commandline::write_reserved(place, chain.as_bytes())?,
        }
        summary.push_str(&format!("\nwrote {}", out.display()));
    }
    print(json, &value, &summary)
}

/// The code of an answer, which is shown nowhere but in its file.
pub(crate) fn take_code(answer: &mut Value) -> Option<Zeroizing<String>> {
    match answer.as_object_mut()?.remove("code")? {
        Value::String(code) => Some(Zeroizing::new(code)),
        _ => None,
    }
}

/// Writes the code of an answer, or with `complete` the invitation for `cordon id enrol`.
pub(crate) fn write_invitation(
    place: durable::Reserved,
    code: Zeroizing<String>,
    answer: &Value,
    complete: bool,
) -> Outcome {
    if !complete {
        return write_code(place, &code);
    }
    let enrolment = field(answer, "enrolment");
    let (uid, site) = (text(enrolment, "uid"), text(enrolment, "site"));
    let invitation = Invitation::new(uid, site, text(enrolment, "root_sha256"), code)?;
    commandline::write_reserved(place, invitation.to_text()?.as_bytes())
}

pub(crate) fn write_code(place: durable::Reserved, code: &str) -> Outcome {
    commandline::write_reserved(place, Zeroizing::new(format!("{code}\n")).as_bytes())
}

fn order(act: NewAct) -> Outcome<(ActOrder, Asking)> {
    Ok(match act {
        NewAct::Issue {
            holder,
            csr,
            clearance,
            tunnel_only,
            profile,
            asking,
        } => {
            let order = ActOrder::Issue {
                holder: named(holder)?,
                tunnel_only,
                csr: tunnel_tools::read_csr(&csr)?,
                clearance,
                profile: chosen(profile)?,
                by_password: false,
            };
            (order, asking)
        }
        NewAct::Invite { invited, asking } => (ActOrder::Invite(invite(invited)?), asking),
        NewAct::RecoverKey { serial, asking } => (ActOrder::RecoverKey { serial }, asking),
        NewAct::Profile { file, asking } => {
            let definition = super::pki_profile::read(&file)?;
            (ActOrder::Profile { definition }, asking)
        }
        NewAct::Renew { serial, asking } => (ActOrder::Renew { serial }, asking),
        NewAct::Revoke {
            serial,
            cause,
            emergency,
            asking,
        } => {
            let order = ActOrder::Revoke {
                serial,
                cause,
                emergency,
            };
            (order, asking)
        }
        NewAct::Holder {
            holder,
            change,
            cause,
            emergency,
            asking,
        } => {
            let order = ActOrder::Holder {
                holder: named(holder)?,
                change,
                cause,
                emergency,
            };
            (order, asking)
        }
        NewAct::Authority { name, asking } => (ActOrder::Authority { name }, asking),
        NewAct::Person {
            uid,
            clearance,
            role,
            unit,
            asking,
        } => {
            let order = ActOrder::Person {
                uid,
                clearance,
                roles: role,
                units: unit,
            };
            (order, asking)
        }
    })
}

pub(crate) fn invite(invited: Invited) -> Outcome<InviteOrder> {
    let Invited {
        holder,
        clearance,
        unit,
        hours,
        renewals,
        name,
        profile,
    } = invited;
    Ok(InviteOrder {
        holder: named(holder)?,
        clearance,
        unit,
        hours,
        renewals,
        names: name,
        profile: chosen(profile)?,
    })
}

/// The profile that was chosen, if one was.
pub(crate) fn chosen(chosen: ProfileName) -> Outcome<ChosenProfile> {
    const HINT: &str =
        "name an account that somebody made, with its principal name and its identifier";
    let ProfileName {
        profile,
        principal,
        sid,
    } = chosen;
    let account = match principal.zip(sid) {
        Some((principal, sid)) => {
            Some(WindowsAccount::new(principal, &sid).or_hint("account of Windows", HINT)?)
        }
        None => None,
    };
    Ok(ChosenProfile {
        name: profile,
        account,
    })
}

pub(crate) fn named(named: HolderName) -> Outcome<Holder> {
    match (named.device, named.uid, named.gateway, named.server) {
        (Some(device), ..) => Ok(Holder::Device(device)),
        (_, Some(uid), ..) => Ok(Holder::Uid(uid)),
        (_, _, Some(gateway), _) => Ok(Holder::Gateway(gateway)),
        (.., Some(server)) => Ok(Holder::Server(server)),
        (None, None, None, None) => {
            let hint = "use --device, --uid, --gateway or --server";
            Err(Failure::usage("nobody is named", hint))
        }
    }
}
