use lab::chart::{Anchor, Area, Axis, Canvas, Rect};

use super::xml;

/// Text that ends the element or attribute around it, unless it is escaped.
const HOSTILE: &str = "</text><script>x</script> ' \" & &amp; ]]>";

const AREA: Area = Area {
    left: 60.0,
    right: 460.0,
    top: 20.0,
    bottom: 220.0,
};

#[test]
fn every_text_and_attribute_is_escaped() {
    let mut canvas = Canvas::default();
    let rect = Rect {
        x: 1.0,
        y: 2.0,
        width: 3.0,
        height: -1.0,
    };
    canvas.rect(HOSTILE, rect);
    canvas.titled_rect("bar", rect, HOSTILE);
    canvas.line(HOSTILE, (0.0, 0.0), (1.0, 1.0));
    canvas.text(HOSTILE, (0.0, 0.0), Anchor::Start, HOSTILE);
    canvas.upward_text("soft", (0.0, 0.0), HOSTILE);
    canvas.stripes(HOSTILE, HOSTILE);
    canvas.series(HOSTILE, 3.5, &[((0.0, 0.0), HOSTILE.to_owned())]);
    canvas.sample("bar", (0.0, 0.0), HOSTILE);
    canvas.caption(&AREA, 38.0, HOSTILE);
    canvas.names_below(&AREA, 18.0, 1.0, [(0.0, HOSTILE.to_owned())].into_iter());

    let embedded = xml::parse(&canvas.embedded(500.0, 260.0, HOSTILE));
    assert_eq!(embedded.attributes["aria-label"], HOSTILE);
    let texts = embedded.all("text");
    assert!(texts.iter().all(|text| text.text == HOSTILE), "{texts:?}");
    assert_eq!(texts.len(), 5);
    let titles = embedded.all("title");
    assert!(titles.iter().all(|title| title.text == HOSTILE));
    assert_eq!(titles.len(), 2);
    assert_eq!(embedded.all("script").len(), 0);
    assert!(embedded.all("rect").iter().all(|r| {
        r.attributes
            .get("height")
            .is_none_or(|h| !h.starts_with('-'))
    }));

    let file = xml::parse(&canvas.standalone(500.0, 260.0, HOSTILE, "a>b{}"));
    let parts: Vec<&str> = file.children.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(parts.get(..2), Some(&["title", "style"][..]));
    assert_eq!(file.children[0].text, HOSTILE);
    assert_eq!(file.children[1].text, "a>b{}");
}

#[test]
fn grid_has_a_line_and_a_number_for_each_tick() {
    let axis = Axis::rounded(-12.0, 31.0);
    let mut canvas = Canvas::default();
    canvas.grid(&AREA, &axis);
    let svg = xml::parse(&canvas.embedded(500.0, 260.0, "grid"));
    let numbers: Vec<String> = svg.all("text").iter().map(|t| t.text.clone()).collect();
    assert_eq!(numbers, ["-20", "-10", "0", "10", "20", "30", "40"]);
    let heights: Vec<f64> = svg.all("line").iter().map(|l| l.number("y1")).collect();
    assert_eq!(heights.first(), Some(&220.0));
    assert_eq!(heights.last(), Some(&20.0));
    assert!(heights.is_sorted_by(|a, b| a > b));
}

#[test]
fn bars_of_any_value_lie_within_the_area() {
    let axis = Axis::linear([3.0, 8.0].into_iter()).unwrap();
    for value in [-5.0, 0.0, 0.001, 3.0, 8.0, 900.0, f64::NAN, f64::INFINITY] {
        let mut canvas = Canvas::default();
        canvas.rect("bar", AREA.upright(100.0, 20.0, axis.place(value)));
        canvas.rect("bar", AREA.lying(50.0, 15.0, axis.place(value)));
        let svg = xml::parse(&canvas.embedded(500.0, 260.0, "bars"));
        for bar in svg.all("rect") {
            let (x, y) = (bar.number("x"), bar.number("y"));
            let (right, bottom) = (x + bar.number("width"), y + bar.number("height"));
            assert!(x >= AREA.left && right <= AREA.right, "{value}: {bar:?}");
            assert!(y >= AREA.top && bottom <= AREA.bottom, "{value}: {bar:?}");
        }
    }
}

#[test]
fn names_that_would_touch_are_left_out() {
    let names = (0..10).map(|index| (f64::from(index) * 20.0, index.to_string()));
    let mut canvas = Canvas::default();
    canvas.names_below(&AREA, 18.0, 40.0, names);
    let svg = xml::parse(&canvas.embedded(500.0, 260.0, "names"));
    let shown: Vec<String> = svg.all("text").iter().map(|t| t.text.clone()).collect();
    assert_eq!(shown, ["0", "2", "4", "6", "8"]);
}

#[test]
fn series_has_a_mark_at_each_point_of_its_line() {
    let points = [
        ((60.0, 220.0), "a".to_owned()),
        ((460.04, 20.0), "b".to_owned()),
    ];
    let mut canvas = Canvas::default();
    canvas.series("s1", 4.0, &points);
    let svg = xml::parse(&canvas.embedded(500.0, 260.0, "series"));
    let line = &svg.all("polyline")[0].attributes;
    assert_eq!(line["class"], "line s1");
    assert_eq!(line["points"], "60,220 460,20");
    let marks = svg.all("circle");
    assert_eq!(marks.len(), 2);
    assert_eq!(
        (marks[1].number("cx"), marks[1].number("cy")),
        (460.0, 20.0)
    );
}
