//! `cordon ibc provider`: puts the OpenSSL provider where programs find it.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use commandline::{Failure, OrHint as _, Outcome};

/// File name of the library as it is built.
const LIBRARY: &str = "libibc_provider.so";

/// The names under which OpenSSL loads it; the name decides which of the two modules it is.
const MODULES: [&str; 2] = ["cordon_ibc", "cordon_ibc_openvpn"];

/// `cordon ibc provider`.
#[derive(Debug, Args)]
pub(crate) struct Provider {
    /// Folder for the modules; made when it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) module_dir: PathBuf,
    /// The library; by default `libibc_provider.so` beside this program or in `../lib`.
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
}

pub(crate) fn run(args: &Provider, json: bool) -> Outcome {
    const HINT: &str = "check the folder's rights";
    let library = find(args.library.as_deref())?;
    let bytes = std::fs::read(&library).or_hint(
        format!("cannot read {}", library.display()),
        "name the library with --library",
    )?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err(Failure::new(
            anyhow::anyhow!("{} is no shared library", library.display()),
            "build it with `cargo build --release -p ibc-provider`",
        ));
    }
    let folder = &args.module_dir;
    durable::create_dir_all(folder).or_hint(format!("cannot make {}", folder.display()), HINT)?;
    let folder =
        std::path::absolute(folder).or_hint(format!("cannot find {}", folder.display()), HINT)?;
    let mut modules = Vec::new();
    for name in MODULES {
        let module = folder.join(format!("{name}.so"));
        // Replaced as a whole: programs that run keep the file that they have loaded.
        durable::write_atomic(&module, &bytes, 0o755)
            .or_hint(format!("cannot write {}", module.display()), HINT)?;
        modules.push(module);
    }
    super::warning::warn();
    let (config, environment) = (openssl_cnf(&folder), environment(&folder));
    let value = json!({
        "library": library,
        "modules": modules,
        "environment": environment,
        "openssl_cnf": config,
    });
    let mut text = String::new();
    for module in &modules {
        text.push_str(&format!("installed {}\n", module.display()));
    }
    text.push_str(&format!(
        "\nfor one program:\n  {environment} openssl enc -provider default -provider cordon_ibc \
         -INDECT-128-CBC -pbkdf2 -in plain -out secret\n  \
         {environment} openvpn --config server.conf   # with `providers default cordon_ibc_openvpn`\n\
         \nfor all programs that read openssl.cnf:\n\n{config}"
    ));
    commandline::print(json, &value, &text)
}

/// The library that was named, or the one installed or built with this program.
fn find(named: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let program = std::env::current_exe().or_hint(
        "cannot tell where this program lies",
        "name the library with --library",
    )?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.ok_or_else(|| {
        Failure::new(
            anyhow::anyhow!("no {LIBRARY} in {}", folder.display()),
            "build it with `cargo build --release -p ibc-provider` or name it with --library",
        )
    })
}

fn environment(folder: &Path) -> String {
    format!("OPENSSL_MODULES={}", folder.display())
}

/// The lines for `openssl.cnf`. The default provider is named as well: once any is, OpenSSL no
/// longer loads it by itself.
fn openssl_cnf(folder: &Path) -> String {
    format!(
        "openssl_conf = openssl_init\n\n\
         [openssl_init]\nproviders = provider_list\n\n\
         [provider_list]\ndefault = default_provider\ncordon_ibc = cordon_ibc_provider\n\n\
         [default_provider]\nactivate = 1\n\n\
         [cordon_ibc_provider]\nmodule = {}\nactivate = 1\n",
        folder.join("cordon_ibc.so").display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_are_installed_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library");
        let args = Provider {
            module_dir: folder.path().join("modules"),
            library: Some(library.clone()),
        };
        assert!(
            run(&args, true)
                .unwrap_err()
                .message()
                .contains("cannot read")
        );
        std::fs::write(&library, "text").unwrap();
        assert!(
            run(&args, true)
                .unwrap_err()
                .message()
                .contains("no shared library")
        );
        for content in ["\x7fELF one", "\x7fELF two"] {
            std::fs::write(&library, content).unwrap();
            run(&args, true).unwrap();
            for name in MODULES {
                let module = args.module_dir.join(format!("{name}.so"));
                assert_eq!(std::fs::read_to_string(module).unwrap(), content);
            }
        }
    }

    #[test]
    fn the_configuration_names_the_plain_module_and_the_default_provider() {
        let config = openssl_cnf(Path::new("/modules"));
        assert!(config.contains("\nmodule = /modules/cordon_ibc.so\nactivate = 1\n"));
        assert!(config.contains("\ndefault = default_provider\n"));
    }
}
