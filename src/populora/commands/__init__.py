"""One module per subcommand of `populora`; each has ``main(arguments) -> exit code`` (see `populora.cli`)."""
