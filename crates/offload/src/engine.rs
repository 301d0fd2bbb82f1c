//! Which code does the work.

/// The engine asked for when keys are set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// The fastest that this processor can run: our vector code where there is some, else the
    /// library.
    #[default]
    Fastest,
    /// The library, on every processor. For tests and for comparison.
    Library,
}

/// Name of an engine that is all library.
pub(crate) const LIBRARY: &str = "library";
/// Name of an engine that is all vector code.
pub(crate) const VECTOR: &str = "avx512";
/// Name of the engine for AES-GCM on processors that lack AVX-512.
pub(crate) const PAIRS: &str = "avx2";
/// Name of an engine that takes one algorithm from each.
pub(crate) const MIXED: &str = "avx512 and library";
