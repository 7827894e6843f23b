"""The paper's tables as commands: what to run, one record per finished run, what came out."""
