// Applies the light or dark theme before the first paint; without a choice of the user, the theme of the system.

(() => {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Without storage, the theme of the system is used.
  }
})();
