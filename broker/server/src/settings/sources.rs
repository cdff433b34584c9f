//! Where settings come from: flag before variable before YAML file before default; what nobody knows is refused.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Entry, Kind, Settings, SettingsError};

const CONFIG: &str = "config";
const CONFIG_VARIABLE: &str = "FELIX_CONFIG";
const PRINT_CONFIG: &str = "print-config";

/// What a command line asks for.
#[derive(Debug)]
pub struct Invocation {
    /// The effective settings.
    pub settings: Settings,
    /// Print them and end.
    pub print_config: bool,
}

/// A text and the place where the user wrote it.
struct Given {
    text: String,
    place: String,
}

/// The command line of `felix-broker`, made from the table of settings.
pub fn command() -> Command {
    let config = Arg::new(CONFIG).long(CONFIG).value_name("FILE").help(format!(
        "YAML file with settings; its keys are the names of the flags with underscores [env: {CONFIG_VARIABLE}]"
    ));
    let print = Arg::new(PRINT_CONFIG)
        .long(PRINT_CONFIG)
        .action(ArgAction::SetTrue)
        .help("Print the effective settings as YAML and exit");
    Command::new("felix-broker")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A publish/subscribe broker over QUIC")
        .arg(config)
        .arg(print)
        .args(Settings::TABLE.iter().map(argument))
}

fn argument(entry: &Entry) -> Arg {
    let default = entry
        .default
        .map_or(String::new(), |default| format!(" [default: {default}]"));
    Arg::new(entry.name)
        .long(entry.name.replace('_', "-"))
        .value_name(entry.kind.placeholder())
        .allow_hyphen_values(true)
        .help(format!(
            "{}{default} [env: {}]",
            entry.description(),
            entry.variable()
        ))
}

/// Reads settings from a parsed command line, the environment and the file that either names.
///
/// # Errors
/// See [`SettingsError`].
pub fn read(
    flags: &ArgMatches,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, SettingsError> {
    let (mut given, config_variable) = from_environment(environment)?;
    let config = flags
        .get_one::<String>(CONFIG)
        .cloned()
        .or(config_variable)
        .map(PathBuf::from);
    if let Some(path) = config {
        for (name, value) in from_file(&path)? {
            given.entry(name).or_insert(value);
        }
    }
    for entry in Settings::TABLE {
        if let Some(text) = flags.get_one::<String>(entry.name) {
            given.insert(
                entry.name,
                Given {
                    text: text.clone(),
                    place: entry.flag(),
                },
            );
        }
    }
    let settings = build(&given)?;
    Ok(Invocation {
        settings,
        print_config: flags.get_flag(PRINT_CONFIG),
    })
}

fn build(given: &BTreeMap<&'static str, Given>) -> Result<Settings, SettingsError> {
    let invalid = |name: &'static str, value, expected| SettingsError::Invalid {
        place: given
            .get(name)
            .map_or_else(|| name.to_owned(), |given| given.place.clone()),
        value,
        expected,
    };
    let settings = Settings::from_texts(|name| given.get(name).map(|given| given.text.clone()), invalid)?;
    settings.check().map_err(|(name, expected)| {
        let value = given
            .get(name)
            .map_or_else(String::new, |given| given.text.clone());
        invalid(name, value, expected)
    })?;
    Ok(settings)
}

/// What the scripts of this repository read; somebody who sets them for a build runs brokers from the same shell.
const BUILD_VARIABLES: [&str; 3] = ["FELIX_CACHE", "FELIX_COMMIT", "FELIX_KUBE_BIN"];

type FromEnvironment = (BTreeMap<&'static str, Given>, Option<String>);

fn from_environment(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<FromEnvironment, SettingsError> {
    let mut given = BTreeMap::new();
    let mut config = None;
    for (name, value) in environment {
        let name = name.to_string_lossy().into_owned();
        let ours = name.starts_with("FELIX_")
            && !is_service_link(&name)
            && !BUILD_VARIABLES.contains(&name.as_str());
        if !ours {
            continue;
        }
        let text = value.into_string().map_err(|value| SettingsError::Invalid {
            place: name.clone(),
            value: value.to_string_lossy().into_owned(),
            expected: "text in UTF-8".to_owned(),
        })?;
        if name == CONFIG_VARIABLE {
            config = Some(text);
            continue;
        }
        let Some(entry) = Settings::TABLE.iter().find(|entry| entry.variable() == name) else {
            return Err(SettingsError::UnknownVariable { name });
        };
        given.insert(entry.name, Given { text, place: name });
    }
    Ok((given, config))
}

/// Whether Kubernetes made this variable, because a Service whose name begins with `felix` exists in the namespace.
fn is_service_link(name: &str) -> bool {
    let shapes = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"];
    let inner = ["_SERVICE_PORT_", "_PORT_"];
    shapes.iter().any(|shape| name.ends_with(shape)) || inner.iter().any(|shape| name.contains(shape))
}

fn from_file(path: &Path) -> Result<BTreeMap<&'static str, Given>, SettingsError> {
    let syntax = |reason: String| SettingsError::Syntax {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read_to_string(path).map_err(|source| SettingsError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let document: serde_yaml::Value =
        serde_yaml::from_str(&text).map_err(|error| syntax(error.to_string()))?;
    if document.is_null() {
        return Ok(BTreeMap::new());
    }
    let serde_yaml::Value::Mapping(mapping) = document else {
        return Err(syntax("is not a mapping of names to values".to_owned()));
    };
    let mut given = BTreeMap::new();
    for (key, value) in mapping {
        let key = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
        let Some(entry) = Settings::TABLE.iter().find(|entry| entry.name == key) else {
            return Err(SettingsError::UnknownKey {
                key,
                path: path.to_owned(),
            });
        };
        let place = format!("{key} in {}", path.display());
        if let Some(text) = scalar(entry.kind, &value, &place)? {
            given.insert(entry.name, Given { text, place });
        }
    }
    Ok(given)
}

/// The text of a YAML scalar of the right type; `None` for null, which means unset.
fn scalar(kind: Kind, value: &serde_yaml::Value, place: &str) -> Result<Option<String>, SettingsError> {
    let wrong = |expected: &str| SettingsError::Invalid {
        place: place.to_owned(),
        value: serde_yaml::to_string(value)
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
        expected: expected.to_owned(),
    };
    match (kind, value) {
        (_, serde_yaml::Value::Null) => Ok(None),
        (Kind::Text, serde_yaml::Value::String(text)) => Ok(Some(text.clone())),
        (Kind::Text, _) => Err(wrong("a text")),
        (Kind::Number | Kind::Size, serde_yaml::Value::Number(number)) => Ok(Some(number.to_string())),
        (Kind::Number | Kind::Size, serde_yaml::Value::String(text)) => Ok(Some(text.clone())),
        (Kind::Number, _) => Err(wrong("a whole number")),
        (Kind::Size, _) => Err(wrong("a number of bytes, such as 8388608 or 8MiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(flags: &[&str], variables: &[(&str, &str)]) -> Result<Invocation, SettingsError> {
        let line = ["felix-broker"].iter().chain(flags);
        let flags = command().try_get_matches_from(line).unwrap();
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        read(&flags, variables)
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_flag_beats_a_variable_beats_the_file_beats_the_default() {
        let yaml = file("max_connections: 1\nlog_level: debug\nlog_format: json\n");
        let path = yaml.path().to_str().unwrap();
        let settings = read_with(
            &["--config", path, "--max-connections", "3"],
            &[("FELIX_MAX_CONNECTIONS", "2"), ("FELIX_LOG_LEVEL", "warn")],
        )
        .unwrap()
        .settings;
        assert_eq!(settings.max_connections, 3);
        assert_eq!(settings.log_level.0, tracing::Level::WARN);
        assert_eq!(settings.log_format, super::super::LogFormat::Json);
        assert_eq!(settings.quic_bind.port(), 5000);
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        let error = read_with(&[], &[("FELIX_MAX_CONECTIONS", "2")]).unwrap_err();
        assert!(error.to_string().contains("FELIX_MAX_CONECTIONS"), "{error}");
        let yaml = file("max_conections: 1\n");
        let error = read_with(&["--config", yaml.path().to_str().unwrap()], &[]).unwrap_err();
        assert!(error.to_string().contains("`max_conections`"), "{error}");
        let error = command()
            .try_get_matches_from(["felix-broker", "--max-conections", "1"])
            .unwrap_err();
        assert!(error.to_string().contains("--max-conections"), "{error}");
    }

    #[test]
    fn other_variables_are_not_settings_and_no_setting_looks_like_one() {
        let links = [
            "FELIX_PORT",
            "FELIX_SERVICE_HOST",
            "FELIX_SERVICE_PORT",
            "FELIX_SERVICE_PORT_QUIC",
            "FELIX_PORT_5000_UDP_ADDR",
            "FELIX_BROKERS_SERVICE_HOST",
            "FELIX_DEMO_PORT_8443_TCP",
        ];
        let others = links.iter().chain(&BUILD_VARIABLES);
        let variables: Vec<_> = others.map(|name| (*name, "tcp://10.96.0.1:5000")).collect();
        read_with(&[], &variables).unwrap();
        for entry in Settings::TABLE {
            let variable = entry.variable();
            assert!(!is_service_link(&variable), "{}", entry.name);
            assert!(!BUILD_VARIABLES.contains(&variable.as_str()), "{}", entry.name);
        }
    }

    #[test]
    fn wrong_types_name_the_place() {
        let error = read_with(&["--max-connections", "many"], &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--max-connections is \"many\""), "{error}");
        let error = read_with(&[], &[("FELIX_QUIC_BIND", "here")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("FELIX_QUIC_BIND is \"here\""), "{error}");
        for (text, key) in [
            ("max_connections: []", "max_connections"),
            ("data_dir: 5", "data_dir"),
        ] {
            let yaml = file(text);
            let error = read_with(&["--config", yaml.path().to_str().unwrap()], &[])
                .unwrap_err()
                .to_string();
            assert!(error.contains(&format!("{key} in ")), "{error}");
        }
    }

    #[test]
    fn bounds_name_the_setting() {
        let refused = |flag, value| read_with(&[flag, value], &[]).unwrap_err().to_string();
        for (flag, value) in [
            ("--lanes", "0"),
            ("--lanes", "65"),
            ("--udp-recv-buffer", "1"),
            ("--udp-send-buffer", "2GiB"),
            ("--initial-mtu", "1199"),
            ("--initial-mtu", "6501"),
            ("--mtu-upper-bound", "1199"),
            ("--mtu-upper-bound", "6501"),
            ("--ack-eliciting-threshold", "1001"),
            ("--memory-budget", "1MiB"),
            ("--max-record-bytes", "0"),
            ("--max-connections", "0"),
            ("--shutdown-drain-timeout-ms", "3600001"),
            ("--cluster-id", "no spaces"),
        ] {
            let error = refused(flag, value);
            assert!(error.starts_with(flag), "{error}");
        }
        let variables = [("FELIX_INITIAL_MTU", "1300"), ("FELIX_MTU_UPPER_BOUND", "1299")];
        let error = read_with(&[], &variables).unwrap_err().to_string();
        assert!(
            error.starts_with("FELIX_INITIAL_MTU") && error.contains("mtu_upper_bound"),
            "{error}"
        );
        let error = refused("--tls-cert", "server.pem");
        assert!(error.starts_with("tls_key"), "{error}");
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let first = read_with(&["--memory-budget", "64MiB", "--cluster-id", "c-1"], &[])
            .unwrap()
            .settings
            .to_yaml();
        let yaml = file(&first);
        let again = read_with(&["--config", yaml.path().to_str().unwrap()], &[])
            .unwrap()
            .settings
            .to_yaml();
        assert_eq!(first, again);
        assert!(first.contains("memory_budget: 67108864"), "{first}");
    }

    #[test]
    fn an_empty_file_sets_nothing_and_a_list_is_refused() {
        let yaml = file("# nothing\n");
        read_with(&["--config", yaml.path().to_str().unwrap()], &[]).unwrap();
        let yaml = file("- a\n");
        assert!(matches!(
            read_with(&["--config", yaml.path().to_str().unwrap()], &[]),
            Err(SettingsError::Syntax { .. })
        ));
        assert!(matches!(
            read_with(&["--config", "/no/such"], &[]),
            Err(SettingsError::Unreadable { .. })
        ));
    }
}
