"""The bridge that serves a toolset to an extension inside a host, on stdio."""
