//! `cordon config`: checking before restarting.

use serde_json::json;

use crate::cli::ConfigCommand;
use crate::config::Config;
use crate::failure::Outcome;

pub(crate) fn run(command: ConfigCommand, json: bool) -> Outcome {
    let ConfigCommand::Check { file } = command;
    Config::load(Some(&file))?;
    super::print(
        json,
        &json!({ "file": file, "valid": true }),
        "the file is valid",
    )
}
