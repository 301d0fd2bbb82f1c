//! strongSwan's Android app (docs.strongswan.org, "VPN profiles").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use zeroize::Zeroizing;

use super::{Credential, ESP, IKE, Profile};

pub(super) fn render(profile: &Profile<'_>) -> Zeroizing<String> {
    let [uuid, ..] = profile.uuids;
    let (kind, local) = match &profile.credential {
        Credential::Certificate { pkcs12, .. } => {
            ("ikev2-cert", json!({ "p12": STANDARD.encode(pkcs12) }))
        }
        Credential::Password => ("ikev2-eap", json!({ "eap_id": profile.name })),
    };
    let value = json!({
        "uuid": uuid.to_string(),
        "name": format!("{} ({})", profile.gateway, profile.name),
        "type": kind,
        "remote": {
            "addr": profile.gateway,
            "id": profile.gateway,
            "cert": profile.root_base64(),
            "certreq": true,
        },
        "local": local,
        "ike-proposal": IKE.join(" "),
        "esp-proposal": ESP.join(" "),
        "split-tunneling": { "subnets": profile.networks },
    });
    Zeroizing::new(format!("{value:#}\n"))
}
