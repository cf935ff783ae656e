"""The server between clients and an engine: requests, answers, routes, and the record of a run."""
