//! What a run and a session may use: money, turns, tokens.
//!
//! Looked at before each request, a planner's included. A request that was made is paid for, so what is used may go over a
//! limit by one request. Retries, other models in place of one that failed, planners and summaries count like answers; a
//! turn is an answer of the conversation, failed and aborted ones included.

use atomic_protocol::message::Usage;
use atomic_protocol::model::Model;

use crate::Agent;

/// Most that may be used; `None`: any amount.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// US dollars.
    pub max_cost: Option<f64>,
    /// Turns.
    pub max_turns: Option<u64>,
    /// Tokens sent, received, and read from or written to the provider's cache.
    pub max_tokens: Option<u64>,
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// US dollars.
    pub cost: f64,
    /// Turns.
    pub turns: u64,
    /// Tokens, as in [`Budget::max_tokens`].
    pub tokens: u64,
}

/// Settings `limits.*`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For each run: all turns until it settles.
    pub run: Budget,
    /// For the session, with what its file says it used before.
    pub session: Budget,
    /// Whether it is known what a model costs.
    pub priced: fn(&Model) -> bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { run: Budget::default(), session: Budget::default(), priced: |_| true }
    }
}

impl Spent {
    fn add(&mut self, usage: &Usage, turns: u64) {
        // A provider's nonsense must not take back what was used.
        if usage.cost.total.is_finite() && usage.cost.total > 0.0 {
            self.cost += usage.cost.total;
        }
        self.turns = self.turns.saturating_add(turns);
        for tokens in [usage.input, usage.output, usage.cache_read, usage.cache_write] {
            self.tokens = self.tokens.saturating_add(tokens);
        }
    }
}

impl Budget {
    /// Which limit is reached, in words; `scope` has used `spent`, and the settings' names begin with `names`.
    fn reached(&self, spent: &Spent, scope: &str, names: &str) -> Option<String> {
        if let Some(most) = self.max_turns.filter(|most| spent.turns >= *most) {
            let turns = if spent.turns == 1 { "turn" } else { "turns" };
            return Some(format!(
                "{scope} has made {} {turns}, and {names}.maxTurns is {most}.",
                spent.turns
            ));
        }
        if let Some(most) = self.max_cost.filter(|most| spent.cost >= *most) {
            let (used, most) = (dollars(spent.cost), dollars(most));
            return Some(format!("{scope} has cost {used}, and {names}.maxCost is {most}."));
        }
        let most = self.max_tokens.filter(|most| spent.tokens >= *most)?;
        Some(format!("{scope} has used {} tokens, and {names}.maxTokens is {most}.", spent.tokens))
    }
}

/// Money to a hundredth of a cent, and whole cents at least.
fn dollars(amount: f64) -> String {
    let text = format!("{amount:.4}");
    format!("${}", text.strip_suffix("00").unwrap_or(&text))
}

/// The limits, and what was used of them.
#[derive(Debug)]
pub(crate) struct Ledger {
    limits: Limits,
    run: Spent,
    session: Spent,
}

impl Ledger {
    pub(crate) fn new(limits: Limits, session: Spent) -> Ledger {
        Ledger { limits, run: Spent::default(), session }
    }

    pub(crate) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// A call used this; it was a turn, or something beside the conversation.
    pub(crate) fn spend(&mut self, usage: &Usage, is_turn: bool) {
        self.run.add(usage, u64::from(is_turn));
        self.session.add(usage, u64::from(is_turn));
    }

    /// What follows is another run.
    pub(crate) fn next_run(&mut self) {
        self.run = Spent::default();
    }

    /// Why the session may not ask this model at all, and the ways out.
    pub(crate) fn session_refusal(&self, model: &Model) -> Option<String> {
        let Limits { run, session, priced } = &self.limits;
        let held = [(run, "limits.maxCost"), (session, "limits.session.maxCost")];
        if let Some((_, name)) = held.iter().find(|(budget, _)| budget.max_cost.is_some())
            && !priced(model)
        {
            return Some(format!(
                "The price of {}/{} is unknown, so {name} cannot be held. Set \"cost\" of the model in models.json, or remove \
                 {name}.",
                model.provider, model.id
            ));
        }
        let why = session.reached(&self.session, "This session", "limits.session")?;
        Some(format!("{why} Raise the limit in settings.json and reload, or go on in a new session."))
    }

    /// Why this model may not be asked now, and the ways out.
    pub(crate) fn refusal(&self, model: &Model) -> Option<String> {
        self.session_refusal(model).or_else(|| {
            let why = self.limits.run.reached(&self.run, "This run", "limits")?;
            Some(format!(
                "{why} Prompt again for another run, or raise the limit in settings.json and reload."
            ))
        })
    }
}

impl Agent {
    /// What the session used: what its file said when it was loaded, and everything since.
    pub fn used(&self) -> Spent {
        self.ledger.session
    }

    /// Why the model may not be asked now.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.ledger.refusal(self.model.as_deref()?)
    }

    /// Why the session may not ask its model at all.
    pub(crate) fn session_refusal(&self) -> Option<String> {
        self.ledger.session_refusal(self.model.as_deref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_readable() {
        for (amount, text) in
            [(1.0, "$1.00"), (0.5, "$0.50"), (0.1234, "$0.1234"), (0.00004, "$0.00"), (12.345, "$12.3450")]
        {
            assert_eq!(dollars(amount), text);
        }
    }

    #[test]
    fn nonsense_takes_nothing_back() {
        let mut spent = Spent { cost: 1.0, turns: 1, tokens: u64::MAX - 1 };
        for total in [f64::NAN, f64::INFINITY, -5.0] {
            let mut usage = Usage { input: 5, ..Usage::default() };
            usage.cost.total = total;
            spent.add(&usage, 1);
        }
        assert_eq!(spent, Spent { cost: 1.0, turns: 4, tokens: u64::MAX });
    }
}
