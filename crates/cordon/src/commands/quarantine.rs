//! `cordon evidence quarantine`: blocks that were set apart, and the decisions about them.

use serde_json::{Value, json};

use super::{list, print, text};
use crate::cli::quarantine::Quarantine;
use commandline::Outcome;
use site::administration::QuarantineOrder;
use site::control::{Request, ask};

pub(crate) async fn run(command: Quarantine, json: bool) -> Outcome {
    let (site, order) = match command {
        Quarantine::List { site } => (site, QuarantineOrder::List),
        Quarantine::Show { site, block } => (site, QuarantineOrder::Show { block }),
        Quarantine::Release(args) => (
            args.site,
            QuarantineOrder::Release {
                block: args.block,
                exceptions: args.exceptions,
                reason: args.reason,
            },
        ),
        Quarantine::Keep {
            site,
            block,
            reason,
        } => (site, QuarantineOrder::Keep { block, reason }),
        Quarantine::Reject {
            site,
            block,
            reason,
        } => (site, QuarantineOrder::Reject { block, reason }),
        Quarantine::Confirm { site, block } => (site, QuarantineOrder::Confirm { block }),
        Quarantine::Withdraw {
            site,
            block,
            reason,
        } => (site, QuarantineOrder::Withdraw { block, reason }),
        Quarantine::Destroy { site, block } => (site, QuarantineOrder::Destroy { block }),
    };
    let value = ask(&site, Request::Quarantine(order)).await?;
    let shown = match value.get("done").and_then(Value::as_str) {
        Some(done) => {
            let block = value.get("block").unwrap_or(&Value::Null);
            let next = match (done, text(block, "destroy_from")) {
                (
                    "proposed for release" | "proposed to be kept" | "proposed for destruction",
                    _,
                ) => "\nanother person confirms it with `cordon evidence quarantine confirm`"
                    .to_owned(),
                (_, "") => String::new(),
                (_, from) => {
                    format!("\n`cordon evidence quarantine destroy` removes it from {from} on")
                }
            };
            format!("block {} is {done}{next}", text(&value, "block_sha256"))
        }
        None => table(&value),
    };
    print(json, &value, &shown)
}

fn table(value: &Value) -> String {
    if value.get("blocks").is_none() {
        let against = match text(value, "code") {
            "" => "every check passes now".to_owned(),
            code => format!("{code}: {}", text(value, "detail")),
        };
        return format!(
            "{}\n{against}",
            line(value.get("block").unwrap_or(&json!({})))
        );
    }
    let lines: Vec<String> = list(value, "blocks").iter().map(line).collect();
    format!("{} blocks in quarantine\n{}", lines.len(), lines.join("\n"))
}

fn line(block: &Value) -> String {
    let proposal = block.get("proposal").map(proposal).unwrap_or_default();
    let kept = match block.get("kept").and_then(Value::as_bool) {
        Some(true) => " (kept)",
        _ => "",
    };
    format!(
        "{}  {}  {:<16} {:>12} bytes  {}{kept}{proposal}",
        text(block, "block_sha256"),
        text(block, "received_at"),
        text(block, "device"),
        block.get("size").and_then(Value::as_u64).unwrap_or(0),
        text(block, "reason"),
    )
}

/// A proposal on a line below its block.
fn proposal(proposal: &Value) -> String {
    let uid = |step| {
        proposal
            .get(step)
            .map(|step| text(step, "uid"))
            .unwrap_or_default()
    };
    let state = match text(proposal, "destroy_from") {
        "" => "waits for a second person".to_owned(),
        from => format!("{} confirmed it; from {from} on", uid("confirmed")),
    };
    format!(
        "\n    {} proposed to {} it ({}): {state}",
        uid("proposed"),
        text(proposal, "act"),
        text(proposal, "reason"),
    )
}
