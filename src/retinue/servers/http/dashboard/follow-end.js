// Follows the end of a growing page until the user scrolls up.

import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";

const END_MARGIN = 80; // pixels from the end that still count as the end

// Keeps the page at its end while items arrive, unless the user scrolled away.
export function useFollowEnd(live, changes) {
  const isFollowing = useRef(live);
  const [isBehind, behind] = useState(false);
  const end = () => document.documentElement.scrollHeight - window.innerHeight - window.scrollY;
  useEffect(() => {
    const scrolled = () => {
      isFollowing.current = end() < END_MARGIN;
      behind(!isFollowing.current);
    };
    window.addEventListener("scroll", scrolled, { passive: true });
    return () => window.removeEventListener("scroll", scrolled);
  }, []);
  const follow = () => window.scrollTo({ top: document.documentElement.scrollHeight });
  useLayoutEffect(() => {
    if (live && isFollowing.current && end() > 0) follow();
  }, changes);
  return { isBehind, follow };
}
