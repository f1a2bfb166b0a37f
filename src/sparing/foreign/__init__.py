"""Open files from others: nothing in them chooses which code runs, or what is fetched.

Everything pretrained comes through ``sparing.foreign.pretrained``.
"""
