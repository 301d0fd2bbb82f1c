//! The people of the demo: made on the first run, with certificates to import into a browser.

use std::path::PathBuf;

use commandline::{new_password, write_new};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use commandline::{OrHint as _, Outcome};
use site::Site;
use site::control::Request;

/// User id, name, clearance, roles.
const PEOPLE: [(&str, &str, u8, &[&str]); 3] = [
    ("officer-2", "Example Officer", 2, &["officer"]),
    (
        "reviewer-3",
        "Example Reviewer",
        3,
        &["officer", "reviewer"],
    ),
    ("auditor-1", "Example Auditor", 1, &["auditor"]),
];

/// Files of the people.
pub(super) struct People {
    folder: PathBuf,
}

/// Makes the people that do not exist yet.
pub(super) async fn ensure(site: &Site) -> Outcome<People> {
    let folder = site.data.join("people");
    durable::create_dir_all(&folder).or_hint(
        format!("cannot make {}", folder.display()),
        "check the folder's rights",
    )?;
    for (uid, name, clearance, roles) in PEOPLE {
        // The password file is written last: where it is, the person is complete.
        if folder.join(format!("{uid}.password")).exists() {
            continue;
        }
        let (given_name, surname) = name.split_once(' ').unwrap_or((name, ""));
        let password = new_password()?;
        let line = json!({
            "uid": uid,
            "name": name,
            "given_name": given_name,
            "surname": surname,
            "email": format!("{uid}@example.org"),
            "organisation": site.config.site.organisation,
            "clearance": clearance,
            "roles": roles,
            "units": [site.config.units.default],
            "password": password.as_str(),
        });
        let people = Zeroizing::new(line.to_string());
        let import = Request::Import {
            people,
            enable: false,
        };
        super::order(site, import).await?;
        let request = Request::IssueUser {
            profile: None,
            uid: uid.to_owned(),
            password: password.clone(),
        };
        let issued = super::order(site, request).await?;
        let p12 = hex::decode(crate::commands::text(&issued, "pkcs12_hex"))
            .or_hint("the certificate is damaged", "report this")?;
        let file = folder.join(format!("{uid}.p12"));
        // A file that an interrupted first run left has another password.
        let _ = std::fs::remove_file(&file);
        write_new(&file, &p12)?;
        write_new(
            &folder.join(format!("{uid}.password")),
            format!("{}\n", password.as_str()).as_bytes(),
        )?;
    }
    Ok(People { folder })
}

impl People {
    /// For machines: where everybody's certificate and password are.
    pub(super) fn files(&self) -> Value {
        let person = |(uid, name, clearance, roles): (&str, &str, u8, &[&str])| {
            json!({
                "uid": uid,
                "name": name,
                "clearance": clearance,
                "roles": roles,
                "pkcs12": self.folder.join(format!("{uid}.p12")),
                "password_file": self.folder.join(format!("{uid}.password")),
            })
        };
        PEOPLE.into_iter().map(person).collect()
    }

    /// User id and password file of the first one.
    pub(super) fn example(&self) -> (&'static str, PathBuf) {
        let [(uid, ..), ..] = PEOPLE;
        (uid, self.folder.join(format!("{uid}.password")))
    }

    /// For people: how to log in.
    pub(super) fn help(&self) -> String {
        let mut text =
            String::from("Log in as one of these, by importing the certificate into a browser:\n");
        for (uid, name, clearance, roles) in PEOPLE {
            text.push_str(&format!(
                "  {:<12} {name:<18} clearance {clearance}  {:<17}  {}\n",
                uid,
                roles.join(", "),
                self.folder.join(format!("{uid}.p12")).display(),
            ));
        }
        text.push_str(&format!(
            "  or by name and password (level 1 only). Passwords, also of the files: {}/*.password\n\n",
            self.folder.display()
        ));
        text
    }
}
