"""Models that answer for each token: entities, or an answer in a passage; dense and adaptive."""
