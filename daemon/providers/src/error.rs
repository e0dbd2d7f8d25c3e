//! Why a model could not be found, authenticated or asked. Every text is for a person and carries no secret.

use std::path::PathBuf;

/// A failure outside an answer stream. Inside one, failures are
/// [`ModelFailure`](atomic_protocol::model::ModelFailure)s.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// `--provider` names nothing we know.
    #[error("Unknown provider \"{name}\". Use --list-models to see available providers/models.")]
    UnknownProvider {
        /// As the user wrote it.
        name: String,
    },
    /// `--model` matches nothing.
    #[error("Model \"{name}\" not found. Use --list-models to see available models.")]
    ModelNotFound {
        /// As the user wrote it, with the provider when one was named.
        name: String,
    },
    /// `--model` is the exact id of models of several providers.
    #[error("Model \"{name}\" is ambiguous: {}. Name one of them, for example --model {}.", .candidates.join(", "), .candidates.first().map_or("", String::as_str))]
    AmbiguousModel {
        /// As the user wrote it.
        name: String,
        /// `provider/id` of each match.
        candidates: Vec<String>,
    },
    /// Nobody named a model and no provider has a key.
    #[error("No models available. Set an API key, for example ANTHROPIC_API_KEY, or put one into {}.", .auth_file.display())]
    NoModel {
        /// Where a key would be looked up.
        auth_file: PathBuf,
    },
    /// Nothing gives a key for the provider.
    #[error("No API key found for {provider}. {advice}")]
    NoApiKey {
        /// Provider id.
        provider: String,
        /// The ways out, a sentence.
        advice: String,
    },
    /// A login that only the program which made it can use.
    #[error(
        "No API key found for {provider}: {} holds a subscription login for it, which this program does not use. {advice}",
        .file.display()
    )]
    SubscriptionLogin {
        /// Provider id.
        provider: String,
        /// The file that holds it.
        file: PathBuf,
        /// The ways out, a sentence.
        advice: String,
    },
    /// A configured value names a variable that the session does not have.
    #[error(
        "The {what} of {provider} names the environment variable {variable}, which is not set in this session."
    )]
    UnsetVariable {
        /// Provider id.
        provider: String,
        /// What the value is for, for example `API key`.
        what: String,
        /// The variable.
        variable: String,
    },
    /// A configured `!command` gave no value.
    #[error(
        "The command for the {what} of {provider} gave no value: {reason}. Run it in a terminal to see why: {command}"
    )]
    Command {
        /// Provider id.
        provider: String,
        /// What the value is for.
        what: String,
        /// The command line as configured.
        command: String,
        /// What happened.
        reason: String,
    },
    /// A value that cannot travel in a header.
    #[error(
        "The {what} of {provider} has characters that an HTTP header cannot carry. Look for a line break or a stray quote in it."
    )]
    BadHeader {
        /// Provider id.
        provider: String,
        /// Which value, never the value itself.
        what: String,
    },
    /// The credentials file is there but cannot be used.
    #[error("Cannot use {}: {reason}. Repair or remove the file.", .file.display())]
    AuthFile {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The address of the endpoint has a placeholder nobody filled.
    #[error(
        "The address of {provider} needs the environment variable {variable}, which is not set in this session."
    )]
    Address {
        /// Provider id.
        provider: String,
        /// The variable.
        variable: String,
    },
    /// Nobody says where the model is.
    #[error("Nothing says where {provider} is. Set \"baseUrl\" of {provider} in models.json.")]
    NoAddress {
        /// Provider id.
        provider: String,
    },
    /// A server on the user's own machine is not to be reached.
    #[error(
        "{name} at {address} does not say which models it has: {reason}. Start it ({start}), or say where it is with {variable} or \"baseUrl\" of {provider} in models.json."
    )]
    LocalServer {
        /// As its makers write it.
        name: &'static str,
        /// Host and port.
        address: String,
        /// What went wrong.
        reason: String,
        /// The command that starts it.
        start: &'static str,
        /// The variable with its address.
        variable: &'static str,
        /// Provider id.
        provider: &'static str,
    },
    /// A server on the user's own machine answers and has nothing to talk to.
    #[error("{name} at {address} has no model to talk to. Give it one: {fill}")]
    NoLocalModels {
        /// As its makers write it.
        name: &'static str,
        /// Host and port.
        address: String,
        /// The command that does.
        fill: &'static str,
    },
    /// A login that works only for another vendor's program.
    #[error(
        "{provider} cannot be logged in to: {reason}, and this program does not pass itself off as another. What works instead: {instead}."
    )]
    AnothersIdentity {
        /// Provider id.
        provider: String,
        /// Whose identity it takes.
        reason: &'static str,
        /// What the user can do.
        instead: &'static str,
    },
    /// A login through a provider's page came to nothing.
    #[error("{provider} gave no key: {reason}")]
    Login {
        /// Provider id.
        provider: String,
        /// What went wrong.
        reason: String,
    },
    /// Google's credentials are there but give no token.
    #[error(
        "Cannot use the Google credentials in {}: {reason}. Log in again with gcloud auth application-default login, or set GOOGLE_CLOUD_API_KEY.",
        .file.display()
    )]
    GoogleCredentials {
        /// The file.
        file: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// A profile gives no keys.
    #[error(
        "Cannot use the AWS profile {profile} for {provider}: {reason}. AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, work without one."
    )]
    Profile {
        /// Provider id.
        provider: String,
        /// The profile's name.
        profile: String,
        /// What went wrong.
        reason: String,
    },
    /// A request that cannot be signed.
    #[error(
        "Cannot sign the request to {provider}: {reason}. Look for stray characters in its keys and headers."
    )]
    Signature {
        /// Provider id.
        provider: String,
        /// What the signer said.
        reason: String,
    },
    /// Nobody says where the Azure resource is.
    #[error(
        "Nothing says where {provider} is. Set AZURE_OPENAI_BASE_URL or AZURE_OPENAI_RESOURCE_NAME in this session's environment, or \"baseUrl\" of {provider} in models.json."
    )]
    NoAzureAddress {
        /// Provider id.
        provider: String,
    },
    /// The configured address is none.
    #[error("The address of {provider} is no URL: {address}. It should begin with https://.")]
    BadAddress {
        /// Provider id.
        provider: String,
        /// As configured.
        address: String,
    },
    /// No HTTP client for the session's proxy settings.
    #[error(
        "Cannot use the proxy settings of this session: {reason}. Check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY."
    )]
    Proxy {
        /// What is wrong, without the credentials a proxy address may carry.
        reason: String,
    },
    /// The HTTP client itself could not be made.
    #[error("Cannot set up HTTPS: {reason}. Check that this system has root certificates installed.")]
    Client {
        /// What the client said.
        reason: String,
    },
}

impl From<Error> for crate::pump::Stop {
    fn from(error: Error) -> Self {
        crate::pump::Stop::Failed(atomic_protocol::model::ModelFailure::new(error.to_string()))
    }
}
