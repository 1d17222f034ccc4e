"""The conformance suites of engines and of session stores, for tests of your own."""
