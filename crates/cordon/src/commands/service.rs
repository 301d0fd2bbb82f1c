//! `cordon service`: foreign applications.

use std::path::Path;

use commandline::{Failure, OrHint as _, Outcome, new_password, reserve, write_reserved};
use serde_json::{Value, json};
use services::{Change, ClientChange, ClientKey, Connection, ConnectionChange, SecretHash};
use site::control::{Request, ask};
use site::service_orders::ServiceOrder;
use zeroize::Zeroizing;

use crate::cli::{ClientArgs, Service};
use crate::commands::{MAX_SMALL_FILE, field, list, print, read_regular, text};

pub(crate) async fn run(command: Service, json: bool) -> Outcome {
    match command {
        Service::List { site } => {
            let order = ServiceOrder::List;
            let value = ask(&site, Request::Service(Box::new(order))).await?;
            let lines = list(&value, "services").iter().map(line);
            print(json, &value, &lines.collect::<String>())
        }
        Service::Show { site, id } => {
            let order = ServiceOrder::Show { id };
            let value = ask(&site, Request::Service(Box::new(order))).await?;
            print(json, &value, &record(&value))
        }
        Service::Remove { site, id } => {
            let order = ServiceOrder::Remove { id };
            let value = ask(&site, Request::Service(Box::new(order))).await?;
            print(json, &value, "removed")
        }
        Service::RollKey { site } => {
            let order = ServiceOrder::RollKey;
            let value = ask(&site, Request::Service(Box::new(order))).await?;
            print(json, &value, &format!("{} signs", text(&value, "key")))
        }
        Service::Add { .. } => add(command, json).await,
        Service::Change { .. } => change(command, json).await,
    }
}

async fn add(command: Service, json: bool) -> Outcome {
    let Service::Add {
        site,
        id,
        name,
        address,
        icon,
        owner,
        level,
        role,
        unit,
        client,
    } = command
    else {
        return Ok(());
    };
    let key = Key::of(&client)?;
    let connection = match client_change(&client, &key, false)? {
        None => Connection::Link,
        Some(change) => {
            let hint = "give --redirect, and --secret-out or --client-key";
            let client = change.of(None).or_hint("cannot add the service", hint)?;
            Connection::Openid(client)
        }
    };
    let service = services::Service {
        id,
        name,
        address,
        icon,
        owner,
        level: level.try_into().or_hint("--level", "give 0 to 4")?,
        roles: role.into_iter().collect(),
        units: unit.into_iter().collect(),
        connection,
    };
    finish(&site, ServiceOrder::Add { service }, key, json).await
}

async fn change(command: Service, json: bool) -> Outcome {
    let Service::Change {
        site,
        id,
        name,
        address,
        icon,
        owner,
        level,
        role,
        unit,
        any_unit,
        link,
        no_logout,
        client,
    } = command
    else {
        return Ok(());
    };
    let key = Key::of(&client)?;
    let openid = client_change(&client, &key, no_logout)?;
    let level = level.map(TryInto::try_into).transpose();
    let change = Change {
        name,
        address,
        icon,
        owner,
        level: level.or_hint("--level", "give 0 to 4")?,
        roles: (!role.is_empty()).then(|| role.into_iter().collect()),
        units: (any_unit || !unit.is_empty()).then(|| unit.into_iter().collect()),
        connection: match link {
            true => Some(ConnectionChange::Link),
            false => openid.map(ConnectionChange::Openid),
        },
    };
    if change == Change::default() {
        return Err(Failure::new(
            anyhow::anyhow!("nothing of the service {id} is to change"),
            "name a field: see `cordon service change --help`",
        ));
    }
    finish(&site, ServiceOrder::Change { id, change }, key, json).await
}

/// The key by which the application proves who it is.
enum Key {
    None,
    Public(ClientKey),
    /// The site stores the hash only; the file is written when the site has it.
    Secret(durable::Reserved, Zeroizing<String>),
}

impl Key {
    fn of(client: &ClientArgs) -> Outcome<Self> {
        if let Some(file) = &client.secret_out {
            return Ok(Self::Secret(reserve(file)?, new_password()?));
        }
        let Some(file) = &client.client_key else {
            return Ok(Self::None);
        };
        let hint = "name a file with a public JWK on P-256";
        let text = read_small(file, hint)?;
        let key = ClientKey::from_jwk(&text);
        Ok(Self::Public(key.or_hint("cannot use --client-key", hint)?))
    }

    fn public(&self) -> Option<ClientKey> {
        match self {
            Self::None => None,
            Self::Public(key) => Some(key.clone()),
            Self::Secret(_, secret) => Some(ClientKey::Secret(SecretHash::of(secret))),
        }
    }
}

fn client_change(args: &ClientArgs, key: &Key, no_logout: bool) -> Outcome<Option<ClientChange>> {
    let trust = args.logout_trust.as_deref();
    let trust = trust.map(|file| read_small(file, "name a PEM file with certificates"));
    let change = ClientChange {
        redirects: (!args.redirect.is_empty()).then(|| args.redirect.clone()),
        key: key.public(),
        logout: match no_logout {
            true => Some(None),
            false => args.logout.clone().map(Some),
        },
        logout_trust: trust.transpose()?,
    };
    Ok((change != ClientChange::default()).then_some(change))
}

fn read_small(file: &Path, hint: &str) -> Outcome<String> {
    let bytes = read_regular(file, MAX_SMALL_FILE, hint)?;
    String::from_utf8(bytes.to_vec()).or_hint(format!("cannot read {}", file.display()), hint)
}

async fn finish(
    site: &commandline::SiteArgs,
    order: ServiceOrder,
    key: Key,
    json: bool,
) -> Outcome {
    let mut value = ask(site, Request::Service(Box::new(order))).await?;
    let mut text = record(&value);
    if let Key::Secret(place, secret) = key {
        let file = place.path().to_owned();
        let line = Zeroizing::new(format!("{}\n", secret.as_str()));
        write_reserved(place, line.as_bytes())?;
        text.push_str(&format!("{}  the client secret\n", file.display()));
        if let Some(object) = value.as_object_mut() {
            object.insert("secret_file".to_owned(), json!(file));
        }
    }
    print(json, &value, &text)
}

fn line(service: &Value) -> String {
    format!(
        "{:<16} {:<24} level {} {:<8} {} {}\n",
        text(service, "id"),
        text(service, "name"),
        field(service, "level"),
        text(service, "connection"),
        field(service, "roles"),
        field(service, "units"),
    )
}

fn record(service: &Value) -> String {
    let mut lines = String::new();
    for (name, value) in service.as_object().into_iter().flatten() {
        let shown = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        lines.push_str(&format!("{name:<14} {shown}\n"));
    }
    lines
}
