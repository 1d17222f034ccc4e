"""The tools of surfaces over the Model Context Protocol: `retinue mcp`, on stdio or on HTTP."""
