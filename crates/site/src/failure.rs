//! How a command fails: see [`commandline`].

pub(crate) use commandline::{Failure, OrHint, Outcome};
