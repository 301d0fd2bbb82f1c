//! `cordon directory`: people.

use std::path::Path;

use crate::cli::Directory;
use crate::commands::{field, list, print, read_text, text};
use commandline::Outcome;
use site::control::{Request, ask};

pub(crate) async fn run(command: Directory, json: bool) -> Outcome {
    match command {
        Directory::Import { site, file, enable } => {
            let value = ask(
                &site,
                Request::Import {
                    people: read_text(&file)?,
                    enable,
                },
            )
            .await?;
            let kept = list(&value, "kept_disabled").len();
            let kept = match kept {
                0 => String::new(),
                count => format!("\n{count} stay disabled; enable them with --enable"),
            };
            let summary = format!(
                "imported {} people: {} added, {} changed{kept}",
                field(&value, "imported"),
                field(&value, "added"),
                field(&value, "changed"),
            );
            print(json, &value, &summary)
        }
        Directory::List { site } => {
            let value = ask(&site, Request::ListPeople).await?;
            let mut lines = String::new();
            for person in list(&value, "people") {
                let word = |name: &str| text(person, name).to_owned();
                let active = if person.get("active") == Some(&true.into()) {
                    ""
                } else {
                    " (disabled)"
                };
                lines.push_str(&format!(
                    "{:<20} {:<28} level {} {} {}{active}\n",
                    word("uid"),
                    word("name"),
                    field(person, "clearance"),
                    field(person, "roles"),
                    field(person, "units"),
                ));
            }
            print(json, &value, &lines)
        }
        Directory::Password { site, uid } => {
            let typed = read_text(Path::new("-"))?;
            let password = typed.trim_end_matches(['\r', '\n']).to_owned().into();
            let value = ask(&site, Request::Password { uid, password }).await?;
            print(json, &value, "password set")
        }
        Directory::Disable { site, uid } => {
            let value = ask(&site, Request::Disable { uid }).await?;
            print(json, &value, "disabled")
        }
        Directory::Enable { site, uid } => {
            let value = ask(&site, Request::Enable { uid }).await?;
            print(json, &value, "enabled")
        }
    }
}
