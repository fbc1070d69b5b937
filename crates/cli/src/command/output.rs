//! Writes results: to standard output, or to a file that is complete or not there at all.

use crate::Failure;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tickwheel_cli::trace::printable;

/// The name of a file that is to be written.
#[derive(Clone)]
pub(crate) struct OutputFile {
    path: PathBuf,
}

impl OutputFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(Self::parse)
    }

    fn parse(name: OsString) -> Result<Self, &'static str> {
        if name.is_empty() || name == "-" {
            return Err("expected the name of a file");
        }
        // A path forgets a separator at its end, and a dot behind it.
        let is_last = |last: &OsStr| name.as_encoded_bytes().ends_with(last.as_encoded_bytes());
        if !Path::new(&name).file_name().is_some_and(is_last) {
            return Err("found a folder, expected a file");
        }
        Ok(Self::new(name.into()))
    }

    /// How the name ends, in lower case, without the dot.
    pub(crate) fn extension(&self) -> Option<String> {
        self.path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase)
    }

    /// Returns whether there will be a place to write to, as far as can be told beforehand.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let target = self.target().map_err(Failure::Input)?;
        if target.is_dir() {
            return self.wrong("found a directory, expected a file");
        }
        if target.exists() && !target.is_file() {
            return self.wrong("found a device, expected a file");
        }
        let folder = folder(&target);
        match tempfile::tempfile_in(folder) {
            Ok(_) => Ok(()),
            Err(error) => self.wrong(&format!("cannot write into {}: {error}", name(folder))),
        }
    }

    /// Like [`check`](Self::check), for what is made of the trace in `input`: it must not replace it.
    pub(crate) fn check_beside(&self, input: &Path) -> Result<(), Failure> {
        let input = if input == Path::new("-") { Path::new("/dev/stdin") } else { input };
        match (self.path.canonicalize(), input.canonicalize()) {
            (Ok(path), Ok(input)) if path == input => {
                self.wrong("found the trace itself, expected another file")
            }
            _ => self.check(),
        }
    }

    fn wrong(&self, what: &str) -> Result<(), Failure> {
        Err(Failure::Input(format!("{}: {what}", name(&self.path))))
    }

    /// Lets `write` fill a file beside the one asked for, then gives it its name. If `write` or
    /// anything else fails, nothing is left behind; [`io::ErrorKind::Interrupted`] says that the
    /// user interrupted it.
    pub(crate) fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let target = self.target().map_err(Failure::Output)?;
        let written = new_file(&target).and_then(|mut file| {
            write(&mut file)?;
            file.persist(&target).map(drop).map_err(|error| error.error)
        });
        written.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Failure::Interrupted,
            _ => self.failure(&error),
        })
    }

    pub(crate) fn failure(&self, error: &dyn Error) -> Failure {
        Failure::Output(format!("{}: {error}", name(&self.path)))
    }

    /// The file that the path leads to, through any links.
    fn target(&self) -> Result<PathBuf, String> {
        const MOST_LINKS: usize = 40;
        let mut target = self.path.clone();
        for _ in 0..MOST_LINKS {
            match target.read_link() {
                // A relative link counts from the folder that it is in.
                Ok(next) => target = folder(&target).join(next),
                Err(_) => return Ok(target),
            }
        }
        Err(format!("{}: found a link that leads to itself, expected a file", name(&self.path)))
    }
}

/// Lets `write` fill standard output. A reader that has had enough is no failure.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut standard = io::stdout().lock();
    match write(&mut standard).and_then(|()| standard.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Output(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A path as a message names it.
fn name(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// The folder that a file is in.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A temporary file beside `target` that has the permissions of that file when it gets its name, or
/// those of any new file.
fn new_file(target: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tickwheel-");
    #[cfg(unix)]
    {
        use std::fs::{Metadata, Permissions};
        use std::os::unix::fs::PermissionsExt;
        let mode = |file: Metadata| file.permissions().mode() & 0o777;
        let kept = target.metadata().ok().map(mode);
        builder.permissions(Permissions::from_mode(kept.unwrap_or(0o666)));
        let file = builder.tempfile_in(folder(target))?;
        // The umask may have taken some of those that are kept.
        let got = mode(file.as_file().metadata()?);
        if let Some(kept) = kept.filter(|&kept| kept != got) {
            file.as_file().set_permissions(Permissions::from_mode(kept))?;
        }
        Ok(file)
    }
    #[cfg(not(unix))]
    builder.tempfile_in(folder(target))
}
