//! Where a request goes: region and address.

use atomic_protocol::model::Model;

use crate::env::Env;
use crate::error::Error;

/// The region if nobody names one.
const USUAL: &str = "us-east-1";

/// The region of a standard address.
fn standard(base: &str) -> Option<&str> {
    let host = base.strip_prefix("https://")?.split('/').next()?;
    let rest = host.strip_prefix("bedrock-runtime")?;
    let rest = rest.strip_prefix("-fips").unwrap_or(rest).strip_prefix('.')?;
    let region = rest.strip_suffix(".amazonaws.com").or_else(|| rest.strip_suffix(".amazonaws.com.cn"))?;
    (!region.contains('.')).then_some(region)
}

/// In this order: the one in the model's ARN, the session's, the profile's, the one of a standard address.
pub(super) fn region(model: &Model, env: &Env, profile: Option<&str>) -> String {
    let mut arn = model.id.split(':');
    let in_arn = match (arn.next(), arn.next(), arn.next(), arn.next()) {
        (Some("arn"), Some(partition), Some("bedrock"), region) if partition.starts_with("aws") => region,
        _ => None,
    };
    let configured = env.get("AWS_REGION").or_else(|| env.get("AWS_DEFAULT_REGION")).or(profile);
    in_arn
        .filter(|region| !region.is_empty())
        .or(configured)
        .or_else(|| standard(model.base_url.trim()))
        .unwrap_or(USUAL)
        .to_owned()
}

/// A shipped model's address names the region where the catalog found it; the session's region wins over that. An
/// address of the user's own stays.
pub(super) fn address(model: &Model, env: &Env, region: &str) -> Result<String, Error> {
    let base = model.base_url.trim().trim_end_matches('/');
    let own = env.get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME").map(|own| own.trim_end_matches('/').to_owned());
    let base = match standard(base) {
        None if !base.is_empty() => base.to_owned(),
        _ => own.unwrap_or_else(|| {
            let fips = if base.starts_with("https://bedrock-runtime-fips.") { "-fips" } else { "" };
            let china = if region.starts_with("cn-") { ".cn" } else { "" };
            format!("https://bedrock-runtime{fips}.{region}.amazonaws.com{china}")
        }),
    };
    let mut url = reqwest::Url::parse(&base)
        .map_err(|_| Error::BadAddress { provider: model.provider.clone(), address: base.clone() })?;
    url.path_segments_mut()
        .map_err(|()| Error::BadAddress { provider: model.provider.clone(), address: base.clone() })?
        .pop_if_empty()
        .extend(["model", &model.id, "converse-stream"]);
    // The vendor signs the path with colons escaped, which this type of address leaves alone.
    let (front, path) = url.as_str().split_at(url.as_str().len() - url.path().len());
    Ok(format!("{front}{}", path.replace(':', "%3A")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_and_address_come_from_the_first_that_names_one() {
        let east = "https://bedrock-runtime.us-east-1.amazonaws.com";
        let model_path = "/model/a.b-v1%3A0/converse-stream";
        for (id, base, env, profile, region_wanted, address_wanted) in [
            ("a.b-v1:0", east, &[][..], None, "us-east-1", format!("{east}{model_path}")),
            (
                "a.b-v1:0",
                east,
                &[("AWS_REGION", "eu-west-1"), ("AWS_DEFAULT_REGION", "x")],
                Some("y"),
                "eu-west-1",
                format!("https://bedrock-runtime.eu-west-1.amazonaws.com{model_path}"),
            ),
            (
                "a.b-v1:0",
                east,
                &[],
                Some("cn-north-1"),
                "cn-north-1",
                format!("https://bedrock-runtime.cn-north-1.amazonaws.com.cn{model_path}"),
            ),
            (
                "arn:aws-us-gov:bedrock:us-gov-west-1:1:inference-profile/p",
                east,
                &[("AWS_REGION", "eu-west-1")],
                None,
                "us-gov-west-1",
                "https://bedrock-runtime.us-gov-west-1.amazonaws.com/model/arn%3Aaws-us-gov%3Abedrock%3Aus-gov-west-1%3A1%3Ainference-profile%2Fp/converse-stream".into(),
            ),
            ("m", "http://proxy:8080/aws/", &[("AWS_REGION", "eu-west-1")], None, "eu-west-1", "http://proxy:8080/aws/model/m/converse-stream".into()),
            ("m", "", &[("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "https://vpc")], None, "us-east-1", "https://vpc/model/m/converse-stream".into()),
        ] {
            let spec = format!(r#"{{"id":"{id}","provider":"amazon-bedrock","baseUrl":"{base}"}}"#);
            let model = crate::proof::model(&spec);
            let env: Env = env.iter().copied().collect();
            let found = region(&model, &env, profile);
            assert_eq!(found, region_wanted, "{id} {env:?}");
            assert_eq!(address(&model, &env, &found).unwrap(), address_wanted);
        }
    }
}
