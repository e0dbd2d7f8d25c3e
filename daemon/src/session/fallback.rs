//! Who may take the place of a model that fails: what the settings name, as far as it is known and has a credential now.

use atomic_agent::FallbackModel;
use atomic_providers::Registry;

use super::actor::Actor;
use crate::settings::Settings;

/// The models that `fallbackModels` names, in its order; each that is not known is a notice.
pub(super) fn resolve(
    registry: &Registry,
    settings: &Settings,
    notices: &mut Vec<String>,
) -> Vec<FallbackModel> {
    let mut known = Vec::new();
    for name in &settings.fallback_models {
        match registry.exact(name) {
            Ok(resolved) => {
                known.push(FallbackModel { model: resolved.model, thinking: resolved.thinking });
            }
            Err(error) => notices.push(format!("fallbackModels: {error} It is passed over.")),
        }
    }
    known
}

/// Those of them that have a credential. Blocking: reads the credentials file.
pub(super) fn usable(registry: &Registry, known: &[FallbackModel]) -> Vec<FallbackModel> {
    known.iter().filter(|candidate| registry.has_auth(&candidate.model)).cloned().collect()
}

impl Actor {
    /// Looks which candidates have a credential, before a model may be asked: a key may have come or gone since.
    pub(super) async fn look_for_fallbacks(&mut self) {
        if self.fallbacks.is_empty() {
            return;
        }
        let (registry, known) = (self.registry.clone(), self.fallbacks.clone());
        if let Ok(usable) = tokio::task::spawn_blocking(move || usable(&registry, &known)).await {
            self.agent.set_fallback_models(usable);
        }
    }
}
