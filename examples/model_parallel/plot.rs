//! The picture of a run: the loss by epoch above, below it what each stage did when.

use crate::report::Summary;
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use rref_actors::pipeline::{Op, Span};
use std::path::Path;

/// How many steps of the last epoch are drawn; more would be too thin to see.
const STEPS: u32 = 2;
const FORWARD: RGBColor = RGBColor(66, 133, 190);
const BACKWARD: RGBColor = RGBColor(230, 145, 56);

/// Writes the picture as SVG.
///
/// # Errors
/// When the file cannot be written.
pub fn draw(path: &Path, summary: &Summary, timelines: &[Vec<Span>]) -> Result<()> {
    let root = SVGBackend::new(path, (1000, 420 + 50 * timelines.len() as u32)).into_drawing_area();
    // The backend's errors borrow from the area, anyhow's must not: they become text.
    paint(&root, summary, timelines).map_err(|error| anyhow!("{error}"))?;
    root.present().map_err(|error| anyhow!("{error}"))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Painted<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn paint<'a>(root: &Area<'a>, summary: &Summary, timelines: &[Vec<Span>]) -> Painted<'a> {
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(320);
    paint_losses(&above, summary)?;
    paint_stages(&below, summary, timelines)
}

fn paint_losses<'a>(area: &Area<'a>, summary: &Summary) -> Painted<'a> {
    let highest = summary.losses.iter().copied().fold(1e-6, f64::max) * 1.05;
    let caption = format!(
        "{} stages, {}: test accuracy {:.4}",
        summary.stages,
        summary.schedule.name(),
        summary.test_accuracy
    );
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 26))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(1..summary.epochs.max(2), 0.0..highest)?;
    chart
        .configure_mesh()
        .x_desc("epoch")
        .y_desc("mean training loss")
        .label_style(("sans-serif", 18))
        .light_line_style(WHITE)
        .draw()?;
    let points: Vec<_> = (1..).zip(summary.losses.iter().copied()).collect();
    chart.draw_series(LineSeries::new(points.iter().copied(), FORWARD.stroke_width(2)))?;
    chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, FORWARD.filled())))?;
    Ok(())
}

fn paint_stages<'a>(area: &Area<'a>, summary: &Summary, timelines: &[Vec<Span>]) -> Painted<'a> {
    let all = || timelines.iter().enumerate().flat_map(|(k, spans)| spans.iter().map(move |span| (k, span)));
    let shown = || all().filter(|(_, span)| span.step < STEPS);
    let start = shown().map(|(_, span)| span.start_us).min().unwrap_or(0);
    let milliseconds = |us: u64| us.saturating_sub(start) as f64 / 1e3;
    let end = shown().map(|(_, span)| milliseconds(span.end_us)).fold(0.001, f64::max);
    let stages = timelines.len().max(1);
    let caption = format!(
        "first {STEPS} steps of the last epoch: forward blue, backward orange; bubble {:.1} % predicted, {:.1} % measured",
        100.0 * summary.bubble_predicted,
        100.0 * summary.bubble_measured
    );
    // Stage 0 on top: row k from the top lies between stages - k - 1 and stages - k.
    let row = |k: usize| (stages - k) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, 0.0..stages as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("milliseconds")
        .label_style(("sans-serif", 18))
        .y_labels(0)
        .light_line_style(WHITE)
        .draw()?;
    for k in 0..stages {
        let style = ("sans-serif", 18).into_font().color(&BLACK);
        let y = chart.backend_coord(&(0.0, row(k) - 0.5)).1 - area.get_base_pixel().1;
        area.draw_text(&format!("stage {k}"), &style, (12, y - 8))?;
    }
    for (k, span) in shown() {
        let corners =
            [(milliseconds(span.start_us), row(k) - 0.12), (milliseconds(span.end_us), row(k) - 0.88)];
        let (color, micro) = match span.op {
            Op::Forward(micro) => (FORWARD, micro),
            Op::Backward(micro) => (BACKWARD, micro),
        };
        chart.draw_series([Rectangle::new(corners, color.filled())])?;
        // A border would hide what is hardly wider than itself.
        if corners[1].0 - corners[0].0 > end / 300.0 {
            chart.draw_series([Rectangle::new(corners, WHITE)])?;
        }
        let middle = ((corners[0].0 + corners[1].0) / 2.0, row(k) - 0.5);
        // A number needs room: about a hundredth of the width.
        if corners[1].0 - corners[0].0 > end / 100.0 {
            let style = ("sans-serif", 14).into_font().color(&WHITE);
            chart.draw_series([Text::new(micro.to_string(), middle, style)])?;
        }
    }
    Ok(())
}
