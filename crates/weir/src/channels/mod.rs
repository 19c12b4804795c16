pub fn run(_args: &crate::cli::ChannelsArgs) -> crate::error::Result<()> {
    Ok(())
}
