//! Which options of `verify` mean something for what it is given.
//!
//! An option that changes nothing is refused: who gave it would take the verdict for one of something else.

use super::{Arguments, Level};
use crate::failure::Usage;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use mlxcel_frontend::artifact::is_artifact;

/// What is verified: the column of [`OPTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Model,
    /// An artifact, with the model that it was compiled from.
    WithSource,
    Artifact,
    Case,
}

/// Why an option has no meaning, and what to do.
type Refusal = Option<&'static str>;

const OK: Refusal = None;
const ARTIFACTS: Refusal = Some("is for artifacts; leave it out");
const PLACE: Refusal = Some("is for artifacts; --backends chooses what executes a model");
const SOURCE: Refusal =
    Some("needs the model that the artifact was compiled from; name it with --source");
const IREE: Refusal = Some("is for models; IREE alone executes an artifact, so leave it out");
const CACHES: Refusal = Some(
    "is for models; an artifact's caches have the element type that it was compiled with, so leave it out",
);
const INSIDE: Refusal = Some(
    "is for models; only the logits of an artifact can be seen, so verify the model that it was compiled from",
);
const CASE: Refusal = Some("is not for cases, which hold all that they are run on; leave it out");

/// Every option with what it means for a model, an artifact with its source, an artifact alone, and a case. With
/// a value after its name it stands for that value alone.
const OPTIONS: &[(&str, [Refusal; 4])] = &[
    ("source", [ARTIFACTS, OK, OK, CASE]),
    ("device", [PLACE, OK, OK, CASE]),
    ("prompt", [OK, OK, SOURCE, CASE]),
    ("text-file", [OK, OK, SOURCE, CASE]),
    ("limit", [OK, OK, SOURCE, CASE]),
    ("chunk", [OK, OK, SOURCE, CASE]),
    ("tokens", [OK, OK, SOURCE, CASE]),
    ("level layers", [OK, INSIDE, INSIDE, CASE]),
    ("level nodes", [OK, INSIDE, INSIDE, CASE]),
    ("level tokens", [OK, OK, SOURCE, CASE]),
    ("max-tokens", [OK, OK, SOURCE, CASE]),
    ("backends", [OK, IREE, IREE, CASE]),
    ("json", [OK, OK, OK, CASE]),
    ("html", [OK, OK, OK, CASE]),
    ("kv-dtype", [OK, CACHES, CACHES, CASE]),
    ("repro", [OK, INSIDE, INSIDE, CASE]),
    ("dtype", [OK, OK, SOURCE, CASE]),
    ("adapter", [OK, OK, SOURCE, CASE]),
    ("adapter-scale", [OK, OK, SOURCE, CASE]),
    ("surgery", [OK, OK, SOURCE, CASE]),
    ("fault", [OK, INSIDE, INSIDE, CASE]),
];

/// The options that stand on the command line, and not by default, with their first values.
#[derive(Debug, Default)]
pub(super) struct Given(Vec<(String, String)>);

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = matches
            .ids()
            .map(|id| id.as_str())
            .filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
            .map(|id| {
                let value = matches.get_raw(id).and_then(|mut values| values.next());
                let value = value.unwrap_or_default().to_string_lossy();
                (id.replace('_', "-"), value.into_owned())
            });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// It has no options of its own.
impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// What is verified, if every option that was given means something for it.
pub(super) fn subject(arguments: &Arguments) -> Result<Subject, Usage> {
    let case = arguments.model.extension().is_some_and(|e| e == "mxg");
    let subject = match (is_artifact(&arguments.model), &arguments.source) {
        (true, Some(_)) => Subject::WithSource,
        (true, None) => Subject::Artifact,
        (false, _) if case => Subject::Case,
        (false, _) => Subject::Model,
    };
    let refused = |option: &str, reason: &str| {
        let model = arguments.model.display();
        Err(Usage(format!("{model}: --{option} {reason}")))
    };
    for (option, refusals) in OPTIONS {
        let is_given = arguments.given.0.iter().any(|(name, value)| {
            option.split_once(' ').unwrap_or((option, value)) == (name, value)
        });
        if let (true, Some(reason)) = (is_given, refusals[subject as usize]) {
            return refused(option, reason);
        }
    }
    let counted = arguments
        .given
        .0
        .iter()
        .any(|(name, _)| name == "max-tokens");
    if counted && arguments.level != Level::Tokens {
        return refused(
            "max-tokens",
            "counts tokens that are chosen; add --level tokens",
        );
    }
    Ok(subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_option_is_decided_on() {
        let mut cli = Cli::command();
        let verify = cli.find_subcommand_mut("verify").expect("it is one");
        let mut options: Vec<&str> = verify
            .get_arguments()
            .filter_map(|argument| argument.get_long())
            .collect();
        let name = |(option, _): &(&'static str, _)| option.split(' ').next();
        let mut decided: Vec<&str> = OPTIONS.iter().filter_map(name).collect();
        decided.dedup();
        options.sort_unstable();
        decided.sort_unstable();
        assert_eq!(options, decided);
    }
}
