"""Cells of a study side by side: in processes of this machine, or on the nodes of a cluster."""
