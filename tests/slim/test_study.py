
def test_a(texts_run):
    print([f for f in texts_run.failures], len(texts_run.records))
    assert texts_run.failures == []

def test_b(images_run):
    print([f for f in images_run.failures], len(images_run.records))
    assert images_run.failures == []
