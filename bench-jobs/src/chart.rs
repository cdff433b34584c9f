//! Bar and line charts as inline SVG, drawn by hand so that a report is one file with no script and nothing to fetch.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 44.0;

/// One chart: values by group (places on the x axis) and series (colours).
pub(crate) struct Chart<'a> {
    /// Heading, also read out first.
    pub(crate) title: &'a str,
    /// What the chart shows, for those who do not see it.
    pub(crate) description: String,
    /// Unit on the y axis.
    pub(crate) unit: &'a str,
    /// Names on the x axis.
    pub(crate) groups: Vec<String>,
    /// Name of a series and its value for each group; `None` is marked as no data.
    pub(crate) series: Vec<(String, Vec<Option<f64>>)>,
    /// Logarithmic y axis.
    pub(crate) log: bool,
}

/// The y axis: from value to place.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn of(chart: &Chart<'_>) -> Self {
        let values = || {
            chart
                .series
                .iter()
                .flat_map(|(_, values)| values.iter().flatten().copied())
        };
        let highest = values().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        if !chart.log {
            return Self {
                low: 0.0,
                high: rounded_up(highest),
                log: false,
            };
        }
        let lowest = values().filter(|value| *value > 0.0).fold(highest, f64::min);
        let low = 10f64.powf(lowest.log10().floor());
        let high = 10f64.powf(highest.log10().ceil()).max(low * 10.0);
        Self { low, high, log: true }
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            value / self.high
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            return (0..=4).map(|step| self.high * f64::from(step) / 4.0).collect();
        }
        let decades = (self.high / self.low).log10().round().clamp(1.0, 12.0) as i32;
        (0..=decades)
            .map(|decade| self.low * 10f64.powi(decade))
            .collect()
    }
}

/// Draws grouped bars.
pub(crate) fn bars(chart: &Chart<'_>) -> String {
    let axis = Axis::of(chart);
    let mut svg = frame(chart, &axis);
    let slot = (WIDTH - LEFT - RIGHT) / chart.groups.len().max(1) as f64;
    let bar = slot * 0.8 / chart.series.len().max(1) as f64;
    for (place, (name, values)) in chart.series.iter().enumerate() {
        for (group, value) in values.iter().enumerate() {
            let x = LEFT + slot * (group as f64 + 0.1) + bar * place as f64;
            let label = format!("{}, {name}", chart.groups[group]);
            svg.push_str(&one_bar(chart, &axis, (x, bar), place, (&label, *value)));
        }
    }
    for (group, name) in chart.groups.iter().enumerate() {
        x_label(&mut svg, LEFT + slot * (group as f64 + 0.5), name);
    }
    svg.push_str("</svg>");
    svg
}

/// Draws one line a series through the groups.
pub(crate) fn lines(chart: &Chart<'_>) -> String {
    let axis = Axis::of(chart);
    let mut svg = frame(chart, &axis);
    let steps = chart.groups.len().saturating_sub(1).max(1) as f64;
    let x = |group: usize| LEFT + (WIDTH - LEFT - RIGHT) * group as f64 / steps;
    for (place, (name, values)) in chart.series.iter().enumerate() {
        let points: Vec<_> = values
            .iter()
            .enumerate()
            .filter_map(|(group, value)| value.map(|value| format!("{:.1},{:.1}", x(group), axis.y(value))))
            .collect();
        let class = colour(place);
        let points = points.join(" ");
        put(
            &mut svg,
            format_args!(
                r#"<polyline class="line {class}" points="{points}"><title>{}</title></polyline>"#,
                escape(name)
            ),
        );
    }
    for (group, name) in chart.groups.iter().enumerate() {
        x_label(&mut svg, x(group), name);
    }
    svg.push_str("</svg>");
    svg
}

fn one_bar(
    chart: &Chart<'_>,
    axis: &Axis,
    at: (f64, f64),
    place: usize,
    data: (&str, Option<f64>),
) -> String {
    let ((x, width), (label, value)) = (at, data);
    let mut svg = String::new();
    let Some(value) = value else {
        put(
            &mut svg,
            format_args!(
                r#"<text class="none" x="{:.1}" y="{:.1}">no data</text>"#,
                x + width / 2.0,
                HEIGHT - BOTTOM - 4.0
            ),
        );
        return svg;
    };
    let y = axis.y(value);
    put(
        &mut svg,
        format_args!(
            r#"<rect class="{}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}"><title>{}: {} {}</title></rect>"#,
            colour(place),
            (width - 1.0).max(1.0),
            HEIGHT - BOTTOM - y,
            escape(label),
            short(value),
            escape(chart.unit)
        ),
    );
    svg
}

/// Title, axis, grid and legend.
fn frame(chart: &Chart<'_>, axis: &Axis) -> String {
    let mut svg = format!(
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{}</title><desc>{}</desc>"#,
        escape(chart.title),
        escape(&chart.description)
    );
    for tick in axis.ticks() {
        let y = axis.y(tick);
        put(
            &mut svg,
            format_args!(
                r#"<line class="grid" x1="{LEFT}" x2="{}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{}" y="{:.1}">{}</text>"#,
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                short(tick)
            ),
        );
    }
    put(
        &mut svg,
        format_args!(
            r#"<text class="unit" x="{LEFT}" y="14">{}</text>"#,
            escape(chart.unit)
        ),
    );
    let step = (WIDTH - LEFT - RIGHT - 120.0) / chart.series.len().max(1) as f64;
    for (place, (name, _)) in chart.series.iter().enumerate() {
        let x = LEFT + 120.0 + step.min(150.0) * place as f64;
        put(
            &mut svg,
            format_args!(
                r#"<rect class="{}" x="{x:.1}" y="5" width="11" height="11"/><text class="key" x="{:.1}" y="15">{}</text>"#,
                colour(place),
                x + 15.0,
                escape(name)
            ),
        );
    }
    svg
}

fn x_label(svg: &mut String, x: f64, name: &str) {
    let y = HEIGHT - BOTTOM + 18.0;
    put(
        svg,
        format_args!(
            r#"<text class="group" x="{x:.1}" y="{y}">{}</text>"#,
            escape(name)
        ),
    );
}

/// Classes that the page gives a colour to, in light and in dark.
fn colour(place: usize) -> &'static str {
    const COLOURS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
    COLOURS[place % COLOURS.len()]
}

/// The next of 1, 2, 2.5, 5 times a power of ten.
fn rounded_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps
        .iter()
        .map(|step| step * power)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

/// `1234567` as `1.23 M`.
pub(crate) fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = if scaled.abs() >= 100.0 {
        0
    } else if scaled.abs() >= 10.0 {
        1
    } else {
        2
    };
    let number = format!("{scaled:.digits$}");
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        &number
    };
    format!("{number}{suffix}")
}

/// Text as it may stand in HTML and SVG, in attributes too.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Writing into a String cannot fail.
fn put(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.write_fmt(text).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log: bool) -> Chart<'static> {
        Chart {
            title: "Latency",
            description: "p50 by payload".into(),
            unit: "us",
            groups: vec!["0 B".into(), "1 KiB".into()],
            series: vec![
                ("p50".into(), vec![Some(20.0), Some(40.0)]),
                ("p99".into(), vec![Some(900.0), None]),
            ],
            log,
        }
    }

    #[test]
    fn larger_values_stand_higher_on_both_axes() {
        for log in [false, true] {
            let axis = Axis::of(&chart(log));
            assert!(axis.y(900.0) < axis.y(40.0) && axis.y(40.0) < axis.y(20.0));
            assert!(axis.y(1e12) >= TOP && axis.y(0.0) <= HEIGHT - BOTTOM);
        }
    }

    #[test]
    fn missing_data_is_said_and_not_drawn_as_zero() {
        let svg = bars(&chart(false));
        assert_eq!(svg.matches("no data").count(), 1);
        assert_eq!(svg.matches("<title>1 KiB, p50: 40 us</title>").count(), 1);
        assert!(lines(&chart(true)).contains("<polyline"));
    }

    #[test]
    fn an_empty_chart_is_still_a_picture() {
        let svg = bars(&Chart {
            groups: Vec::new(),
            series: Vec::new(),
            ..chart(true)
        });
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("NaN"));
    }

    #[test]
    fn text_from_outside_cannot_become_markup() {
        assert_eq!(escape(r#"<b a="1">&'"#), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
        assert_eq!(short(1_234_567.0), "1.23 M");
        assert_eq!(short(100.0), "100");
        assert_eq!(short(0.0), "0");
    }
}
