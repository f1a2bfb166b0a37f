"""Where work runs: worker processes of this machine, or the nodes of a Ray cluster."""
