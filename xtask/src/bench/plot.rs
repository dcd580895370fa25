//! Plots as SVG: points on a scale of ratios, and curves.

use super::results::{Results, Spread};
use super::table::short;
use std::fmt::Write;

/// A colour for each allocator in the order of the results; the first, ours, stands out.
const COLOURS: [&str; 10] = [
    "#d62728", "#555555", "#1f77b4", "#ff9f1c", "#2ca02c", "#8c564b", "#9467bd", "#17becf", "#e377c2",
    "#bcbd22",
];

/// A curve: its name and its points.
pub(crate) struct Curve<'a> {
    /// Its name in the legend.
    pub(crate) name: &'a str,
    /// Its points, by rising x.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A row of a plot of ratios.
pub(crate) struct Ratio<'a> {
    /// Its name beside the points.
    pub(crate) name: &'a str,
    /// What ran.
    pub(crate) case: &'a str,
    /// What is compared.
    pub(crate) figure: &'a str,
}

/// What the axes say.
pub(crate) struct Axes<'a> {
    /// Above the plot.
    pub(crate) title: &'a str,
    /// Below the horizontal axis.
    pub(crate) x: &'a str,
    /// Beside the vertical axis.
    pub(crate) y: &'a str,
    /// A word for a place on the horizontal axis.
    pub(crate) word: fn(f64) -> String,
    /// Both axes have even steps, not steps of equal ratio; the vertical one then begins at 0.
    pub(crate) linear: bool,
}

/// A scale from figures to places.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    linear: bool,
}

impl Scale {
    fn new(figures: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = figures.clone().fold(f64::INFINITY, f64::min);
        let high = figures.fold(0.0, f64::max);
        // Some room, also around a single figure.
        Self { low: low / 1.05, high: high * 1.05, from, to, linear: false }
    }

    /// With even steps from 0 to a little above the greatest figure.
    fn linear(figures: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        Self { low: 0.0, high: figures.fold(0.0, f64::max) * 1.05, from, to, linear: true }
    }

    fn place(&self, figure: f64) -> f64 {
        let part = match self.linear {
            true => (figure - self.low) / (self.high - self.low),
            false => (figure / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + (self.to - self.from) * part
    }

    /// Round figures on the scale, at most some ten.
    fn ticks(&self) -> Vec<f64> {
        if self.linear {
            let rough = 10f64.powf((self.high / 5.0).log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * rough);
            let step = steps.into_iter().find(|step| self.high / step <= 8.0).unwrap_or(rough * 10.0);
            return (0..=8).map(|n| step * f64::from(n)).filter(|tick| *tick <= self.high).collect();
        }
        let decades = self.high.log10().ceil() - self.low.log10().floor();
        let steps: &[f64] = match decades {
            d if d <= 1.0 && self.high / self.low < 4.0 => {
                &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
            }
            d if d <= 2.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            d if d <= 4.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let first = self.low.log10().floor() as i32;
        let tens = (0..=decades as i32).map(|exponent| 10f64.powi(first + exponent));
        let all = tens.flat_map(|ten| steps.iter().map(move |step| step * ten));
        all.filter(|figure| (self.low..=self.high).contains(figure)).collect()
    }
}

/// A row for each case with a point for each allocator: a figure in parts of `base`'s, with the range of the rounds.
pub(crate) fn ratios(results: &Results, cases: &[&str], figure: &str, base: &str, title: &str) -> String {
    let rows: Vec<Ratio> = cases.iter().map(|case| Ratio { name: case, case, figure }).collect();
    ratios_of(results, &results.allocators(), &rows, base, title)
}

/// The same with any rows, and for the allocators that are named.
pub(crate) fn ratios_of(
    results: &Results,
    allocators: &[&str],
    ratios: &[Ratio],
    base: &str,
    title: &str,
) -> String {
    let rows: Vec<Vec<Option<Spread>>> = ratios
        .iter()
        .map(|row| allocators.iter().map(|a| results.ratio(row.case, a, base, row.figure)).collect())
        .collect();
    let longest = ratios.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let left = (16.0 + 6.4 * longest as f64).max(170.0);
    let (width, line) = (790.0 + left, 12.0 + 5.0 * allocators.len() as f64);
    let height = 96.0 + line * rows.len() as f64;
    let figures = rows.iter().flatten().flatten().flat_map(|s| [s.min, s.max]).chain([0.9, 1.1]);
    let scale = Scale::new(figures, left, width - 30.0);
    let mut svg = open(width, height, title);
    legend(&mut svg, allocators);
    for tick in scale.ticks() {
        let x = scale.place(tick);
        let colour = if tick == 1.0 { "#888" } else { "#e4e4e4" };
        let _ = write!(
            svg,
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="62" y2="{:.1}" stroke="{colour}"/>"##,
            height - 28.0
        );
        text(&mut svg, x, height - 12.0, "middle", &short(tick));
    }
    for (row, (ratio, points)) in ratios.iter().zip(&rows).enumerate() {
        let top = 64.0 + line * row as f64;
        if row % 2 == 0 {
            let _ = write!(
                svg,
                r##"<rect x="0" y="{top:.1}" width="{left}" height="{line:.1}" fill="#f6f6f6"/>"##
            );
        }
        text(&mut svg, left - 8.0, top + line / 2.0 + 4.0, "end", ratio.name);
        for (index, spread) in points.iter().enumerate() {
            let Some(spread) = spread else { continue };
            let y = top + 8.0 + 5.0 * index as f64;
            let colour = COLOURS[index % COLOURS.len()];
            let (min, max, x) =
                (scale.place(spread.min), scale.place(spread.max), scale.place(spread.median));
            let radius = if index == 0 { 4.5 } else { 3.0 };
            let _ = write!(
                svg,
                r##"<line x1="{min:.1}" x2="{max:.1}" y1="{y:.1}" y2="{y:.1}" stroke="{colour}" opacity="0.6"/><circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{colour}"/>"##
            );
        }
    }
    svg + "</svg>\n"
}

/// Curves, in the order of the allocators.
pub(crate) fn curves(axes: &Axes, curves: &[Curve]) -> String {
    let (width, height, left, bottom) = (960.0, 560.0, 76.0, 500.0);
    let mut svg = open(width, height, axes.title);
    let names: Vec<_> = curves.iter().map(|curve| curve.name).collect();
    legend(&mut svg, &names);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let (xs, ys) = (points().map(|point| point.0), points().map(|point| point.1));
    let (across, up) = match axes.linear {
        true => (Scale::linear(xs, left, width - 20.0), Scale::linear(ys, bottom, 64.0)),
        false => (Scale::new(xs, left, width - 20.0), Scale::new(ys, bottom, 64.0)),
    };
    let mut places: Vec<f64> = points().map(|point| point.0).collect();
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    let every = places.len().div_ceil(12).max(1);
    for place in places.into_iter().step_by(every) {
        let x = across.place(place);
        let _ = write!(svg, r##"<line x1="{x:.1}" x2="{x:.1}" y1="64" y2="{bottom}" stroke="#eeeeee"/>"##);
        text(&mut svg, x, bottom + 18.0, "middle", &(axes.word)(place));
    }
    for tick in up.ticks() {
        let y = up.place(tick);
        let _ = write!(
            svg,
            r##"<line x1="{left}" x2="{}" y1="{y:.1}" y2="{y:.1}" stroke="#e4e4e4"/>"##,
            width - 20.0
        );
        text(&mut svg, left - 8.0, y + 4.0, "end", &short(tick));
    }
    text(&mut svg, (left + width) / 2.0, bottom + 44.0, "middle", axes.x);
    let _ = write!(
        svg,
        r#"<text transform="translate(18 {}) rotate(-90)" text-anchor="middle">{}</text>"#,
        (bottom + 64.0) / 2.0,
        escape(axes.y)
    );
    // Ours last, so that it lies above the others.
    for (index, curve) in curves.iter().enumerate().rev() {
        let colour = COLOURS[index % COLOURS.len()];
        let line: Vec<_> = curve
            .points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", across.place(*x), up.place(*y)))
            .collect();
        let thick = if index == 0 { 3.0 } else { 1.6 };
        let _ = write!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="{thick}"/>"#,
            line.join(" ")
        );
        for (x, y) in &curve.points {
            let (x, y) = (across.place(*x), up.place(*y));
            let _ = write!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="{thick}" fill="{colour}"/>"#);
        }
    }
    svg + "</svg>\n"
}

fn open(width: f64, height: f64, title: &str) -> String {
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"><rect width="{width}" height="{height}" fill="white"/>"##
    );
    let _ = write!(svg, r#"<text x="12" y="22" font-size="15" font-weight="bold">{}</text>"#, escape(title));
    svg
}

fn legend(svg: &mut String, names: &[&str]) {
    let mut x = 16.0;
    for (index, name) in names.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let _ = write!(svg, r#"<circle cx="{x:.1}" cy="42" r="5" fill="{colour}"/>"#);
        text(svg, x + 9.0, 46.0, "start", name);
        x += 30.0 + 7.0 * name.len() as f64;
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = write!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escape(words));
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}
