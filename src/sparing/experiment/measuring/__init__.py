"""Every quantity of one mechanism or model beside its dense baseline: what ``measure`` does."""
