//! Programs of others.

use std::path::PathBuf;

/// A program of others that takes part.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// Arguments that make it print its version in the first line that has a digit.
    pub(crate) version: &'static [&'static str],
}

impl Program {
    /// Finds the program; those for administrators are not on everybody's path.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let known = ["/usr/sbin", "/sbin", "/usr/lib/ipsec"].map(PathBuf::from);
        std::env::split_paths(&path)
            .chain(known)
            .map(|folder| folder.join(self.name))
            .find(|file| file.is_file())
    }

    /// Whether it is installed.
    pub fn is_installed(&self) -> bool {
        self.path().is_some()
    }
}
