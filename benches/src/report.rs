//! What a run prints.

use serde::Serialize;

/// One line of the table. `baseline`, `ratio` and `holds` are empty where the peer is absent.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name, always the same.
    pub row: &'static str,
    /// The median of our rounds.
    pub ours: f64,
    /// The median of the baseline's rounds.
    pub baseline: Option<f64>,
    /// Who the baseline is, present or not.
    pub baseline_name: Option<&'static str>,
    /// Of `ours` and `baseline`.
    pub unit: &'static str,
    /// The median of the rounds' ratios of ours to the baseline.
    pub ratio: Option<f64>,
    /// What the ratio must reach; for a row without any peer, what `ours` must reach.
    pub bound: f64,
    /// Whether it does.
    pub holds: Option<bool>,
}

/// The rows as text, in columns.
pub fn table(rows: &[Row]) -> String {
    let head = ["row", "ours", "baseline", "", "unit", "ratio", "bound", "holds"].map(String::from);
    let mut lines = vec![head];
    let number = |value: f64| match value {
        1000.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    };
    let dash = || String::from("-");
    lines.extend(rows.iter().map(|row| {
        [
            row.row.to_string(),
            number(row.ours),
            row.baseline.map_or_else(dash, number),
            row.baseline_name.unwrap_or_default().to_string(),
            row.unit.to_string(),
            row.ratio.map_or_else(dash, number),
            number(row.bound),
            row.holds.map_or_else(dash, |holds| if holds { "yes" } else { "NO" }.to_string()),
        ]
    }));
    let mut widths = [0; 8];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            row: "64 in flight",
            ours: 1234.5,
            baseline: None,
            baseline_name: Some("tarpc"),
            unit: "calls/s",
            ratio: None,
            bound: 2.0,
            holds: None,
        }
    }

    #[test]
    fn an_absent_peer_leaves_nulls_and_every_field() {
        let json = serde_json::to_value(row()).unwrap();
        for field in ["baseline", "ratio", "holds"] {
            assert!(json[field].is_null() && json.get(field).is_some(), "{field}");
        }
        assert_eq!((json["row"].as_str(), json["bound"].as_f64()), (Some("64 in flight"), Some(2.0)));
    }

    #[test]
    fn columns_line_up() {
        let text = table(&[row()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("unit"), lines[1].find("calls/s"));
    }
}
