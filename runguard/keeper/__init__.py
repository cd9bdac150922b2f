"""The process that keeps a database lock as long as the command lives. Knows locks by their promises, no database."""
