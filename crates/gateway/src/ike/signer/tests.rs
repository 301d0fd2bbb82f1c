use std::os::fd::AsFd as _;
use std::path::PathBuf;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use pki::{KeyAlgorithm, PrivateKey};

use super::*;

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
    pki::file::save_private(&file, &key, b"secret").unwrap();
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
fn it_signs_and_says_why_it_does_not() {
    let Folder {
        _folder,
        file,
        secret,
        public,
    } = folder();
    let signer = Signer::in_thread();
    let refused = |file: &Path, secret: Option<&Path>| {
        let refused = signer.load(file, secret, &public).err();
        refused.unwrap().to_string()
    };
    let other = folder();
    assert!(refused(&other.file, Some(&other.secret)).contains("not the key of `certificate`"));
    for (uri, why) in [
        ("pkcs11:id=1", "`module-path`"),
        ("pkcs11:id=1?module-path=/nowhere.so", "/nowhere.so"),
    ] {
        assert!(refused(Path::new(uri), None).contains(why), "{uri}");
        let error = signer.certificate(Path::new(uri)).unwrap_err();
        assert!(error.to_string().contains(why), "{uri}: {error}");
    }
    assert!(refused(&file, None).contains("`passphrase_file` is missing"));
    assert!(refused(Path::new("/nowhere"), None).contains("No such file"));
    assert!(refused(&secret, None).contains("no PKCS#8 key"));
    let key = signer.load(&file, Some(&secret), &public).unwrap();
    assert_eq!(key.kind(), KeyKind::EcdsaP256);
    let signature = key.sign(Scheme::EcdsaP256, b"message").unwrap();
    let known = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &public);
    known.verify(b"message", &signature).unwrap();
    // For another kind of key; P-521 is not even on the wire.
    let wrong = key.sign(Scheme::Ed25519, b"message").unwrap_err();
    assert!(wrong.to_string().contains("cannot sign with Ed25519"));
    let unknown = key.sign(Scheme::EcdsaP521, b"message");
    assert_eq!(unknown, Err(SignerError::TooLong));
    let long = key.sign(Scheme::EcdsaP256, &vec![0; MAX_MESSAGE]);
    assert_eq!(long, Err(SignerError::TooLong));
    assert!(key.sign(Scheme::EcdsaP256, &vec![0; 65_536]).is_ok());
}

#[test]
fn keys_that_nobody_has_any_more_are_forgotten() {
    let Folder {
        _folder,
        file,
        secret,
        public,
    } = folder();
    let signer = Signer::in_thread();
    let load = || signer.load(&file, Some(&secret), &public).unwrap();
    let (first, second) = (load(), load());
    let number = first.number;
    assert_ne!(number, second.number);
    drop(first);
    second.sign(Scheme::EcdsaP256, b"message").unwrap();
    let gone = Key {
        number,
        kind: KeyKind::EcdsaP256,
        signer: signer.clone(),
    };
    let error = gone.sign(Scheme::EcdsaP256, b"message").unwrap_err();
    assert_eq!(
        error,
        SignerError::Refused("there is no such key".to_owned())
    );
}

#[test]
fn nonsense_gets_an_error_and_the_next_request_its_answer() {
    let (ours, theirs) = pair().unwrap();
    let served = std::thread::spawn(move || process::serve(theirs.as_fd()));
    let sign = Request::Sign {
        number: 9,
        scheme: Scheme::Ed25519,
        message: vec![],
    };
    let right = sign.encode().unwrap();
    let mut wrong = vec![vec![0], vec![9; 40], vec![1; 4], vec![0; MAX_MESSAGE + 2]];
    wrong.extend((1..right.len()).map(|len| right[..len].to_vec()));
    for request in wrong {
        let expected = Response::Refused("unreadable request".into());
        assert_eq!(exchange(&ours, &request), Ok(expected));
    }
    let expected = Response::Refused("there is no such key".into());
    assert_eq!(exchange(&ours, &right), Ok(expected));
    // Its end is ours.
    drop(ours);
    served.join().unwrap().unwrap();
}

#[test]
fn whoever_asks_a_process_that_is_gone_hears_so() {
    let Folder {
        _folder,
        file,
        secret,
        public,
    } = folder();
    let (ours, theirs) = pair().unwrap();
    let signer = Signer::over(ours, None);
    drop(theirs);
    let gone = signer.load(&file, Some(&secret), &public).err();
    assert_eq!(gone, Some(SignerError::Gone));
    // It was not our wish; afterwards it is.
    signer.close();
    assert!(signer.watch().is_ok());
}

#[test]
fn the_end_of_the_process_is_told_unless_it_was_wanted() {
    let command = || {
        let mut command = Command::new("cat");
        command.stderr(Stdio::null());
        command
    };
    let mut dying = Command::new("sh");
    dying.args(["-c", "exit 3"]);
    let error = Signer::start(dying).unwrap().watch().unwrap_err();
    assert!(error.to_string().contains("exit status: 3"), "{error}");
    let wanted = Signer::start(command()).unwrap();
    wanted.close();
    assert!(wanted.watch().is_ok());
}
