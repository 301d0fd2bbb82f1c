//! The device against drivers that are wrong, and against hostile memory.

mod hostile;
mod numbers;
mod registers;
mod support;
