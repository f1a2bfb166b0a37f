"""Do two classifiers give the same answers on your texts, and which is faster?"""
