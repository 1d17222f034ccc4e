"""The offline engine: the agent loop on a model made of rules. It needs no key and no network, and says so.

engine        the engine and its capabilities
rule_model    the model, and what of a task goes to other agents: `ask explorer: …`
search        the words of a task, the tool calls that look for them, and the files ranked by what was found
report        the answer: `path:line` evidence under the headings of the built-in agents
"""
