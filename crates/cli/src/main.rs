//! The command `tickwheel`.

mod command;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use command::output::OutputFile;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

/// Timing wheels, hierarchical and hashed.
#[derive(Parser)]
#[command(name = "tickwheel", version, about, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Replay(command::replay::Replay),

    Choose(command::choose::Choose),

    Generate(command::generate::Generate),

    Report(command::report::Report),

    /// Shows wheels as they turn, in the terminal. Runs the command of the package
    /// `tickwheel-watch`.
    #[command(disable_help_flag = true)]
    Watch {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Prints a script that completes the command's arguments in a shell.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell.
        shell: Shell,
    },

    /// Writes the man pages of the command into a folder.
    Man {
        /// The folder. It must exist.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

/// Why the command ends early; what it says, and its exit code.
enum Failure {
    /// The arguments or the trace are wrong.
    Input(String),
    /// A result cannot be written.
    Output(String),
    /// The user interrupted the command.
    Interrupted,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Replay(arguments) => arguments.run(),
        Command::Choose(arguments) => arguments.run(),
        Command::Generate(arguments) => arguments.run(),
        Command::Report(arguments) => arguments.run(),
        Command::Watch { arguments } => Err(watch(&arguments)),
        Command::Completions { shell } => print_completions(shell),
        Command::Man { folder } => write_man_pages(&folder),
    };
    let (message, code) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Interrupted) => return ExitCode::from(130),
        Err(Failure::Input(message)) => (message, 2),
        Err(Failure::Output(message)) => (message, 1),
    };
    command::say(message);
    ExitCode::from(code)
}

/// Becomes the command `tickwheel-watch`, which is beside this one or where the shell finds it.
fn watch(arguments: &[OsString]) -> Failure {
    let name = format!("tickwheel-watch{}", std::env::consts::EXE_SUFFIX);
    let beside = std::env::current_exe().map(|own| own.with_file_name(&name));
    let found = beside.ok().filter(|file| file.is_file()).unwrap_or_else(|| name.into());
    let mut command = process::Command::new(found);
    command.args(arguments);
    #[cfg(unix)]
    let error = std::os::unix::process::CommandExt::exec(&mut command);
    #[cfg(not(unix))]
    let error = match command.status() {
        Ok(status) => process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    };
    let installed = "`cargo install tickwheel-watch` installs it";
    Failure::Input(format!("cannot run `tickwheel-watch`: {error}: {installed}"))
}

fn print_completions(shell: Shell) -> Result<(), Failure> {
    let mut command = Arguments::command();
    let name = command.get_name().to_string();
    let mut output = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut output);
    command::output::print(|standard| standard.write_all(&output))
}

fn write_man_pages(folder: &Path) -> Result<(), Failure> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    for command in command.get_subcommands().chain([&command]) {
        let page = Man::new(command.clone());
        let file = OutputFile::new(folder.join(page.get_filename()));
        file.write(|output| page.render(output))?;
    }
    Ok(())
}

const EXIT_CODES: &str = "\
Exit code: 0 when done, also if a mode was stopped, 1 if a result cannot be written or a terminal
does not answer, 2 for arguments or a trace that are wrong, or if `tickwheel-watch` is missing, 130
when interrupted.";

const COMPLETIONS_HELP: &str = "\
Examples:
  tickwheel completions bash > ~/.local/share/bash-completion/completions/tickwheel
  tickwheel completions fish > ~/.config/fish/completions/tickwheel.fish";
