//! `cordon evidence quarantine`: blocks that were set apart, and the decision about them.

use serde_json::{Value, json};

use super::{list, print, text};
use crate::administration::QuarantineOrder;
use crate::cli::quarantine::Quarantine;
use crate::control::{Request, ask};
use crate::failure::Outcome;

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
        Quarantine::Reject {
            site,
            block,
            reason,
        } => (site, QuarantineOrder::Reject { block, reason }),
    };
    let value = ask(&site, Request::Quarantine(order)).await?;
    let shown = match value.get("done").and_then(Value::as_str) {
        Some(done) => format!("block {} {done}", text(&value, "block_sha256")),
        None => table(&value),
    };
    print(json, &value, &shown)
}

fn table(value: &Value) -> String {
    if value.get("blocks").is_none() {
        let against = match text(value, "code") {
            "" => "nothing stands against it any more".to_owned(),
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
    format!(
        "{}  {}  {:<16} {:>12} bytes  {}",
        text(block, "block_sha256"),
        text(block, "received_at"),
        text(block, "device"),
        block.get("size").and_then(Value::as_u64).unwrap_or(0),
        text(block, "reason"),
    )
}
