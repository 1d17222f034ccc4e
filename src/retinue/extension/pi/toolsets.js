// Made by `make docs`: change the toolsets, not this file. The tools of each toolset where no agents but the built-in
// ones exist: pi draws earlier calls with them; before the first prompt Retinue says which tools there really are.

export const TOOLSETS = {
  "single": [
    {
      "name": "subagent",
      "description": "Delegate one focused task to a specialised agent that works in its own context and returns its findings. Give it everything it needs: it does not see this conversation.\n\nAgents:\n- explorer: Finds where something is in a codebase and how the parts interact, with path:line evidence. Reads only.\n- researcher: Researches a question in documents and, if it has web tools, on the web; answers with sources.\n- reviewer: Reviews code, a diff or a plan for defects and risks, each with path:line evidence and a fix.\n- implementer: Implements a change. Edits files with --allow-write, else returns the change as a patch (unified diff).\n- tester: Designs tests; finds what is covered, what is not, and which tests to write first.",
      "inputSchema": {
        "type": "object",
        "properties": {
          "agent": {
            "type": "string",
            "minLength": 1,
            "description": "Name of the agent to delegate to"
          },
          "task": {
            "type": "string",
            "minLength": 1,
            "description": "The focused task, with all the context it needs"
          }
        },
        "required": [
          "agent",
          "task"
        ],
        "additionalProperties": false
      }
    }
  ],
  "sticky": [
    {
      "name": "subagent",
      "description": "Delegate one focused task to a specialised agent that works in its own context and reports a finalized result. Give it everything it needs: it does not see this conversation. Every answer names a session; pass its id as sessionId to continue with the same agent.\n\nAgents:\n- explorer: Finds where something is in a codebase and how the parts interact, with path:line evidence. Reads only.\n- researcher: Researches a question in documents and, if it has web tools, on the web; answers with sources.\n- reviewer: Reviews code, a diff or a plan for defects and risks, each with path:line evidence and a fix.\n- implementer: Implements a change. Edits files with --allow-write, else returns the change as a patch (unified diff).\n- tester: Designs tests; finds what is covered, what is not, and which tests to write first.",
      "inputSchema": {
        "type": "object",
        "properties": {
          "agent": {
            "type": "string",
            "minLength": 1,
            "description": "Name of the agent to delegate to"
          },
          "task": {
            "type": "string",
            "minLength": 1,
            "description": "The focused task, with all the context it needs"
          },
          "sessionId": {
            "type": "string",
            "pattern": "^([A-Za-z0-9-]{8,64})?$",
            "description": "The Session ID of an earlier answer of the same agent, to continue with its context; leave it out to start a new session"
          }
        },
        "required": [
          "agent",
          "task"
        ]
      }
    }
  ],
  "fanout": [
    {
      "name": "delegate_to_subagents",
      "description": "Spawn one or more parallel sub-agents to work on separate tasks concurrently. Each works in its own context and sees nothing of this conversation: give it everything it needs. Returns a status and a session ID per task; fetch the results with get_subagent_output, the whole transcript with get_subagent_session, and pass a session ID as resume to continue a session. list_subagent_profiles lists the profiles.",
      "inputSchema": {
        "type": "object",
        "properties": {
          "tasks": {
            "type": "array",
            "items": {
              "type": "object",
              "properties": {
                "name": {
                  "type": "string",
                  "minLength": 1,
                  "description": "Display name of this sub-agent"
                },
                "prompt": {
                  "type": "string",
                  "minLength": 1,
                  "description": "The task, with all the context it needs"
                },
                "cwd": {
                  "type": "string",
                  "description": "Working directory: an absolute path without '..' segments"
                },
                "profile": {
                  "type": "string",
                  "description": "Profile for this task; overrides the top-level one"
                },
                "timeout": {
                  "type": "number",
                  "minimum": 1,
                  "description": "Seconds (default: 600)"
                },
                "resume": {
                  "type": "string",
                  "description": "ID of an earlier session to continue"
                },
                "files": {
                  "type": "array",
                  "description": "Files to read and put before the prompt: a path, a range of lines (1-indexed, inclusive), the first or the last lines. 1 MB per file at most.",
                  "items": {
                    "anyOf": [
                      {
                        "type": "string"
                      },
                      {
                        "type": "object",
                        "properties": {
                          "path": {
                            "type": "string",
                            "description": "Relative to the task's cwd, or absolute"
                          },
                          "start": {
                            "type": "integer",
                            "minimum": 1
                          },
                          "end": {
                            "type": "integer",
                            "minimum": 1
                          }
                        },
                        "required": [
                          "path"
                        ]
                      },
                      {
                        "type": "object",
                        "properties": {
                          "path": {
                            "type": "string",
                            "description": "Relative to the task's cwd, or absolute"
                          },
                          "head": {
                            "type": "integer",
                            "minimum": 1
                          }
                        },
                        "required": [
                          "path",
                          "head"
                        ]
                      },
                      {
                        "type": "object",
                        "properties": {
                          "path": {
                            "type": "string",
                            "description": "Relative to the task's cwd, or absolute"
                          },
                          "tail": {
                            "type": "integer",
                            "minimum": 1
                          }
                        },
                        "required": [
                          "path",
                          "tail"
                        ]
                      }
                    ]
                  }
                },
                "outputSchema": {
                  "type": "object",
                  "description": "JSON Schema of the result; the result is then JSON"
                },
                "isolation": {
                  "type": "string",
                  "enum": [
                    "worktree"
                  ],
                  "description": "Work in a git worktree of its own; changes are committed on a branch"
                },
                "sandbox": {
                  "type": "string",
                  "enum": [
                    "workspace",
                    "strict"
                  ],
                  "description": "Confine it to its directory (workspace), and also cut it off from the network (strict)"
                }
              },
              "required": [
                "name",
                "prompt"
              ]
            },
            "minItems": 1,
            "maxItems": 16,
            "description": "Tasks to execute in parallel"
          },
          "profile": {
            "type": "string",
            "description": "Default profile of all tasks"
          }
        },
        "required": [
          "tasks"
        ]
      }
    },
    {
      "name": "get_subagent_output",
      "description": "Retrieve the final assistant text output from a completed sub-agent session.",
      "inputSchema": {
        "type": "object",
        "properties": {
          "sessionId": {
            "type": "string",
            "description": "The session ID returned by delegate_to_subagents"
          },
          "start": {
            "type": "integer",
            "minimum": 1,
            "description": "First line to return, counted from 1 (default: 1)"
          },
          "lines": {
            "type": "integer",
            "minimum": 1,
            "description": "How many lines to return at most (default: all)"
          }
        },
        "required": [
          "sessionId"
        ]
      }
    },
    {
      "name": "get_subagent_session",
      "description": "Retrieve the complete session transcript, including all messages, tool calls, and tool results.",
      "inputSchema": {
        "type": "object",
        "properties": {
          "sessionId": {
            "type": "string",
            "description": "The session ID returned by delegate_to_subagents"
          }
        },
        "required": [
          "sessionId"
        ]
      }
    },
    {
      "name": "list_subagent_profiles",
      "description": "List all available named sub-agent profiles and their configurations.",
      "inputSchema": {
        "type": "object",
        "properties": {}
      }
    }
  ],
  "nested": [
    {
      "name": "spawn_subagent",
      "description": "Delegate work to specialised agents that work in their own context. Give them everything they need: they do not see this conversation. Mode single: one agent and its task. Mode chain: tasks one after the other; {previous} in a task is replaced by the previous task's answer, which is appended if the placeholder is missing, and {task} for the first task; a chain stops at its first failure. Mode parallel: all tasks at once, answers in their order.\n\nAgents:\n- explorer: Finds where something is in a codebase and how the parts interact, with path:line evidence. Reads only.\n- researcher: Researches a question in documents and, if it has web tools, on the web; answers with sources.\n- reviewer: Reviews code, a diff or a plan for defects and risks, each with path:line evidence and a fix.\n- implementer: Implements a change. Edits files with --allow-write, else returns the change as a patch (unified diff).\n- tester: Designs tests; finds what is covered, what is not, and which tests to write first.",
      "inputSchema": {
        "type": "object",
        "properties": {
          "mode": {
            "type": "string",
            "enum": [
              "single",
              "chain",
              "parallel"
            ],
            "default": "single",
            "description": "single needs agent and task; chain and parallel need tasks"
          },
          "agent": {
            "type": "string",
            "minLength": 1,
            "description": "Name of the agent to delegate to"
          },
          "task": {
            "type": "string",
            "minLength": 1,
            "description": "The focused task, with all the context it needs"
          },
          "outputSchema": {
            "type": "object",
            "description": "JSON Schema of the result; the result is then JSON"
          },
          "isolation": {
            "type": "string",
            "enum": [
              "worktree"
            ],
            "description": "Work in a git worktree of its own; changes are committed on a branch"
          },
          "sandbox": {
            "type": "string",
            "enum": [
              "workspace",
              "strict"
            ],
            "description": "Confine it to its directory (workspace), and also cut it off from the network (strict)"
          },
          "tasks": {
            "type": "array",
            "minItems": 1,
            "maxItems": 16,
            "items": {
              "type": "object",
              "properties": {
                "agent": {
                  "type": "string",
                  "minLength": 1,
                  "description": "Name of the agent to delegate to"
                },
                "task": {
                  "type": "string",
                  "minLength": 1,
                  "description": "The focused task, with all the context it needs"
                },
                "cwd": {
                  "type": "string",
                  "description": "Absolute path of the directory the agent works in"
                },
                "timeout": {
                  "type": "number",
                  "minimum": 1,
                  "description": "Timeout in seconds"
                },
                "outputSchema": {
                  "type": "object",
                  "description": "JSON Schema of the result; the result is then JSON"
                },
                "isolation": {
                  "type": "string",
                  "enum": [
                    "worktree"
                  ],
                  "description": "Work in a git worktree of its own; changes are committed on a branch"
                },
                "sandbox": {
                  "type": "string",
                  "enum": [
                    "workspace",
                    "strict"
                  ],
                  "description": "Confine it to its directory (workspace), and also cut it off from the network (strict)"
                }
              },
              "required": [
                "agent",
                "task"
              ]
            }
          }
        }
      }
    },
    {
      "name": "agent_info",
      "description": "Show an agent: its description, model, tools and instructions.",
      "inputSchema": {
        "type": "object",
        "properties": {
          "agent": {
            "type": "string",
            "minLength": 1,
            "description": "Name of the agent"
          }
        },
        "required": [
          "agent"
        ]
      }
    }
  ]
};
