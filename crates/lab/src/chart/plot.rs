//! What charts have in common, drawn from the elements of a canvas.

use crate::chart::axis::Axis;
use crate::chart::canvas::{Anchor, Canvas, Rect};
use crate::chart::number::number;

/// Height of the lower half of a digit: a text that stands so far below a line is at its level.
const HALF_DIGIT: f64 = 4.0;
/// Side of a sample of a colour.
const SAMPLE: f64 = 12.0;

/// The part of a picture in which values are shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Area {
    /// Across, from the left, for a place between 0 and 1.
    #[must_use]
    pub fn x(&self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    /// Upwards, from the bottom, for a place between 0 and 1.
    #[must_use]
    pub fn y(&self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }

    /// A bar that stands on the bottom.
    #[must_use]
    pub fn upright(&self, x: f64, width: f64, place: f64) -> Rect {
        let y = self.y(place);
        Rect {
            x,
            y,
            width,
            height: self.bottom - y,
        }
    }

    /// A bar that begins at the left.
    #[must_use]
    pub fn lying(&self, y: f64, height: f64, place: f64) -> Rect {
        Rect {
            x: self.left,
            y,
            width: self.x(place) - self.left,
            height,
        }
    }

    const fn middle(&self) -> f64 {
        (self.left + self.right) / 2.0
    }
}

impl Canvas {
    /// A line across for each tick of the upward axis, with its number.
    pub fn grid(&mut self, area: &Area, upward: &Axis) {
        for tick in upward.ticks() {
            let y = area.y(upward.place(tick));
            self.line("grid", (area.left, y), (area.right, y));
            let beside = (area.left - 7.0, y + HALF_DIGIT);
            self.text("soft", beside, Anchor::End, &number(tick));
        }
    }

    /// Names at places across, `below` the area; those within `room` of the one before are left out.
    pub fn names_below(
        &mut self,
        area: &Area,
        below: f64,
        room: f64,
        names: impl Iterator<Item = (f64, String)>,
    ) {
        let mut free = f64::NEG_INFINITY;
        for (x, name) in names {
            if x >= free {
                free = x + room;
                let place = (x, area.bottom + below);
                self.text("soft", place, Anchor::Middle, &name);
            }
        }
    }

    /// What is shown across, `below` the area.
    pub fn caption(&mut self, area: &Area, below: f64, text: &str) {
        let place = (area.middle(), area.bottom + below);
        self.text("soft", place, Anchor::Middle, text);
    }

    /// A line through points with a mark at each; `points` have what marks say.
    pub fn series(&mut self, class: &str, radius: f64, points: &[((f64, f64), String)]) {
        let line = format!("line {class}");
        self.polyline(&line, points.iter().map(|(at, _)| *at));
        let mark = format!("mark {class}");
        for (at, title) in points {
            self.mark(&mark, *at, radius, Some(title));
        }
    }

    /// A sample of a colour with its name, from its upper left corner.
    pub fn sample(&mut self, class: &str, at: (f64, f64), name: &str) {
        let (x, y) = at;
        let square = Rect {
            x,
            y,
            width: SAMPLE,
            height: SAMPLE,
        };
        self.rect(class, square);
        let beside = (x + SAMPLE + 5.0, y + SAMPLE - 2.0);
        self.text("soft", beside, Anchor::Start, name);
    }
}
