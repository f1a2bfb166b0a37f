"""Open what others wrote: nothing in it decides what code runs, or where anything is fetched from.

Everything pretrained comes through ``sparing.foreign.pretrained``.
"""
