"""Agents: their definitions, search paths, trust and tools."""
