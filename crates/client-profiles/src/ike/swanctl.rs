//! strongSwan on Linux (`man swanctl.conf`).

use super::{Credential, ESP, IKE, Profile};

pub(super) fn render(profile: &Profile<'_>) -> String {
    let Profile { name, gateway, .. } = profile;
    let (local, after) = match &profile.credential {
        Credential::Certificate { .. } => (
            format!("      auth = pubkey\n      certs = {name}.pem"),
            String::new(),
        ),
        Credential::Password => (
            format!("      auth = eap-mschapv2\n      eap_id = {name}"),
            format!("# The password: secrets {{ eap-1 {{ id = {name} secret = \"...\" }} }}\n"),
        ),
    };
    let (virtual_address, local_ts) = match profile.local {
        Some(network) => (String::new(), format!("        local_ts = {network}\n")),
        None => ("    vips = 0.0.0.0\n".to_owned(), String::new()),
    };
    let connection = format!("{name}-{gateway}").replace(['.', '@', ':', '/'], "-");
    let (ike, esp, remote_ts) = (IKE.join(","), ESP.join(","), profile.networks.join(","));
    format!(
        "# Copy to swanctl.conf or conf.d of strongSwan, the folders beside it likewise, and run\n\
         #   swanctl --load-all && swanctl --initiate --child tunnel\n\
         {after}\
         connections {{\n\
         \x20 {connection} {{\n\
         \x20   version = 2\n\
         \x20   remote_addrs = {gateway}\n\
         {virtual_address}\
         \x20   proposals = {ike}\n\
         \x20   local {{\n{local}\n    }}\n\
         \x20   remote {{\n      auth = pubkey\n      id = {gateway}\n    }}\n\
         \x20   children {{\n      tunnel {{\n{local_ts}\
         \x20       remote_ts = {remote_ts}\n\
         \x20       esp_proposals = {esp}\n\
         \x20       start_action = trap\n\
         \x20       dpd_action = restart\n\
         \x20     }}\n    }}\n  }}\n}}\n"
    )
}
