//! strongSwan on Linux (`man swanctl.conf`).

use super::{Credential, ESP, IKE, ML_KEM, Profile};

/// Addresses that the client asks for: of the families of the networks that it is to reach.
fn virtual_addresses(networks: &[String]) -> String {
    let families = [("0.0.0.0", false), ("::", true)];
    let wanted = |v6| networks.iter().any(|network| network.contains(':') == v6);
    let wanted = families.into_iter().filter(|(_, v6)| wanted(*v6));
    let wanted: Vec<_> = wanted.map(|(any, _)| any).collect();
    wanted.join(",")
}

/// Proposals, the first one also with ML-KEM on top where the client knows it.
fn proposals(all: &[&str], ml_kem: bool) -> String {
    let first = all.first().filter(|_| ml_kem);
    let first = first.map(|proposal| format!("{proposal}{ML_KEM}"));
    let all = all.iter().map(|&proposal| proposal.to_owned());
    first.into_iter().chain(all).collect::<Vec<_>>().join(",")
}

pub(super) fn render(profile: &Profile<'_>, ml_kem: bool) -> String {
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
        None => {
            let vips = virtual_addresses(profile.networks);
            (format!("    vips = {vips}\n"), String::new())
        }
    };
    let connection = format!("{name}-{gateway}").replace(['.', '@', ':', '/'], "-");
    let (ike, esp) = (proposals(&IKE, ml_kem), proposals(&ESP, ml_kem));
    let remote_ts = profile.networks.join(",");
    let versions = match ml_kem {
        true => {
            "# For strongSwan 6 and later, with ML-KEM: it takes the place of the other swanctl.conf.\n"
        }
        false => "",
    };
    format!(
        "# Copy to swanctl.conf or conf.d of strongSwan, the folders beside it likewise, and run\n\
         #   swanctl --load-all && swanctl --initiate --child tunnel\n\
         {versions}{after}\
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
