// Checks the accessibility of the current page for screen readers, keyboards and low vision; returns the violations.

() => {
  const faults = [];
  const seen = (one) => one.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true });
  const where = (one) => `<${one.tagName.toLowerCase()} class="${one.getAttribute("class") ?? ""}"> ${one.textContent.trim().slice(0, 40)}`;

  for (const one of document.querySelectorAll("button, a[href], input, select, textarea, summary, dialog, [role=tab]")) {
    if (!seen(one)) continue;
    const labelled = (one.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent).join("");
    const name = one.getAttribute("aria-label") || labelled || [...(one.labels ?? [])].map((label) => label.textContent).join("") || one.textContent;
    if (!name.trim()) faults.push(`no name: ${where(one)}`);
  }

  const levels = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(seen).map((one) => Number(one.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) faults.push(`headings of the first level: ${levels}`);
  levels.forEach((level, index) => index && level > levels[index - 1] + 1 && faults.push(`a heading is passed over: ${levels}`));

  for (const landmark of ["main", "nav", "header"]) {
    if (!document.querySelector(landmark)) faults.push(`no ${landmark}`);
  }
  if (document.querySelectorAll("main").length !== 1) faults.push("more than one main");
  if (!document.documentElement.lang || !document.title) faults.push("no language or title");

  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`id twice: ${id}`);
  for (const one of document.querySelectorAll("[aria-controls], [aria-labelledby]")) {
    for (const id of `${one.getAttribute("aria-controls") ?? ""} ${one.getAttribute("aria-labelledby") ?? ""}`.split(" ").filter(Boolean)) {
      if (!ids.includes(id)) faults.push(`points nowhere: ${id}`);
    }
  }

  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    return pen.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => {
    const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const behind = (one) => {
    for (let each = one; each; each = each.parentElement) {
      const color = rgba(getComputedStyle(each).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const one = node.parentElement;
    if (!node.data.trim() || !seen(one) || one.closest(".unseen, noscript, :disabled, option")) continue;
    const style = getComputedStyle(one);
    const [high, low] = [light(rgba(style.color)), light(behind(one))].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < needed) faults.push(`contrast ${contrast.toFixed(2)}: ${where(one)}`);
  }

  const { scrollWidth, clientWidth } = document.documentElement; // a phone makes its window as wide as what does not fit
  if (scrollWidth > clientWidth) faults.push(`wider than the screen: ${scrollWidth}`);
  return faults;
}
