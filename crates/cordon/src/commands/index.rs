//! `cordon evidence rebuild-index` and `accept-loss`: index and archive of a stopped site.

use serde_json::json;
use time::OffsetDateTime;

use super::{audit::open_log, print};
use crate::cli::{AcceptLoss, SiteArgs};
use commandline::{OrHint as _, Outcome};
use site::owner::AsOwner;
use site::{Site, console, last_checkpoint, parts};

pub(crate) async fn rebuild(args: &SiteArgs, json: bool) -> Outcome {
    let _owner = AsOwner::of(&args.data)?;
    let (site, rebuilt, kept) = Site::rebuild_index(args).await?;
    site.close().await;
    let value = json!({ "rebuilt": rebuilt, "former": kept });
    let mut text = format!(
        "the index is rebuilt: {} accepted blocks, {} set apart",
        rebuilt.accepted, rebuilt.set_apart
    );
    if kept.exists() {
        text.push_str(&format!("\nformer index  {}", kept.display()));
    }
    if !rebuilt.carried_over {
        text.push_str("\nopen uploads are lost; cameras send them again");
    }
    for block in &rebuilt.lost {
        text.push_str(&format!("\nnot in the archive  {block}"));
    }
    print(json, &value, &text)
}

pub(crate) fn accept_loss(args: &AcceptLoss, json: bool) -> Outcome {
    const HINT: &str = "check the folder's rights and its disk";
    let data = &args.site.data;
    let _owner = AsOwner::of(data)?;
    let log = open_log(args)?;
    let now = OffsetDateTime::now_utc();
    last_checkpoint::hold(data, &log, now)?;
    let sink = parts::role(&log, "centre")?;
    let missing = centre::lost_blocks(&data.join("centre"), sink);
    let missing = missing.or_hint("cannot compare the archive with the log", HINT)?;
    let events = centre::accepted_loss(&console::this_process(), &args.reason, &missing);
    let recorded = parts::role(&log, "site")?.record_all(events);
    recorded.or_hint("the event cannot be recorded", "make room on the disk")?;
    last_checkpoint::write(data, &log)?;
    let missing = missing.len();
    let value = json!({ "accepted": true, "missing": missing });
    let text = format!("the loss of {missing} blocks is recorded; the site may go on without them");
    print(json, &value, &text)
}
