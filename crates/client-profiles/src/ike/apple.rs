//! Apple's configuration profile (developer.apple.com, "Device Management", VPN payload, IKEv2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{Credential, Profile, Uuid};

/// One of the payloads of a profile.
fn payload(kind: &str, uuid: Uuid, name: &str, content: &str) -> Zeroizing<String> {
    Zeroizing::new(format!(
        "<dict>\n{}{content}</dict>\n",
        head(kind, uuid, name)
    ))
}

fn head(kind: &str, uuid: Uuid, name: &str) -> String {
    [
        string("PayloadType", kind),
        string("PayloadIdentifier", &format!("org.cordon.{uuid}")),
        string("PayloadUUID", &uuid.to_string()),
        string("PayloadDisplayName", name),
        integer("PayloadVersion", 1),
    ]
    .concat()
}

fn string(key: &str, value: &str) -> String {
    format!("<key>{key}</key><string>{value}</string>\n")
}

fn integer(key: &str, value: u32) -> String {
    format!("<key>{key}</key><integer>{value}</integer>\n")
}

fn data(key: &str, bytes: &[u8]) -> Zeroizing<String> {
    let text = Zeroizing::new(STANDARD.encode(bytes));
    Zeroizing::new(format!("<key>{key}</key><data>{}</data>\n", text.as_str()))
}

/// ML-KEM-768 on top (IANA's number of it), from iOS and macOS 26 on; earlier ones pass over the key. For the IKE SA alone: keys of
/// Child SAs derive from its own.
const ML_KEM: &str =
    "<key>PostQuantumKeyExchangeMethods</key><array><integer>36</integer></array>\n";

/// Algorithms of an SA. The integrity algorithm of AES-GCM names the pseudorandom function, group 19 is
/// P-256.
fn algorithms(key: &str, minutes: u32, more: &str) -> String {
    format!(
        "<key>{key}</key><dict>\n{}{}{}{}{more}</dict>\n",
        string("EncryptionAlgorithm", "AES-256-GCM"),
        string("IntegrityAlgorithm", "SHA2-256"),
        integer("DiffieHellmanGroup", 19),
        integer("LifeTimeInMinutes", minutes),
    )
}

pub(super) fn render(profile: &Profile<'_>) -> Zeroizing<String> {
    let [whole, root, identity, vpn] = profile.uuids;
    let (gateway, name) = (profile.gateway, profile.name);
    let mut payloads = Zeroizing::new(String::new());
    let certificate = data("PayloadContent", profile.root_der);
    payloads.push_str(&payload(
        "com.apple.security.root",
        root,
        "Root of the site",
        &certificate,
    ));
    let mut ike = [
        string("RemoteAddress", gateway),
        string("RemoteIdentifier", gateway),
        string("DeadPeerDetectionRate", "Medium"),
        integer("EnablePFS", 1),
        integer("UseConfigurationAttributeInternalIPSubnet", 0),
        algorithms("IKESecurityAssociationParameters", 240, ML_KEM),
        algorithms("ChildSecurityAssociationParameters", 60, ""),
        // A gateway without ML-KEM is taken all the same.
        integer("AllowPostQuantumKeyExchangeFallback", 1),
    ]
    .concat();
    match &profile.credential {
        Credential::Certificate { subject, pkcs12 } => {
            let content = data("PayloadContent", pkcs12);
            let kind = "com.apple.security.pkcs12";
            payloads.push_str(&payload(kind, identity, name, &content));
            ike.push_str(&string("LocalIdentifier", subject));
            ike.push_str(&string("AuthenticationMethod", "Certificate"));
            ike.push_str(&string("PayloadCertificateUUID", &identity.to_string()));
        }
        Credential::Password => {
            ike.push_str(&string("LocalIdentifier", name));
            ike.push_str(&string("AuthenticationMethod", "None"));
            ike.push_str(&integer("ExtendedAuthEnabled", 1));
            ike.push_str(&string("AuthName", name));
        }
    }
    let content = format!(
        "{}{}<key>IKEv2</key><dict>\n{ike}</dict>\n",
        string("VPNType", "IKEv2"),
        string("UserDefinedName", gateway),
    );
    payloads.push_str(&payload("com.apple.vpn.managed", vpn, gateway, &content));
    Zeroizing::new(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n<dict>\n{}\
         <key>PayloadContent</key><array>\n{}</array>\n</dict>\n</plist>\n",
        head("Configuration", whole, gateway),
        payloads.as_str(),
    ))
}
