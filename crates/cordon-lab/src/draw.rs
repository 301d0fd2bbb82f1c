//! `cordon-lab draw`.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;
use commandline::{OrHint as _, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// Name of the camera in the pictures.
const DEVICE: &str = "camera-17";

/// `cordon-lab draw`.
#[derive(Debug, Args)]
pub(crate) struct Draw {
    /// Folder for `violation-NNNNNN.jpg` and `.json`; made when it is missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: u64,
    /// Number of the first one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    first: u64,
}

pub(crate) fn run(args: &Draw, json: bool) -> Outcome {
    let out = &args.out;
    durable::create_dir_all(out).or_hint(
        format!("cannot make {}", out.display()),
        "check the parent folder's rights",
    )?;
    let bar = match json || !std::io::stderr().is_terminal() {
        true => ProgressBar::hidden(),
        false => {
            let style =
                ProgressStyle::with_template("{spinner} pictures {bar:40} {pos}/{len}  {per_sec}");
            ProgressBar::new(args.count)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        }
    };
    for number in args.first..args.first.saturating_add(args.count) {
        scene::draw(out, out, number, DEVICE).or_hint("cannot draw", "check the disk")?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let text = format!("drew {} pictures into {}", args.count, out.display());
    commandline::print(
        json,
        &json!({ "folder": out, "pictures": args.count }),
        &text,
    )
}
