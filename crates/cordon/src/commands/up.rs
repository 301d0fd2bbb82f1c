//! `cordon up`: all roles until a signal.

use serde_json::json;

use crate::cli::Up;
use commandline::Outcome;
use commandline::stop_on_signals;
use site::Site;
use site::up::Running;

/// Runs a site and says where it listens.
pub(crate) async fn run(args: &Up, json: bool) -> Outcome {
    let site = Site::open_to_run(&args.site).await?;
    let running = Running::start(&site).await?;
    stop_on_signals(running.stop_token())?;
    let ldap_url = running.ldap.map(|ldap| site.ldap_url(ldap));
    let ldap_base = ldap_url.is_some().then(|| site.ldap_base());
    let value = json!({
        "portal_url": running.portal_url(&site),
        "intake": running.intake.to_string(),
        "enrolment": running.enrolment.to_string(),
        "metrics": running.metrics.to_string(),
        "ldap_url": ldap_url,
        "ldap_base": ldap_base,
    });
    let ldap_line = match (&ldap_url, &ldap_base) {
        (Some(url), Some(base)) => format!("ldap       {url}  below {base}\n"),
        _ => String::new(),
    };
    let text = format!(
        "portal     {}\nintake     {}\nenrolment  {}\nmetrics    http://{}/metrics\n{ldap_line}stop with Ctrl-C",
        running.portal_url(&site),
        running.intake,
        running.enrolment,
        running.metrics,
    );
    super::print(json, &value, &text)?;
    running.until_stopped().await
}
