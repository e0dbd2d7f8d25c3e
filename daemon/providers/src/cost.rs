//! Tokens into money.

use atomic_protocol::message::{Cost, Usage};
use atomic_protocol::model::ModelCost;

/// Prices are per this many tokens.
const PER: f64 = 1_000_000.0;

/// A cache write that lives an hour costs this much more than input (Anthropic, "Prompt caching", Pricing).
const LONG_WRITE_FACTOR: f64 = 2.0;

/// Fills in `total_tokens` and `cost`. `long_writes` is the part of `cache_write` that is kept for an hour. The highest
/// tier whose threshold the whole input strictly exceeds holds for the whole request.
pub(crate) fn price(usage: &mut Usage, prices: &ModelCost, long_writes: u64) {
    let sent = usage.input + usage.cache_read + usage.cache_write;
    usage.total_tokens = sent + usage.output;
    let tier = prices
        .tiers
        .iter()
        .filter(|tier| sent > tier.input_tokens_above)
        .max_by_key(|tier| tier.input_tokens_above);
    let (input, output, read, write) = match tier {
        Some(tier) => (tier.input, tier.output, tier.cache_read, tier.cache_write),
        None => (prices.input, prices.output, prices.cache_read, prices.cache_write),
    };
    let long = long_writes.min(usage.cache_write);
    let short = usage.cache_write - long;
    let mut cost = Cost {
        input: input / PER * usage.input as f64,
        output: output / PER * usage.output as f64,
        cache_read: read / PER * usage.cache_read as f64,
        cache_write: (write * short as f64 + input * LONG_WRITE_FACTOR * long as f64) / PER,
        total: 0.0,
    };
    cost.total = cost.input + cost.output + cost.cache_read + cost.cache_write;
    usage.cost = cost;
}

/// Other prices for the whole request, for a tier of service.
pub(crate) fn scale(cost: &mut Cost, factor: f64) {
    // Multiplying by one would still be exact; this says that it is nothing.
    if factor != 1.0 {
        for part in [&mut cost.input, &mut cost.output, &mut cost.cache_read, &mut cost.cache_write] {
            *part *= factor;
        }
        cost.total = cost.input + cost.output + cost.cache_read + cost.cache_write;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_protocol::model::CostTier;

    fn prices() -> ModelCost {
        let tier = |above, factor: f64| CostTier {
            input_tokens_above: above,
            input: 3.0 * factor,
            output: 15.0 * factor,
            cache_read: 0.3 * factor,
            cache_write: 3.75 * factor,
        };
        ModelCost {
            input: 3.0,
            output: 15.0,
            cache_read: 0.3,
            cache_write: 3.75,
            tiers: vec![tier(500_000, 4.0), tier(200_000, 2.0)],
        }
    }

    #[test]
    fn tiers_hold_for_the_whole_request_and_only_when_exceeded() {
        for (input, cache_read, want) in [
            (200_000, 0, 0.6),
            (200_000, 1, 1.2 + 0.6e-6),
            (100_000, 100_001, 0.6 + 0.0600006),
            (500_001, 0, 6.000012),
        ] {
            let mut usage = Usage { input, cache_read, ..Usage::default() };
            price(&mut usage, &prices(), 0);
            assert!((usage.cost.total - want).abs() < 1e-9, "{input}+{cache_read}: {:?}", usage.cost);
            assert_eq!(usage.total_tokens, input + cache_read);
        }
    }

    #[test]
    fn hour_long_cache_writes_cost_twice_the_input() {
        let mut usage = Usage { cache_write: 1_000_000, ..Usage::default() };
        price(&mut usage, &ModelCost { tiers: Vec::new(), ..prices() }, 400_000);
        assert!((usage.cost.cache_write - (0.6 * 3.75 + 0.4 * 6.0)).abs() < 1e-9, "{:?}", usage.cost);
    }
}
