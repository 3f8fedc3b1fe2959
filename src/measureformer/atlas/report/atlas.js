"use strict";
// Search and the switch between light and dark. Texts of results reach the page as text only, never as HTML.
(() => {
  const root = document.documentElement;
  const query = document.getElementById("query");
  const found = document.getElementById("found");
  const theme = document.getElementById("theme");
  const rows = JSON.parse(document.getElementById("index").textContent);
  const plain = (text) => text.toLowerCase().normalize("NFKD").replace(/[\u0300-\u036f]/g, "");
  for (const row of rows) {
    row.head = plain(row.title + " " + row.name);
    row.rest = plain(row.chapter + " " + row.verdict + " " + row.text);
  }

  const element = (name, text, css) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (css) made.className = css;
    return made;
  };

  // every word must occur; words in titles and names count more than words in statements
  const score = (row, words) => {
    let sum = 0;
    for (const word of words) {
      if (row.head.includes(word)) sum += 3;
      else if (row.rest.includes(word)) sum += 1;
      else return 0;
    }
    return sum;
  };

  const search = () => {
    const words = plain(query.value).split(/\s+/).filter(Boolean);
    found.hidden = words.length === 0;
    if (found.hidden) return;
    const hits = rows.map((row) => [score(row, words), row]).filter(([points]) => points > 0);
    hits.sort((a, b) => b[0] - a[0]);
    const said = hits.length === 1 ? "1 claim" : hits.length + " claims";
    found.replaceChildren(element("p", hits.length ? said : "No claim has all of these words."));
    for (const [, row] of hits.slice(0, 40)) {
      const link = element("a", row.title);
      link.href = row.place;
      link.append(" ", element("span", row.verdict, "verdict " + row.css), element("small", row.chapter + " · " + row.name));
      link.addEventListener("click", () => { found.hidden = true; });
      found.append(link);
    }
    found.scrollTop = 0;
  };

  query.hidden = false;
  query.addEventListener("input", search);
  query.addEventListener("focus", search);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      found.hidden = true;
      const menu = document.querySelector(".menu[open]");
      if (menu) menu.open = false;
    } else if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      query.focus();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !found.hidden) {
      const links = [...found.querySelectorAll("a")];
      const here = links.indexOf(document.activeElement);
      if (here < 0 && document.activeElement !== query) return;
      event.preventDefault();
      const next = here + (event.key === "ArrowDown" ? 1 : -1);
      (next < 0 ? query : links[Math.min(next, links.length - 1)] || query).focus();
    } else if (event.key === "Enter" && document.activeElement === query && !found.hidden) {
      const first = found.querySelector("a");
      if (first) first.click();
    }
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) found.hidden = true;
  });

  // storage may be forbidden for pages that were opened from a file
  const remember = (value) => { try { localStorage.setItem("measureformer-theme", value); } catch { /* not kept */ } };
  const recall = () => { try { return localStorage.getItem("measureformer-theme"); } catch { return null; } };
  const names = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
  const show = (value) => {
    if (value === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", value);
    theme.textContent = names[value];
    theme.dataset.value = value;
  };
  theme.hidden = false;
  show(recall() in names ? recall() : "auto");
  theme.addEventListener("click", () => {
    const order = Object.keys(names);
    const value = order[(order.indexOf(theme.dataset.value) + 1) % order.length];
    show(value);
    remember(value);
  });
})();
