//! Elements of a picture. Texts and attributes are escaped here and nowhere else.

use std::fmt::Write as _;

/// The point of a text that is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle from its upper left corner; without extent where a side would be below 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// Elements in the order in which they are painted.
#[derive(Clone, Debug, Default)]
pub struct Canvas {
    body: String,
}

/// A value of an attribute.
#[derive(Clone, Copy)]
enum Value<'a> {
    /// In units of the picture.
    At(f64),
    Text(&'a str),
}

type Attribute<'a> = (&'static str, Value<'a>);

impl Canvas {
    pub fn rect(&mut self, class: &str, rect: Rect) {
        self.element("rect", class, &rect.attributes(), None);
    }

    /// A rectangle that says what it is when it is pointed at.
    pub fn titled_rect(&mut self, class: &str, rect: Rect, title: &str) {
        self.element("rect", class, &rect.attributes(), Some(title));
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ends = [
            ("x1", Value::At(from.0)),
            ("y1", Value::At(from.1)),
            ("x2", Value::At(to.0)),
            ("y2", Value::At(to.1)),
        ];
        self.element("line", class, &ends, None);
    }

    pub fn polyline(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> = points
            .map(|(x, y)| format!("{},{}", coordinate(x), coordinate(y)))
            .collect();
        let points = points.join(" ");
        let points = [("points", Value::Text(&points))];
        self.element("polyline", class, &points, None);
    }

    /// A mark of a point, which says what it is when it is pointed at.
    pub fn mark(&mut self, class: &str, at: (f64, f64), radius: f64, title: Option<&str>) {
        let circle = [
            ("cx", Value::At(at.0)),
            ("cy", Value::At(at.1)),
            ("r", Value::At(radius)),
        ];
        self.element("circle", class, &circle, title);
    }

    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let place = [("x", Value::At(at.0)), ("y", Value::At(at.1))];
        self.label(class, &place, anchor, text);
    }

    /// A text that runs upwards, around its middle.
    pub fn upward_text(&mut self, class: &str, at: (f64, f64), text: &str) {
        let (x, y) = (coordinate(at.0), coordinate(at.1));
        let place = format!("translate({x} {y}) rotate(-90)");
        let place = [("transform", Value::Text(&place))];
        self.label(class, &place, Anchor::Middle, text);
    }

    /// Diagonal stripes of `class` as the pattern `id`, which a style may fill with.
    pub fn stripes(&mut self, id: &str, class: &str) {
        let _ = writeln!(
            self.body,
            "<defs><pattern id='{}' width='7' height='7' patternUnits='userSpaceOnUse' \
             patternTransform='rotate(45)'><rect class='{}' width='3' height='7'/></pattern></defs>",
            escape(id),
            escape(class),
        );
    }

    /// A picture within a page, which has the styles; `title` is for those who do not see it.
    #[must_use]
    pub fn embedded(&self, width: f64, height: f64, title: &str) -> String {
        let mut svg = opening(width, height);
        let _ = write!(svg, " aria-label='{}'>\n{}</svg>", escape(title), self.body);
        svg
    }

    /// A file of its own, with its styles.
    #[must_use]
    pub fn standalone(&self, width: f64, height: f64, title: &str, style: &str) -> String {
        let (title, style) = (escape(title), escape(style));
        let mut svg = opening(width, height);
        let _ = writeln!(
            svg,
            ">\n<title>{title}</title>\n<style>{style}</style>\n{}</svg>",
            self.body
        );
        svg
    }

    fn label(&mut self, class: &str, place: &[Attribute<'_>], anchor: Anchor, text: &str) {
        let anchor: &[Attribute<'_>] = match anchor {
            Anchor::Start => &[],
            Anchor::Middle => &[("text-anchor", Value::Text("middle"))],
            Anchor::End => &[("text-anchor", Value::Text("end"))],
        };
        self.open("text", class, &[place, anchor].concat());
        let _ = writeln!(self.body, ">{}</text>", escape(text));
    }

    fn element(
        &mut self,
        name: &str,
        class: &str,
        attributes: &[Attribute<'_>],
        title: Option<&str>,
    ) {
        self.open(name, class, attributes);
        let _ = match title {
            Some(title) => writeln!(self.body, "><title>{}</title></{name}>", escape(title)),
            None => writeln!(self.body, "/>"),
        };
    }

    /// A tag but for its end. Writing to a string cannot fail.
    fn open(&mut self, name: &str, class: &str, attributes: &[Attribute<'_>]) {
        let _ = write!(self.body, "<{name}");
        if !class.is_empty() {
            let _ = write!(self.body, " class='{}'", escape(class));
        }
        for (name, value) in attributes {
            let value = match value {
                Value::At(place) => coordinate(*place),
                Value::Text(text) => escape(text),
            };
            let _ = write!(self.body, " {name}='{value}'");
        }
    }
}

impl Rect {
    const fn attributes(self) -> [Attribute<'static>; 4] {
        [
            ("x", Value::At(self.x)),
            ("y", Value::At(self.y)),
            ("width", Value::At(self.width.max(0.0))),
            ("height", Value::At(self.height.max(0.0))),
        ]
    }
}

fn opening(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' role='img'",
        coordinate(width),
        coordinate(height)
    )
}

/// A tenth of a unit is less than anybody sees.
fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    let short = text.strip_suffix(".0").unwrap_or(&text);
    if short == "-0" { "0" } else { short }.to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
