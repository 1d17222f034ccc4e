// Where in the page one is: the fragment of the address, `#/runs/ID?tab=timeline`. It never reaches the server.

import { useEffect, useState } from "./vendor/preact.js";

export function route() {
  const [path] = location.hash.slice(1).split("?");
  return path.split("/").filter(Boolean).map(decoded);
}

export function query() {
  return Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? ""));
}

// Changes the query in place: filters and tabs are no steps to go back through.
export function setQuery(next) {
  const written = new URLSearchParams(next).toString();
  const [path] = (location.hash || "#/").split("?");
  history.replaceState(null, "", `${path}${written && `?${written}`}`);
}

export function go(path) {
  location.hash = path;
}

// Where one came from, with its filters; the activity for those who came from elsewhere.
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

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
