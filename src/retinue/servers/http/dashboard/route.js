// The current view in the fragment of the URL, `#/runs/ID?tab=timeline`, which is never sent to the server.

import { useEffect, useState } from "./vendor/preact.js";

export function route() {
  const [path] = location.hash.slice(1).split("?");
  return path.split("/").filter(Boolean).map(decodePart);
}

export function query() {
  return Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? ""));
}

// Replaces the query without a history entry: filters and tabs are no steps for the back button.
export function setQuery(next) {
  const written = new URLSearchParams(next).toString();
  const [path] = (location.hash || "#/").split("?");
  history.replaceState(null, "", `${path}${written && `?${written}`}`);
}

export function go(path) {
  location.hash = path;
}

// Goes back to the previous view with its filters, or to the activity if there is none.
export function back() {
  if (window.navigation?.canGoBack) history.back();
  else go("/");
}

export function useRoute() {
  const [parts, set] = useState(route);
  useEffect(() => {
    const moved = () => set(route());
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return parts;
}

function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
