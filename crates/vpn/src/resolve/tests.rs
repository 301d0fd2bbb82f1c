use std::os::unix::fs::PermissionsExt as _;

use pki::PrivateKey;
use pki::cert::CertificateChain;

use super::*;

mod mistakes;
mod times_and_sizes;

const FILE: &str = r#"
status = "control.sock"
[interface]
name = "tunnel0"
[[pool]]
name = "inside"
addresses = ["10.9.0.0/24"]
[[connection]]
name = "headquarters"
remote = "192.0.2.1"
local_id = "camera-17.example.org"
remote_id = "gateway.example.org"
psk_file = "psk"
start = "start"
[[connection.child]]
name = "net"
local = ["10.5.1.0/24"]
remote = ["10.5.2.0/24"]
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_secret(&folder, "a secret for this test only\n", 0o600);
    folder
}

fn read(text: &str, folder: &tempfile::TempDir) -> Result<ResolvedConfig, ResolveError> {
    ResolvedConfig::read(text, folder.path(), &KeyHost::in_thread().unwrap())
}

fn write_secret(folder: &tempfile::TempDir, text: &str, mode: u32) {
    let path = folder.path().join("psk");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn refused(folder: &tempfile::TempDir, from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    let text = FILE.replace(from, to);
    match read(&text, folder) {
        Ok(_) => panic!("{to} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn connection_is_resolved_with_the_files_it_names() {
    let folder = folder();
    let loaded = read(FILE, &folder).unwrap();
    let [resolved] = loaded.connections.as_slice() else {
        panic!("one connection");
    };
    assert_eq!(resolved.connection.ike.len(), 2);
    assert_eq!(
        resolved.children[0].routes,
        ["10.5.2.0/24".parse().unwrap()]
    );
    assert_eq!(resolved.children[0].selectors.len(), 1);
    assert_eq!(resolved.connection.liveness, Some(Duration::from_secs(30)));
}

#[test]
fn kernel_backend_is_accepted_and_its_limits_refused() {
    let folder = folder();
    let text = FILE.replace("status =", "backend = \"kernel\"\nstatus =");
    let loaded =
        ResolvedConfig::read(&text, folder.path(), &KeyHost::in_thread().unwrap()).unwrap();
    assert_eq!(loaded.config.backend, BackendConfig::Kernel);
    for (from, to, expected) in [
        ("\"start\"", "\"trap\"", "start = \"trap\" is for backend"),
        (
            "name = \"net\"",
            "name = \"net\"\nmode = \"transport\"",
            "transport mode is for backend",
        ),
    ] {
        let error = ResolvedConfig::read(
            &text.replace(from, to),
            folder.path(),
            &KeyHost::in_thread().unwrap(),
        )
        .err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn resolve_error_names_place_and_reason() {
    let folder = folder();
    for (from, to, expected) in [
        ("psk_file", "psk_fil", "unknown field `psk_fil`"),
        ("status =", "state =", "unknown field `state`"),
        (
            "status =",
            "backend = \"kernel\"\ndebug = { capture = \"c.pcap\" }\nstatus =",
            "use tcpdump",
        ),
        (
            "status =",
            "backend = \"kernel\"\naccelerator = { uio = \"/dev/uio0\" }\nstatus =",
            "[accelerator]: the kernel takes devices by drivers of its own",
        ),
        (
            "status =",
            "backend = \"kernel\"\npath = { dscp = 46 }\nstatus =",
            "dscp is \"copy\" or 0",
        ),
        (
            "status = \"control.sock\"\n[interface]\nname = \"tunnel0\"\n",
            "status = \"control.sock\"\nbackend = \"kernel\"\n[interface]\nname = \"tunnel0\"\nworkers = 2\n",
            "is for backend = \"user\"",
        ),
        ("\"start\"", "\"now\"", "unknown variant `now`"),
        ("\"psk\"", "\"other\"", "other: No such file"),
        (
            "psk_file = \"psk\"",
            "",
            "one of `psk_file`, `certificate` and `login`",
        ),
        (
            "psk_file = \"psk\"",
            "certificate = \"c.pem\"",
            "`certificate` and `key` go together",
        ),
        (
            "psk_file = \"psk\"",
            "certificate = \"c.pem\"\nkey = \"c.key\"",
            "certificates need [trust]",
        ),
        (
            "remote = \"192.0.2.1\"",
            "",
            "only be started with `remote`",
        ),
        ("\"192.0.2.1\"", "\"2001:db8::1\"", "another address family"),
        ("\"gateway.example.org\"", "\"any\"", "name the peer"),
        ("\"gateway.example.org\"", "\"two words\"", "no identity"),
        (
            "local_id = \"camera-17.example.org\"",
            "",
            "needs `local_id`",
        ),
        ("local = [\"10.5.1.0/24\"]", "", "`local` is missing"),
        (
            "10.5.2.0/24",
            "0.0.0.0/0",
            "contains the peer's own address",
        ),
        ("10.5.2.0/24", "10.5.2.0/33", "10.5.2.0/33"),
        (
            "start = \"start\"",
            "pool = \"inside\"\nstart = \"start\"",
            "`pool` is for peers",
        ),
        (
            "start = \"start\"",
            "pool = \"outside\"",
            "no [[pool]] of that name",
        ),
        (
            "start = \"start\"",
            "pool = \"inside\"\nrequest = [\"ipv4\"]",
            "not both",
        ),
        (
            "start = \"start\"",
            "start = \"trap\"\nrequest = [\"ipv4\"]",
            "start = \"trap\" needs an address",
        ),
        (
            "start = \"start\"",
            "further_addresses = [\"2001:db8::1\"]",
            "another address family",
        ),
        (
            "start = \"start\"",
            "further_certificates = [{ certificate = \"a\", key = \"b\" }]",
            "need `certificate`",
        ),
        ("start = \"start\"", "lifetime = 0.5", "below one second"),
        (
            "start = \"start\"",
            "lifetime = 100000.0",
            "from 0 to 86400",
        ),
        (
            "start = \"start\"",
            "ike = [{ encryption = [\"aes-128-gcm\"], prf = [\"hmac-sha2-256\"], groups = [\"ml-kem-768\"] }]",
            "ml-kem-768 is for `additional` only",
        ),
        (
            "start = \"start\"",
            "ike = [{ encryption = [\"aes-128-cbc\"], prf = [\"hmac-sha2-256\"], groups = [\"p256\"] }]",
            "need `integrity`",
        ),
        (
            "start = \"start\"",
            "ike = [{ encryption = [\"null\"], integrity = [\"hmac-sha2-256-128\"], prf = [\"hmac-sha2-256\"], groups = [\"p256\"] }]",
            "IKE needs encryption",
        ),
        (
            "start = \"start\"",
            "ppk = { id = \"lab\", secret_file = \"psk\" }",
            "a secret of 32 bytes or more",
        ),
        (
            "start = \"start\"",
            "eap = { methods = [\"tls\"] }",
            "a certificate proves us",
        ),
        (
            "start = \"start\"",
            "login = { name = \"camera-17\", method = \"tls\" }",
            "one of `psk_file`, `certificate` and `login`",
        ),
        (
            "psk_file = \"psk\"",
            "login = { name = \"camera-17\", method = \"mschapv2\", password_file = \"psk\" }",
            "certificates need [trust]",
        ),
        (
            "psk_file = \"psk\"",
            "login = { name = \"camera-17\", method = \"md5\" }",
            "unknown variant `md5`",
        ),
        (
            "name = \"net\"",
            "name = \"net\"\nmode = \"transport\"",
            "needs `remote`, and `listen` of [path]",
        ),
        (
            "start = \"start\"",
            "ike = [{ encryption = [\"rot13\"], prf = [\"hmac-sha2-256\"], groups = [\"p256\"] }]",
            "unknown algorithm \"rot13\"",
        ),
    ] {
        let error = refused(&folder, from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn transport_mode_without_two_hosts_is_refused() {
    let folder = folder();
    let text = FILE.replace(
        "local = [\"10.5.1.0/24\"]\nremote = [\"10.5.2.0/24\"]",
        "mode = \"transport\"",
    );
    let text = text.replace(
        "[interface]",
        "path = { listen = \"192.0.2.7\" }\n[interface]",
    );
    let loaded = read(&text, &folder).unwrap();
    let resolved = &loaded.connections[0];
    let hosts = ("192.0.2.7".parse().unwrap(), "192.0.2.1".parse().unwrap());
    assert_eq!(resolved.hosts, Some(hosts));
    assert!(
        resolved.children[0].routes.is_empty(),
        "rules instead of routes"
    );
    assert_eq!(resolved.children[0].selectors.len(), 1);
    assert_eq!(resolved.connection.children[0].mode, Mode::Transport);
    assert!(resolved.connection.mobility);
    for (from, to, expected) in [
        (
            "mode =",
            "local = [\"10.0.0.0/8\"]\nmode =",
            "no `local`, no `remote`",
        ),
        (
            "start = \"start\"",
            "pool = \"inside\"",
            "no addresses inside the tunnel",
        ),
        (
            "remote = \"192.0.2.1\"\n",
            "",
            "only be started with `remote`",
        ),
    ] {
        let error = read(&text.replace(from, to), &folder).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected), "{to}: {error}");
    }
    // Packets without UDP reach every socket.
    for (line, expected) in [
        (
            "path = { listen = \"192.0.2.7\", encapsulation = \"auto\" }",
            "more than one needs",
        ),
        (
            "path = { listen = \"192.0.2.7\" }\nbackend = \"kernel\"",
            "more than one is for",
        ),
    ] {
        let text = text.replace("path = { listen = \"192.0.2.7\" }", line);
        let two = "name = \"tunnel0\"\nworkers = 2";
        let text = text.replace("name = \"tunnel0\"", two);
        let error = read(&text, &folder).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected), "{line}: {error}");
    }
    // Addresses stand in the packets then.
    let native = text.replace("192.0.2.7\"", "192.0.2.7\", encapsulation = \"native\"");
    let loaded = read(&native, &folder).unwrap();
    assert!(!loaded.connections[0].connection.mobility);
}

#[test]
fn ppk_is_read_and_a_short_one_refused() {
    let folder = folder();
    let ppk = "ppk = { id = \"lab\", secret_file = \"psk\" }\nstart = \"start\"";
    let text = FILE.replace("start = \"start\"", ppk);
    write_secret(&folder, "0123456789abcdef0123456789abcde", 0o600);
    assert!(read(&text, &folder).is_err(), "31 bytes");
    write_secret(&folder, "0123456789abcdef0123456789abcdef", 0o600);
    let loaded = read(&text, &folder).unwrap();
    let ppk = loaded.connections[0].connection.ppk.as_ref().unwrap();
    assert_eq!(ppk.id, b"lab");
}

#[test]
fn secret_readable_by_others_or_short_is_refused() {
    let folder = folder();
    write_secret(&folder, "a secret for this test only", 0o640);
    assert!(refused(&folder, "name", "name").contains("others may read it (mode 640)"));
    write_secret(&folder, "12345678901\n", 0o600);
    assert!(refused(&folder, "name", "name").contains("less than 12 bytes"));
    write_secret(&folder, "123456789012\n", 0o600);
    read(FILE, &folder).unwrap();
}

#[test]
fn fingerprint_changes_with_file_and_secret() {
    let folder = folder();
    let fingerprint = |text: &str| read(text, &folder).unwrap().connections[0].fingerprint;
    let first = fingerprint(FILE);
    assert_eq!(first, fingerprint(&format!("# a comment\n{FILE}")));
    assert_ne!(
        first,
        fingerprint(&FILE.replace("10.5.2.0/24", "10.5.3.0/24"))
    );
    write_secret(&folder, "another secret for this test", 0o600);
    assert_ne!(first, fingerprint(FILE));
}

#[test]
fn selector_pairs_without_packets_are_left_out() {
    let network = |text: &str, bits| TrafficSelector::network(text.parse().unwrap(), bits).unwrap();
    let tcp = network("10.0.0.0", 8).with_ports(6, 80, 90).unwrap();
    let udp = network("10.0.0.0", 8).with_ports(17, 0, u16::MAX).unwrap();
    let any = network("10.0.0.0", 8);
    let v6 = network("fd00::", 8);
    assert_eq!(selectors(&[any], &[v6]).len(), 0);
    assert_eq!(selectors(&[tcp], &[udp]).len(), 0);
    let [one] = selectors(&[tcp], &[any, v6])[..] else {
        panic!("one pair");
    };
    assert_eq!(one.protocol, Some(6));
    assert_eq!(one.local_ports, ipsec::selector::PortMatch::Range(80, 90));
    assert_eq!(one.remote_ports, ipsec::selector::PortMatch::Any);
}

#[test]
fn fingerprint_changes_with_the_authorities() {
    use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
    use pki::name::Subject;
    use pki::profile::Profile;

    let folder = tempfile::tempdir().unwrap();
    let now = time::OffsetDateTime::now_utc();
    let root = |name: &str| {
        let key = PrivateKey::generate(pki::KeyAlgorithm::EcdsaP256).unwrap();
        let validity = Validity::starting(now, time::Duration::DAY);
        let request =
            CertificateRequest::new(Profile::Root, Subject::new(name), key.spki(), validity);
        let arc = pki::oid::ExtensionArc::default();
        let root = CertificateAuthority::create_root(&request, key.clone(), arc).unwrap();
        let chain = CertificateChain::new(vec![root.certificate().clone()]).unwrap();
        let file = folder.path().join(format!("{name}.pem"));
        pki::file::save_chain(&file, &chain).unwrap();
        key
    };
    // Whose certificate is ours does not matter here: that of an authority does.
    let key = root("one");
    root("two");
    write_secret(&folder, "the passphrase of the key", 0o600);
    let file = folder.path().join("one.key");
    pki::file::save_private(&file, &key, &"the passphrase of the key".into()).unwrap();
    let text = FILE.replace(
        "psk_file = \"psk\"",
        "certificate = \"one.pem\"\nkey = \"one.key\"\npassphrase_file = \"psk\"",
    );
    let text = text.replace("local_id = \"camera-17.example.org\"\n", "");
    let with = |anchors: &str| {
        let text = format!("trust = {{ anchors = [{anchors}] }}\n{text}");
        read(&text, &folder).unwrap().connections[0].fingerprint
    };
    assert_eq!(with("\"one.pem\""), with("\"one.pem\""));
    assert_ne!(with("\"one.pem\""), with("\"one.pem\", \"two.pem\""));
    let wrong = text.replace("one.key", "psk");
    let error = read(
        &format!("trust = {{ anchors = [\"one.pem\"] }}\n{wrong}"),
        &folder,
    );
    assert!(error.is_err_and(|error| error.to_string().contains("no PKCS#8 key")));
}

/// A site with a certificate that is its own authority.
fn with_certificate() -> (tempfile::TempDir, String) {
    use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
    use pki::name::Subject;
    use pki::profile::Profile;

    let folder = folder();
    let key = PrivateKey::generate(pki::KeyAlgorithm::EcdsaP256).unwrap();
    let validity = Validity::starting(time::OffsetDateTime::now_utc(), time::Duration::DAY);
    let request = CertificateRequest::new(Profile::Root, Subject::new("own"), key.spki(), validity);
    let arc = pki::oid::ExtensionArc::default();
    let root = CertificateAuthority::create_root(&request, key.clone(), arc).unwrap();
    let chain = CertificateChain::new(vec![root.certificate().clone()]).unwrap();
    pki::file::save_chain(&folder.path().join("own.pem"), &chain).unwrap();
    let secret = "a secret for this test only";
    pki::file::save_private(&folder.path().join("own.key"), &key, &secret.into()).unwrap();
    let text = FILE.replace("local_id = \"camera-17.example.org\"\n", "");
    let text = format!("trust = {{ anchors = [\"own.pem\"] }}\n{text}");
    (folder, text)
}

const OWN: &str = "certificate = \"own.pem\"\nkey = \"own.key\"\npassphrase_file = \"psk\"";

#[test]
fn login_methods_are_read_and_conflicts_refused() {
    use ikev2::config::{LocalAuth, RemoteAuth};

    let (folder, text) = with_certificate();
    let with = |lines: &str| {
        let text = text.replace("psk_file = \"psk\"", lines);
        read(&text, &folder).map(|mut loaded| loaded.connections.remove(0))
    };
    let password =
        "login = { name = \"officer-4711\", method = \"mschapv2\", password_file = \"psk\" }";
    let resolved = with(password).unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(
        resolved.connection.local_auth,
        LocalAuth::Eap { .. }
    ));
    assert!(resolved.users.password("officer-4711").is_some() && resolved.keys.is_empty());
    assert_eq!(
        identity::show(&resolved.connection.local_id),
        "officer-4711"
    );
    let tls = "login = { name = \"officer-4711\", method = \"tls\" }";
    let resolved = with(&format!("{OWN}\n{tls}")).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        matches!(resolved.connection.local_auth, LocalAuth::Eap { .. }) && resolved.keys.len() == 1
    );
    for (lines, expected) in [
        (tls.to_owned(), "takes `certificate` and `key`"),
        (format!("{OWN}\n{password}"), "no certificate"),
        (
            format!("{password}\neap = {{ methods = [\"mschapv2\"] }}"),
            "for those who serve it",
        ),
        (
            format!("{OWN}\n{tls}\nppk = {{ id = \"a\", secret_file = \"psk\" }}"),
            "not go with EAP",
        ),
        (
            "login = { name = \"o\", method = \"mschapv2\" }".into(),
            "takes `password_file`",
        ),
        (
            "login = { name = \"o o\", method = \"mschapv2\", password_file = \"psk\" }".into(),
            "bad name",
        ),
    ] {
        let error = with(&lines).err().map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|error| error.contains(expected)),
            "{lines}: {error:?}"
        );
    }

    let served = text
        .replace("start = \"start\"", "")
        .replace("gateway.example.org", "any");
    let serve = |eap: &str| {
        let text = served.replace("psk_file = \"psk\"", &format!("{OWN}\n{eap}"));
        read(&text, &folder).map(|mut loaded| loaded.connections.remove(0))
    };
    let users = folder.path().join("users");
    std::fs::write(&users, "anna:secret\n").unwrap();
    std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o600)).unwrap();
    let both = "eap = { methods = [\"tls\", \"mschapv2\"], users_file = \"users\" }";
    let resolved = serve(both).unwrap_or_else(|error| panic!("{error}"));
    let RemoteAuth::Eap { methods } = &resolved.connection.remote_auth else {
        panic!("EAP");
    };
    assert_eq!(methods.len(), 2);
    // Another user is not another connection.
    std::fs::write(&users, "anna:secret\nberta:secret\n").unwrap();
    let later = serve(both).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(resolved.fingerprint, later.fingerprint);
    assert!(resolved.users.password("berta").is_none() && later.users.password("berta").is_some());
    for (eap, expected) in [
        ("eap = { methods = [] }", "`methods` is empty"),
        (
            "eap = { methods = [\"mschapv2\"] }",
            "`users_file` goes with",
        ),
        (
            "eap = { methods = [\"tls\"], users_file = \"users\" }",
            "`users_file` goes with",
        ),
        (
            "eap = { methods = [\"mschapv2\"], users_file = \"own.pem\" }",
            "own.pem",
        ),
    ] {
        let error = serve(eap).err().map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|error| error.contains(expected)),
            "{eap}: {error:?}"
        );
    }
}

#[test]
fn ocsp_responders_need_a_policy_and_keep_their_order() {
    let (folder, text) = with_certificate();
    let text = text.replace("psk_file = \"psk\"", OWN);
    let with = |lines: &str| {
        let trust = format!("anchors = [\"own.pem\"], {lines}");
        read(&text.replace("anchors = [\"own.pem\"]", &trust), &folder)
    };
    let url = "http://a.example.org/";
    for (lines, expected) in [
        ("ocsp = \"required\"".to_owned(), vec![]),
        (
            format!("ocsp = \"if-given\", ocsp_responder = \"{url}\""),
            vec![url],
        ),
        (
            format!("ocsp = \"required\", ocsp_responder = [\"{url}\", \"http://b/\"]"),
            vec![url, "http://b/"],
        ),
        (
            "ocsp = \"required\", ocsp_responder = [\"1\", \"2\", \"3\", \"4\"]".to_owned(),
            vec!["1", "2", "3", "4"],
        ),
    ] {
        let loaded = with(&lines).unwrap();
        assert_eq!(loaded.ocsp_responders(), expected);
        assert_eq!(loaded.trust.of("any").unwrap().responders(), expected);
    }
    let off = "`ocsp_responder` needs ocsp = \"if-given\" or \"required\"";
    for (lines, expected) in [
        ("ocsp_responder = \"http://a/\"", off),
        ("ocsp = \"off\", ocsp_responder = [\"http://a/\"]", off),
        (
            "ocsp = \"required\", ocsp_responder = [\"1\", \"2\", \"3\", \"4\", \"5\"]",
            "names more than 4 responders",
        ),
        (
            "ocsp = \"required\", ocsp_responder = 8080",
            "an address in quotation marks, or a list of them",
        ),
    ] {
        let error = with(lines).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(error.contains(expected), "{lines}: {error}");
    }
}
