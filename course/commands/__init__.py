"""One module for each subcommand of `course`, imported only when it is used."""
