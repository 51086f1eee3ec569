"""Side-by-side measurements against lm-eval and HELM; never part of the tests."""
