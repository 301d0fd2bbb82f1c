//! SVG charts: axes with round numbers, lines with marks, bars, and text that is always escaped.
//!
//! A [`Canvas`] takes elements in the order in which they are painted, an [`Axis`] says where a value lies
//! between 0 and 1, an [`Area`] where that is on the canvas. Colours are the business of the style sheet:
//! elements have classes. A charting library would be a large dependency for two kinds of pictures.
//!
//! ```
//! use lab::chart::{Anchor, Area, Axis, Canvas, Rect};
//!
//! let area = Area { left: 60.0, right: 300.0, top: 10.0, bottom: 100.0 };
//! let axis = Axis::rounded(0.0, 3.1);
//! let mut canvas = Canvas::default();
//! canvas.grid(&area, &axis);
//! let y = area.y(axis.place(2.5));
//! canvas.rect("bar", Rect { x: 80.0, y, width: 20.0, height: area.bottom - y });
//! canvas.text("", (90.0, 116.0), Anchor::Middle, "a < b");
//! assert!(canvas.embedded(300.0, 120.0, "title").contains(">a &lt; b<"));
//! ```

mod axis;
mod canvas;
mod number;
mod plot;

pub use axis::Axis;
pub use canvas::{Anchor, Canvas, Rect};
pub use number::number;
pub use plot::Area;
