"""The files that Claude Code writes for its plugins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class ClaudePlugins:
    """The files that Claude Code writes for its plugins, below one home."""

    def __init__(self, home: Path) -> None:
        self.folder = home / ".claude"
        self.installed: dict[str, list[dict[str, Any]]] = {}

    def install(self, identity: str, *, project: Path | None = None, manifest: Any = None) -> Path:
        """Install a plugin and return its folder."""
        name, _, market = identity.partition("@")
        root = self.folder / "plugins/cache" / market / name / "1.0.0"
        (root / ".claude-plugin").mkdir(parents=True, exist_ok=True)
        (root / ".claude-plugin/plugin.json").write_text(json.dumps({"name": name} if manifest is None else manifest))
        scope = {"scope": "project", "projectPath": str(project)} if project else {"scope": "user"}
        self.installed.setdefault(identity, []).append({**scope, "installPath": str(root), "version": "1.0.0"})
        self.write_installed({"version": 2, "plugins": self.installed})
        return root

    def write_installed(self, content: Any) -> Path:
        path = self.folder / "plugins/installed_plugins.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def enable(self, *identities: str, off: tuple[str, ...] = (), settings: Path | None = None) -> None:
        """Write the settings of the user, or others, that enable plugins."""
        path = settings or self.folder / "settings.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"enabledPlugins": {**dict.fromkeys(identities, True), **dict.fromkeys(off, False)}})
        )
