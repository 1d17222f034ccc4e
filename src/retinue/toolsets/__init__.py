"""The families of tools that hosts register: single, sticky, fanout, nested."""
