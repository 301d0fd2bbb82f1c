//! `cordon ibc variants`: what there is to choose from.

use ibc::{Backend, Variant};
use serde_json::json;

use commandline::Outcome;

/// Lists variants and back ends.
pub(super) fn run(json: bool) -> Outcome {
    let row = |variant: Variant| {
        json!({
            "name": variant.name(),
            "level": variant.level(),
            "key_bits": variant.key_size() * 8,
            "rounds": variant.rounds(),
        })
    };
    let backends: Vec<String> = Backend::available().map(|b| b.to_string()).collect();
    let value = json!({
        "variants": Variant::ALL.map(row),
        "backends": backends,
        "default_backend": Backend::best().to_string(),
        "warning": super::warning::WARNING,
    });
    let mut text = format!("{:<15}{:<10}{:>8}{:>8}\n", "name", "level", "key", "rounds");
    for variant in Variant::ALL {
        text.push_str(&format!(
            "{:<15}{:<10}{:>8}{:>8}\n",
            variant.name(),
            variant.level().unwrap_or("-"),
            variant.key_size() * 8,
            variant.rounds()
        ));
    }
    text.push_str(&format!(
        "back ends of this CPU: {}; by default {}\n{}",
        backends.join(", "),
        Backend::best(),
        super::warning::WARNING
    ));
    commandline::print(json, &value, &text)
}
