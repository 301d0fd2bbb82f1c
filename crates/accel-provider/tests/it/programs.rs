//! Programs with a configuration that loads the provider.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with a configuration; counters are written into it.
struct Setup {
    folder: TempDir,
}

/// The library that cargo has built for this test: beside the test program or one folder up.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let near = program.ancestors().skip(1).take(2);
    let found = near
        .map(|folder| folder.join("libaccel_provider.so"))
        .find(|f| f.exists());
    found.expect("cargo builds the shared library with the tests")
}

impl Setup {
    /// With the section's lines.
    fn new(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "openssl_conf = init\n[init]\nproviders = providers\nalg_section = algorithms\n\
             [algorithms]\ndefault_properties = ?provider=cordon_accel\n\
             [providers]\ndefault = plain\ncordon_accel = accel\n[plain]\nactivate = 1\n\
             [accel]\nmodule = {}\nstatistics = {}\n{lines}\nactivate = 1\n",
            library().display(),
            folder.path().display(),
        );
        std::fs::write(folder.path().join("openssl.cnf"), text).unwrap();
        Self { folder }
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        Command::new(program)
            .args(arguments)
            .current_dir(self.folder.path())
            .env("OPENSSL_CONF", self.folder.path().join("openssl.cnf"))
            .output()
            .unwrap()
    }

    fn openssl(&self, arguments: &[&str]) -> Output {
        self.run(Path::new("openssl"), arguments)
    }

    /// All counters of all processes.
    fn counters(&self) -> String {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let counters = paths.filter(|path| path.to_string_lossy().contains("/cordon_accel."));
        counters
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles the program with the sequences.
fn sequences(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sequences.c");
    let program = folder.join("sequences");
    let cc = Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .arg("-lcrypto")
        .output()
        .unwrap();
    assert!(cc.status.success(), "{}", text(&cc.stderr));
    program
}

#[test]
fn sequences_give_what_openssl_gives() {
    let seed = std::env::var("SEQUENCES_SEED").unwrap_or_else(|_| "1".into());
    for lines in [
        "engine = library\nalgorithms = gcm ctr cbc cts hmac rsa",
        "engine = model\nfrom = 1\nalgorithms = gcm ctr cbc cts hmac rsa",
        "engine = model\nfrom = 500\ncheck = 5\nalgorithms = gcm ctr cbc cts hmac rsa",
    ] {
        let setup = Setup::new(lines);
        let program = sequences(setup.folder.path());
        let done = setup.run(&program, &["1000", &seed]);
        let shown = format!("SEQUENCES_SEED={seed}, {lines}: {}", text(&done.stderr));
        assert!(done.status.success(), "{shown}");
        for name in ["AES-GCM seal: ", "HMAC-SHA256: ", "AES-CBC decrypt: "] {
            let used = setup.counters().contains(name);
            assert_eq!(used, lines.contains("model"), "{name}, {shown}");
        }
    }
}

#[test]
fn what_is_not_offered_goes_on_elsewhere() {
    // Above what OpenSSL's random generator encrypts at once for a key.
    let setup = Setup::new("engine = model\nfrom = 2000");
    std::fs::write(setup.folder.path().join("data"), [7; 5000]).unwrap();
    // Keys are made, read and compared by OpenSSL's own provider; sizes and digests that the device has not are signed there.
    for (arguments, through) in [
        (&["genrsa", "-out", "large", "2048"][..], false),
        (&["genrsa", "-out", "odd", "2056"], false),
        (&["genrsa", "-primes", "3", "-out", "three", "2048"], false),
        (
            &[
                "genpkey",
                "-algorithm",
                "EC",
                "-pkeyopt",
                "group:P-256",
                "-out",
                "ec",
            ],
            false,
        ),
        (&["rsa", "-in", "large", "-pubout", "-out", "public"], false),
        (
            &[
                "dgst",
                "-sha256",
                "-sign",
                "odd",
                "-out",
                "signature",
                "data",
            ],
            false,
        ),
        (
            &[
                "dgst",
                "-sha256",
                "-sign",
                "three",
                "-out",
                "signature",
                "data",
            ],
            false,
        ),
        (
            &[
                "dgst",
                "-sha256",
                "-sign",
                "ec",
                "-out",
                "signature",
                "data",
            ],
            false,
        ),
        (
            &[
                "enc",
                "-aes-128-ofb",
                "-K",
                "00",
                "-iv",
                "00",
                "-in",
                "data",
                "-out",
                "out",
            ],
            false,
        ),
        (
            &[
                "enc",
                "-aes-128-cbc",
                "-K",
                "00",
                "-iv",
                "00",
                "-in",
                "data",
                "-out",
                "out",
            ],
            false,
        ),
        (
            &[
                "enc",
                "-aes-128-ctr",
                "-K",
                "00",
                "-iv",
                "00",
                "-in",
                "data",
                "-out",
                "out",
            ],
            true,
        ),
        (
            &[
                "dgst",
                "-sha256",
                "-sign",
                "large",
                "-out",
                "signature",
                "data",
            ],
            true,
        ),
        (
            &[
                "dgst",
                "-sha256",
                "-verify",
                "public",
                "-signature",
                "signature",
                "data",
            ],
            false,
        ),
    ] {
        let before = setup.counters();
        let done = setup.openssl(arguments);
        assert!(
            done.status.success(),
            "{arguments:?}: {}",
            text(&done.stderr)
        );
        assert_eq!(setup.counters() != before, through, "{arguments:?}");
    }
}

#[test]
fn digests_that_are_not_offered_for_hmac_are_refused_where_it_is_offered() {
    for (lines, digest, done) in [
        ("algorithms = gcm", "MD5", true),
        ("algorithms = hmac", "MD5", false),
        ("algorithms = hmac", "SHA256", true),
        ("algorithms = hmac", "SHA512", true),
    ] {
        let setup = Setup::new(&format!("engine = model\nfrom = 1\n{lines}"));
        std::fs::write(setup.folder.path().join("data"), [7; 5000]).unwrap();
        let options = ["mac", "-digest", digest, "-macopt", "hexkey:0102030405"];
        let made = setup.openssl(&[&options[..], &["-in", "data", "HMAC"]].concat());
        assert_eq!(made.status.success(), done, "{lines} {digest}");
        let through = setup.counters().contains("HMAC-SHA256: ");
        assert_eq!(through, lines.contains("hmac") && digest == "SHA256");
        if done {
            let plain = Command::new("openssl")
                .args(options)
                .args(["-in", "data", "HMAC"])
                .current_dir(setup.folder.path())
                .output()
                .unwrap();
            assert_eq!(text(&made.stdout), text(&plain.stdout));
        }
    }
}

#[test]
fn a_certificate_can_be_signed() {
    let setup = Setup::new("engine = model\nfrom = 1");
    let request = [
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key",
    ];
    for padding in [
        &[][..],
        &[
            "-sigopt",
            "rsa_padding_mode:pss",
            "-sigopt",
            "rsa_pss_saltlen:digest",
        ],
    ] {
        let rest = ["-subj", "/CN=x", "-out", "certificate", "-sha384"];
        let done = setup.openssl(&[&request[..], padding, &rest].concat());
        if padding.is_empty() {
            assert!(done.status.success(), "{}", text(&done.stderr));
            let done = setup.openssl(&["verify", "-CAfile", "certificate", "certificate"]);
            assert!(done.status.success(), "{}", text(&done.stderr));
        } else {
            // The identifier of PSS has parameters, which are not made here: refused, and no certificate with others.
            assert!(!done.status.success());
        }
    }
    assert!(setup.counters().contains("RSA private: 1 requests"));
}

#[test]
fn a_provider_with_wrong_settings_is_not_there() {
    for (lines, there) in [
        ("engine = model", true),
        ("engine = board", false),
        ("from = much", false),
        ("algorithms = des", false),
        ("check = x", false),
    ] {
        let done = Setup::new(lines).openssl(&["list", "-providers"]);
        let listed = text(&done.stdout);
        assert_eq!(listed.contains("cordon_accel"), there, "{lines}: {listed}");
    }
}

#[test]
fn a_core_that_is_missing_or_dies_leaves_messages_to_software() {
    // Missing, ended at once, and one that says what no core says.
    for program in ["/nowhere/aes", "/bin/true", "/usr/bin/yes"] {
        let setup = Setup::new(&format!("engine = verilated\naes = {program}\nfrom = 1"));
        std::fs::write(setup.folder.path().join("data"), [7; 50_000]).unwrap();
        let line = [
            "enc",
            "-aes-256-ctr",
            "-K",
            "01",
            "-iv",
            "02",
            "-in",
            "data",
            "-out",
        ];
        let done = setup.openssl(&[&line[..], &["ours"]].concat());
        assert!(done.status.success(), "{program}: {}", text(&done.stderr));
        let plain = Command::new("openssl")
            .args(line)
            .arg("theirs")
            .current_dir(setup.folder.path())
            .status();
        assert!(plain.unwrap().success());
        let read = |name| std::fs::read(setup.folder.path().join(name)).unwrap();
        assert_eq!(read("ours"), read("theirs"), "{program}");
        assert!(
            setup.counters().contains("quarantine: "),
            "{program}: {}",
            setup.counters()
        );
    }
}

#[test]
fn a_child_has_an_accelerator_of_its_own() {
    let setup = Setup::new("engine = model\nfrom = 1");
    let source = r#"
#include <openssl/evp.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static int step(EVP_CIPHER_CTX *ctx, unsigned char fill) {
  unsigned char in[4096], out[4096];
  int n;
  memset(in, fill, sizeof in);
  return EVP_EncryptUpdate(ctx, out, &n, in, sizeof in) ? out[100] : -1;
}
int main(void) {
  unsigned char key[16] = {1}, iv[16] = {2};
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  EVP_EncryptInit_ex(ctx, EVP_aes_128_ctr(), NULL, key, iv);
  step(ctx, 0);
  int parents[8], pipes[2], status;
  if (pipe(pipes)) return 1;
  pid_t child = fork();
  if (!child) {
    // The same key and place as the parent, at the same time.
    for (int i = 0; i < 8; i++) {
      int byte = step(ctx, i);
      if (write(pipes[1], &byte, sizeof byte) != sizeof byte) _exit(1);
    }
    EVP_CIPHER_CTX_free(ctx);
    return 0;
  }
  for (int i = 0; i < 8; i++) parents[i] = step(ctx, i);
  for (int i = 0; i < 8; i++) {
    int byte;
    if (read(pipes[0], &byte, sizeof byte) != sizeof byte || byte != parents[i]) return 2;
  }
  if (waitpid(child, &status, 0) != child || status) return 3;
  // The child has ended, with all that it has taken down.
  return step(ctx, 9) < 0 ? 4 : 0;
}
"#;
    let file = setup.folder.path().join("fork.c");
    std::fs::write(&file, source).unwrap();
    let program = setup.folder.path().join("fork");
    let cc = Command::new("cc")
        .arg("-o")
        .args([&program, &file])
        .arg("-lcrypto")
        .status();
    assert!(cc.unwrap().success());
    let done = setup.run(&program, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let counters = setup.counters();
    assert!(
        counters.contains("AES-CTR: 8 requests"),
        "the child's: {counters}"
    );
    assert!(
        counters.contains("AES-CTR: 10 requests"),
        "the parent's: {counters}"
    );
}
