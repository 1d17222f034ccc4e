"""The tools of a surface for an extension that runs inside a host: `retinue bridge`, JSON lines on stdio."""
