// Loads a page anew while its runs go on, and leaves the reader where they are: scrolled as far, with the same curves
// hidden, the same details open and the same column sorted.
(() => {
  const every = 1000 * Number(document.getElementById("live").dataset.every);
  const key = `dac live ${location.pathname}`;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const name = (button) => `${button.closest("figure").dataset.chart} ${button.textContent}`;
  const pressed = (button) => button.getAttribute("aria-pressed") !== "false";

  function keep() {
    const sorted = all("table.sortable").map((table) => {
      const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.hasAttribute("aria-sort"));
      return [column, table.tHead.rows[0].cells[column]?.getAttribute("aria-sort")];
    });
    const open = all("details").map((node) => node.open);
    const boxes = all(".tall").map((node) => node.scrollTop);
    const hidden = all(".legend button").filter((button) => !pressed(button)).map(name);
    sessionStorage.setItem(key, JSON.stringify({ y: scrollY, hidden, open, sorted, boxes }));
  }

  function restore() {
    const kept = JSON.parse(sessionStorage.getItem(key));
    if (!kept) return;
    all("details").forEach((node, i) => (node.open = kept.open[i] ?? node.open));
    all("table.sortable").forEach((table, i) => {
      const [column, direction] = kept.sorted[i] ?? [-1];
      const button = table.tHead.rows[0].cells[column]?.querySelector("button");
      for (let n = 0; button && n < (direction === "descending" ? 2 : 1); n++) button.click();
    });
    all(".legend button").forEach((button) => kept.hidden.includes(name(button)) && button.click());
    all(".tall").forEach((node, i) => (node.scrollTop = kept.boxes[i] ?? 0));
    scrollTo({ top: kept.y, behavior: "instant" });
  }

  // Somebody who reads a value, or looks at another tab, is not disturbed; but not for ever, since a finger stays
  const busy = () => document.hidden || document.querySelector(".plot:hover");
  function renew(patience) {
    if (patience > 0 && busy()) return setTimeout(renew, 1000, patience - 1000);
    try { keep(); } catch {} // where nothing can be kept the page starts at its top
    location.reload();
  }

  history.scrollRestoration = "manual";
  const ready = () => document.documentElement.dataset.ready === "yes";
  const begin = () => { try { restore(); } catch {} };
  if (ready()) begin();
  else new MutationObserver((_, observer) => ready() && (observer.disconnect(), begin()))
    .observe(document.documentElement, { attributeFilter: ["data-ready"] });
  setTimeout(renew, every, 30000);
})();
