//! Tokens into money.

use std::net::IpAddr;

use atomic_protocol::message::{Cost, Usage};
use atomic_protocol::model::{Model, ModelCost};

use crate::catalog::Catalog;
use crate::demo;

/// Prices are per this many tokens.
const PER: f64 = 1_000_000.0;

/// A cache write that lives an hour costs this much more than input (Anthropic, "Prompt caching", Pricing).
const LONG_WRITE_FACTOR: f64 = 2.0;

/// Whether it is known what `model` costs: it has a price, or none because it is in the catalog so (free, or paid otherwise) or
/// runs on this machine or in its own network. A model of the user's file elsewhere that has no price may cost anything.
pub fn price_is_known(model: &Model) -> bool {
    let ModelCost { input, output, cache_read, cache_write, tiers } = &model.cost;
    [input, output, cache_read, cache_write].into_iter().any(|price| *price > 0.0)
        || !tiers.is_empty()
        || model.provider == demo::PROVIDER
        || Catalog::shipped().models(&model.provider).iter().any(|shipped| shipped.id == model.id)
        || is_near(&model.base_url)
}

/// The address is of this machine or of a private network (RFC 1918, RFC 4193, RFC 6762).
fn is_near(address: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(address) else { return false };
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            ip.is_loopback() || ip.is_private() || ip.is_unspecified() || ip.is_link_local()
        }
        Ok(IpAddr::V6(ip)) => {
            ip.is_loopback() || ip.is_unspecified() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
        Err(_) => {
            host.eq_ignore_ascii_case("localhost") || host.ends_with(".localhost") || host.ends_with(".local")
        }
    }
}

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
    use atomic_protocol::json::Raw;
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

    #[test]
    fn a_model_elsewhere_without_a_price_may_cost_anything() {
        let model = |provider: &str, id: &str, url: &str, cost: &str| {
            let text = format!(r#"{{"id":"{id}","provider":"{provider}","baseUrl":"{url}","cost":{cost}}}"#);
            Model::parse(Raw::parse(&text).unwrap()).unwrap()
        };
        let free = r#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0}"#;
        for (url, known) in [
            ("https://models.example/v1", false),
            ("https://localhost.example/v1", false),
            ("http://8.8.8.8/v1", false),
            ("no address", false),
            ("http://localhost:11434/v1", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("http://192.168.1.4/v1", true),
            ("http://box.local/v1", true),
        ] {
            assert_eq!(price_is_known(&model("mine", "m", url, free)), known, "{url}");
        }
        let far = "https://models.example";
        assert!(price_is_known(&model("mine", "m", far, r#"{"output":1}"#)));
        let shipped = &Catalog::shipped().models("anthropic")[0];
        assert!(price_is_known(&model("anthropic", &shipped.id, far, free)), "the catalog says it is free");
        assert!(!price_is_known(&model("anthropic", "claude-next-9", far, free)));
    }
}
