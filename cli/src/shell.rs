//! Files for shells and manuals, made from the definitions of the command line.

use crate::args::Cli;
use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::PathBuf;

/// Print a script that completes mlxcel's command line in a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel completions bash > ~/.local/share/bash-completion/completions/mlxcel\n  \
    mlxcel completions zsh > ~/.zfunc/_mlxcel\n  \
    mlxcel completions fish > ~/.config/fish/completions/mlxcel.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Print the manual page, or write the page of each subcommand into a folder.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel man | man -l -\n  \
    mlxcel man --output ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// The folder.
    #[arg(long, short = 'o', value_name = "FOLDER")]
    output: Option<PathBuf>,
}

pub(crate) fn completions(arguments: &Completions) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "mlxcel", &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}

pub(crate) fn man(arguments: &Man) -> anyhow::Result<()> {
    match &arguments.output {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            Ok(io::stdout().lock().write_all(&page)?)
        }
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
            .with_context(|| format!("cannot write into {}", folder.display())),
    }
}
