"""The figures of pages: sheets, colours and signs, charts of series, sheets of patches."""
