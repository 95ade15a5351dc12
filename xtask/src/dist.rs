use crate::workspace::Workspace;
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) folder: Option<std::path::PathBuf>,
}
impl Options {
    pub(crate) fn parse(_: &mut lexopt::Parser) -> Result<Self, lexopt::Error> {
        Ok(Self { folder: None })
    }
}
pub(crate) fn run(_: &Workspace, _: &Options) -> anyhow::Result<()> {
    Ok(())
}
