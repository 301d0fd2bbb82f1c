//! `cordon config`: trying settings before restarting.

use serde_json::json;
use time::OffsetDateTime;

use crate::cli::ConfigCommand;
use commandline::{Failure, Outcome};
use site::config::Config;
use site::notices::{self, Relay};
use site::parts::files;

pub(crate) async fn run(command: ConfigCommand, json: bool) -> Outcome {
    match command {
        ConfigCommand::Check { file } => {
            let config = Config::load(Some(&file))?;
            files::check(&config, OffsetDateTime::now_utc())?;
            super::print(
                json,
                &json!({ "file": file, "valid": true }),
                "the file is valid",
            )
        }
        ConfigCommand::TestMail { file, to } => {
            let mail = Config::load(Some(&file))?.mail;
            let relay = Relay::open(&mail)?.ok_or_else(|| {
                let what = anyhow::anyhow!("{}: there is no mail relay", file.display());
                Failure::new(what, "set `relay` in [mail]")
            })?;
            notices::send_test(&relay, &to).await?;
            super::print(
                json,
                &json!({ "relay": mail.relay, "to": to, "sent": true }),
                &format!("{} has taken a mail to {to}", mail.relay),
            )
        }
    }
}
