use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use pki::{KeyAlgorithm, PrivateKey};

use crate::algorithm::{KeyKind, SignatureScheme};
use crate::host::{Key, KeyHost, KeyHostError, exchange, pair};
use crate::message::{MAX_MESSAGE, Request, Response};
use crate::process;

const SOON: Duration = Duration::from_secs(30);

/// A folder with a key and its passphrase.
struct Folder {
    _folder: tempfile::TempDir,
    file: PathBuf,
    secret: PathBuf,
    public: Vec<u8>,
}

fn folder() -> Folder {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (file, secret) = (folder.path().join("own.key"), folder.path().join("secret"));
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let public = key.public_spki_der().to_vec();
    pki::file::save_private(&file, &key, &"secret".into()).unwrap();
    std::fs::write(&secret, "secret\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    Folder {
        _folder: folder,
        file,
        secret,
        public,
    }
}

#[test]
fn key_host_signs_and_refusals_name_the_reason() {
    let Folder {
        _folder,
        file,
        secret,
        public,
    } = folder();
    let host = KeyHost::in_thread().unwrap();
    let refused = |file: &Path, secret: Option<&Path>| {
        let refused = host.load(file, secret, &public).err();
        refused.unwrap().to_string()
    };
    let other = folder();
    assert!(refused(&other.file, Some(&other.secret)).contains("not the key of `certificate`"));
    for (uri, why) in [
        ("pkcs11:id=1", "`module-path`"),
        ("pkcs11:id=1?module-path=/nowhere.so", "/nowhere.so"),
    ] {
        assert!(refused(Path::new(uri), None).contains(why), "{uri}");
        let error = host.certificate(Path::new(uri)).unwrap_err();
        assert!(error.to_string().contains(why), "{uri}: {error}");
    }
    assert!(refused(&file, None).contains("`passphrase_file` is missing"));
    assert!(refused(Path::new("/nowhere"), None).contains("No such file"));
    assert!(refused(&secret, None).contains("no PKCS#8 key"));
    let key = host.load(&file, Some(&secret), &public).unwrap();
    assert_eq!(key.kind(), KeyKind::EcdsaP256);
    let signature = key.sign(SignatureScheme::EcdsaP256, b"message").unwrap();
    let known = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &public);
    known.verify(b"message", &signature).unwrap();
    // For another kind of key.
    let wrong = key.sign(SignatureScheme::Ed25519, b"message").unwrap_err();
    assert!(wrong.to_string().contains("cannot sign with Ed25519"));
    let long = key.sign(SignatureScheme::EcdsaP256, &vec![0; MAX_MESSAGE]);
    assert_eq!(long, Err(KeyHostError::TooLong));
    assert!(
        key.sign(SignatureScheme::EcdsaP256, &vec![0; 65_536])
            .is_ok()
    );
}

#[test]
fn dropped_key_is_removed_from_the_process() {
    let Folder {
        _folder,
        file,
        secret,
        public,
    } = folder();
    let host = KeyHost::in_thread().unwrap();
    let load = || host.load(&file, Some(&secret), &public).unwrap();
    let (first, second) = (load(), load());
    let number = first.number;
    assert_ne!(number, second.number);
    drop(first);
    second.sign(SignatureScheme::EcdsaP256, b"message").unwrap();
    let gone = Key {
        number,
        kind: KeyKind::EcdsaP256,
        host: host.clone(),
    };
    let error = gone
        .sign(SignatureScheme::EcdsaP256, b"message")
        .unwrap_err();
    assert_eq!(
        error,
        KeyHostError::Refused("there is no such key".to_owned())
    );
}

#[test]
fn malformed_request_is_refused_and_the_next_is_answered() {
    let (ours, theirs) = pair().unwrap();
    let served = std::thread::spawn(move || process::serve(theirs.as_fd()));
    let sign = Request::Sign {
        number: 9,
        scheme: SignatureScheme::Ed25519,
        message: vec![],
    };
    let right = sign.encode().unwrap();
    let mut wrong = vec![vec![0], vec![9; 40], vec![1; 4], vec![0; MAX_MESSAGE + 2]];
    wrong.extend((1..right.len()).map(|len| right[..len].to_vec()));
    for request in wrong {
        let expected = Response::Refused("unreadable request".into());
        assert_eq!(exchange(&ours, &request, SOON), Ok(expected));
    }
    let expected = Response::Refused("there is no such key".into());
    assert_eq!(exchange(&ours, &right, SOON), Ok(expected));
    // Its end is ours.
    drop(ours);
    served.join().unwrap().unwrap();
}

#[test]
fn request_to_a_dead_process_fails_as_gone() {
    let Folder {
        _folder,
        file,
        secret,
        public,
    } = folder();
    let (ours, theirs) = pair().unwrap();
    let host = KeyHost::over(ours, None);
    drop(theirs);
    let gone = host.load(&file, Some(&secret), &public).err();
    assert_eq!(gone, Some(KeyHostError::Gone));
    // It was not our wish; afterwards it is.
    host.close();
    assert!(host.watch().is_ok());
}

#[test]
fn process_exit_is_an_error_unless_it_was_closed() {
    let command = || {
        let mut command = Command::new("cat");
        command.stderr(Stdio::null());
        command
    };
    let mut dying = Command::new("sh");
    dying.args(["-c", "exit 3"]);
    let error = KeyHost::start(dying).unwrap().watch().unwrap_err();
    assert!(error.to_string().contains("exit status: 3"), "{error}");
    let wanted = KeyHost::start(command()).unwrap();
    wanted.close();
    assert!(wanted.watch().is_ok());
}

#[test]
fn process_that_does_not_answer_is_killed_and_keeps_nobody_waiting() {
    // As a token's library that waits for its token: it does not look at the socket any more.
    let hangs = || {
        let mut command = Command::new("sleep");
        command.arg("600");
        command
    };
    let request = Request::PublicKey { uri: vec![] };
    let started = Instant::now();
    let host = KeyHost::start(hangs()).unwrap();
    let said = host.request_within(&request, Duration::from_millis(100));
    assert_eq!(said, Err(KeyHostError::Silent));
    let ended = host.watch().unwrap_err();
    assert!(ended.to_string().contains("signal: 9"), "{ended}");
    // Nor does whoever lets it go wait for it.
    drop(KeyHost::start(hangs()).unwrap());
    assert!(started.elapsed() < Duration::from_secs(20));
}
