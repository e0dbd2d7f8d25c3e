//! The one table, and the numbers that go into it.

use std::io::Write as _;
use std::time::Duration;

use crate::Failure;

/// One line of the table.
struct Row {
    scenario: String,
    measure: String,
    best: String,
    p50: String,
    p99: String,
    unit: &'static str,
    samples: usize,
    /// What was hoped for, and whether it was met.
    goal: Option<(String, bool)>,
    /// Mean cores in use on the machine meanwhile, this program and what it measures included.
    cores: f64,
}

/// Collects rows.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

/// Values of one measure.
pub(crate) struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Samples {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Samples { sorted }
    }

    /// Durations as milliseconds.
    pub(crate) fn millis<'a>(values: impl IntoIterator<Item = &'a Duration>) -> Samples {
        Samples::new(values.into_iter().map(|time| time.as_secs_f64() * 1e3))
    }

    /// The value below which this part of the values lies (nearest rank). 0 when there are none.
    pub(crate) fn at(&self, part: f64) -> f64 {
        let rank = (part * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }
}

/// How a measure stands to its goal.
pub(crate) enum Goal {
    None,
    /// The median is at most this.
    AtMost(f64),
}

impl Table {
    /// Adds a measure.
    pub(crate) fn add(
        &mut self,
        scenario: &str,
        measure: &str,
        unit: &'static str,
        samples: &Samples,
        goal: Goal,
        cores: f64,
    ) {
        let goal = match goal {
            Goal::None => None,
            Goal::AtMost(limit) => Some((format!("≤ {}", number(limit)), samples.median() <= limit)),
        };
        let several = samples.sorted.len() > 1;
        self.rows.push(Row {
            scenario: scenario.to_owned(),
            measure: measure.to_owned(),
            best: if several { number(samples.at(0.0)) } else { String::new() },
            p50: number(samples.median()),
            p99: if several { number(samples.at(0.99)) } else { String::new() },
            unit,
            samples: samples.sorted.len(),
            goal,
            cores,
        });
        let row = &self.rows[self.rows.len() - 1];
        // Progress for whoever waits; the table comes at the end.
        let _ = writeln!(std::io::stderr(), "  {}: {} {} {}", row.scenario, row.measure, row.p50, row.unit);
    }

    /// Whether every goal was met.
    pub(crate) fn all_met(&self) -> bool {
        self.rows.iter().all(|row| row.goal.as_ref().is_none_or(|(_, met)| *met))
    }

    /// Writes it to stdout, as Markdown.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut lines = vec![
            ["scenario", "measure", "best", "p50", "p99", "unit", "n", "goal", "met", "cores"]
                .map(str::to_owned),
            std::array::from_fn(|_| String::new()),
        ];
        for row in &self.rows {
            let (goal, met) = match &row.goal {
                Some((goal, met)) => (goal.clone(), if *met { "yes" } else { "NO" }),
                None => (String::new(), ""),
            };
            lines.push([
                row.scenario.clone(),
                row.measure.clone(),
                row.best.clone(),
                row.p50.clone(),
                row.p99.clone(),
                row.unit.to_owned(),
                row.samples.to_string(),
                goal,
                met.to_owned(),
                format!("{:.1}", row.cores),
            ]);
        }
        let widths: Vec<usize> = (0..lines[0].len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        let mut out = String::new();
        for (at, line) in lines.iter().enumerate() {
            let fill = if at == 1 { '-' } else { ' ' };
            for (cell, width) in line.iter().zip(&widths) {
                out.push_str("| ");
                out.push_str(cell);
                out.extend(std::iter::repeat_n(fill, width - cell.chars().count()));
                out.push(' ');
            }
            out.push_str("|\n");
        }
        Ok(std::io::stdout().write_all(out.as_bytes())?)
    }
}

/// Three significant digits, and whole numbers whole.
fn number(value: f64) -> String {
    let digits = if value.abs() >= 100.0 || value.fract() == 0.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else if value.abs() >= 1.0 {
        2
    } else {
        3
    };
    format!("{value:.digits$}")
}
