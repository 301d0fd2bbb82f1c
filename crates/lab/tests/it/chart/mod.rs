//! The form of whole pictures.

mod pictures;
mod xml;
