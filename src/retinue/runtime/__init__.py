"""One run from plan to stored result: planner, orchestrator, attempts, supervisor, executor, recorder."""
