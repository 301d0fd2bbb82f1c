//! The commands of tunnels and of OpenVPN: `cordon vpn …`.
//!
//! [`run`] carries a command out. `up` and `manual` run tunnels, `client` sends requests to running ones, `init`, `profile` and
//! `openvpn` write configurations. A key is made here (`certify`) and certified by a site, which these commands reach only by
//! [`SiteControl`].
#![forbid(unsafe_code)]

use commandline::{OrHint as _, Outcome};

mod certify;
mod check;
mod cli;
mod client;
mod confinement;
mod credentials;
mod crls;
mod fetcher;
mod firewall;
mod gateway;
mod http_client;
mod init;
mod key_process;
mod load;
mod manual;
mod ocsp;
mod openvpn;
mod ping;
mod prepare;
mod profile;
mod site;
mod status_socket;
mod up;

pub use certify::read_csr;
pub use cli::Vpn;
pub use client::describe_accelerator;
pub use key_process::start as start_key_process;
pub use site::{Answer, CertificateRequest, Control, SiteControl, SiteRequest};

use crate::client::Request;
use crate::manual::StatusFormat;

/// Carries a command out, in a runtime of its own where it needs one.
///
/// # Errors
/// What the command could not do.
pub fn run(command: Vpn, control: Control, json: bool) -> Outcome {
    match command {
        Vpn::Signer => signer(),
        Vpn::Fetcher => fetcher::run(),
        Vpn::Up { config } => {
            // The process gives up its rights before it has other threads.
            let signer = confinement::begin(&config)?;
            commandline::block_on(up::up(&config, signer, control))
        }
        other => commandline::block_on(dispatch(other, control, json)),
    }
}

/// `cordon vpn signer`, before there is any other thread.
fn signer() -> Outcome {
    keyhost::run().or_hint(
        "the process with the private keys",
        "`cordon vpn up` starts it by itself",
    )
}

async fn dispatch(command: Vpn, control: Control, json: bool) -> Outcome {
    match command {
        Vpn::Static { config } => manual::run_static(&config).await,
        Vpn::Status { target, format } => {
            let format = if json { StatusFormat::Json } else { format };
            manual::status(&client::socket_of(&target)?, format).await
        }
        Vpn::Init(command) => init::run(command, control, json).await,
        Vpn::Prepare { config, dry_run } => prepare::run(&config, dry_run, json).await,
        Vpn::Ping {
            config,
            connection,
            target,
        } => ping::run(&config, connection.as_deref(), target, json).await,
        Vpn::Check { config } => check::run(&config, json).await,
        Vpn::Explain { target } => client::explain(&target, json).await,
        Vpn::Down { target, name } => client::tell(&target, Request::Down { name }, json).await,
        Vpn::Connect { target, name } => {
            client::tell(&target, Request::Connect { name }, json).await
        }
        Vpn::Rekey { target, name } => client::tell(&target, Request::Rekey { name }, json).await,
        Vpn::Reauth { target, name } => client::tell(&target, Request::Reauth { name }, json).await,
        Vpn::Reload { target } => client::tell(&target, Request::Reload, json).await,
        Vpn::Block { config } => firewall::block(&config, json),
        Vpn::Unblock(which) => firewall::unblock(&which, json),
        Vpn::ExportKeys { config, output } => manual::export_keys(&config, &output),
        Vpn::Profile(args) => profile::run(&args, control, json).await,
        // `run` carried them out before there was a runtime.
        Vpn::Up { .. } | Vpn::Signer | Vpn::Fetcher => Ok(()),
        Vpn::Openvpn(command) => openvpn::run(command, control, json).await,
        Vpn::GatewayCertificate(args) => gateway::run(&args, control, json).await,
    }
}
