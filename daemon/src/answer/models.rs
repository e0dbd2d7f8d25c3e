//! `--list-models`: a table for people.

use std::time::Duration;

use atomic_protocol::model::Model;
use atomic_providers::{Http, local_providers};

use super::{Answer, Caller, Refusal, registry, wait_for};

const HEAD: [&str; 6] = ["provider", "model", "context", "max-out", "thinking", "images"];

/// Servers on this machine are asked, too; those that do not answer are not there, unless the user's file says they are.
pub(super) fn list(caller: &Caller, search: Option<&str>) -> Result<Answer, Refusal> {
    let registry = registry(caller);
    let servers: Vec<&str> = local_providers().collect();
    let http = Http::new();
    let (registry, failures) = wait_for(registry.with_local(&http, &servers, Duration::ZERO))?;
    let configured = registry.configured_local();
    let failures = failures.into_iter().filter(|(provider, _)| configured.contains(provider));
    let failures = failures.map(|(_, error)| error.to_string());
    let warnings = registry.warnings().iter().cloned().chain(failures);
    let warnings = warnings.map(|warning| format!("Warning: {warning}")).collect();
    let available = registry.available();
    let mut models: Vec<&Model> = available.iter().map(|model| &**model).collect();
    if let Some(search) = search {
        models.retain(|model| matches(&format!("{} {} {}", model.provider, model.id, model.name), search));
    }
    models.sort_by(|a, b| (&a.provider, &a.id).cmp(&(&b.provider, &b.id)));
    let text = match (available.is_empty(), models.is_empty(), search) {
        (true, ..) => format!(
            "No models available. Put an API key into auth.json (atomic auth login PROVIDER) or models.json of {} or into \
             the environment (for example ANTHROPIC_API_KEY), or start a local server such as Ollama.\n",
            caller.agent_dir.display()
        ),
        (false, true, Some(search)) => format!("No models matching \"{search}\"\n"),
        _ => table(&models),
    };
    Ok(Answer { text: text.into_bytes(), warnings, code: 0 })
}

/// Every word of `search` is in `text`, perhaps with gaps between its letters; case does not count.
fn matches(text: &str, search: &str) -> bool {
    let text = text.to_lowercase();
    search.to_lowercase().split_whitespace().all(|word| {
        let mut letters = text.chars();
        word.chars().all(|wanted| letters.any(|letter| letter == wanted))
    })
}

fn table(models: &[&Model]) -> String {
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(models.iter().map(|model| {
        [
            model.provider.clone(),
            model.id.clone(),
            tokens(model.context_window),
            tokens(model.max_tokens),
            yes(model.reasoning),
            yes(model.input.iter().any(|kind| kind == "image")),
        ]
    }));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// `200K`, `1M`, `1.5M`; a number that is no round one is given to one digit.
fn tokens(count: u64) -> String {
    let scaled = |unit: f64, suffix: &str| {
        let text = format!("{:.1}", count as f64 / unit);
        format!("{}{suffix}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => scaled(1e3, "K"),
        _ => scaled(1e6, "M"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_may_leave_letters_out_but_not_change_their_order() {
        let text = "anthropic claude-opus-5 Claude Opus 5";
        for (search, want) in [
            ("opus", true),
            ("CLD", true),
            ("op5 anth", true),
            ("", true),
            ("supo", false),
            ("opus gpt", false),
        ] {
            assert_eq!(matches(text, search), want, "{search}");
        }
    }

    #[test]
    fn numbers_are_short() {
        let table = [
            (0, "0"),
            (999, "999"),
            (8_192, "8.2K"),
            (200_000, "200K"),
            (1_000_000, "1M"),
            (1_050_000, "1.1M"),
        ];
        for (count, want) in table {
            assert_eq!(tokens(count), want);
        }
    }
}
